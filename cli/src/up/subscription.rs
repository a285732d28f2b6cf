//! What the brokers say about a profile's topics: partitions, leaders, and the limits that client settings run into.

use std::collections::BTreeSet;

use forebay_broker_client::Admin;
use forebay_broker_client::admin::{ConfigEntry, ConfigResource, Each};
use forebay_profile::{BrokerLimits, Subscription};

/// Reads it; `Err` inside names the topic that can't be had.
pub(super) async fn read(admin: &Admin, topics: &[String]) -> anyhow::Result<Result<Subscription, String>> {
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    let mut partitions = 0;
    let mut leaders = BTreeSet::new();
    for (name, topic) in admin.describe_topics(&names).await? {
        match topic {
            Ok(topic) => {
                partitions += topic.partitions.len();
                leaders.extend(topic.partitions.iter().filter_map(|p| p.leader));
            }
            Err(refused) => return Ok(Err(format!("topic {name}: {refused}"))),
        }
    }
    let of_topics: Vec<_> = topics.iter().cloned().map(ConfigResource::Topic).collect();
    let of_brokers: Vec<_> = leaders.iter().copied().map(ConfigResource::Broker).collect();
    let configs = admin.describe_configs(&[of_topics, of_brokers].concat()).await?;
    let brokers = i64::try_from(leaders.len())?.max(1);
    Ok(Ok(Subscription { partitions: i64::try_from(partitions)?, brokers, limits: limits(&configs) }))
}

/// The limits: of topics the largest, of brokers the tightest. What nobody tells keeps Kafka's default.
fn limits(configs: &Each<ConfigResource, Vec<ConfigEntry>>) -> BrokerLimits {
    let values = |of_topics: bool, name: &str| -> Vec<i64> {
        let wanted = configs.iter().filter(|(resource, _)| matches!(resource, ConfigResource::Topic(_)) == of_topics);
        let entries = wanted.filter_map(|(_, entries)| entries.as_ref().ok()).flatten();
        entries.filter(|entry| entry.name == name).filter_map(|entry| entry.value.as_ref()?.parse().ok()).collect()
    };
    let least = |name, default| values(false, name).into_iter().min().unwrap_or(default);
    let most = |of_topics, name, default| values(of_topics, name).into_iter().max().unwrap_or(default);
    let default = BrokerLimits::default();
    BrokerLimits {
        max_message_bytes: most(true, "max.message.bytes", default.max_message_bytes),
        fetch_max_bytes: least("fetch.max.bytes", default.fetch_max_bytes),
        session_timeout_ms_min: most(false, "group.min.session.timeout.ms", default.session_timeout_ms_min),
        session_timeout_ms_max: least("group.max.session.timeout.ms", default.session_timeout_ms_max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_broker_client::admin::ConfigSource;
    use forebay_broker_client::types::BrokerId;

    fn entry(name: &str, value: &str) -> ConfigEntry {
        let source = ConfigSource::DefaultConfig;
        ConfigEntry { name: name.to_owned(), value: Some(value.to_owned()), source, read_only: false, sensitive: false }
    }

    #[test]
    fn the_largest_batch_of_a_topic_and_the_tightest_broker_count() {
        let configs = Each::from([
            (ConfigResource::Topic("a".to_owned()), Ok(vec![entry("max.message.bytes", "5000000")])),
            (ConfigResource::Topic("b".to_owned()), Ok(vec![entry("max.message.bytes", "100")])),
            (
                ConfigResource::Broker(BrokerId(0)),
                Ok(vec![entry("fetch.max.bytes", "900"), entry("max.message.bytes", "9")]),
            ),
            (ConfigResource::Broker(BrokerId(1)), Ok(vec![entry("fetch.max.bytes", "800")])),
        ]);
        let read = limits(&configs);
        assert_eq!((read.max_message_bytes, read.fetch_max_bytes), (5_000_000, 800));
        assert_eq!(read.session_timeout_ms_min, BrokerLimits::default().session_timeout_ms_min);
    }
}
