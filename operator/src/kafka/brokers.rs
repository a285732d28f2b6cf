//! One look at a whole cluster through its brokers, for whoever is about to take one down: every partition with its
//! replicas, who of them is in sync and how many must be, and who leads the metadata quorum.

use std::collections::{BTreeMap, BTreeSet};

use forebay_broker_client::Admin;
use forebay_broker_client::admin::{
    ConfigChange, ConfigEntry, ConfigResource, ConfigSource, Each, QuorumDescription, TopicDescription,
};
use forebay_broker_client::types::BrokerId;
use forebay_broker_config::Settings;

/// The setting that says how many replicas must be in sync.
const MIN_ISR: &str = "min.insync.replicas";

/// A partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartitionSeen {
    pub(crate) topic: String,
    pub(crate) index: i32,
    /// The preferred leader first.
    pub(crate) replicas: Vec<i32>,
    pub(crate) in_sync: Vec<i32>,
    /// Fewer in sync, and records sent with acks=all are refused.
    pub(crate) min_in_sync: usize,
}

/// A cluster as its brokers have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BrokersSeen {
    pub(crate) partitions: Vec<PartitionSeen>,
    /// The broker that leads the metadata quorum.
    pub(crate) quorum_leader: Option<i32>,
    pub(crate) voters: Vec<i32>,
}

/// Looks; three calls, however many topics there are up to 500, and one more for each 500 beyond.
pub(crate) async fn look(admin: &Admin) -> Result<BrokersSeen, String> {
    let text = |error: forebay_broker_client::RequestError| error.to_string();
    let quorum = admin.describe_quorum().await.map_err(text)?;
    let topics = admin.list_topics().await.map_err(text)?;
    let resources: Vec<ConfigResource> = topics.keys().cloned().map(ConfigResource::Topic).collect();
    let configs = match resources.is_empty() {
        true => Each::new(),
        false => admin.describe_named_configs(&resources, &[MIN_ISR]).await.map_err(text)?,
    };
    seen(&quorum, topics, &configs)
}

/// What is set on all brokers while they run.
pub(crate) async fn set_on_all(admin: &Admin) -> Result<Settings, String> {
    let asked = [ConfigResource::AllBrokers];
    let mut described = admin.describe_configs(&asked).await.map_err(|error| error.to_string())?;
    let entries = described.remove(&ConfigResource::AllBrokers).ok_or("the brokers did not describe their settings")?;
    let entries = entries.map_err(|refused| refused.to_string())?.into_iter();
    let set = entries.filter(|entry| entry.source == ConfigSource::DynamicDefaultBrokerConfig);
    Ok(set.filter_map(|entry| Some((entry.name, entry.value?))).collect())
}

/// Sets settings on all brokers while they run.
pub(crate) async fn set(admin: &Admin, settings: &Settings) -> Result<(), String> {
    let set = |(name, value): (&String, &String)| ConfigChange::Set { name: name.clone(), value: value.clone() };
    let changes = [(ConfigResource::AllBrokers, settings.iter().map(set).collect())];
    let altered = admin.incremental_alter_configs(&changes, false).await.map_err(|error| error.to_string())?;
    altered.into_values().collect::<Result<(), _>>().map_err(|refused| refused.to_string())
}

/// Sets a setting of single brokers while they run, each by asking that broker; none takes it back.
pub(crate) async fn set_on_each(
    admin: &Admin,
    name: &str,
    values: &BTreeMap<i32, Option<String>>,
) -> Result<(), String> {
    let change = |value: &Option<String>| match value {
        Some(value) => ConfigChange::Set { name: name.to_owned(), value: value.clone() },
        None => ConfigChange::Delete { name: name.to_owned() },
    };
    let changes: Vec<_> =
        values.iter().map(|(id, value)| (ConfigResource::Broker(BrokerId(*id)), vec![change(value)])).collect();
    let altered = admin.incremental_alter_configs(&changes, false).await.map_err(|error| error.to_string())?;
    let refused = altered.into_iter().filter_map(|(which, result)| Some(format!("{which}: {}", result.err()?)));
    let refused: Vec<String> = refused.collect();
    if refused.is_empty() { Ok(()) } else { Err(refused.join("; ")) }
}

