//! Topics as declared: created, grown, settings put back; what would lose records is refused. Planning is pure.

use std::collections::BTreeMap;

use forebay_broker_client::Admin;
use forebay_broker_client::admin::{
    ConfigChange, ConfigEntry, ConfigResource, ConfigSource, NewTopic, TopicDescription,
};
use forebay_broker_client::types::ErrorCode;
use forebay_crds::Topic;

use crate::manifest::topic_name;

/// What is done about one topic.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Create(NewTopic),
    Grow(i32),
    Configure(Vec<ConfigChange>),
}

/// What came of one declared topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) partitions: i32,
    /// What was done, or why not.
    pub(crate) said: String,
    pub(crate) failed: bool,
}

/// Makes the topics what they are declared to be.
pub(crate) async fn apply(admin: &Admin, topics: &[Topic]) -> anyhow::Result<Vec<Outcome>> {
    let names: Vec<String> = topics.iter().map(topic_name).collect();
    let asked: Vec<&str> = names.iter().map(String::as_str).collect();
    let observed = admin.describe_topics(&asked).await?;
    let there = observed.iter().filter(|(_, topic)| topic.is_ok());
    let resources: Vec<_> = there.map(|(name, _)| ConfigResource::Topic(name.clone())).collect();
    let mut configs = admin.describe_configs(&resources).await?;
    let mut outcomes = Vec::new();
    for (topic, name) in topics.iter().zip(names) {
        let settings = configs.remove(&ConfigResource::Topic(name.clone())).and_then(Result::ok).unwrap_or_default();
        let seen = match observed.get(&name) {
            Some(Ok(description)) => Some(description),
            Some(Err(error)) if error.code != ErrorCode::UnknownTopicOrPartition => {
                outcomes.push(Outcome {
                    name,
                    partitions: topic.spec.partitions,
                    said: error.to_string(),
                    failed: true,
                });
                continue;
            }
            _ => None,
        };
        outcomes.push(apply_one(admin, topic, &name, seen, &settings).await?);
    }
    Ok(outcomes)
}

async fn apply_one(
    admin: &Admin,
    topic: &Topic,
    name: &str,
    seen: Option<&TopicDescription>,
    settings: &[ConfigEntry],
) -> anyhow::Result<Outcome> {
    let outcome =
        |said: String, failed| Outcome { name: name.to_owned(), partitions: topic.spec.partitions, said, failed };
    let steps = match plan(topic, seen, settings) {
        Ok(steps) => steps,
        Err(refusal) => return Ok(outcome(refusal, true)),
    };
    let mut said = Vec::new();
    for step in steps {
        let (refused, done) = carry_out(admin, name, step).await?;
        match refused {
            Some(refusal) => return Ok(outcome(refusal, true)),
            None => said.push(done),
        }
    }
    Ok(outcome(if said.is_empty() { "as declared".to_owned() } else { said.join(", ") }, false))
}

/// Carries out one step; gives the broker's refusal, if it refused, and what was done otherwise.
async fn carry_out(admin: &Admin, name: &str, step: Step) -> anyhow::Result<(Option<String>, String)> {
    Ok(match step {
        Step::Create(new) => {
            let results = admin.create_topics(&[new], false).await?;
            (results.into_values().find_map(Result::err).map(|e| e.to_string()), "created".to_owned())
        }
        Step::Grow(count) => {
            let results = admin.create_partitions(&[(name, count)], false).await?;
            (results.into_values().find_map(Result::err).map(|e| e.to_string()), format!("grown to {count}"))
        }
        Step::Configure(changes) => {
            let done = format!("{} settings put back", changes.len());
            let resource = ConfigResource::Topic(name.to_owned());
            let results = admin.incremental_alter_configs(&[(resource, changes)], false).await?;
            (results.into_values().find_map(Result::err).map(|e| e.to_string()), done)
        }
    })
}

/// What is to be done about a topic, or why nothing may be done.
fn plan(topic: &Topic, seen: Option<&TopicDescription>, settings: &[ConfigEntry]) -> Result<Vec<Step>, String> {
    let spec = &topic.spec;
    let declared: BTreeMap<String, String> = spec.config.iter().map(|(k, v)| (k.clone(), v.to_string())).collect();
    if let Some(why) = spec.unwritable() {
        return Err(why);
    }
    let Some(seen) = seen else {
        let replication_factor = spec.replication_factor.map_or(-1, |n| i16::try_from(n).unwrap_or(i16::MAX));
        return Ok(vec![Step::Create(NewTopic {
            name: topic_name(topic),
            partitions: spec.partitions,
            replication_factor,
            configs: declared,
            ..NewTopic::default()
        })]);
    };
    let has = i32::try_from(seen.partitions.len()).unwrap_or(i32::MAX);
    if has > spec.partitions {
        return Err(format!("has {has} partitions, spec.partitions is {}: none can be taken away", spec.partitions));
    }
    let factor = i32::try_from(seen.replication_factor()).unwrap_or(i32::MAX);
    if let Some(wanted) = spec.replication_factor.filter(|wanted| *wanted != factor) {
        return Err(format!(
            "has replication factor {factor}, spec.replicationFactor is {wanted}: `forebay up` moves no replicas; kafka-reassign-partitions does"
        ));
    }
    let mut steps = Vec::new();
    if has < spec.partitions {
        steps.push(Step::Grow(spec.partitions));
    }
    let changes = drift(&declared, settings);
    if !changes.is_empty() {
        steps.push(Step::Configure(changes));
    }
    Ok(steps)
}

