//! The log of metadata records, `__cluster_metadata-0` in the first log dir.
//!
//! What must hold: one batch is one decision, so a torn one is none; a batch is flushed before its records are applied; the log
//! does not grow with time: when it has grown long, a snapshot in one batch takes the place of all that went before.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use forebay_broker_machines::metadata::{
    CLUSTER_METADATA_TOPIC, MetadataImage, Record, RecordError, ReplayError, decode_record, encode_record,
};
use forebay_broker_storage::{AppendRequest, LogConfig, LogDir, LogName, Origin, PartitionLog, ReadSpec};
use forebay_broker_wire::records::{BatchBuilder, BatchError, NewRecord, batches};
use forebay_broker_wire::types::{LeaderEpoch, Offset, Uuid};

/// Bytes read at once when the log is replayed.
const READ_BYTES: u32 = 4 << 20;
/// The most that a batch may hold; it is not compressed.
const BATCH_BYTES_MAX: usize = 1 << 31;
/// See [`MetadataLog::long_bytes`].
const LONG_LOG_BYTES: u64 = 4 << 20;
/// A log is replaced when it is so many times as long as the snapshot would about be.
const LONG_LOG_FACTOR: u64 = 4;

/// Why the log cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenLogError {
    /// The log itself.
    #[error("metadata log {dir}: {message}")]
    Log { dir: String, message: String },
    /// One record.
    #[error("metadata log at offset {offset}")]
    Record { offset: Offset, source: RecordError },
    /// One record, in its place.
    #[error("metadata log at offset {offset}")]
    Replay { offset: Offset, source: ReplayError },
}

/// Why records could not be made durable; nothing of them counts.
#[derive(Debug, Clone, thiserror::Error)]
#[error("metadata log: {message}")]
pub(crate) struct WriteError {
    pub(crate) message: String,
}

impl WriteError {
    fn new(error: &dyn std::fmt::Display) -> Self {
        Self { message: error.to_string() }
    }
}

/// What the log says.
#[derive(Debug, Default)]
pub(super) struct Replayed {
    pub(super) image: MetadataImage,
    /// Topics that were deleted since the last snapshot: a crash may have kept their partitions on disk.
    pub(super) removed_topics: BTreeSet<Uuid>,
}

/// The log.
#[derive(Debug)]
pub(super) struct MetadataLog {
    log: PartitionLog,
    /// A log below this is never replaced by a snapshot.
    pub(super) long_bytes: u64,
    snapshot_bytes: u64,
}

impl MetadataLog {
    /// Opens the log, or begins it, and replays it.
    pub(super) fn open(log_dir: &Arc<LogDir>) -> Result<(Self, Replayed), OpenLogError> {
        let name = LogName::new(CLUSTER_METADATA_TOPIC, 0);
        let failed = |message: String| OpenLogError::Log { dir: log_dir.path().display().to_string(), message };
        let (log, _) =
            PartitionLog::open(log_dir, &name, None, log_config()).map_err(|error| failed(error.to_string()))?;
        let mut replayed = Replayed::default();
        let mut offset = log.log_start();
        while offset < log.log_end() {
            let next = replay(&log, offset, &mut replayed)?;
            if next <= offset {
                return Err(failed(format!("nothing can be read at offset {offset}")));
            }
            offset = next;
        }
        Ok((Self { log, long_bytes: LONG_LOG_BYTES, snapshot_bytes: 0 }, replayed))
    }

    /// Makes records durable, all or none.
    pub(super) fn write(&mut self, records: &[Record], now_ms: i64) -> Result<(), WriteError> {
        if records.is_empty() {
            return Ok(());
        }
        let records = batch(records, now_ms)?;
        let request = AppendRequest { records, origin: Origin::Broker };
        for result in self.log.append(&[request], LeaderEpoch(0), now_ms) {
            result.map_err(|error| WriteError::new(&error))?;
        }
        self.log.flush().map(drop).map_err(|error| WriteError::new(&error))
    }

