//! What is in force: an image's settings over the broker's file, typed.

use std::sync::Arc;

use forebay_broker_config::{
    BrokerConfig, CompressionType, Layers, Scope, Settings, TimestampType, TopicConfig, effective_value,
};
use forebay_broker_machines::metadata::{MetadataImage, TopicImage};
use forebay_broker_partition::Settings as ReplicationSettings;
use forebay_broker_storage::{LogConfig, TimestampType as LogTimestampType};
use forebay_broker_wire::records::Compression;
use forebay_broker_wire::types::{BrokerId, PartitionIndex, Uuid};

/// The layers under a topic's own settings, held so that [`Layers`] can borrow them.
#[derive(Debug)]
pub(crate) struct Beneath<'a> {
    broker: Arc<Settings>,
    cluster: Arc<Settings>,
    file: &'a Settings,
}

impl<'a> Beneath<'a> {
    /// The layers as this broker has them.
    pub(crate) fn new(config: &'a BrokerConfig, image: &MetadataImage) -> Self {
        Self {
            broker: image.broker_config(BrokerId(config.broker_id)),
            cluster: Arc::clone(image.cluster_config()),
            file: &config.file,
        }
    }

    /// Only what is made for all brokers, without what this one has of its own.
    pub(crate) fn cluster_alone<'b>(&'b self, nothing: &'b Settings) -> Layers<'b> {
        Layers { topic: nothing, broker: nothing, cluster: &self.cluster, file: self.file }
    }

    /// With a topic's own settings on top.
    pub(crate) fn topic<'b>(&'b self, topic: &'b Settings) -> Layers<'b> {
        Layers { topic, broker: &self.broker, cluster: &self.cluster, file: self.file }
    }
}

/// A topic's settings in force. Settings are checked before they are stored; if a stored one can still not be used, because an
/// older program took what this one does not, the topic runs on the broker's defaults and the log says so.
pub(crate) fn topic_config(config: &BrokerConfig, image: &MetadataImage, topic: &TopicImage) -> TopicConfig {
    TopicConfig::effective(Beneath::new(config, image).topic(&topic.config)).unwrap_or_else(|errors| {
        tracing::warn!(topic = &*topic.name, %errors, "the topic's settings cannot be used, the broker's defaults are in force");
        config.topic_defaults.clone()
    })
}

/// What is in force for one partition.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PartitionSettings {
    pub(crate) log: LogConfig,
    /// How batches are stored; none keeps them as they come.
    pub(crate) compression: Option<Compression>,
    pub(crate) min_insync_replicas: usize,
    pub(crate) lag_time_max_ms: i64,
    /// This replica is held back while others copy it, or while it copies, until all are in sync.
    pub(crate) throttled: Throttled,
}

/// Which of a topic's lists of throttled replicas name this one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Throttled {
    pub(crate) as_leader: bool,
    pub(crate) as_follower: bool,
}

impl PartitionSettings {
    /// What replication obeys. When a record counts as written is the log's to say.
    pub(crate) fn replication(&self) -> ReplicationSettings {
        ReplicationSettings {
            min_insync_replicas: self.min_insync_replicas,
            lag_time_max_ms: self.lag_time_max_ms,
            ..ReplicationSettings::default()
        }
    }
}

/// A topic's settings as one of its partitions takes them.
pub(crate) fn partition_settings(
    config: &BrokerConfig,
    image: &MetadataImage,
    settings: &TopicConfig,
    partition: (Uuid, PartitionIndex),
) -> PartitionSettings {
    let mut log = log_config(config, image, settings);
    log.segment_ms = jittered(settings.segment_ms, settings.segment_jitter_ms, partition.0, partition.1);
    PartitionSettings {
        log,
        compression: match settings.compression_type {
            CompressionType::Producer => None,
            CompressionType::Uncompressed => Some(Compression::None),
            CompressionType::Gzip => Some(Compression::Gzip),
            CompressionType::Snappy => Some(Compression::Snappy),
            CompressionType::Lz4 => Some(Compression::Lz4),
            CompressionType::Zstd => Some(Compression::Zstd),
        },
        min_insync_replicas: usize::try_from(settings.min_insync_replicas).unwrap_or(1),
        throttled: throttled(config, image, partition),
        lag_time_max_ms: i64::try_from(config.replica.lag_time_max_ms).unwrap_or(i64::MAX),
    }
}

