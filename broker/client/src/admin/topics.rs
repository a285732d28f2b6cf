//! Topics: what there is, create, grow, delete, delete records.

use std::collections::BTreeMap;

use forebay_broker_wire::messages::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use forebay_broker_wire::messages::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};
use forebay_broker_wire::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use forebay_broker_wire::messages::metadata::{MetadataResponsePartition, MetadataResponseTopic};
use forebay_broker_wire::types::{BrokerId, ErrorCode, Str, Uuid};
use serde::Serialize;

use super::{Admin, Each, batches};
use crate::error::{Refused, RequestError};

/// Topics asked about in one Metadata request.
const TOPICS_A_REQUEST: usize = 2_000;

/// A partition and its replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartitionDescription {
    /// Its index.
    pub index: i32,
    /// The leader; none while there is no election or no candidate.
    pub leader: Option<BrokerId>,
    /// Counts its leaders.
    pub leader_epoch: i32,
    /// All replicas, the preferred leader first.
    pub replicas: Vec<BrokerId>,
    /// The replicas that are in sync.
    pub isr: Vec<BrokerId>,
    /// Replicas on brokers or disks that are away.
    pub offline: Vec<BrokerId>,
}

/// A topic and its partitions, in the order of their indexes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopicDescription {
    /// The topic's name.
    pub name: String,
    /// The topic's id: a topic that is deleted and made again has another.
    #[serde(serialize_with = "as_text")]
    pub topic_id: Uuid,
    /// Whether it is the broker's own.
    pub internal: bool,
    /// Its partitions.
    pub partitions: Vec<PartitionDescription>,
}

impl TopicDescription {
    /// The replication factor: what the first partition has.
    #[must_use]
    pub fn replication_factor(&self) -> usize {
        self.partitions.first().map_or(0, |p| p.replicas.len())
    }
}

fn as_text<S: serde::Serializer>(id: &Uuid, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

/// A topic to create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// Partitions; -1 for the broker's default.
    pub partitions: i32,
    /// Replicas of each; -1 for the broker's default.
    pub replication_factor: i16,
    /// Replicas by partition, instead of the two counts.
    pub assignment: BTreeMap<i32, Vec<BrokerId>>,
    /// Settings other than the defaults.
    pub configs: BTreeMap<String, String>,
}

/// What came of creating a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CreatedTopic {
    /// Its id; zero from brokers that don't tell.
    #[serde(serialize_with = "as_text")]
    pub topic_id: Uuid,
    /// Its partitions; -1 from brokers that don't tell.
    pub partitions: i32,
    /// Its replication factor; -1 from brokers that don't tell.
    pub replication_factor: i16,
}

impl Admin {
    /// All topics, the broker's own included.
    pub async fn list_topics(&self) -> Result<Each<String, TopicDescription>, RequestError> {
        let response = self.client.retry(async || self.client.metadata(None).await).await?;
        Ok(response.topics.into_iter().map(described).collect())
    }

    /// The named topics; one that is not there is refused with `UNKNOWN_TOPIC_OR_PARTITION`. Never creates one.
    pub async fn describe_topics(&self, names: &[&str]) -> Result<Each<String, TopicDescription>, RequestError> {
        let mut all = Each::new();
        for some in batches(names, TOPICS_A_REQUEST) {
            let response = self.client.retry(async || self.client.metadata(Some(some)).await).await?;
            all.extend(response.topics.into_iter().map(described));
        }
        Ok(all)
    }

    /// Creates topics, or only checks whether they could be created.
    pub async fn create_topics(
        &self,
        topics: &[NewTopic],
        validate_only: bool,
    ) -> Result<Each<String, CreatedTopic>, RequestError> {
        let request = CreateTopicsRequest {
            topics: topics.iter().map(creatable).collect(),
            timeout_ms: self.change_timeout_ms(),
            validate_only,
        };
        let send = async || {
            let response = self.client.controller().await?.send_waiting(&request, self.change_timeout()).await?;
            not_controller(response.topics.iter().map(|t| t.error_code))?;
            Ok(response)
        };
        let response = self.client.retry(send).await?;
        let outcome = response.topics.into_iter().map(|t| {
            let made = CreatedTopic {
                topic_id: t.topic_id,
                partitions: t.num_partitions,
                replication_factor: t.replication_factor,
            };
            (t.name.into(), Refused::check(t.error_code, t.error_message.as_ref()).map(|()| made))
        });
        Ok(outcome.collect())
    }