/// What differs between the settings declared and those on the topic.
fn drift(declared: &BTreeMap<String, String>, settings: &[ConfigEntry]) -> Vec<ConfigChange> {
    let own: BTreeMap<&str, Option<&str>> = settings
        .iter()
        .filter(|entry| entry.source == ConfigSource::TopicConfig)
        .map(|entry| (entry.name.as_str(), entry.value.as_deref()))
        .collect();
    let wrong = declared.iter().filter(|(name, value)| own.get(name.as_str()) != Some(&Some(value.as_str())));
    let set = wrong.map(|(name, value)| ConfigChange::Set { name: name.clone(), value: value.clone() });
    let extra = own.keys().filter(|name| !declared.contains_key(**name));
    set.chain(extra.map(|name| ConfigChange::Delete { name: (*name).to_owned() })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_broker_client::admin::PartitionDescription;
    use forebay_broker_client::types::{BrokerId, Uuid};

    fn topic(partitions: i32, config: &str) -> Topic {
        let spec = format!(
            r#"{{"apiVersion":"forebay.dev/v1alpha1","kind":"Topic","metadata":{{"name":"orders"}},
            "spec":{{"clusterRef":{{"name":"demo"}},"partitions":{partitions},"config":{config}}}}}"#
        );
        serde_json::from_str(&spec).unwrap()
    }

    fn seen(partitions: i32) -> TopicDescription {
        let partition = |index| PartitionDescription {
            index,
            leader: Some(BrokerId(0)),
            leader_epoch: 0,
            replicas: vec![BrokerId(0)],
            isr: vec![BrokerId(0)],
            offline: vec![],
        };
        let partitions = (0..partitions).map(partition).collect();
        TopicDescription { name: "orders".to_owned(), topic_id: Uuid::ZERO, internal: false, partitions }
    }

    fn entry(name: &str, value: &str, source: ConfigSource) -> ConfigEntry {
        ConfigEntry { name: name.to_owned(), value: Some(value.to_owned()), source, read_only: false, sensitive: false }
    }

    #[test]
    fn a_topic_that_is_as_declared_is_left_alone() {
        let settings = [
            entry("retention.ms", "5", ConfigSource::TopicConfig),
            entry("segment.bytes", "9", ConfigSource::DefaultConfig),
        ];
        assert_eq!(plan(&topic(4, r#"{"retention.ms":5}"#), Some(&seen(4)), &settings), Ok(vec![]));
    }

    #[test]
    fn settings_changed_by_hand_are_put_back_and_those_added_are_removed() {
        let settings = [
            entry("retention.ms", "6", ConfigSource::TopicConfig),
            entry("segment.bytes", "9", ConfigSource::TopicConfig),
        ];
        let steps = plan(&topic(4, r#"{"retention.ms":5}"#), Some(&seen(4)), &settings).unwrap();
        let set = ConfigChange::Set { name: "retention.ms".to_owned(), value: "5".to_owned() };
        let delete = ConfigChange::Delete { name: "segment.bytes".to_owned() };
        assert_eq!(steps, vec![Step::Configure(vec![set, delete])]);
    }

    #[test]
    fn a_topic_grows_and_never_shrinks() {
        assert_eq!(plan(&topic(6, "{}"), Some(&seen(4)), &[]), Ok(vec![Step::Grow(6)]));
        let refusal = plan(&topic(2, "{}"), Some(&seen(4)), &[]).unwrap_err();
        assert_eq!(refusal, "has 4 partitions, spec.partitions is 2: none can be taken away");
    }

    #[test]
    fn another_replication_factor_is_told_and_one_below_min_isr_refused() {
        let mut topic = topic(4, r#"{"min.insync.replicas":2}"#);
        topic.spec.replication_factor = Some(2);
        let refusal = plan(&topic, Some(&seen(4)), &[]).unwrap_err();
        assert!(refusal.starts_with("has replication factor 1, spec.replicationFactor is 2"), "{refusal}");
        topic.spec.replication_factor = Some(1);
        for seen in [None, Some(&seen(4))] {
            let refusal = plan(&topic, seen, &[]).unwrap_err();
            assert!(refusal.contains("min.insync.replicas 2 is above spec.replicationFactor 1"), "{refusal}");
        }
    }

    #[test]
    fn a_topic_that_is_not_there_is_created_with_its_settings() {
        let steps = plan(&topic(4, r#"{"retention.ms":"5"}"#), None, &[]).unwrap();
        let [Step::Create(new)] = steps.as_slice() else { panic!("{steps:?}") };
        assert_eq!((new.partitions, new.replication_factor, new.configs["retention.ms"].as_str()), (4, -1, "5"));
    }
}
