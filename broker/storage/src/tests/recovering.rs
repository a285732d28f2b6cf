//! Crashes: what is whole stays, what is torn goes, and nothing else happens.

use std::{fs, path::PathBuf};

use super::*;

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            assert!(fs::copy(entry.path(), target).is_ok());
        }
    }
}

fn segment(dir: &Path, base: i64, suffix: &str) -> PathBuf {
    dir.join("topic-0").join(names::segment_file(Offset(base), suffix))
}

/// A log of several segments and producers whose process was killed.
fn killed(dir: &Path) -> (Vec<(i64, String)>, u64, u64) {
    let (mut log, _) = open(&log_dir(dir), small());
    for n in 0..40 {
        append(&mut log, idempotent(5, 0, n * 2, &[&format!("value {n}"), "and another"])).unwrap();
    }
    let active = log.active();
    let before_last = active.find(Offset(78), u64::MAX).unwrap().unwrap().position;
    (read_all(&log), before_last, active.size())
}

#[test]
fn a_log_cut_at_every_byte_of_its_last_batch_keeps_exactly_the_whole_batches() {
    let original = temp_dir();
    let (records, from, to) = killed(original.path());
    let base = fs::read_dir(original.path().join("topic-0"))
        .unwrap()
        .filter_map(|e| names::parse_segment_file(e.unwrap().file_name().to_str()?, ".log"))
        .max()
        .unwrap()
        .0;
    for length in from..=to {
        let dir = temp_dir();
        copy_dir(original.path(), dir.path());
        fs::File::options().write(true).open(segment(dir.path(), base, ".log")).unwrap().set_len(length).unwrap();
        let (mut log, report) = open(&log_dir(dir.path()), small());
        let kept = if length == to { 80 } else { 78 };
        assert_eq!(read_all(&log), records[..kept], "cut at {length}");
        assert_eq!(report.truncated_bytes, if length == to { 0 } else { length - from });
        // Producer state follows: the lost batch is new again, the one before is a repetition.
        let again = append(&mut log, idempotent(5, 0, 78, &["value 39", "and another"])).unwrap();
        assert_eq!((again.duplicate, again.base_offset.0), (length == to, 78));
    }
}

#[test]
fn any_flipped_byte_behind_the_recovery_point_ends_the_log_before_its_batch() {
    let original = temp_dir();
    let (records, ..) = killed(original.path());
    let mut random = Random::new(1);
    let files: Vec<_> = fs::read_dir(original.path().join("topic-0"))
        .unwrap()
        .filter_map(|e| names::parse_segment_file(e.unwrap().file_name().to_str()?, ".log"))
        .collect();
    let last = files.iter().max().unwrap().0;
    let size = fs::metadata(segment(original.path(), last, ".log")).unwrap().len();
    for _ in 0..200 {
        let dir = temp_dir();
        copy_dir(original.path(), dir.path());
        let path = segment(dir.path(), last, ".log");
        let mut content = fs::read(&path).unwrap();
        let at = usize::try_from(random.below(size)).unwrap();
        content[at] ^= 1 << random.below(8);
        fs::write(&path, content).unwrap();
        let (log, report) = open(&log_dir(dir.path()), small());
        let kept = read_all(&log);
        // Base offset and leader epoch are not under the checksum: a flip there may stay unseen or make the offsets jump.
        let (found, expected): (Vec<_>, Vec<_>) = kept.iter().zip(&records).map(|(a, b)| (&a.1, &b.1)).unzip();
        assert_eq!(found, expected, "byte {at}");
        assert!(report.truncated_bytes > 0 || kept.len() == records.len(), "byte {at}");
    }
}

#[test]
fn after_a_clean_shutdown_nothing_is_read_again_and_everything_is_there() {
    let dir = temp_dir();
    let (records, _, _) = killed(dir.path());
    let first = log_dir(dir.path());
    assert!(!first.was_clean());
    let (mut log, report) = open(&first, small());
    assert!(report.checked_bytes > 0);
    log.close_clean().unwrap();
    first.close_clean().unwrap();
    drop((log, first));
    let second = log_dir(dir.path());
    assert!(second.was_clean());
    let (mut log, report) = open(&second, small());
    assert_eq!(report, RecoveryReport::default());
    assert_eq!(read_all(&log), records);
    assert!(append(&mut log, idempotent(5, 0, 78, &["value 39", "and another"])).unwrap().duplicate);
    drop((log, second));
    assert!(!log_dir(dir.path()).was_clean(), "a crash while loading is unclean");
}

#[test]
fn recovery_reads_only_behind_the_recovery_point() {
    let dir = temp_dir();
    let log_dir_1 = log_dir(dir.path());
    let (mut log, _) = open(&log_dir_1, LogConfig::default());
    for n in 0..50 {
        append(&mut log, idempotent(5, 0, n, &["before the point"])).unwrap();
    }
    log.close_clean().unwrap();
    log_dir_1.write_checkpoints().unwrap();
    let last = idempotent(5, 0, 50, &["behind the point"]);
    append(&mut log, last.clone()).unwrap();
    drop((log, log_dir_1));
    let (mut log, report) = open(&log_dir(dir.path()), LogConfig::default());
    assert_eq!(report.checked_bytes, last.len() as u64);
    assert_eq!(read_all(&log).len(), 51);
    assert!(append(&mut log, last).unwrap().duplicate);
    assert!(append(&mut log, idempotent(5, 0, 51, &["next"])).is_ok());
}

