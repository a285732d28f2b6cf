//! Behaviour of whole logs: against a model, through crashes, on faulty disks. A file each.

mod appending;
mod compacting;
mod creating;
mod faults;
mod guarding;
mod inconsistent;
mod model;
mod moving;
mod racing;
mod readers;
mod recovering;
mod retaining;

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use forebay_broker_wire::{
    records::{BatchBuilder, NewRecord, batches},
    types::{BrokerId, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Uuid},
};

use crate::*;

pub(super) const NOW_MS: i64 = 1_800_000_000_000;

/// A directory in memory if there is one: these tests are about order, not about disks.
pub(super) fn temp_dir() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    tempfile::tempdir_in(if memory.is_dir() { memory } else { Path::new("/tmp") }).unwrap()
}

pub(super) fn identity() -> Identity {
    Identity { cluster_id: "test".into(), node_id: BrokerId(1), directory_id: Uuid([1; 16]) }
}

pub(super) fn log_dir(path: &Path) -> Arc<LogDir> {
    log_dir_on(faulty_disk::NeverFlushes::disk(), path)
}

pub(super) fn log_dir_on(disk: Disk, path: &Path) -> Arc<LogDir> {
    LogDir::open(disk, path, &identity(), 0).unwrap()
}

pub(super) fn small() -> LogConfig {
    LogConfig { segment_bytes: 1000, index_interval_bytes: 100, ..LogConfig::default() }
}

pub(super) fn open(log_dir: &Arc<LogDir>, config: LogConfig) -> (PartitionLog, RecoveryReport) {
    PartitionLog::open(log_dir, &LogName::new("topic", 0), None, config).unwrap()
}

/// A batch of records without keys.
pub(super) fn batch(values: &[&str]) -> Bytes {
    batch_at(values, NOW_MS)
}

pub(super) fn batch_at(values: &[&str], timestamp_ms: i64) -> Bytes {
    fill(BatchBuilder::default(), values, timestamp_ms)
}

pub(super) fn idempotent(producer: i64, epoch: i16, sequence: i32, values: &[&str]) -> Bytes {
    let builder = BatchBuilder::default().producer(ProducerId(producer), ProducerEpoch(epoch), sequence);
    fill(builder, values, NOW_MS)
}

fn fill(mut builder: BatchBuilder, values: &[&str], timestamp_ms: i64) -> Bytes {
    for value in values {
        builder.push(&NewRecord { timestamp_ms, value: Some(value.as_bytes()), ..NewRecord::default() }).unwrap();
    }
    builder.build().unwrap()
}

pub(super) fn client(records: Bytes) -> AppendRequest {
    AppendRequest { records, origin: Origin::Client }
}

pub(super) fn append(log: &mut PartitionLog, records: Bytes) -> Result<Appended, AppendError> {
    log.append(&[client(records)], LeaderEpoch(0), NOW_MS).remove(0)
}

/// Appends a batch `count` times.
pub(super) fn append_times(log: &mut PartitionLog, count: usize, records: &Bytes) {
    for _ in 0..count {
        append(log, records.clone()).unwrap();
    }
}

/// All records from `from` on, as (offset, value), read as a consumer would.
pub(super) fn read_from(log: &PartitionLog, from: Offset) -> Vec<(i64, String)> {
    let reader = log.reader();
    let mut records = Vec::new();
    let mut offset = from;
    loop {
        let spec = ReadSpec { offset, max_bytes: 700, min_one_batch: true, upto: log.log_end() };
        let Some(slice) = reader.read(&spec).unwrap() else { return records };
        for batch in batches(&slice.read().unwrap()).map_while(Result::ok) {
            for record in batch.records(1 << 20).unwrap().map(Result::unwrap) {
                if record.offset >= offset {
                    records.push((record.offset.0, String::from_utf8(record.value.unwrap().to_vec()).unwrap()));
                }
            }
            offset = batch.header.next_offset();
        }
    }
}

pub(super) fn read_all(log: &PartitionLog) -> Vec<(i64, String)> {
    read_from(log, log.log_start())
}

/// A reproducible sequence.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound.max(1)
    }
}
