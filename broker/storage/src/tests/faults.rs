//! Disks that fail, fill up or lose what was not flushed.

use std::io;

use super::*;
use crate::{
    disk::{Operation, Verdict},
    faulty_disk::FaultyDisk,
    log_dir::Room,
};

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "log")
}

fn io_error() -> Verdict {
    Verdict::Fail(io::Error::from_raw_os_error(5))
}

#[test]
fn short_writes_are_continued() {
    let dir = temp_dir();
    let faulty = FaultyDisk::new(dir.path()).unwrap();
    let (mut log, _) = open(&log_dir_on(faulty.disk(), dir.path()), small());
    let mut random = Random::new(3);
    faulty.inject(move |operation| match operation {
        Operation::Write { .. } => Verdict::Short(1 + usize::try_from(random.below(40)).unwrap()),
        _ => Verdict::Proceed,
    });
    for n in 0..50 {
        append(&mut log, batch(&[&format!("value {n}"), &"x".repeat(n)])).unwrap();
    }
    assert_eq!(read_all(&log).len(), 100);
}

#[test]
fn a_failed_write_poisons_the_whole_directory_and_reads_go_on() {
    let dir = temp_dir();
    let faulty = FaultyDisk::new(dir.path()).unwrap();
    let log_dir = log_dir_on(faulty.disk(), dir.path());
    let (mut log, _) = open(&log_dir, LogConfig::default());
    let (mut other, _) = PartitionLog::open(&log_dir, &LogName::new("other", 0), None, LogConfig::default()).unwrap();
    append(&mut log, batch(&["kept"])).unwrap();
    faulty.inject(|operation| match operation {
        Operation::Write { path, .. } if is_log(path) => io_error(),
        _ => Verdict::Proceed,
    });
    let results = log.append(&[client(batch(&["a"])), client(batch(&["b"]))], LeaderEpoch(0), NOW_MS);
    assert!(results.iter().all(|result| matches!(result, Err(AppendError::Poisoned(_)))));
    faulty.heal();
    assert!(matches!(append(&mut log, batch(&["c"])), Err(AppendError::Poisoned(_))), "healed or not");
    assert!(matches!(append(&mut other, batch(&["c"])), Err(AppendError::Poisoned(_))), "its neighbours too");
    assert!(matches!(other.flush(), Err(FlushError::Poisoned(_))));
    assert!(log_dir.poisoned().unwrap().reason.contains("write"));
    assert_eq!((read_all(&log), log.log_end()), (vec![(0, "kept".to_owned())], Offset(1)));
    log_dir.close_clean().unwrap();
    drop((log, other, log_dir));
    assert!(!super::log_dir(dir.path()).was_clean(), "a poisoned directory is never closed cleanly");
}

#[test]
fn a_failed_flush_poisons_too() {
    let dir = temp_dir();
    let faulty = FaultyDisk::new(dir.path()).unwrap();
    let (mut log, _) = open(&log_dir_on(faulty.disk(), dir.path()), LogConfig::default());
    append(&mut log, batch(&["a"])).unwrap();
    faulty.inject(|operation| if matches!(operation, Operation::Sync { .. }) { io_error() } else { Verdict::Proceed });
    assert!(matches!(log.flush(), Err(FlushError::Disk(_))));
    faulty.heal();
    assert!(matches!(log.flush(), Err(FlushError::Poisoned(_))), "a second flush would lie");
    assert_eq!(log.flushed_to(), Offset(0));
}

