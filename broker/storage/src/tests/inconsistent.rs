//! What no crash does: files and checkpoints that contradict each other. The log is believed; what is missing is told; nothing is deleted.

use std::{collections::BTreeMap, fs, path::PathBuf};

use super::*;
use crate::{
    disk::{Operation, Verdict},
    faulty_disk::FaultyDisk,
};

/// A log of several segments, stopped cleanly. Gives its records and where its segments begin.
fn stopped(dir: &Path) -> (Vec<(i64, String)>, Vec<i64>) {
    stopped_with(dir, &small())
}

fn stopped_with(dir: &Path, config: &LogConfig) -> (Vec<(i64, String)>, Vec<i64>) {
    let (mut log, _) = open(&log_dir(dir), config.clone());
    for n in 0..40 {
        append(&mut log, idempotent(5, 0, n * 2, &[&format!("value {n}"), "and another"])).unwrap();
    }
    let bases: Vec<_> = log.shared.view.lock().bases().iter().map(|base| base.0).collect();
    assert!(bases.len() >= 4, "{bases:?}");
    close(&mut log);
    (read_all(&log), bases)
}

fn close(log: &mut PartitionLog) {
    log.close_clean().unwrap();
    log.log_dir().close_clean().unwrap();
}

fn path(dir: &Path, base: i64, suffix: &str) -> PathBuf {
    dir.join("topic-0").join(names::segment_file(Offset(base), suffix))
}

fn cut_to_half(path: &Path) {
    let length = fs::metadata(path).unwrap().len();
    fs::File::options().write(true).open(path).unwrap().set_len(length / 2 + 3).unwrap();
}

type Lose = fn(&Path);

/// What may happen to a segment's file.
const LOSSES: [(&str, Lose); 3] = [
    ("emptied", |log| fs::write(log, "").unwrap()),
    ("cut", cut_to_half),
    ("removed", |log| fs::remove_file(log).unwrap()),
];

fn checkpoint_says(dir: &Path, file: &str, offset: i64) {
    fs::write(dir.join(file), format!("0\n1\ntopic 0 {offset}\n")).unwrap();
}