#[test]
fn flushes_move_the_recovery_point_so_that_a_crash_costs_little() {
    let dir = temp_dir();
    let (mut log, _) = open(&log_dir(dir.path()), LogConfig::default());
    for n in 0..200 {
        append(&mut log, idempotent(5, 0, n, &["some twenty bytes or so"])).unwrap();
        log.flush().unwrap();
    }
    let size = log.reader().size_bytes();
    drop(log);
    let (mut log, report) = open(&log_dir(dir.path()), LogConfig::default());
    assert!(size > 16_000 && report.checked_bytes < 3000, "{} of {size}", report.checked_bytes);
    assert_eq!(read_all(&log).len(), 200);
    assert!(append(&mut log, idempotent(5, 0, 199, &["some twenty bytes or so"])).unwrap().duplicate);
    let snapshots = fs::read_dir(dir.path().join("topic-0"))
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|extension| extension == "snapshot"));
    assert_eq!(snapshots.count(), 1, "older ones are removed");
}

#[test]
fn missing_or_damaged_indexes_are_built_again() {
    let dir = temp_dir();
    let (records, ..) = killed(dir.path());
    let (mut log, _) = open(&log_dir(dir.path()), small());
    log.close_clean().unwrap();
    log.log_dir().close_clean().unwrap();
    let bases = log.shared.view.lock().bases();
    drop(log);
    fs::remove_file(segment(dir.path(), bases[0].0, ".index")).unwrap();
    fs::remove_file(segment(dir.path(), bases[1].0, ".timeindex")).unwrap();
    let path = segment(dir.path(), bases[2].0, ".index");
    let mut content = fs::read(&path).unwrap();
    let at = content.len() - 1;
    content[at] ^= 0x55;
    fs::write(&path, content).unwrap();
    fs::write(segment(dir.path(), bases[bases.len() - 1].0, ".index"), [1, 2, 3]).unwrap();
    let (log, report) = open(&log_dir(dir.path()), small());
    assert_eq!((report.rebuilt_indexes, report.truncated_bytes), (4, 0));
    assert_eq!(read_all(&log), records);
    for base in &bases {
        assert!(fs::metadata(segment(dir.path(), base.0, ".index")).is_ok());
    }
    let found = log.reader().offset_for_timestamp(TimestampSpec::At(NOW_MS), Offset(80)).unwrap().unwrap();
    assert_eq!(found.offset, Offset(0));
}

#[test]
fn a_damaged_producer_snapshot_is_made_up_for_from_the_log() {
    let dir = temp_dir();
    killed(dir.path());
    let (mut log, _) = open(&log_dir(dir.path()), small());
    log.close_clean().unwrap();
    log.log_dir().close_clean().unwrap();
    drop(log);
    for entry in fs::read_dir(dir.path().join("topic-0")).unwrap().map(Result::unwrap) {
        if entry.path().extension().is_some_and(|extension| extension == "snapshot") {
            fs::write(entry.path(), b"damaged").unwrap();
        }
    }
    let (mut log, _) = open(&log_dir(dir.path()), small());
    assert!(append(&mut log, idempotent(5, 0, 78, &["value 39", "and another"])).unwrap().duplicate);
}

#[test]
fn the_last_five_batches_of_a_producer_are_known_as_repetitions_after_a_clean_restart() {
    let dir = temp_dir();
    killed(dir.path());
    let (mut log, _) = open(&log_dir(dir.path()), small());
    log.close_clean().unwrap();
    log.log_dir().close_clean().unwrap();
    drop(log);
    let (mut log, _) = open(&log_dir(dir.path()), small());
    let numbered = |n: i32| idempotent(5, 0, n * 2, &[&format!("value {n}"), "and another"]);
    assert!(
        log.append_hot(&[client(numbered(35))], LeaderEpoch(0), NOW_MS).is_empty(),
        "it has to be looked for on the disk"
    );
    for n in 35..40 {
        let again = append(&mut log, numbered(n)).unwrap();
        assert_eq!((again.duplicate, again.base_offset.0), (true, i64::from(n) * 2));
    }
    assert!(append(&mut log, numbered(34)).is_err(), "older than the last five");
    assert!(append(&mut log, numbered(41)).is_err(), "a gap");
    assert!(!append(&mut log, numbered(40)).unwrap().duplicate);
}

