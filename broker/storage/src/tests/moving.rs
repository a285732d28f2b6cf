//! Moving a log to another directory: whatever happens to it meanwhile, and wherever a crash comes.

use std::{io, sync::atomic::AtomicBool};

use super::*;
use crate::{
    disk::{Operation, Verdict},
    faulty_disk::FaultyDisk,
};

const FROM: Uuid = Uuid([1; 16]);
const TO: Uuid = Uuid([2; 16]);

fn dir_on(disk: Disk, path: &Path, directory_id: Uuid) -> Arc<LogDir> {
    LogDir::open(disk, path, &Identity { directory_id, ..identity() }, 0).unwrap()
}

fn name() -> LogName {
    LogName::new("topic", 0)
}

fn begin(target: &Arc<LogDir>) -> FutureLog {
    FutureLog::begin(target, &name(), Uuid([9; 16])).unwrap()
}

/// Copies until nothing is left, in small steps.
fn copy_all(future: &mut FutureLog, log: &PartitionLog) {
    let reader = log.reader();
    while future.copy_some(&reader, 300).unwrap().left_bytes > 0 {}
}

struct Dirs {
    root: tempfile::TempDir,
    from: Arc<LogDir>,
    to: Arc<LogDir>,
}

fn dirs() -> Dirs {
    let root = temp_dir();
    let disk = faulty_disk::NeverFlushes::disk();
    let from = dir_on(disk.clone(), &root.path().join("from"), FROM);
    let to = dir_on(disk, &root.path().join("to"), TO);
    Dirs { root, from, to }
}

/// The directories anew, settled as a start does, with those that have the log.
fn restart(root: &Path) -> (Vec<Arc<LogDir>>, Vec<usize>) {
    let open = |(name, id)| dir_on(faulty_disk::NeverFlushes::disk(), &root.join(name), id);
    let dirs: Vec<_> = [("from", FROM), ("to", TO)].into_iter().map(open).collect();
    for dir in &dirs {
        assert!(settle_moved(dir, &dirs, NOW_MS).unwrap().is_empty());
    }
    let having = (0..2).filter(|dir| dirs[*dir].logs().unwrap().contains(&name())).collect();
    (dirs, having)
}

fn clean_stop(log: &mut PartitionLog, dirs: &Dirs) {
    log.close_clean().unwrap();
    dirs.from.close_clean().unwrap();
    dirs.to.close_clean().unwrap();
}

#[test]
fn a_log_goes_on_in_the_other_directory_with_all_that_it_knew() {
    let dirs = dirs();
    let (mut log, _) = open(&dirs.from, small());
    for n in 0..30 {
        append(&mut log, idempotent(7, 0, n, &[&format!("value {n}")])).unwrap();
    }
    log.append(&[client(batch(&["later"]))], LeaderEpoch(4), NOW_MS).remove(0).unwrap();
    log.delete_records_before(Offset(5), NOW_MS).unwrap();
    let mut future = begin(&dirs.to);
    copy_all(&mut future, &log);
    let reader = log.reader();
    let expected = read_all(&log);
    log.switch_to(&mut future, NOW_MS).unwrap();
    assert_eq!(log.log_dir().path(), dirs.to.path());
    assert_eq!(read_all(&log), expected);
    assert_eq!((log.log_start(), log.log_end(), log.flushed_to()), (Offset(5), Offset(31), Offset(31)));
    assert_eq!(log.end_offset_for_epoch(LeaderEpoch(0)), Some((LeaderEpoch(0), Offset(30))));
    let repeated = append(&mut log, idempotent(7, 0, 27, &["value 27"])).unwrap();
    assert!(repeated.duplicate && repeated.base_offset == Offset(27), "not only the last batch is known");
    assert_eq!(append(&mut log, idempotent(7, 0, 30, &["next"])).unwrap().base_offset, Offset(31));
    assert!(
        reader.read(&ReadSpec { offset: Offset(5), max_bytes: 1000, min_one_batch: true, upto: Offset(31) }).is_ok()
    );
    let expected = read_all(&log);
    clean_stop(&mut log, &dirs);
    let Dirs { root, from, to } = dirs;
    drop((log, from, to, future, reader));
    let (dirs, having) = restart(root.path());
    assert_eq!(having, [1]);
    assert!(dirs.iter().all(|dir| dir.missing_logs().is_empty() && dir.inconsistent_logs().is_empty()));
    let (log, report) = open(&dirs[1], small());
    assert_eq!((read_all(&log), report), (expected, RecoveryReport::default()));
    assert!(!root.path().join("to/topic-0/moved-from").exists());
}