/// All that is on the disk of this log but for its indexes, which are made from it.
fn content(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = fs::read_dir(dir.join("topic-0")).unwrap().map(|entry| entry.unwrap().path());
    let is_index = |path: &PathBuf| path.extension().is_some_and(|suffix| suffix == "index" || suffix == "timeindex");
    files.filter(|path| !is_index(path)).map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Insists that the log is refused, that nothing is changed by that, and that it is counted. Gives the words.
fn refused(dir: &Path) -> String {
    let before = content(dir);
    let mut words = String::new();
    for _ in 0..2 {
        let log_dir = log_dir(dir);
        let error = PartitionLog::open(&log_dir, &LogName::new("topic", 0), None, small()).unwrap_err();
        assert!(error.needs_a_person(), "{error}");
        assert_eq!(log_dir.inconsistent_logs(), [LogName::new("topic", 0)]);
        log_dir.close_clean().unwrap();
        words = error.to_string();
        assert!(before == content(dir), "a refusal changes nothing: {words}");
    }
    words
}

/// Opens a log that must be served although something is missing, and insists that this is told.
fn told(dir: &Path, config: LogConfig) -> (PartitionLog, RecoveryReport) {
    let (log, report) = open(&log_dir(dir), config);
    assert!(report.is_inconsistent(), "{report:?}");
    assert_eq!(log.log_dir().inconsistent_logs(), [LogName::new("topic", 0)]);
    (log, report)
}

#[test]
fn a_log_start_beyond_the_end_is_refused_and_nothing_is_removed() {
    let dir = temp_dir();
    let (records, _) = stopped(dir.path());
    checkpoint_says(dir.path(), "log-start-offset-checkpoint", 999_999);
    let words = refused(dir.path());
    assert!(words.contains("ends at offset 80") && words.contains("\"topic 0 999999\""), "{words}");
    fs::remove_file(dir.path().join("log-start-offset-checkpoint")).unwrap();
    let (log, report) = open(&log_dir(dir.path()), small());
    assert_eq!((read_all(&log), report), (records, RecoveryReport::default()));
}

#[test]
fn a_lost_end_is_refused_until_somebody_says_to_go_on_without_it() {
    for (how, lose) in LOSSES {
        let dir = temp_dir();
        let (records, bases) = stopped(dir.path());
        let last = bases[bases.len() - 1];
        lose(&path(dir.path(), last, ".log"));
        let words = refused(dir.path());
        assert!(words.contains("all below offset 80 had been on disk"), "{how}: {words}");
        assert!(
            words.contains("take the line \"topic 0 80\" out of recovery-point-offset-checkpoint"),
            "{how}: {words}"
        );
        fs::write(dir.path().join("recovery-point-offset-checkpoint"), "0\n0\n").unwrap();
        let (log, _) = open(&log_dir(dir.path()), small());
        let left = read_all(&log);
        assert_eq!(left, records[..left.len()], "{how}");
        assert!(log.log_end() >= Offset(last) && log.log_end() < Offset(80), "{how}: {}", log.log_end());
    }
}

#[test]
fn a_log_without_any_segment_is_refused_when_it_had_records() {
    let dir = temp_dir();
    stopped(dir.path());
    fs::remove_dir_all(dir.path().join("topic-0")).unwrap();
    fs::create_dir(dir.path().join("topic-0")).unwrap();
    let words = refused(dir.path());
    assert!(words.contains("is damaged at offset 0"), "{words}");
}

#[test]
fn a_lost_end_is_refused_after_a_crash_too() {
    let dir = temp_dir();
    let (_, bases) = stopped(dir.path());
    fs::remove_file(dir.path().join(".kafka_cleanshutdown")).unwrap();
    fs::write(path(dir.path(), bases[bases.len() - 1], ".log"), "").unwrap();
    refused(dir.path());
}

#[test]
fn records_missing_between_segments_are_told_and_the_others_are_served() {
    for (how, lose) in LOSSES {
        let dir = temp_dir();
        let (records, bases) = stopped(dir.path());
        lose(&path(dir.path(), bases[1], ".log"));
        let (log, report) = told(dir.path(), small());
        let [(from, to)] = report.missing[..] else { panic!("{how}: {report:?}") };
        assert!(from.0 >= bases[1] && from.0 < bases[2] && to.0 == bases[2], "{how}: {from} to {to}");
        assert_eq!((report.orphaned_indexes > 0, report.truncated_bytes), (how == "removed", 0), "{how}");
        let left: Vec<_> = records.iter().filter(|(at, _)| *at < from.0 || *at >= to.0).cloned().collect();
        assert_eq!((read_all(&log), log.log_end()), (left, Offset(80)), "{how}");
    }
}

#[test]
fn a_removed_beginning_is_told_after_a_crash_too() {
    for crashed in [false, true] {
        let dir = temp_dir();
        let (records, bases) = stopped(dir.path());
        for suffix in [".log", ".index", ".timeindex"] {
            fs::remove_file(path(dir.path(), 0, suffix)).unwrap();
        }
        if crashed {
            fs::remove_file(dir.path().join(".kafka_cleanshutdown")).unwrap();
        }
        let (log, report) = told(dir.path(), small());
        assert_eq!(report.missing, [(Offset(0), Offset(bases[1]))]);
        assert_eq!(read_all(&log), records[usize::try_from(bases[1]).unwrap()..]);
    }
}

#[test]
fn a_beginning_that_is_missing_behind_what_retention_removed_is_told() {
    let dir = temp_dir();
    let (mut log, _) = open(&log_dir(dir.path()), LogConfig { retention_bytes: 3000, ..small() });
    append_times(&mut log, 80, &batch(&["some value"]));
    assert!(log.maintain(log.log_end(), NOW_MS).unwrap().removed_segments > 0);
    let bases: Vec<_> = log.shared.view.lock().bases().iter().map(|base| base.0).collect();
    drop(log);
    fs::remove_file(path(dir.path(), bases[0], ".log")).unwrap();
    let (_, report) = told(dir.path(), small());
    assert_eq!(report.missing, [(Offset(bases[0]), Offset(bases[1]))]);
}

#[test]
fn a_removal_of_old_records_that_a_crash_ends_anywhere_misses_nothing() {
    for (delete_records, operations) in [false, true].into_iter().flat_map(|by| (0..40).map(move |n| (by, n))) {
        let dir = temp_dir();
        let faulty = FaultyDisk::new(dir.path()).unwrap();
        let config = LogConfig { retention_bytes: 2000, file_delete_delay_ms: 0, ..small() };
        let (mut log, _) = open(&log_dir_on(faulty.disk(), dir.path()), config);
        append_times(&mut log, 80, &batch(&["some value"]));
        log.delete_records_before(Offset(3), NOW_MS).unwrap();
        let mut left = operations;
        faulty.inject(move |_: &Operation<'_>| {
            left -= 1;
            if left < 0 { Verdict::Fail(std::io::Error::from_raw_os_error(5)) } else { Verdict::Proceed }
        });
        let _ = if delete_records {
            log.delete_records_before(Offset(40), NOW_MS).map(drop)
        } else {
            log.maintain(log.log_end(), NOW_MS).map(drop)
        };
        faulty.heal();
        drop(log);
        for _ in 0..2 {
            let (log, report) = open(&log_dir(dir.path()), small());
            assert!(!report.is_inconsistent(), "{delete_records}, {operations} operations: {report:?}");
            drop(log);
        }
    }
}

