//! A coordinator's partition: appends the machine's records and reads them back.
//!
//! What must hold: records of one call are appended together or not at all, and count when all in-sync replicas have them; a batch that cannot be read ends the load,
//! because a machine with a gap would tell members and offsets that are not so, but a single record that does not decode
//! is only skipped, with a word in the log.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use forebay_broker_machines::groups::{GroupMachine, Record};
use forebay_broker_machines::metadata::CONSUMER_OFFSETS_TOPIC;
use forebay_broker_partition::{AppendRequest, FetchSpec, Isolation, Origin, ReadError};
use forebay_broker_storage::DiskError;
use forebay_broker_wire::primitives::EncodeError;
use forebay_broker_wire::records::{Batch, BatchBuilder, BatchError, BuildError, NewRecord, RecordError, batches};
use forebay_broker_wire::types::{LeaderEpoch, Offset, PartitionIndex, Uuid};
use thiserror::Error;
use tokio::time::Instant;

use super::group_records;
use crate::broker::Broker;
use crate::io::append::{WriteError as AppendFailed, now_ms};
use crate::io::commit::{self, NotCommitted};
use crate::partitions::Hosted;

/// A batch is closed when it has so many bytes; half of what a topic accepts by default.
const BATCH_BYTES: usize = 512 * 1024;
/// Kafka's `offsets.commit.timeout.ms`: what in-sync replicas may take to fetch a record.
const COMMIT_WAIT_MAX: Duration = Duration::from_secs(5);
const READ_BYTES: u32 = 1024 * 1024;
/// The most that one batch may decompress to. We write none compressed, but Kafka may have.
const DECOMPRESSED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Why records were not committed.
#[derive(Debug, Error)]
pub(super) enum WriteError {
    #[error("record cannot be encoded: {0}")]
    Encode(#[from] EncodeError),
    #[error("batch cannot be built: {0}")]
    Build(#[from] BuildError),
    #[error(transparent)]
    Append(#[from] AppendFailed),
    #[error(transparent)]
    Commit(#[from] NotCommitted),
    #[error("{in_sync} replicas are in sync, which is fewer than min.insync.replicas")]
    TooFewInSync { in_sync: usize },
    #[error("the broker is stopping")]
    Stopping,
}

/// Why the partition could not be read.
#[derive(Debug, Error)]
pub(super) enum LoadError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("batch at or after offset {offset}: {source}")]
    Batch { offset: Offset, source: BatchError },
    #[error("batch at offset {offset}: {source}")]
    Records { offset: Offset, source: RecordError },
    #[error("what was read is not safe yet: {0}")]
    Commit(#[from] NotCommitted),
    #[error("the thread that read ended: {0}")]
    Thread(#[from] tokio::task::JoinError),
}

/// One partition of `__consumer_offsets`.
#[derive(Clone)]
pub(super) struct CoordinatorLog {
    broker: Weak<Broker>,
    hosted: Arc<Hosted>,
    index: PartitionIndex,
    /// The epoch in which this broker leads.
    epoch: LeaderEpoch,
}

impl fmt::Display for CoordinatorLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{CONSUMER_OFFSETS_TOPIC}-{}", self.index)
    }
}

impl CoordinatorLog {
    /// `None` unless the partition is open here and this broker leads it.
    pub(super) fn open(broker: &Arc<Broker>, topic_id: Uuid, index: PartitionIndex) -> Option<Self> {
        let hosted = broker.partitions.get(topic_id, index).filter(|hosted| hosted.leads())?;
        let epoch = hosted.partition.leader_epoch();
        Some(Self { broker: Arc::downgrade(broker), hosted, index, epoch })
    }

    /// The epoch in which this broker leads.
    pub(super) fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// Appends, by the way that every produce takes; done when all in-sync replicas have the records.
    pub(super) async fn append(&self, records: Vec<Record>) -> Result<(), WriteError> {
        let partition = &self.hosted.partition;
        if partition.is_below_min_isr() {
            let in_sync = partition.in_sync_replicas().map_or(0, |replicas| replicas.len());
            return Err(WriteError::TooFewInSync { in_sync });
        }
        let records = encode(&records, now_ms())?;
        let broker = self.broker.upgrade().ok_or(WriteError::Stopping)?;
        let request = AppendRequest { records, origin: Origin::Broker };
        let appended = broker.appender.append(&self.hosted, request).await?;
        drop(broker);
        if let Some(mut commit) = commit::begin(partition, appended.last_offset, self.epoch)? {
            commit.ready(Instant::now() + COMMIT_WAIT_MAX).await?;
        }
        Ok(())
    }

    /// Reads the whole partition into the machine, and waits until all in-sync replicas have it: nobody is told what a change of
    /// leaders could take back. Gives the machine and how many records there were.
    pub(super) async fn load(&self, mut machine: GroupMachine) -> Result<(GroupMachine, u64), LoadError> {
        let log = self.clone();
        let read = tokio::task::spawn_blocking(move || {
            let mut records = 0;
            let end = log.read(|record| {
                records += 1;
                machine.replay(record);
            })?;
            Ok::<_, LoadError>((machine, records, end))
        });
        let (machine, records, end) = read.await??;
        if let Some(mut commit) = commit::begin(&self.hosted.partition, Offset(end.0 - 1), self.epoch)? {
            commit.ready(Instant::now() + COMMIT_WAIT_MAX).await?;
        }
        Ok((machine, records))
    }

    /// Gives the offset after the last record.
    fn read(&self, mut replay: impl FnMut(Record)) -> Result<Offset, LoadError> {
        let partition = &self.hosted.partition;
        let mut offset = partition.offsets().log_start;
        loop {
            let spec = FetchSpec {
                offset,
                max_bytes: READ_BYTES,
                min_one_batch: true,
                isolation: Isolation::LogEnd,
                current_leader_epoch: Some(self.epoch),
            };
            let Some(slice) = partition.read(&spec)?.slice else { return Ok(offset) };
            let before = offset;
            for batch in batches(&slice.read()?) {
                match batch {
                    Ok(batch) => {
                        self.read_batch(&batch, &mut replay)?;
                        offset = batch.header.next_offset();
                    }
                    // The range ends within a batch; the next read starts with that one.
                    Err(BatchError::Incomplete { .. }) if offset > before => break,
                    Err(source) => return Err(LoadError::Batch { offset, source }),
                }
            }
            if offset <= before {
                return Ok(offset);
            }
        }
    }

    fn read_batch(&self, batch: &Batch, replay: &mut impl FnMut(Record)) -> Result<(), LoadError> {
        let offset = batch.header.base_offset;
        batch.check_crc().map_err(|source| LoadError::Batch { offset, source })?;
        if batch.header.is_control() {
            return Ok(());
        }
        let failed = |source| LoadError::Records { offset, source };
        for record in batch.records(DECOMPRESSED_BYTES_MAX).map_err(failed)? {
            let record = record.map_err(failed)?;
            let Some(key) = record.key else { continue };
            match group_records::decode(key, record.value) {
                Ok(Some(record)) => replay(record),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(partition = %self, offset = record.offset.0, %error, "group record skipped");
                }
            }
        }
        Ok(())
    }
}

/// One or more batches, none much larger than `BATCH_BYTES`.
fn encode(records: &[Record], timestamp_ms: i64) -> Result<Bytes, WriteError> {
    let mut bytes = BytesMut::new();
    let mut builder = BatchBuilder::default();
    for record in records {
        let (key, value) = group_records::encode(record)?;
        let size = key.len() + value.as_ref().map_or(0, Bytes::len);
        if builder.record_count() > 0 && builder.uncompressed_bytes() + size > BATCH_BYTES {
            bytes.extend_from_slice(&std::mem::take(&mut builder).build()?);
        }
        builder.push(&NewRecord { timestamp_ms, key: Some(&key), value: value.as_deref(), headers: &[] })?;
    }
    bytes.extend_from_slice(&builder.build()?);
    Ok(bytes.freeze())
}
