//! What a log is asked to be: one value per Kafka topic setting that storage obeys, with Kafka's names and defaults.
//!
//! It is already resolved and validated (topic over broker over default) by whoever builds it; storage only reads it.

pub use forebay_broker_wire::records::TimestampType;

/// Settings of one partition's log. A negative limit means none.
#[derive(Debug, Clone, PartialEq)]
pub struct LogConfig {
    /// `segment.bytes`: a segment is closed before it would grow beyond this.
    pub segment_bytes: u32,
    /// `segment.ms`: a segment is closed when its first record is older than this.
    pub segment_ms: i64,
    /// `index.interval.bytes`: bytes of log between two index entries.
    pub index_interval_bytes: u32,
    /// `segment.index.bytes`: size at which an index is full, which closes the segment.
    pub segment_index_bytes: u32,
    /// `retention.ms`.
    pub retention_ms: i64,
    /// `retention.bytes`.
    pub retention_bytes: i64,
    /// `flush.messages`: appends report that a flush is required when so many records are not flushed.
    pub flush_messages: u64,
    /// `flush.ms`: the caller flushes at least this often; storage only carries it.
    pub flush_ms: u64,
    /// `max.message.bytes`: largest record batch.
    pub max_message_bytes: u32,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub message_timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub message_timestamp_after_max_ms: i64,
    /// `file.delete.delay.ms`: how long a removed segment stays on disk as `.deleted`.
    pub file_delete_delay_ms: u64,
    /// `producer.id.expiration.ms`: state of a producer that has been silent for this long is dropped.
    pub producer_id_expiration_ms: u64,
    /// `preallocate`: reserve a new segment's space at once.
    pub preallocate: bool,
    /// `cleanup.policy` contains `delete`.
    pub delete: bool,
    /// `cleanup.policy` contains `compact`: each record needs a key, the latest one per key is kept.
    pub compact: bool,
    /// `delete.retention.ms`: how long compaction keeps a tombstone.
    pub delete_retention_ms: i64,
    /// `min.compaction.lag.ms`: younger records are not compacted.
    pub min_compaction_lag_ms: i64,
    /// `max.compaction.lag.ms`: older records are compacted whatever the dirty ratio.
    pub max_compaction_lag_ms: i64,
    /// `min.cleanable.dirty.ratio`: part of the log that must be new before compaction is worth it.
    pub min_cleanable_dirty_ratio: f64,
}

impl Default for LogConfig {
    fn default() -> Self {
        const DAY_MS: i64 = 86_400_000;
        Self {
            segment_bytes: 1 << 30,
            segment_ms: 7 * DAY_MS,
            index_interval_bytes: 4096,
            segment_index_bytes: 10 << 20,
            retention_ms: 7 * DAY_MS,
            retention_bytes: -1,
            flush_messages: u64::MAX,
            flush_ms: 50,
            max_message_bytes: 1_048_588,
            timestamp_type: TimestampType::CreateTime,
            message_timestamp_before_max_ms: i64::MAX,
            message_timestamp_after_max_ms: 3_600_000,
            file_delete_delay_ms: 60_000,
            producer_id_expiration_ms: 86_400_000,
            preallocate: false,
            delete: true,
            compact: false,
            delete_retention_ms: DAY_MS,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            min_cleanable_dirty_ratio: 0.5,
        }
    }
}