#[test]
fn what_retention_removed_is_not_missed() {
    let dir = temp_dir();
    let config = LogConfig { retention_bytes: 2000, file_delete_delay_ms: 0, ..small() };
    let (mut log, _) = open(&log_dir(dir.path()), config.clone());
    append_times(&mut log, 80, &batch(&["some value"]));
    assert!(log.maintain(log.log_end(), NOW_MS).unwrap().removed_segments > 0);
    let end = log.log_end();
    log.delete_records_before(Offset(end.0 - 3), NOW_MS).unwrap();
    close(&mut log);
    drop(log);
    let (log, report) = open(&log_dir(dir.path()), config);
    assert_eq!((report, log.log_start()), (RecoveryReport::default(), Offset(end.0 - 3)));
}

#[test]
fn a_recovery_point_that_nothing_speaks_for_is_not_believed() {
    for point in [81, 999_999, i64::MAX] {
        let dir = temp_dir();
        let (records, _) = stopped(dir.path());
        checkpoint_says(dir.path(), "recovery-point-offset-checkpoint", point);
        let (mut log, report) = told(dir.path(), small());
        assert_eq!(report.unsupported_recovery_point, Some(Offset(point)));
        assert_eq!((log.log_end(), read_all(&log)), (Offset(80), records));
        assert_eq!(append(&mut log, batch(&["next"])).unwrap().base_offset, Offset(80));
        close(&mut log);
        drop(log);
        assert!(!open(&log_dir(dir.path()), small()).1.is_inconsistent(), "it is mended by then");
    }
}

#[test]
fn a_recovery_point_within_a_batch_leaves_the_batch_whole() {
    for point in [1, 77, 79] {
        let dir = temp_dir();
        let (records, _) = stopped(dir.path());
        checkpoint_says(dir.path(), "recovery-point-offset-checkpoint", point);
        let (mut log, _) = open(&log_dir(dir.path()), small());
        assert_eq!((log.log_end(), read_all(&log)), (Offset(80), records), "{point}");
        assert!(append(&mut log, idempotent(5, 0, 78, &["value 39", "and another"])).unwrap().duplicate);
    }
}

