//! TopicConfig: the values in force for one topic, typed.

use super::{Layers, describe_topic};
use crate::reader::Reader;
use crate::{ConfigErrors, Scope, Settings};

/// What happens to old segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleanupPolicy {
    /// Dropped by age and size.
    pub delete: bool,
    /// Only the last record of each key stays.
    pub compact: bool,
}

/// How batches are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompressionType {
    /// As they came.
    Producer,
    /// Without compression.
    Uncompressed,
    /// Gzip.
    Gzip,
    /// Snappy.
    Snappy,
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd,
}

/// Whose clock a record's timestamp is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimestampType {
    /// The producer's.
    CreateTime,
    /// The broker's.
    LogAppendTime,
}

/// The values in force for one topic; each field is the setting of the same name.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicConfig {
    /// `cleanup.policy`
    pub cleanup_policy: CleanupPolicy,
    /// `compression.type`
    pub compression_type: CompressionType,
    /// `delete.retention.ms`
    pub delete_retention_ms: i64,
    /// `file.delete.delay.ms`
    pub file_delete_delay_ms: u64,
    /// `flush.messages`
    pub flush_messages: u64,
    /// `flush.ms`
    pub flush_ms: u64,
    /// `index.interval.bytes`
    pub index_interval_bytes: u32,
    /// `max.compaction.lag.ms`
    pub max_compaction_lag_ms: i64,
    /// `max.message.bytes`
    pub max_message_bytes: u32,
    /// `message.timestamp.after.max.ms`
    pub message_timestamp_after_max_ms: i64,
    /// `message.timestamp.before.max.ms`
    pub message_timestamp_before_max_ms: i64,
    /// `message.timestamp.type`
    pub message_timestamp_type: TimestampType,
    /// `min.cleanable.dirty.ratio`
    pub min_cleanable_dirty_ratio: f64,
    /// `min.compaction.lag.ms`
    pub min_compaction_lag_ms: i64,
    /// `min.insync.replicas`
    pub min_insync_replicas: i32,
    /// `preallocate`
    pub preallocate: bool,
    /// `retention.bytes`; -1 is no limit.
    pub retention_bytes: i64,
    /// `retention.ms`; -1 is never.
    pub retention_ms: i64,
    /// `segment.bytes`
    pub segment_bytes: u32,
    /// `segment.index.bytes`
    pub segment_index_bytes: u32,
    /// `segment.jitter.ms`
    pub segment_jitter_ms: i64,
    /// `segment.ms`
    pub segment_ms: i64,
    /// `unclean.leader.election.enable`
    pub unclean_leader_election_enable: bool,
}

impl TopicConfig {
    /// The values in force under these layers.
    ///
    /// # Errors
    /// A layer holds an unknown name, a value that its setting cannot take, or values that contradict each other.
    pub fn effective(layers: Layers<'_>) -> Result<Self, ConfigErrors> {
        let named = Reader::new(Scope::Topic, layers.topic);
        if !named.errors.is_empty() {
            return Err(ConfigErrors(named.errors));
        }
        let in_force: Settings = describe_topic(layers)
            .into_iter()
            .filter_map(|entry| entry.value.map(|value| (entry.definition.name.to_owned(), value)))
            .collect();
        let mut r = Reader::new(Scope::Topic, &in_force);
        let config = read(&r);
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms {
            let wanted = format!("at most max.compaction.lag.ms={}", config.max_compaction_lag_ms);
            r.refuse("min.compaction.lag.ms", &config.min_compaction_lag_ms.to_string(), wanted);
        }
        if r.errors.is_empty() { Ok(config) } else { Err(ConfigErrors(r.errors)) }
    }
}

fn read(r: &Reader<'_>) -> TopicConfig {
    let policy = r.list("cleanup.policy");
    TopicConfig {
        cleanup_policy: CleanupPolicy { delete: policy.contains(&"delete"), compact: policy.contains(&"compact") },
        compression_type: compression_type(r.text("compression.type").unwrap_or_default()),
        delete_retention_ms: r.required("delete.retention.ms"),
        file_delete_delay_ms: r.required("file.delete.delay.ms"),
        flush_messages: r.required("flush.messages"),
        flush_ms: r.required("flush.ms"),
        index_interval_bytes: r.required("index.interval.bytes"),
        max_compaction_lag_ms: r.required("max.compaction.lag.ms"),
        max_message_bytes: r.required("max.message.bytes"),
        message_timestamp_after_max_ms: r.required("message.timestamp.after.max.ms"),
        message_timestamp_before_max_ms: r.required("message.timestamp.before.max.ms"),
        message_timestamp_type: match r.text("message.timestamp.type") {
            Some("LogAppendTime") => TimestampType::LogAppendTime,
            _ => TimestampType::CreateTime,
        },
        min_cleanable_dirty_ratio: r.ratio("min.cleanable.dirty.ratio"),
        min_compaction_lag_ms: r.required("min.compaction.lag.ms"),
        min_insync_replicas: r.required("min.insync.replicas"),
        preallocate: r.flag("preallocate"),
        retention_bytes: r.required("retention.bytes"),
        retention_ms: r.required("retention.ms"),
        segment_bytes: r.required("segment.bytes"),
        segment_index_bytes: r.required("segment.index.bytes"),
        segment_jitter_ms: r.required("segment.jitter.ms"),
        segment_ms: r.required("segment.ms"),
        unclean_leader_election_enable: r.flag("unclean.leader.election.enable"),
    }
}

fn compression_type(text: &str) -> CompressionType {
    match text {
        "uncompressed" => CompressionType::Uncompressed,
        "gzip" => CompressionType::Gzip,
        "snappy" => CompressionType::Snappy,
        "lz4" => CompressionType::Lz4,
        "zstd" => CompressionType::Zstd,
        _ => CompressionType::Producer,
    }
}