/// What cannot be told is an error: whoever asks must not take a partition for safe of which nothing is known.
fn seen(
    quorum: &QuorumDescription,
    topics: Each<String, TopicDescription>,
    configs: &Each<ConfigResource, Vec<ConfigEntry>>,
) -> Result<BrokersSeen, String> {
    let mut partitions = Vec::new();
    for (name, topic) in topics {
        let topic = topic.map_err(|refused| format!("topic {name}: {refused}"))?;
        let entries = match configs.get(&ConfigResource::Topic(name.clone())) {
            Some(Ok(entries)) => entries,
            // Deleted between the two calls.
            Some(Err(refused)) if refused.code == forebay_broker_client::types::ErrorCode::UnknownTopicOrPartition => {
                continue;
            }
            Some(Err(refused)) => return Err(format!("settings of topic {name}: {refused}")),
            None => return Err(format!("settings of topic {name} were not told")),
        };
        let min = entries.iter().find(|entry| entry.name == MIN_ISR).and_then(|entry| entry.value.as_ref());
        let min: usize = min
            .and_then(|value| value.parse().ok())
            .ok_or_else(|| format!("{MIN_ISR} of topic {name} was not told"))?;
        partitions.extend(topic.partitions.into_iter().map(|partition| PartitionSeen {
            topic: name.clone(),
            index: partition.index,
            replicas: partition.replicas.iter().map(|id| id.0).collect(),
            in_sync: partition.isr.iter().map(|id| id.0).collect(),
            min_in_sync: min,
        }));
    }
    let voters = quorum.voters.iter().map(|id| id.0).collect();
    Ok(BrokersSeen { partitions, quorum_leader: quorum.leader.map(|id| id.0), voters })
}

/// Names with how many there are beyond the first few: a message that people can read.
pub(crate) fn some_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const MOST: usize = 5;
    let names: BTreeSet<&str> = names.into_iter().collect();
    let first: Vec<&str> = names.iter().copied().take(MOST).collect();
    match names.len().saturating_sub(MOST) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use forebay_broker_client::Refused;
    use forebay_broker_client::admin::PartitionDescription;
    use forebay_broker_client::types::{BrokerId, ErrorCode, Uuid};

    use super::*;

    fn topics() -> Each<String, TopicDescription> {
        let ids = |ids: &[i32]| ids.iter().copied().map(BrokerId).collect();
        let partition = PartitionDescription {
            index: 0,
            leader: Some(BrokerId(1)),
            leader_epoch: 0,
            replicas: ids(&[1, 2]),
            isr: ids(&[2]),
            offline: ids(&[1]),
        };
        let topic =
            TopicDescription { name: "t".into(), topic_id: Uuid::ZERO, internal: false, partitions: vec![partition] };
        [("t".to_owned(), Ok(topic))].into()
    }

    fn configs(value: Result<Option<&str>, ErrorCode>) -> Each<ConfigResource, Vec<ConfigEntry>> {
        let entry = |value: &str| ConfigEntry {
            name: MIN_ISR.into(),
            value: Some(value.into()),
            source: ConfigSource::DefaultConfig,
            read_only: false,
            sensitive: false,
        };
        let entries = value.map(|value| value.map(entry).into_iter().collect()).map_err(Refused::of);
        [(ConfigResource::Topic("t".into()), entries)].into()
    }

    #[test]
    fn partitions_come_with_their_replicas_and_their_minimum() {
        let quorum = QuorumDescription { leader: Some(BrokerId(2)), ..QuorumDescription::default() };
        let seen = seen(&quorum, topics(), &configs(Ok(Some("2")))).unwrap();
        let expected =
            PartitionSeen { topic: "t".into(), index: 0, replicas: vec![1, 2], in_sync: vec![2], min_in_sync: 2 };
        assert_eq!((seen.partitions, seen.quorum_leader), (vec![expected], Some(2)));
    }

    #[test]
    fn what_is_not_told_is_an_error_and_a_topic_that_has_just_gone_is_none() {
        let of = |value| seen(&QuorumDescription::default(), topics(), &configs(value));
        assert!(of(Ok(None)).unwrap_err().contains("min.insync.replicas of topic t"));
        assert!(of(Err(ErrorCode::ClusterAuthorizationFailed)).is_err());
        assert_eq!(of(Err(ErrorCode::UnknownTopicOrPartition)).unwrap().partitions, []);
    }

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(some_of(["b", "a", "b"]), "a, b");
        assert_eq!(some_of(["g", "f", "e", "d", "c", "b", "a"]), "a, b, c, d, e and 2 more");
    }
}