#[test]
fn compacted_segments_may_end_before_the_next_begins() {
    let dir = temp_dir();
    let (_, bases) = stopped(dir.path());
    cut_to_half(&path(dir.path(), bases[1], ".log"));
    let (_, report) = open(&log_dir(dir.path()), LogConfig { compact: true, ..small() });
    assert_eq!(report.missing, []);
}

#[test]
fn a_follower_whose_log_was_cut_in_a_gap_of_its_leader_starts_again() {
    let dir = temp_dir();
    let (mut log, _) = open(&log_dir(dir.path()), small());
    append(&mut log, batch(&["a", "b"])).unwrap();
    let (mut leaders, _) = PartitionLog::open(log.log_dir(), &LogName::new("leader", 0), None, small()).unwrap();
    leaders.truncate_fully_and_start_at(Offset(20), NOW_MS).unwrap();
    append(&mut leaders, batch(&["c", "d"])).unwrap();
    let spec = ReadSpec { offset: Offset(20), max_bytes: 1000, min_one_batch: true, upto: Offset(22) };
    let records = leaders.reader().read(&spec).unwrap().unwrap().read().unwrap();
    log.append(&[AppendRequest { records, origin: Origin::Leader }], LeaderEpoch(0), NOW_MS).remove(0).unwrap();
    assert_eq!(log.log_end(), Offset(22));
    let end = log.truncate_to(Offset(15), NOW_MS).unwrap();
    close(&mut log);
    leaders.close_clean().unwrap();
    drop((log, leaders));
    let (log, report) = open(&log_dir(dir.path()), small());
    assert_eq!((log.log_end(), report), (end, RecoveryReport::default()));
    assert_eq!(read_all(&log).len(), 2);
}

#[test]
fn records_deleted_before_they_were_flushed_are_no_contradiction_after_a_power_cut() {
    let dir = temp_dir();
    let faulty = FaultyDisk::new(dir.path()).unwrap();
    let (mut log, _) = open(&log_dir_on(faulty.disk(), dir.path()), small());
    append_times(&mut log, 30, &batch(&["some value"]));
    log.delete_records_before(Offset(29), NOW_MS).unwrap();
    drop(log);
    faulty.cut_power(&mut |_| 0).unwrap();
    let (log, _) = open(&log_dir(dir.path()), small());
    assert_eq!((log.log_start(), log.log_end()), (Offset(29), Offset(30)));
}

#[test]
fn beginning_anew_can_be_interrupted_anywhere_without_a_contradiction() {
    for (start, operations) in [5, 45, 1000].into_iter().flat_map(|start| (0..60).map(move |n| (start, n))) {
        let dir = temp_dir();
        let faulty = FaultyDisk::new(dir.path()).unwrap();
        let (mut log, _) = open(&log_dir_on(faulty.disk(), dir.path()), small());
        append_times(&mut log, 40, &batch(&["some value"]));
        log.delete_records_before(Offset(10), NOW_MS).unwrap();
        log.close_clean().unwrap();
        log.log_dir().write_checkpoints().unwrap();
        let mut left = operations;
        faulty.inject(move |_: &Operation<'_>| {
            left -= 1;
            if left < 0 { Verdict::Fail(std::io::Error::from_raw_os_error(5)) } else { Verdict::Proceed }
        });
        let begun = log.truncate_fully_and_start_at(Offset(start), NOW_MS);
        faulty.heal();
        drop(log);
        faulty.cut_power(&mut |_| 0).unwrap();
        let (log, report) = open(&log_dir(dir.path()), small());
        assert!(!report.is_inconsistent(), "{start}, {operations} operations: {report:?}");
        assert!(begun.is_err() || log.log_end() == Offset(start), "{start}, {operations} operations");
    }
}