#[test]
fn damaged_leader_epochs_are_taken_from_the_log_again() {
    let dir = temp_dir();
    let log_dir_1 = log_dir(dir.path());
    let (mut log, _) = open(&log_dir_1, small());
    for epoch in [1, 1, 4, 6] {
        log.append(&[client(batch(&["x"]))], LeaderEpoch(epoch), NOW_MS).remove(0).unwrap();
    }
    log.close_clean().unwrap();
    log_dir_1.write_checkpoints().unwrap();
    drop((log, log_dir_1));
    fs::write(dir.path().join("topic-0/leader-epoch-checkpoint"), "rubbish").unwrap();
    let (log, _) = open(&log_dir(dir.path()), small());
    let ends: Vec<_> = [1, 4, 6].map(|epoch| log.reader().end_offset_for_epoch(LeaderEpoch(epoch)).unwrap().1.0).into();
    assert_eq!(ends, [2, 3, 4]);
}

#[test]
fn a_truncated_log_forgets_what_it_cut() {
    let dir = temp_dir();
    let log_dir_1 = log_dir(dir.path());
    let (mut log, _) = open(&log_dir_1, small());
    for n in 0..60 {
        log.append(&[client(idempotent(5, 0, n, &["some value"]))], LeaderEpoch(n / 10), NOW_MS).remove(0).unwrap();
    }
    assert_eq!(log.truncate_to(Offset(35), NOW_MS).unwrap(), Offset(35));
    assert_eq!((log.log_end(), read_all(&log).len()), (Offset(35), 35));
    assert_eq!(log.latest_epoch(), Some(LeaderEpoch(3)));
    assert!(matches!(
        log.append(&[client(idempotent(5, 0, 36, &["x"]))], LeaderEpoch(9), NOW_MS)[0],
        Err(AppendError::Sequence(_))
    ));
    let appended = log.append(&[client(idempotent(5, 0, 35, &["anew"]))], LeaderEpoch(9), NOW_MS).remove(0).unwrap();
    assert_eq!(appended.base_offset, Offset(35));
    drop((log, log_dir_1));
    let (log, _) = open(&log_dir(dir.path()), small());
    assert_eq!(read_all(&log)[35], (35, "anew".to_owned()));
    assert_eq!(log.log_end(), Offset(36));
}

#[test]
fn a_log_can_begin_anew_at_any_offset() {
    let dir = temp_dir();
    let log_dir_1 = log_dir(dir.path());
    let (mut log, _) = open(&log_dir_1, small());
    append_times(&mut log, 30, &batch(&["some value"]));
    log.truncate_fully_and_start_at(Offset(1000), NOW_MS).unwrap();
    assert_eq!((log.log_start(), log.log_end()), (Offset(1000), Offset(1000)));
    assert_eq!(append(&mut log, batch(&["x"])).unwrap().base_offset, Offset(1000));
    drop((log, log_dir_1));
    let (log, _) = open(&log_dir(dir.path()), small());
    assert_eq!(read_all(&log), [(1000, "x".to_owned())]);
}

#[test]
fn a_directory_is_used_by_one_process() {
    let dir = temp_dir();
    let _first = log_dir(dir.path());
    let error = LogDir::open(Disk::real(), dir.path(), &identity(), 0).unwrap_err();
    assert!(matches!(error, OpenLogDirError::Locked { .. }), "{error}");
}

#[test]
fn a_batch_behind_the_recovery_point_whose_base_offset_is_torn_ends_the_log() {
    let dir = temp_dir();
    let log_dir = log_dir(dir.path());
    let (mut log, _) = open(&log_dir, LogConfig::default());
    append(&mut log, batch(&["flushed", "too"])).unwrap();
    log.close_clean().unwrap();
    log_dir.write_checkpoints().unwrap();
    let position = log.active().size();
    append(&mut log, batch(&["torn", "batch"])).unwrap();
    append(&mut log, batch(&["whole, but behind the torn one"])).unwrap();
    drop((log, log_dir));
    let path = segment(dir.path(), 0, ".log");
    let mut content = fs::read(&path).unwrap();
    content[usize::try_from(position).unwrap()..][..8].fill(0);
    fs::write(&path, content).unwrap();
    let (log, _) = open(&super::log_dir(dir.path()), LogConfig::default());
    assert_eq!(read_all(&log), [(0, "flushed".to_owned()), (1, "too".to_owned())]);
}

#[test]
fn a_log_whose_directory_has_vanished_is_missed_and_a_deleted_one_is_not() {
    let dir = temp_dir();
    let first = log_dir(dir.path());
    let [gone, deleted, kept] = ["gone", "deleted", "kept"].map(|topic| {
        let name = LogName::new(topic, 0);
        (PartitionLog::open(&first, &name, None, small()).unwrap().0, name)
    });
    first.write_checkpoints().unwrap();
    deleted.0.delete(NOW_MS).unwrap();
    first.commit_deletions().unwrap();
    drop((gone.0, deleted.0, kept.0, first));
    fs::remove_dir_all(dir.path().join("gone-0")).unwrap();
    assert_eq!(log_dir(dir.path()).missing_logs(), [LogName::new("gone", 0)]);
    assert!(log_dir(dir.path()).missing_logs().is_empty(), "it is told once");
}
