//! One look at what a scale-down or a rebalance goes by: which partitions are on their way, which topics are throttled for it, what
//! leaving brokers still have on their disks, who is registered. And the requests that move partitions.

use std::collections::{BTreeMap, BTreeSet};

use forebay_broker_client::Admin;
use forebay_broker_client::admin::{ConfigChange, ConfigResource, ConfigSource, Each};
use forebay_broker_client::types::BrokerId;
use forebay_broker_client::{RequestError, TopicPartition};

/// Kafka's settings by which replicas that are not in sync are held back: their lists on topics, their rates on brokers.
const THROTTLED_REPLICAS: [&str; 2] =
    ["leader.replication.throttled.replicas", "follower.replication.throttled.replicas"];
const THROTTLED_RATES: [&str; 2] = ["leader.replication.throttled.rate", "follower.replication.throttled.rate"];
/// All replicas of a topic. Tools write lists, which are theirs.
const ALL_REPLICAS: &str = "*";

/// Partitions on their way at a time: each takes room on a disk and in the brokers' attention.
pub(crate) const MOVES_AT_ONCE: usize = 100;

/// What a scale-down or a rebalance goes by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MovesSeen {
    /// Partitions on their way to other brokers, and the brokers that each will be on.
    pub(crate) moving: BTreeMap<(String, i32), Vec<i32>>,
    /// Topics whose moves are throttled by the operator.
    pub(crate) throttled: BTreeSet<String>,
    /// The rate in force on all brokers, if there is one.
    pub(crate) bytes_per_second: Option<i64>,
    /// Replicas on the disks of each leaving broker that could be asked.
    pub(crate) on_disks: BTreeMap<i32, usize>,
    /// Brokers at work, with their racks.
    pub(crate) at_work: BTreeMap<i32, Option<String>>,
}

/// A partition and the brokers that it is to be on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) topic: String,
    pub(crate) index: i32,
    pub(crate) to: Vec<i32>,
}

/// Looks. `topics` are all that there are, `leaving` the brokers that are to go.
pub(crate) async fn look(admin: &Admin, topics: &BTreeSet<&str>, leaving: &[i32]) -> Result<MovesSeen, String> {
    let text = |error: RequestError| error.to_string();
    let moving = admin.list_partition_reassignments().await.map_err(text)?;
    let mut resources: Vec<ConfigResource> =
        topics.iter().map(|topic| ConfigResource::Topic((*topic).to_owned())).collect();
    resources.push(ConfigResource::AllBrokers);
    let names = [THROTTLED_REPLICAS, THROTTLED_RATES].concat();
    let configs = admin.describe_named_configs(&resources, &names).await.map_err(text)?;
    let (mut throttled, mut bytes_per_second) = (BTreeSet::new(), None);
    for (resource, entries) in configs {
        for entry in entries.unwrap_or_default() {
            match (&resource, entry.source, entry.value) {
                (ConfigResource::Topic(name), ConfigSource::TopicConfig, Some(value)) if value == ALL_REPLICAS => {
                    throttled.insert(name.clone());
                }
                (ConfigResource::AllBrokers, ConfigSource::DynamicDefaultBrokerConfig, Some(value))
                    if THROTTLED_RATES.contains(&entry.name.as_str()) =>
                {
                    bytes_per_second = value.parse().ok();
                }
                _ => {}
            }
        }
    }
    let brokers = admin.describe_cluster().await.map_err(text)?.brokers;
    let at_work: BTreeMap<i32, Option<String>> = brokers.into_iter().map(|broker| (broker.id.0, broker.rack)).collect();
    let mut on_disks = BTreeMap::new();
    for id in leaving.iter().filter(|id| at_work.contains_key(id)) {
        let dirs = admin.describe_log_dirs(BrokerId(*id)).await.map_err(text)?;
        on_disks.insert(*id, dirs.iter().flatten().map(|dir| dir.replicas.len()).sum());
    }
    let moving = moving.into_iter().map(|(partition, one)| {
        let stays = one.replicas.iter().filter(|id| !one.removing.contains(id));
        ((partition.topic, partition.partition), stays.map(|id| id.0).collect())
    });
    let moving = moving.collect();
    Ok(MovesSeen { moving, throttled, bytes_per_second, on_disks, at_work })
}