    /// Deletes topics by name.
    pub async fn delete_topics(&self, names: &[&str]) -> Result<Each<String, ()>, RequestError> {
        let send = async || {
            let controller = self.client.controller().await?;
            let mut request = DeleteTopicsRequest { timeout_ms: self.change_timeout_ms(), ..Default::default() };
            if controller.version_of::<DeleteTopicsRequest>()? >= 6 {
                let named = |n: &&str| DeleteTopicState { name: Some(Str::from(*n)), ..Default::default() };
                request.topics = names.iter().map(named).collect();
            } else {
                request.topic_names = names.iter().map(|n| Str::from(*n)).collect();
            }
            let response = controller.send_waiting(&request, self.change_timeout()).await?;
            not_controller(response.responses.iter().map(|t| t.error_code))?;
            Ok(response)
        };
        let response = self.client.retry(send).await?;
        let outcome = response
            .responses
            .into_iter()
            .filter_map(|t| Some((t.name?.into(), Refused::check(t.error_code, t.error_message.as_ref()))));
        Ok(outcome.collect())
    }

    /// Grows topics to so many partitions, or only checks whether they could grow.
    pub async fn create_partitions(
        &self,
        counts: &[(&str, i32)],
        validate_only: bool,
    ) -> Result<Each<String, ()>, RequestError> {
        let wanted =
            |&(name, count): &(&str, i32)| CreatePartitionsTopic { name: Str::from(name), count, assignments: None };
        let request = CreatePartitionsRequest {
            topics: counts.iter().map(wanted).collect(),
            timeout_ms: self.change_timeout_ms(),
            validate_only,
        };
        let send = async || {
            let response = self.client.controller().await?.send_waiting(&request, self.change_timeout()).await?;
            not_controller(response.results.iter().map(|t| t.error_code))?;
            Ok(response)
        };
        let response = self.client.retry(send).await?;
        let outcome = response.results.into_iter();
        Ok(outcome.map(|t| (t.name.into(), Refused::check(t.error_code, t.error_message.as_ref()))).collect())
    }
}

/// A controller that lost its office says so for each topic; the whole request is then worth another try.
fn not_controller(mut codes: impl Iterator<Item = i16>) -> Result<(), RequestError> {
    match codes.find(|code| *code == ErrorCode::NotController as i16) {
        Some(code) => RequestError::check(code, None, || "change of topics".to_owned()),
        None => Ok(()),
    }
}

fn creatable(topic: &NewTopic) -> CreatableTopic {
    let assigned = |(index, brokers): (&i32, &Vec<BrokerId>)| CreatableReplicaAssignment {
        partition_index: *index,
        broker_ids: brokers.iter().map(|b| b.0).collect(),
    };
    let config = |(name, value): (&String, &String)| CreatableTopicConfig {
        name: Str::from(name),
        value: Some(Str::from(value)),
    };
    let counted = topic.assignment.is_empty();
    CreatableTopic {
        name: Str::from(&topic.name),
        num_partitions: if counted { topic.partitions } else { -1 },
        replication_factor: if counted { topic.replication_factor } else { -1 },
        assignments: topic.assignment.iter().map(assigned).collect(),
        configs: topic.configs.iter().map(config).collect(),
    }
}

fn described(topic: MetadataResponseTopic) -> (String, Result<TopicDescription, Refused>) {
    let name: String = topic.name.map(Into::into).unwrap_or_default();
    let result = Refused::check(topic.error_code, None).map(|()| {
        let mut partitions: Vec<_> = topic.partitions.into_iter().map(partition).collect();
        partitions.sort_by_key(|p| p.index);
        TopicDescription { name: name.clone(), topic_id: topic.topic_id, internal: topic.is_internal, partitions }
    });
    (name, result)
}

fn partition(p: MetadataResponsePartition) -> PartitionDescription {
    let ids = |ids: Vec<i32>| ids.into_iter().map(BrokerId).collect();
    PartitionDescription {
        index: p.partition_index,
        leader: Some(BrokerId(p.leader_id)).filter(|id| *id != BrokerId::NONE),
        leader_epoch: p.leader_epoch,
        replicas: ids(p.replica_nodes),
        isr: ids(p.isr_nodes),
        offline: ids(p.offline_replicas),
    }
}
