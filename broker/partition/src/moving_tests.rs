//! A log moves between two directories while others append, read, flush and compact.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering::SeqCst},
    },
    thread,
};

use forebay_broker_storage::{FutureLog, Identity};
use forebay_broker_wire::{
    records::{BatchBuilder, NewRecord, batches},
    types::{BrokerId, LeaderEpoch, Offset, Uuid},
};

use crate::*;

const NOW_MS: i64 = 1_800_000_000_000;

fn log_dir(root: &std::path::Path, id: u8) -> Arc<LogDir> {
    let identity = Identity { cluster_id: "test".into(), node_id: BrokerId(1), directory_id: Uuid([id; 16]) };
    LogDir::open(forebay_broker_storage::Disk::real(), &root.join(id.to_string()), &identity, 0).unwrap()
}

fn config() -> LogConfig {
    LogConfig { segment_bytes: 4000, index_interval_bytes: 200, flush_messages: 1, ..LogConfig::default() }
}

fn open(log_dir: &Arc<LogDir>) -> Partition {
    let (name, config) = (LogName::new("topic", 0), config());
    let open = OpenPartition { name, topic_id: Some(Uuid([7; 16])), leader_epoch: LeaderEpoch(1), config };
    Partition::open(log_dir, open).unwrap().0
}

fn read_from(partition: &Partition, offset: Offset) -> Vec<i64> {
    let spec = FetchSpec {
        offset,
        max_bytes: 2000,
        min_one_batch: true,
        isolation: Isolation::ReadUncommitted,
        current_leader_epoch: None,
    };
    let Some(slice) = partition.read(&spec).unwrap().slice else { return Vec::new() };
    let bytes = slice.read().unwrap();
    let records = batches(&bytes).map_while(Result::ok).flat_map(|batch| batch.records(1 << 20).unwrap());
    let values = records.map(|record| String::from_utf8(record.unwrap().value.unwrap().to_vec()).unwrap());
    values.map(|value| value.parse().unwrap()).collect()
}

fn append(partition: &Partition, value: i64) -> Offset {
    let mut builder = BatchBuilder::default();
    let value = value.to_string();
    builder.push(&NewRecord { timestamp_ms: NOW_MS, value: Some(value.as_bytes()), ..NewRecord::default() }).unwrap();
    let request = AppendRequest { records: builder.build().unwrap(), origin: Origin::Client };
    let appended = partition.append(&[request], NOW_MS).remove(0).unwrap();
    partition.flush().unwrap();
    appended.base_offset
}

fn move_to(partition: &Partition, target: &Arc<LogDir>, id: u8) {
    let mut future = FutureLog::begin(target, partition.name(), Uuid([id; 16])).unwrap();
    while partition.copy_some(&mut future, 1000).unwrap().left_bytes > 3000 {}
    partition.switch_to(&mut future, NOW_MS).unwrap();
}

#[test]
fn nothing_that_is_acknowledged_is_lost_or_seen_twice_while_the_log_moves_to_and_fro() {
    let root = tempfile::tempdir().unwrap();
    let dirs = [log_dir(root.path(), 1), log_dir(root.path(), 2)];
    let partition = open(&dirs[0]);
    let (acknowledged, stop) = (AtomicI64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            for value in 0.. {
                // The high watermark is where the flush was, so the offset is the value.
                assert_eq!(append(&partition, value), Offset(value));
                acknowledged.store(value + 1, SeqCst);
                if stop.load(SeqCst) {
                    return;
                }
            }
        });
        scope.spawn(|| {
            let mut next = 0;
            while !stop.load(SeqCst) {
                let known = acknowledged.load(SeqCst);
                assert!(partition.offsets().high_watermark >= Offset(known), "what was acknowledged is shown");
                for value in read_from(&partition, Offset(next)) {
                    assert!(value <= next, "{value} comes after {next}");
                    next = next.max(value + 1);
                }
            }
        });
        for round in 0..30_u8 {
            let until = acknowledged.load(SeqCst) + 5;
            while acknowledged.load(SeqCst) < until {
                thread::yield_now();
            }
            move_to(&partition, &dirs[usize::from(round + 1) % 2], round);
            partition.maintain(NOW_MS).unwrap();
        }
        stop.store(true, SeqCst);
    });
    partition.close().unwrap();
    drop(partition);
    assert!(dirs.iter().all(|dir| dir.poisoned().is_none()));
    let partition = open(&dirs[0]);
    assert_eq!(partition.offsets().log_end, Offset(acknowledged.load(SeqCst)));
    assert!(!root.path().join("2/topic-0").exists());
}

#[test]
fn a_partition_that_is_deleted_is_not_moved_any_more() {
    let root = tempfile::tempdir().unwrap();
    let (from, to) = (log_dir(root.path(), 1), log_dir(root.path(), 2));
    let partition = open(&from);
    append(&partition, 1);
    let mut future = FutureLog::begin(&to, partition.name(), Uuid([9; 16])).unwrap();
    partition.copy_some(&mut future, 1 << 20).unwrap();
    partition.delete(NOW_MS).unwrap();
    assert!(matches!(partition.copy_some(&mut future, 1 << 20), Err(SwitchError::Closed(_))));
    assert!(matches!(partition.switch_to(&mut future, NOW_MS), Err(SwitchError::Closed(_))));
    future.discard().unwrap();
    assert!(to.logs().unwrap().is_empty());
}