/// Has partitions moved, no faster than the rate.
pub(crate) async fn start(admin: &Admin, moves: &[Move], bytes_per_second: i64) -> Result<(), String> {
    let rate = bytes_per_second.to_string();
    let set = |name: &&str, value: &str| ConfigChange::Set { name: (*name).to_owned(), value: value.to_owned() };
    let topics: BTreeSet<&str> = moves.iter().map(|one| one.topic.as_str()).collect();
    let of_topic = |topic: &str| {
        let lists = THROTTLED_REPLICAS.iter().map(|name| set(name, ALL_REPLICAS)).collect();
        (ConfigResource::Topic(topic.to_owned()), lists)
    };
    let rates = (ConfigResource::AllBrokers, THROTTLED_RATES.iter().map(|name| set(name, &rate)).collect());
    let changes: Vec<_> = topics.into_iter().map(of_topic).chain([rates]).collect();
    // IMPORTANT: before the moves, or they begin at full speed.
    alter(admin, &changes).await?;
    let wanted: Vec<_> = moves
        .iter()
        .map(|one| {
            let to = one.to.iter().copied().map(BrokerId).collect();
            (TopicPartition::new(&one.topic, one.index), Some(to))
        })
        .collect();
    let answers = admin.alter_partition_reassignments(&wanted).await.map_err(|error| error.to_string())?;
    first_refusal(answers)
}

/// Takes the throttle away.
pub(crate) async fn unthrottle(admin: &Admin, topics: &BTreeSet<String>) -> Result<(), String> {
    let delete = |name: &&str| ConfigChange::Delete { name: (*name).to_owned() };
    let of_topic =
        |topic: &String| (ConfigResource::Topic(topic.clone()), THROTTLED_REPLICAS.iter().map(delete).collect());
    let rates = (ConfigResource::AllBrokers, THROTTLED_RATES.iter().map(delete).collect());
    alter(admin, &topics.iter().map(of_topic).chain([rates]).collect::<Vec<_>>()).await
}

async fn alter(admin: &Admin, changes: &[(ConfigResource, Vec<ConfigChange>)]) -> Result<(), String> {
    first_refusal(admin.incremental_alter_configs(changes, false).await.map_err(|error| error.to_string())?)
}

/// What was refused first, and of how many.
pub(super) fn first_refusal<K: std::fmt::Display + Ord>(answers: Each<K, ()>) -> Result<(), String> {
    let count = answers.values().filter(|answer| answer.is_err()).count();
    let first = answers.into_iter().find_map(|(what, answer)| Some(format!("{what}: {}", answer.err()?)));
    match (first, count) {
        (None, _) => Ok(()),
        (Some(first), 1) => Err(first),
        (Some(first), count) => Err(format!("{first} (and {} more)", count - 1)),
    }
}

#[cfg(test)]
mod tests {
    use forebay_broker_client::Refused;
    use forebay_broker_client::types::ErrorCode;

    use super::*;

    #[test]
    fn the_first_refusal_is_told_and_how_many_there_are() {
        let refused = || Err(Refused::of(ErrorCode::InvalidReplicaAssignment));
        assert_eq!(first_refusal::<i32>([(1, Ok(()))].into()), Ok(()));
        assert!(first_refusal::<i32>([(1, refused())].into()).unwrap_err().starts_with("1: "));
        let two = first_refusal::<i32>([(1, Ok(())), (2, refused()), (3, refused())].into()).unwrap_err();
        assert!(two.starts_with("2: ") && two.ends_with("(and 1 more)"), "{two}");
    }
}
