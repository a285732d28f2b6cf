//! Retention, DeleteRecords and deletion of whole logs.

use std::fs;

use super::*;

/// Ten segments of two batches each, a second apart.
fn filled(dir: &Path, config: &LogConfig) -> PartitionLog {
    let (mut log, _) = open(&log_dir(dir), LogConfig { segment_bytes: 200, ..config.clone() });
    for n in 0..20 {
        append(&mut log, batch_at(&["some twenty bytes or so"], NOW_MS + n * 1000)).unwrap();
    }
    assert_eq!(log.shared.view.lock().segments.len(), 10);
    log
}

fn files(dir: &Path, suffix: &str) -> usize {
    let names = fs::read_dir(dir.join("topic-0")).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_str().unwrap().ends_with(suffix)).count()
}

#[test]
fn old_segments_go_as_wholes_and_the_active_one_when_all_is_old() {
    let dir = temp_dir();
    let mut log = filled(dir.path(), &LogConfig { retention_ms: 10_000, ..LogConfig::default() });
    let upto = log.log_end();
    // The segment of seconds 0 and 1 is too old when 1 s is more than 10 s ago.
    assert_eq!(log.apply_retention(upto, NOW_MS + 11_000).unwrap().removed_segments, 0);
    assert_eq!(log.apply_retention(upto, NOW_MS + 11_001).unwrap().removed_segments, 1);
    assert_eq!((log.log_start(), read_all(&log).len()), (Offset(2), 18));
    assert_eq!(log.apply_retention(Offset(9), NOW_MS + 3_600_000).unwrap().removed_segments, 3, "not above the bound");
    let report = log.apply_retention(upto, NOW_MS + 3_600_000).unwrap();
    assert_eq!((report.removed_segments, log.log_start(), log.log_end()), (6, Offset(20), Offset(20)));
    assert_eq!(append(&mut log, batch(&["next"])).unwrap().base_offset, Offset(20));
}

#[test]
fn the_surplus_goes_by_size() {
    let dir = temp_dir();
    let mut log = filled(dir.path(), &LogConfig { retention_bytes: 4 * 182 + 10, ..LogConfig::default() });
    let upto = log.log_end();
    let report = log.apply_retention(upto, NOW_MS).unwrap();
    assert_eq!((report.removed_segments, report.removed_bytes, log.log_start()), (5, 5 * 182, Offset(10)));
    assert_eq!(log.reader().size_bytes(), 5 * 182, "as many as needed to stay above the limit");
}

#[test]
fn a_compacted_log_is_not_subject_to_retention() {
    let dir = temp_dir();
    let mut log = filled(dir.path(), &LogConfig { retention_ms: 1, delete: false, ..LogConfig::default() });
    let upto = log.log_end();
    assert_eq!(log.apply_retention(upto, NOW_MS + 3_600_000).unwrap().removed_segments, 0);
}

#[test]
fn removed_files_wait_for_their_delay_under_another_name() {
    let dir = temp_dir();
    let mut log =
        filled(dir.path(), &LogConfig { retention_bytes: 0, file_delete_delay_ms: 500, ..LogConfig::default() });
    let slice = log
        .reader()
        .read(&ReadSpec { offset: Offset(0), max_bytes: 100, min_one_batch: true, upto: Offset(20) })
        .unwrap()
        .unwrap();
    let upto = log.log_end();
    log.maintain(upto, NOW_MS).unwrap();
    assert_eq!((files(dir.path(), ".log"), files(dir.path(), ".log.deleted")), (1, 10));
    log.maintain(upto, NOW_MS + 499).unwrap();
    assert_eq!(files(dir.path(), ".deleted"), 30);
    log.maintain(upto, NOW_MS + 500).unwrap();
    assert_eq!(files(dir.path(), ".deleted"), 0);
    assert!(!slice.read().unwrap().is_empty(), "who holds the file reads on");
}