#[test]
fn a_full_disk_refuses_appends_until_there_is_room_again() {
    let dir = temp_dir();
    let faulty = FaultyDisk::new(dir.path()).unwrap();
    let (mut log, _) = open(&log_dir_on(faulty.disk(), dir.path()), LogConfig::default());
    append(&mut log, idempotent(1, 0, 0, &["a"])).unwrap();
    let mut calls = 0;
    faulty.inject(move |operation| match operation {
        Operation::Write { path, .. } if is_log(path) => {
            calls += 1;
            if calls == 1 { Verdict::Short(30) } else { Verdict::Fail(io::ErrorKind::StorageFull.into()) }
        }
        _ => Verdict::Proceed,
    });
    let requests = [client(idempotent(1, 0, 1, &["b"])), client(idempotent(1, 0, 1, &["b"]))];
    let results = log.append(&requests, LeaderEpoch(3), NOW_MS);
    assert!(results.iter().all(|result| matches!(result, Err(AppendError::DiskFull(_)))), "{results:?}");
    assert_eq!((read_all(&log).len(), log.log_dir().poisoned()), (1, None));
    faulty.heal();
    let appended = append(&mut log, idempotent(1, 0, 1, &["b"])).unwrap();
    assert_eq!((appended.base_offset, appended.duplicate), (Offset(1), false), "its sequence was taken back");
    assert_eq!(read_all(&log).len(), 2);
}

#[test]
fn a_process_that_may_open_no_more_files_refuses_what_needs_one_until_it_may_again() {
    let dir = temp_dir();
    let faulty = FaultyDisk::new(dir.path()).unwrap();
    let (mut log, _) = open(&log_dir_on(faulty.disk(), dir.path()), small());
    let mut acknowledged = 0;
    faulty.inject(|operation| match operation {
        Operation::Create { .. } => Verdict::Fail(io::Error::from_raw_os_error(24)),
        _ => Verdict::Proceed,
    });
    let refused = loop {
        match append(&mut log, batch(&["some twenty bytes or so"])) {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
        assert!(acknowledged < 1000, "a new segment is due long before");
    };
    assert!(matches!(refused, AppendError::OutOfFiles { .. }), "{refused}");
    log.roll().unwrap_err();
    assert_eq!((read_all(&log).len(), log.log_dir().poisoned()), (acknowledged, None));
    faulty.heal();
    append(&mut log, batch(&["a file may be opened again"])).unwrap();
    log.flush().unwrap();
    drop(log);
    faulty.cut_power(&mut |_| 0).unwrap();
    let (log, _) = open(&log_dir(dir.path()), small());
    assert_eq!(read_all(&log).len(), acknowledged + 1);
}

#[test]
fn the_reserve_stops_clients_but_not_the_broker() {
    let dir = temp_dir();
    let faulty = FaultyDisk::new(dir.path()).unwrap();
    let log_dir = LogDir::open(faulty.disk(), dir.path(), &identity(), 1_000_000).unwrap();
    let (mut log, _) = open(&log_dir, LogConfig::default());
    append(&mut log, batch(&["a"])).unwrap();
    faulty.set_free_bytes(Some(1_000_010));
    log_dir.refresh_space().unwrap();
    let error = append(&mut log, batch(&["b"])).unwrap_err();
    assert!(matches!(&error, AppendError::DiskFull(full) if full.free_bytes == 1_000_010), "{error}");
    let own = AppendRequest { records: batch(&["metadata"]), origin: Origin::Broker };
    log.append(&[own], LeaderEpoch(0), NOW_MS).remove(0).unwrap();
    assert_eq!(read_all(&log).len(), 2);
    faulty.set_free_bytes(Some(2_000_000));
    append(&mut log, batch(&["b"])).unwrap();
}

#[test]
fn room_for_new_logs_is_what_is_free_now() {
    let dir = temp_dir();
    let faulty = FaultyDisk::new(dir.path()).unwrap();
    faulty.set_free_bytes(Some(100 << 20));
    let log_dir = LogDir::open(faulty.disk(), dir.path(), &identity(), 10 << 20).unwrap();
    assert_eq!((log_dir.check_room(), log_dir.room()), (Ok(()), Room::Ample));
    faulty.set_free_bytes(Some(9 << 20));
    assert_eq!(log_dir.check_room().unwrap_err().free_bytes, 9 << 20);
    assert_eq!(log_dir.room(), Room::Reserve);
    faulty.set_free_bytes(Some(11 << 20));
    assert_eq!((log_dir.check_room(), log_dir.room()), (Ok(()), Room::Reserve), "it would not last");
    faulty.set_free_bytes(Some(26 << 20));
    assert_eq!((log_dir.check_room(), log_dir.room()), (Ok(()), Room::Ample));
}

#[test]
fn a_write_that_finds_no_room_is_known_until_there_is_some() {
    let dir = temp_dir();
    let faulty = FaultyDisk::new(dir.path()).unwrap();
    faulty.set_free_bytes(Some(0));
    let log_dir = log_dir_on(faulty.disk(), dir.path());
    let (mut log, _) = open(&log_dir, LogConfig::default());
    faulty.inject(|operation| match operation {
        Operation::Write { .. } => Verdict::Fail(io::ErrorKind::StorageFull.into()),
        _ => Verdict::Proceed,
    });
    append(&mut log, batch(&["a"])).unwrap_err();
    assert_eq!(log_dir.room(), Room::None);
    log_dir.refresh_space().unwrap();
    assert_eq!(log_dir.room(), Room::None);
    faulty.set_free_bytes(Some(16 << 20));
    log_dir.refresh_space().unwrap();
    assert_eq!(log_dir.room(), Room::Ample);
}

#[test]
fn a_disk_without_any_room_still_starts_reads_and_removes_and_recovers_by_itself() {
    let dir = temp_dir();
    let faulty = FaultyDisk::new(dir.path()).unwrap();
    let config = LogConfig { retention_bytes: 2000, file_delete_delay_ms: 0, ..small() };
    let (mut log, _) = open(&log_dir_on(faulty.disk(), dir.path()), config.clone());
    for epoch in 0..60 {
        log.append(&[client(batch(&["some twenty bytes or so"]))], LeaderEpoch(epoch), NOW_MS).remove(0).unwrap();
    }
    drop(log);
    let no_room = |operation: &Operation<'_>| match operation {
        Operation::Write { .. } => Verdict::Fail(io::ErrorKind::StorageFull.into()),
        _ => Verdict::Proceed,
    };
    faulty.inject(no_room);
    let (mut log, report) = open(&log_dir_on(faulty.disk(), dir.path()), config.clone());
    assert!(report.checked_bytes > 0);
    assert_eq!(read_all(&log).len(), 60);
    for _ in 0..20 {
        let refused = log.append(&[client(batch(&["some twenty bytes or so"]))], LeaderEpoch(99), NOW_MS).remove(0);
        assert!(matches!(refused, Err(AppendError::DiskFull(_))), "{refused:?}");
    }
    assert!(log.apply_retention(log.log_end(), NOW_MS).unwrap().removed_segments > 0);
    log.roll().unwrap_err();
    assert_eq!(log.log_dir().poisoned(), None);
    faulty.heal();
    log.append(&[client(batch(&["there is room again"]))], LeaderEpoch(99), NOW_MS).remove(0).unwrap();
    log.roll().unwrap();
    log.flush().unwrap();
    drop(log);
    faulty.cut_power(&mut |_| 0).unwrap();
    let (log, _) = open(&log_dir(dir.path()), config);
    assert_eq!(read_all(&log).last().unwrap(), &(60, "there is room again".to_owned()));
    assert_eq!(log.reader().epoch_at(Offset(60)), Some(LeaderEpoch(99)));
    assert_eq!(log.reader().epoch_at(Offset(59)), Some(LeaderEpoch(59)));
}

