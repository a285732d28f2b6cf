//! What is in force: an image's settings over the broker's file, typed.

use std::sync::Arc;

use forebay_broker_config::{BrokerConfig, Layers, Scope, Settings, TimestampType, TopicConfig, effective_value};
use forebay_broker_machines::metadata::{MetadataImage, TopicImage};
use forebay_broker_storage::{LogConfig, TimestampType as LogTimestampType};
use forebay_broker_wire::types::BrokerId;

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

/// A topic's settings as its logs take them.
pub(crate) fn log_config(config: &BrokerConfig, image: &MetadataImage, topic: &TopicImage) -> LogConfig {
    let settings = topic_config(config, image, topic);
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
pub(crate) fn broker_number<T: TryFrom<i64>>(config: &BrokerConfig, image: &MetadataImage, name: &str) -> Option<T> {
    let nothing = Settings::new();
    let beneath = Beneath::new(config, image);
    let (value, _) = effective_value(Scope::Broker, name, beneath.topic(&nothing))?;
    value.parse::<i64>().ok().and_then(|number| T::try_from(number).ok())
}