#[test]
fn deleted_records_stay_deleted_after_a_crash() {
    let dir = temp_dir();
    let mut log = filled(dir.path(), &LogConfig::default());
    assert_eq!(log.delete_records_before(Offset(7), NOW_MS).unwrap(), Offset(7));
    assert_eq!(log.delete_records_before(Offset(3), NOW_MS).unwrap(), Offset(7), "never back");
    assert!(matches!(log.delete_records_before(Offset(21), NOW_MS), Err(LogError::OutOfRange { .. })));
    assert_eq!(read_all(&log)[0].0, 7, "records, not batches or segments");
    let early = ReadSpec { offset: Offset(6), max_bytes: 1, min_one_batch: true, upto: Offset(20) };
    assert!(matches!(log.reader().read(&early), Err(ReadError::OutOfRange { log_start: Offset(7), .. })));
    drop(log);
    let (mut log, _) = open(&log_dir(dir.path()), LogConfig::default());
    assert_eq!((log.log_start(), log.log_end()), (Offset(7), Offset(20)));
    log.delete_records_before(Offset(20), NOW_MS).unwrap();
    drop(log);
    let (mut log, _) = open(&log_dir(dir.path()), LogConfig::default());
    assert_eq!((log.log_start(), log.log_end()), (Offset(20), Offset(20)));
    assert_eq!(append(&mut log, batch(&["next"])).unwrap().base_offset, Offset(20));
}

#[test]
fn an_idle_segment_is_rolled_by_its_age() {
    let dir = temp_dir();
    let (mut log, _) = open(&log_dir(dir.path()), LogConfig { segment_ms: 1000, ..LogConfig::default() });
    append(&mut log, batch(&["x"])).unwrap();
    assert!(!log.maintain(Offset(1), NOW_MS + 1000).unwrap().rolled);
    assert!(log.maintain(Offset(1), NOW_MS + 1001).unwrap().rolled);
    assert!(!log.maintain(Offset(1), NOW_MS + 9999).unwrap().rolled, "an empty one is not");
}

/// The directory is renamed, the checkpoints still name the log: what a crash before the commit leaves.
#[test]
fn a_new_log_inherits_nothing_from_a_deleted_one_of_its_name_even_over_a_crash() {
    let dir = temp_dir();
    let mut log = filled(dir.path(), &LogConfig::default());
    let log_dir = Arc::clone(log.log_dir());
    let end = log.log_end();
    log.flush().unwrap();
    log.delete_records_before(end, NOW_MS).unwrap();
    log_dir.write_checkpoints().unwrap();
    log.delete(NOW_MS).unwrap();
    drop((log, log_dir));
    let log_dir = super::log_dir(dir.path());
    let (log, _) = open(&log_dir, LogConfig::default());
    assert_eq!((log.log_start(), log.log_end()), (Offset(0), Offset(0)));
    drop((log, log_dir));
    let (log, _) = open(&super::log_dir(dir.path()), LogConfig::default());
    assert_eq!((log.log_start(), log.log_end()), (Offset(0), Offset(0)), "not from the files either");
}

#[test]
fn a_deleted_log_is_gone_at_once_and_its_files_after_the_delay() {
    let dir = temp_dir();
    let log = filled(dir.path(), &LogConfig { file_delete_delay_ms: 500, ..LogConfig::default() });
    let log_dir = Arc::clone(log.log_dir());
    log.delete(NOW_MS).unwrap();
    drop(log);
    assert_eq!(log_dir.logs().unwrap(), []);
    let (log, _) = open(&log_dir, LogConfig::default());
    assert_eq!(log.log_end(), Offset(0), "a new one of that name starts empty");
    assert_eq!((log_dir.remove_deleted(NOW_MS + 499).unwrap(), log_dir.remove_deleted(NOW_MS + 500).unwrap()), (0, 1));
    assert_eq!(fs::read_dir(dir.path()).unwrap().filter(|e| e.as_ref().unwrap().path().is_dir()).count(), 1);
}