/// Appends, flushes, rolls, truncates; cuts the power; what was acknowledged must be there, in order, and nothing that was never sent.
fn power_cut(seed: u64) {
    let dir = temp_dir();
    let mut random = Random::new(seed);
    let mut acknowledged: Vec<String> = Vec::new();
    let mut next = 0;
    for _ in 0..4 {
        let faulty = FaultyDisk::new(dir.path()).unwrap();
        let log_dir = log_dir_on(faulty.disk(), dir.path());
        let config = LogConfig { flush_messages: 1, ..small() };
        // A guard must never take for damage what a power cut does.
        let name = LogName::new("topic", 0);
        let open = if seed.is_multiple_of(2) { PartitionLog::open } else { PartitionLog::open_guarded };
        let (mut log, _) = open(&log_dir, &name, None, config).unwrap();
        let found: Vec<_> = read_all(&log).into_iter().map(|(_, value)| value).collect();
        assert!(found.starts_with(&acknowledged), "seed {seed}: lost of {acknowledged:?}, found {found:?}");
        let mut sent = found;
        next += 1000;
        for _ in 0..random.below(40) {
            next += 1;
            let value = format!("value {next}");
            let appended = append(&mut log, batch(&[&value])).unwrap();
            assert!(appended.flush_required);
            assert_eq!(appended.base_offset.0, i64::try_from(sent.len()).unwrap());
            sent.push(value);
            if random.below(3) > 0 {
                log.flush().unwrap();
                acknowledged.clone_from(&sent);
            }
            if random.below(15) == 0 {
                log.advance_recovery_point(true).unwrap();
                log_dir.write_checkpoints().unwrap();
                acknowledged.clone_from(&sent);
            }
            if random.below(20) == 0 && !sent.is_empty() {
                let to = random.below(sent.len() as u64);
                log.truncate_to(Offset(i64::try_from(to).unwrap()), NOW_MS).unwrap();
                sent.truncate(usize::try_from(to).unwrap());
                acknowledged.truncate(sent.len());
            }
        }
        drop((log, log_dir));
        faulty.cut_power(&mut |bound| random.below(bound)).unwrap();
    }
}