#[test]
fn a_log_can_move_there_and_back_while_flushes_are_on_their_way() {
    let dirs = dirs();
    let (mut log, _) = open(&dirs.from, small());
    for round in 0..4 {
        append_times(&mut log, 10, &batch(&["a", "b"]));
        let flush = log.begin_flush().unwrap();
        let target = if round % 2 == 0 { &dirs.to } else { &dirs.from };
        let mut future = begin(target);
        copy_all(&mut future, &log);
        log.switch_to(&mut future, NOW_MS).unwrap();
        // The next one could reach what the flush says.
        log.truncate_to(Offset(log.log_end().0 - 5), NOW_MS).unwrap();
        let flushed = log.flushed_to();
        assert_eq!(log.end_flush(&flush.run().unwrap()), flushed, "a flush of the old log says nothing of the new one");
        append_times(&mut log, 3, &batch(&["c"]));
    }
    assert!(dirs.from.poisoned().is_none() && dirs.to.poisoned().is_none());
    assert_eq!(log.log_dir().path(), dirs.from.path());
    assert_eq!(i64::try_from(read_all(&log).len()).unwrap(), log.log_end().0);
}

/// Anything that can happen to a log, by number.
fn happen(log: &mut PartitionLog, random: &mut Random) {
    let (start, end) = (log.log_start().0, log.log_end().0);
    let within = |random: &mut Random| {
        Offset(start + i64::try_from(random.below(u64::try_from(end - start + 1).unwrap())).unwrap())
    };
    match random.below(12) {
        0 => drop(log.truncate_to(within(random), NOW_MS).unwrap()),
        1 => drop(log.delete_records_before(within(random), NOW_MS).unwrap()),
        2 => log.roll().unwrap(),
        3 => drop(log.truncate_fully_and_start_at(Offset(end + 3), NOW_MS).unwrap()),
        4 | 5 => {
            if let Some(compaction) = log.begin_compaction(log.log_end(), NOW_MS) {
                let compacted = compaction.run(&AtomicBool::new(false)).unwrap();
                log.end_compaction(compacted, NOW_MS).unwrap();
            }
        }
        _ => {
            let key = format!("key {}", random.below(5));
            let mut builder = BatchBuilder::default();
            for n in 0..=random.below(3) {
                let value = format!("value {n} {}", random.below(1000));
                let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
                builder.push(&NewRecord { timestamp_ms: NOW_MS, key, value, ..NewRecord::default() }).unwrap();
            }
            append(log, builder.build().unwrap()).unwrap();
        }
    }
}

#[test]
fn whatever_happens_to_a_log_while_it_is_copied_the_copy_becomes_the_same() {
    let config = LogConfig { compact: true, min_cleanable_dirty_ratio: 0.1, segment_bytes: 500, ..small() };
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let dirs = dirs();
        let (mut log, _) = open(&dirs.from, config.clone());
        let mut future = begin(&dirs.to);
        for _ in 0..60 {
            happen(&mut log, &mut random);
            future.copy_some(&log.reader(), random.below(400)).unwrap();
        }
        let expected = (read_all(&log), log.log_start(), log.log_end(), log.latest_epoch());
        log.switch_to(&mut future, NOW_MS).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let found = |log: &PartitionLog| (read_all(log), log.log_start(), log.log_end(), log.latest_epoch());
        assert_eq!(found(&log), expected, "seed {seed}");
        clean_stop(&mut log, &dirs);
        let Dirs { root, from, to } = dirs;
        drop((log, from, to, future));
        let (dirs, having) = restart(root.path());
        assert_eq!(having, [1], "seed {seed}");
        let (log, report) = open(&dirs[1], config.clone());
        let (records, start, end, _) = found(&log);
        assert_eq!((records, start, end), (expected.0, expected.1, expected.2), "seed {seed}");
        assert!(!report.is_inconsistent() && report.truncated_bytes == 0, "seed {seed}: {report:?}");
    }
}