fn throttled(config: &BrokerConfig, image: &MetadataImage, (id, index): (Uuid, PartitionIndex)) -> Throttled {
    let own = image.topic_by_id(id).map(|topic| Arc::clone(&topic.config)).unwrap_or_default();
    let names = |name: &str| own.get(name).is_some_and(|list| names_replica(list, index, config.broker_id));
    Throttled {
        as_leader: names("leader.replication.throttled.replicas"),
        as_follower: names("follower.replication.throttled.replicas"),
    }
}

/// `*`, or `partition:broker` pairs.
fn names_replica(list: &str, index: PartitionIndex, broker: i32) -> bool {
    let wanted = format!("{index}:{broker}");
    list.split(',').map(str::trim).any(|item| item == "*" || item == wanted)
}

/// `segment.ms` less a part of `segment.jitter.ms` that is the partition's own, so that those of one topic do not roll together.
fn jittered(segment_ms: i64, jitter_ms: i64, topic_id: Uuid, index: PartitionIndex) -> i64 {
    let seed = topic_id.as_u128() ^ u128::from(index.0.unsigned_abs()).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let share = i64::try_from(seed % (u128::from(jitter_ms.unsigned_abs()) + 1)).unwrap_or_default();
    segment_ms.saturating_sub(share).max(1)
}

/// A topic's settings as its logs take them.
pub(crate) fn log_config(config: &BrokerConfig, image: &MetadataImage, settings: &TopicConfig) -> LogConfig {
    let producer_id_expiration_ms =
        broker_number(config, image, "producer.id.expiration.ms").unwrap_or(config.log.producer_id_expiration_ms);
    LogConfig {
        segment_bytes: settings.segment_bytes,
        segment_ms: settings.segment_ms,
        index_interval_bytes: settings.index_interval_bytes,
        segment_index_bytes: settings.segment_index_bytes,
        retention_ms: settings.retention_ms,
        retention_bytes: settings.retention_bytes,
        flush_messages: settings.flush_messages,
        flush_ms: settings.flush_ms,
        max_message_bytes: settings.max_message_bytes,
        timestamp_type: match settings.message_timestamp_type {
            TimestampType::CreateTime => LogTimestampType::CreateTime,
            TimestampType::LogAppendTime => LogTimestampType::LogAppendTime,
        },
        message_timestamp_before_max_ms: settings.message_timestamp_before_max_ms,
        message_timestamp_after_max_ms: settings.message_timestamp_after_max_ms,
        file_delete_delay_ms: settings.file_delete_delay_ms,
        producer_id_expiration_ms,
        preallocate: settings.preallocate,
        delete: settings.cleanup_policy.delete,
        compact: settings.cleanup_policy.compact,
        delete_retention_ms: settings.delete_retention_ms,
        min_compaction_lag_ms: settings.min_compaction_lag_ms,
        max_compaction_lag_ms: settings.max_compaction_lag_ms,
        min_cleanable_dirty_ratio: settings.min_cleanable_dirty_ratio,
    }
}

/// A broker's setting in force, dynamic changes included.
pub(crate) fn broker_value(config: &BrokerConfig, image: &MetadataImage, name: &str) -> Option<String> {
    let nothing = Settings::new();
    let beneath = Beneath::new(config, image);
    effective_value(Scope::Broker, name, beneath.topic(&nothing)).map(|(value, _)| value)
}

/// The same where it is a number.
pub(crate) fn broker_number<T: TryFrom<i64>>(config: &BrokerConfig, image: &MetadataImage, name: &str) -> Option<T> {
    let value = broker_value(config, image, name)?;
    value.parse::<i64>().ok().and_then(|number| T::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_throttled_replicas_name_partition_and_broker() {
        let listed = |list, index| names_replica(list, PartitionIndex(index), 7);
        assert!(listed("*", 3) && listed("1:7, 3:7", 3));
        assert!(!listed("3:8,13:7", 3) && !listed("", 3));
    }

    #[test]
    fn partitions_of_a_topic_roll_at_times_of_their_own_within_the_jitter() {
        let rolls: Vec<i64> = (0..50).map(|index| jittered(1000, 100, Uuid([3; 16]), PartitionIndex(index))).collect();
        assert!(rolls.iter().all(|ms| (900..=1000).contains(ms)), "{rolls:?}");
        assert!(rolls.iter().collect::<std::collections::BTreeSet<_>>().len() > 25, "{rolls:?}");
        assert_eq!(jittered(1000, 0, Uuid([3; 16]), PartitionIndex(7)), 1000);
        assert_eq!(jittered(5, i64::MAX, Uuid([3; 16]), PartitionIndex(7)), 1);
    }
}