#[test]
fn every_acknowledged_record_survives_power_cuts_with_flush_messages_1() {
    (0..150).for_each(power_cut);
}

#[test]
fn an_interrupted_truncation_leaves_the_logs_beginning() {
    for (cut_at, operations) in [0, 15].into_iter().flat_map(|cut_at| (0..40).map(move |n| (cut_at, n))) {
        let dir = temp_dir();
        let faulty = FaultyDisk::new(dir.path()).unwrap();
        let log_dir = log_dir_on(faulty.disk(), dir.path());
        let (mut log, _) = open(&log_dir, LogConfig { segment_bytes: 300, ..small() });
        for n in 0..40 {
            append(&mut log, idempotent(5, 0, n, &[&format!("value {n}")])).unwrap();
        }
        let before = read_all(&log);
        let mut left = operations;
        faulty.inject(move |_| {
            left -= 1;
            if left < 0 { io_error() } else { Verdict::Proceed }
        });
        let cut = log.truncate_to(Offset(cut_at), NOW_MS);
        faulty.heal();
        drop((log, log_dir));
        let (mut log, _) = open(&super::log_dir(dir.path()), LogConfig { segment_bytes: 300, ..small() });
        let after = read_all(&log);
        assert_eq!(
            log.log_start(),
            Offset(0),
            "cut at {cut_at}, {operations} operations: nothing was deleted on purpose"
        );
        assert_eq!(after, before[..after.len()], "cut at {cut_at}, {operations} operations");
        assert!(cut.is_err() || after.len() == usize::try_from(cut_at).unwrap());
        // The producer goes on from what is left.
        let next = i32::try_from(after.len()).unwrap();
        assert!(!append(&mut log, idempotent(5, 0, next, &["next"])).unwrap().duplicate);
    }
}

#[test]
fn records_can_be_deleted_when_no_block_is_left() {
    let dir = temp_dir();
    let faulty = FaultyDisk::new(dir.path()).unwrap();
    let log_dir = log_dir_on(faulty.disk(), dir.path());
    let (mut log, _) = open(&log_dir, small());
    append_times(&mut log, 40, &batch(&["some twenty bytes or so"]));
    log_dir.write_checkpoints().unwrap();
    // A file that is empty gets no block.
    faulty.inject(|operation| match operation {
        Operation::Write { file, .. } if file.metadata().unwrap().len() == 0 => {
            Verdict::Fail(io::ErrorKind::StorageFull.into())
        }
        _ => Verdict::Proceed,
    });
    for before in [10, 20, 30] {
        assert_eq!(log.delete_records_before(Offset(before), NOW_MS).unwrap(), Offset(before));
    }
    drop((log, log_dir));
    assert_eq!(open(&super::log_dir(dir.path()), small()).0.log_start(), Offset(30));
}