#[test]
fn a_crash_at_any_step_of_a_move_leaves_one_log_with_everything() {
    let mut seen = [0, 0];
    for steps in 0..300 {
        let root = temp_dir();
        let faulty = FaultyDisk::new(root.path()).unwrap();
        let (from, to) = (
            dir_on(faulty.disk(), &root.path().join("from"), FROM),
            dir_on(faulty.disk(), &root.path().join("to"), TO),
        );
        let (mut log, _) = open(&from, small());
        for n in 0..20 {
            append(&mut log, batch(&[&format!("value {n}")])).unwrap();
        }
        log.delete_records_before(Offset(3), NOW_MS).unwrap();
        log.flush().unwrap();
        from.write_checkpoints().unwrap();
        let expected = read_all(&log);
        let mut left = steps;
        faulty.inject(move |_| {
            if left == 0 {
                return Verdict::Fail(io::Error::from_raw_os_error(5));
            }
            left -= 1;
            Verdict::Proceed
        });
        let moved = FutureLog::begin(&to, &name(), Uuid([9; 16])).and_then(|mut future| {
            while future.copy_some(&log.reader(), 300)?.left_bytes > 0 {}
            log.switch_to(&mut future, NOW_MS)
        });
        let is_over = moved.is_ok() && from.poisoned().is_none() && to.poisoned().is_none();
        let moved_to = log.log_dir().path().to_owned();
        // What serves takes records only where it is not poisoned.
        faulty.heal();
        let more = append(&mut log, batch(&["more"])).is_ok() && log.flush().is_ok();
        drop((log, from, to));
        let mut random = Random::new(steps);
        faulty.cut_power(&mut |bound| random.below(bound)).unwrap();
        let (dirs, having) = restart(root.path());
        assert_eq!(having.len(), 1, "{steps} steps: {having:?}");
        seen[having[0]] += 1;
        let (log, _) = open(&dirs[having[0]], small());
        let found = read_all(&log);
        assert_eq!(found[..expected.len()], expected, "{steps} steps");
        assert_eq!(
            found.len(),
            expected.len() + usize::from(more),
            "{steps} steps, served from {}",
            moved_to.display()
        );
        if is_over {
            assert!(seen[0] > 10 && seen[1] > 0, "{seen:?}");
            return;
        }
    }
    panic!("a move does not end: {seen:?}");
}

#[test]
fn of_two_logs_the_copy_counts_only_when_the_other_has_gone() {
    for (taken_away, counts) in [(false, 0), (true, 1)] {
        let dirs = dirs();
        let (mut log, _) = open(&dirs.from, small());
        append_times(&mut log, 20, &batch(&["a"]));
        log.close_clean().unwrap();
        let Dirs { root, from, to } = dirs;
        let path = |dir: &str| root.path().join(dir).join("topic-0");
        std::fs::create_dir(path("to")).unwrap();
        for entry in std::fs::read_dir(path("from")).unwrap().map(Result::unwrap) {
            std::fs::copy(entry.path(), path("to").join(entry.file_name())).unwrap();
        }
        std::fs::write(path("to").join("moved-from"), format!("{FROM}\n")).unwrap();
        // What came after the copy got the name, as it does when a switch is given up and the copy stays.
        append(&mut log, batch(&["later"])).unwrap();
        drop((log, from, to));
        if taken_away {
            std::fs::rename(path("from"), root.path().join("from/topic-0.00-delete")).unwrap();
        }
        let (dirs, having) = restart(root.path());
        assert_eq!(having, [counts]);
        assert_eq!(read_all(&open(&dirs[counts], small()).0).len(), if taken_away { 20 } else { 21 });
        drop(dirs);
        assert_eq!(restart(root.path()).1, [counts], "once settled it stays so");
    }
}