    /// Puts a snapshot in the place of a log that has grown long.
    pub(super) fn shorten(&mut self, image: &MetadataImage, now_ms: i64) -> Result<(), WriteError> {
        let size = self.size_bytes();
        if size < self.long_bytes.max(self.snapshot_bytes.saturating_mul(LONG_LOG_FACTOR)) {
            return Ok(());
        }
        self.log.roll().map_err(|error| WriteError::new(&error))?;
        let start = self.log.log_end();
        self.write(&image.snapshot(), now_ms)?;
        // IMPORTANT: the snapshot is on disk before what it replaces goes.
        self.log.delete_records_before(start, now_ms).map_err(|error| WriteError::new(&error))?;
        self.log.maintain(start, now_ms).map_err(|error| WriteError::new(&error))?;
        self.snapshot_bytes = self.size_bytes();
        tracing::info!(from_bytes = size, to_bytes = self.snapshot_bytes, "metadata log replaced by a snapshot");
        Ok(())
    }

    /// Makes the next start short.
    pub(super) fn close(&mut self) -> Result<(), WriteError> {
        self.log.close_clean().map_err(|error| WriteError::new(&error))
    }

    /// Bytes on disk.
    pub(super) fn size_bytes(&self) -> u64 {
        self.log.reader().size_bytes()
    }
}

/// Applies the records of some batches from an offset on; gives the offset after them.
fn replay(log: &PartitionLog, from: Offset, replayed: &mut Replayed) -> Result<Offset, OpenLogError> {
    let failed = |message: String| OpenLogError::Log { dir: log.log_dir().path().display().to_string(), message };
    let spec = ReadSpec { offset: from, max_bytes: READ_BYTES, min_one_batch: true, upto: log.log_end() };
    let slice = log.reader().read(&spec).map_err(|error| failed(error.to_string()))?;
    let bytes = match slice {
        Some(slice) => slice.read().map_err(|error| failed(error.to_string()))?,
        None => Bytes::new(),
    };
    let mut next = from;
    for batch in batches(&bytes) {
        let batch = match batch {
            Ok(batch) => batch,
            // The range ends within a batch; the next read starts with that one.
            Err(BatchError::Incomplete { .. }) if next > from => break,
            Err(error) => return Err(failed(format!("batch at offset {next}: {error}"))),
        };
        let damaged = |error| failed(format!("batch at offset {}: {error}", batch.header.base_offset));
        batch.check_crc().map_err(damaged)?;
        let records = batch.records(BATCH_BYTES_MAX).map_err(|error| failed(error.to_string()))?;
        for record in records {
            let record = record.map_err(|error| failed(error.to_string()))?;
            if record.offset < from {
                continue;
            }
            let value = record.value.unwrap_or_default();
            let change =
                decode_record(&value).map_err(|source| OpenLogError::Record { offset: record.offset, source })?;
            if let Record::TopicRemoved { topic_id } = &change {
                replayed.removed_topics.insert(*topic_id);
            }
            replayed.image.apply(&change).map_err(|source| OpenLogError::Replay { offset: record.offset, source })?;
        }
        next = batch.header.next_offset();
    }
    Ok(next)
}

fn batch(records: &[Record], now_ms: i64) -> Result<Bytes, WriteError> {
    let mut builder = BatchBuilder::new(Offset(0));
    for record in records {
        let value = encode_record(record).map_err(|error| WriteError::new(&error))?;
        let record = NewRecord { timestamp_ms: now_ms, key: None, value: Some(&value), headers: &[] };
        builder.push(&record).map_err(|error| WriteError::new(&error))?;
    }
    builder.build().map_err(|error| WriteError::new(&error))
}

fn log_config() -> LogConfig {
    LogConfig {
        segment_bytes: i32::MAX.unsigned_abs(),
        segment_ms: i64::MAX,
        retention_ms: -1,
        retention_bytes: -1,
        max_message_bytes: i32::MAX.unsigned_abs(),
        message_timestamp_after_max_ms: i64::MAX,
        file_delete_delay_ms: 0,
        ..LogConfig::default()
    }
}
