//! Compaction of whole logs: what stays, what readers see meanwhile, and what a crash at any point leaves.

use std::{
    collections::BTreeMap,
    io,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use super::*;
use crate::{
    disk::{Operation, Verdict},
    faulty_disk::FaultyDisk,
};

fn config() -> LogConfig {
    LogConfig {
        compact: true,
        delete: false,
        min_cleanable_dirty_ratio: 0.1,
        segment_bytes: 600,
        index_interval_bytes: 100,
        ..LogConfig::default()
    }
}

fn keyed(records: &[(&str, Option<&str>)]) -> Bytes {
    let mut builder = BatchBuilder::default();
    for (key, value) in records {
        let (key, value) = (Some(key.as_bytes()), value.map(str::as_bytes));
        builder.push(&NewRecord { timestamp_ms: NOW_MS, key, value, ..NewRecord::default() }).unwrap();
    }
    builder.build().unwrap()
}

type Records = Vec<(i64, String, Option<String>)>;

fn keyed_records(log: &PartitionLog) -> Records {
    let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    let mut records = Vec::new();
    let mut offset = log.log_start();
    while let Some(slice) =
        log.reader().read(&ReadSpec { offset, max_bytes: 300, min_one_batch: true, upto: log.log_end() }).unwrap()
    {
        for batch in batches(&slice.read().unwrap()).map_while(Result::ok) {
            batch.check_crc().unwrap();
            let read = batch.records(1 << 20).unwrap().map(Result::unwrap);
            records.extend(read.map(|r| (r.offset.0, text(r.key.unwrap()), r.value.map(text))));
            offset = batch.header.next_offset();
        }
    }
    records
}

/// 200 records over 7 keys, two a batch, the last segment not closed.
fn filled(log: &mut PartitionLog) -> BTreeMap<String, (i64, Option<String>)> {
    let mut newest = BTreeMap::new();
    for n in 0..100 {
        let (a, b) = (format!("key {}", n % 7), format!("key {}", n * 3 % 7));
        let value = format!("value {n}");
        let tombstone = n % 11 == 0;
        append(log, keyed(&[(&a, Some(&value)), (&b, (!tombstone).then_some(&value))])).unwrap();
        newest.insert(a, (2 * n, Some(value.clone())));
        newest.insert(b, (2 * n + 1, (!tombstone).then_some(value)));
    }
    newest
}

fn compact(log: &mut PartitionLog, now_ms: i64) -> Option<CompactionReport> {
    let compaction = log.begin_compaction(log.log_end(), now_ms)?;
    let compacted = compaction.run(&AtomicBool::new(false)).unwrap();
    Some(log.end_compaction(compacted, now_ms).unwrap())
}

/// The newest value of each key in the whole log.
fn newest(records: &Records) -> BTreeMap<String, (i64, Option<String>)> {
    records.iter().map(|(offset, key, value)| (key.clone(), (*offset, value.clone()))).collect()
}

#[test]
fn the_newest_record_of_each_key_stays_where_it_was() {
    let dir = temp_dir();
    let log_dir_1 = log_dir(dir.path());
    let (mut log, _) = open(&log_dir_1, config());
    let expected = filled(&mut log);
    let end = log.log_end();
    let before = log.reader().size_bytes();
    let report = compact(&mut log, NOW_MS).unwrap();
    assert!(report.bytes_after * 5 < report.bytes_before, "{report:?}");
    assert_eq!(log.reader().size_bytes(), before - report.bytes_before + report.bytes_after);
    let active = log.active().base_offset.0;
    let records = keyed_records(&log);
    assert_eq!(newest(&records), expected);
    let closed = records.iter().filter(|record| record.0 < active);
    assert!(closed.clone().count() <= 7, "one per key: {records:?}");
    assert!(records.is_sorted_by_key(|record| record.0));
    assert_eq!((log.log_start(), log.log_end()), (Offset(0), end));
    assert_eq!(log.shared.view.lock().segments.len(), 2, "small neighbours become one");
    assert_eq!(compact(&mut log, NOW_MS), None, "nothing new");
    for clean in [false, true] {
        if clean {
            log.close_clean().unwrap();
            log.log_dir().close_clean().unwrap();
        }
        drop(log);
        log = open(&reopened(dir.path()), config()).0;
        assert_eq!(keyed_records(&log), records);
        assert_eq!(log.log_end(), end);
    }
    drop(log_dir_1);
}

/// A second process on the directory, as after a crash of the first.
fn reopened(path: &Path) -> Arc<LogDir> {
    let copy = path.join(".lock");
    drop(std::fs::remove_file(copy));
    log_dir(path)
}

#[test]
fn rounds_go_on_where_the_last_one_ended_and_tombstones_go_in_time() {
    let dir = temp_dir();
    let (mut log, _) = open(&log_dir(dir.path()), LogConfig { delete_retention_ms: 1000, ..config() });
    append(&mut log, keyed(&[("gone", Some("x")), ("kept", Some("y"))])).unwrap();
    append(&mut log, keyed(&[("gone", None)])).unwrap();
    log.roll().unwrap();
    compact(&mut log, NOW_MS).unwrap();
    let tombstone = (2, "gone".to_owned(), None);
    assert_eq!(keyed_records(&log), [(1, "kept".to_owned(), Some("y".to_owned())), tombstone.clone()]);
    append(&mut log, keyed(&[("other", Some("z"))])).unwrap();
    log.roll().unwrap();
    compact(&mut log, NOW_MS + 999).unwrap();
    assert!(keyed_records(&log).contains(&tombstone), "readers have delete.retention.ms to see it");
    append(&mut log, keyed(&[("other", Some("zz"))])).unwrap();
    log.roll().unwrap();
    compact(&mut log, NOW_MS + 1000).unwrap();
    let left: Vec<_> = keyed_records(&log).into_iter().map(|record| record.0).collect();
    assert_eq!(left, [1, 4]);
}

#[test]
fn young_records_and_those_above_the_bound_are_left() {
    let dir = temp_dir();
    let (mut log, _) = open(&log_dir(dir.path()), LogConfig { min_compaction_lag_ms: 5000, ..config() });
    filled(&mut log);
    assert!(log.begin_compaction(log.log_end(), NOW_MS + 4999).is_none());
    assert!(log.begin_compaction(Offset(3), NOW_MS + 5000).is_none(), "no whole segment below");
    assert!(log.begin_compaction(log.log_end(), NOW_MS + 5000).is_some());
    log.set_config(LogConfig { min_cleanable_dirty_ratio: 1.1, ..config() });
    assert!(log.begin_compaction(log.log_end(), NOW_MS).is_none(), "not worth it");
    log.set_config(LogConfig { min_cleanable_dirty_ratio: 1.1, max_compaction_lag_ms: 10, ..config() });
    assert!(log.begin_compaction(log.log_end(), NOW_MS + 11).is_some(), "but overdue");
    log.set_config(LogConfig { compact: false, ..config() });
    assert!(log.begin_compaction(log.log_end(), NOW_MS + 11).is_none());
}

#[test]
fn a_log_that_was_cut_meanwhile_is_left_alone() {
    let dir = temp_dir();
    let (mut log, _) = open(&log_dir(dir.path()), config());
    filled(&mut log);
    let compacted = log.begin_compaction(log.log_end(), NOW_MS).unwrap().run(&AtomicBool::new(false)).unwrap();
    log.truncate_to(Offset(50), NOW_MS).unwrap();
    let before = keyed_records(&log);
    log.end_compaction(compacted, NOW_MS).unwrap();
    assert_eq!(keyed_records(&log), before);
    assert!(
        !std::fs::read_dir(dir.path().join("topic-0")).unwrap().any(|e| e
            .unwrap()
            .path()
            .to_str()
            .unwrap()
            .ends_with("cleaned"))
    );
    let stop = AtomicBool::new(true);
    assert!(matches!(log.begin_compaction(log.log_end(), NOW_MS).unwrap().run(&stop), Err(CompactionError::Stopped)));
    stop.store(false, Relaxed);
    assert!(compact(&mut log, NOW_MS).is_some());
}

#[test]
fn producer_state_survives_compaction() {
    let dir = temp_dir();
    let (mut log, _) = open(&log_dir(dir.path()), config());
    let batch = |sequence: i32| {
        let mut builder = BatchBuilder::default().producer(ProducerId(3), ProducerEpoch(0), sequence);
        builder
            .push(&NewRecord { timestamp_ms: NOW_MS, key: Some(b"k"), value: Some(b"v"), ..NewRecord::default() })
            .unwrap();
        builder.build().unwrap()
    };
    (0..10).for_each(|sequence| assert!(append(&mut log, batch(sequence)).is_ok()));
    append_times(&mut log, 10, &keyed(&[("k", Some("other"))]));
    log.roll().unwrap();
    compact(&mut log, NOW_MS).unwrap();
    drop(log);
    for entry in std::fs::read_dir(dir.path().join("topic-0")).unwrap().map(Result::unwrap) {
        if entry.path().extension().is_some_and(|extension| extension == "snapshot") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    let (mut log, _) = open(&reopened(dir.path()), config());
    assert!(append(&mut log, batch(9)).unwrap().duplicate, "its last batch is still known");
    assert!(append(&mut log, batch(10)).is_ok());
}

/// Compaction fails at its `fail_at`th operation; then the power is cut. Whatever is left, the newest record of each key is there.
fn crash(fail_at: usize, seed: u64) -> bool {
    let dir = temp_dir();
    let mut random = Random::new(seed);
    let faulty = FaultyDisk::new(dir.path()).unwrap();
    let log_dir_1 = log_dir_on(faulty.disk(), dir.path());
    let (mut log, _) = open(&log_dir_1, config());
    let expected = filled(&mut log);
    log.flush().unwrap();
    let mut count = 0;
    faulty.inject(move |operation: &Operation<'_>| {
        count += usize::from(!matches!(operation, Operation::Create { .. }));
        if count >= fail_at { Verdict::Fail(io::Error::other("crash")) } else { Verdict::Proceed }
    });
    let compaction = log.begin_compaction(log.log_end(), NOW_MS).unwrap();
    let done =
        compaction.run(&AtomicBool::new(false)).ok().and_then(|compacted| log.end_compaction(compacted, NOW_MS).ok());
    drop((log, log_dir_1));
    faulty.cut_power(&mut |bound| random.below(bound)).unwrap();
    let (log, _) = open(&log_dir(dir.path()), config());
    let records = keyed_records(&log);
    assert_eq!(newest(&records), expected, "crash at {fail_at}, seed {seed}");
    assert!(records.is_sorted_by_key(|record| record.0));
    done.is_some()
}

#[test]
fn a_crash_at_any_point_of_compaction_loses_no_newest_record() {
    let mut finished = false;
    for fail_at in 1..200 {
        for seed in 0..3 {
            finished = crash(fail_at, seed * 1000 + fail_at as u64);
        }
        if finished {
            assert!(fail_at > 15, "it has that many steps");
            return;
        }
    }
    assert!(finished, "compaction never got through");
}