#[test]
fn a_copy_from_a_directory_that_is_missing_is_not_settled() {
    let dirs = dirs();
    std::fs::create_dir(dirs.to.path().join("topic-0")).unwrap();
    std::fs::write(dirs.to.path().join("topic-0/moved-from"), format!("{FROM}\n")).unwrap();
    let unsettled = settle_moved(&dirs.to, std::slice::from_ref(&dirs.to), NOW_MS).unwrap();
    assert_eq!(unsettled, [(name(), FROM)]);
    assert_eq!(moved_from(&dirs.to, &name()).unwrap(), Some(FROM), "it is left as it is");
}

#[test]
fn a_copy_that_was_not_done_is_removed_at_the_next_start() {
    let dirs = dirs();
    let (mut log, _) = open(&dirs.from, small());
    append_times(&mut log, 20, &batch(&["a"]));
    let mut future = begin(&dirs.to);
    future.copy_some(&log.reader(), 300).unwrap();
    let Dirs { root, from, to } = dirs;
    drop((log, from, to, future));
    let copy = root.path().join("to/topic-0.09090909090909090909090909090909-future");
    assert!(copy.exists());
    let (dirs, having) = restart(root.path());
    assert_eq!(having, [0]);
    assert!(!copy.exists());
    assert!(dirs[1].missing_logs().is_empty(), "nobody was told that it was there");
}

#[test]
fn a_disk_that_fails_or_is_full_ends_the_move_and_the_log_serves_on() {
    for full in [false, true] {
        let root = temp_dir();
        let faulty = FaultyDisk::new(root.path()).unwrap();
        let from = dir_on(faulty.disk(), &root.path().join("from"), FROM);
        let to = dir_on(faulty.disk(), &root.path().join("to"), TO);
        let (mut log, _) = open(&from, small());
        append_times(&mut log, 20, &batch(&["a"]));
        let mut future = begin(&to);
        let bad = to.path().to_owned();
        faulty.inject(move |operation| match operation {
            Operation::Write { path, .. } if path.starts_with(&bad) => {
                Verdict::Fail(if full { io::ErrorKind::StorageFull.into() } else { io::Error::from_raw_os_error(5) })
            }
            _ => Verdict::Proceed,
        });
        assert!(matches!(future.copy_some(&log.reader(), 1000), Err(MoveError::Write(_))));
        assert_eq!(to.poisoned().is_some(), !full, "a full disk is not broken");
        assert!(log.switch_to(&mut future, NOW_MS).is_err());
        future.discard().unwrap();
        append(&mut log, batch(&["b"])).unwrap();
        assert_eq!((read_all(&log).len(), log.log_dir().path()), (21, from.path()));
        assert!(from.poisoned().is_none());
    }
}

#[test]
fn a_name_that_is_taken_is_not_overwritten() {
    let dirs = dirs();
    let (mut log, _) = open(&dirs.from, small());
    append_times(&mut log, 3, &batch(&["a"]));
    std::fs::create_dir(dirs.to.path().join("topic-0")).unwrap();
    let mut future = begin(&dirs.to);
    copy_all(&mut future, &log);
    assert!(matches!(log.switch_to(&mut future, NOW_MS), Err(MoveError::Taken { .. })));
    append(&mut log, batch(&["b"])).unwrap();
    assert!(dirs.to.poisoned().is_none() && log.log_dir().path() == dirs.from.path());
}
