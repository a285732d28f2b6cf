//! From what a request names (a topic by name or id, a partition by index) to what is open here, or the error to answer.

use std::sync::Arc;

use forebay_broker_machines::metadata::{TopicImage, is_internal};
use forebay_broker_wire::types::{ErrorCode, PartitionIndex, Str, Uuid};

use super::error_code::Failure;
use super::request::RequestContext;
use crate::broker::Broker;
use crate::partitions::Hosted;

/// Kafka's own tools name themselves so when they must write to a topic that clients may not.
const ADMIN_CLIENT_ID: &str = "__admin_client";

/// A topic as it was when the request came.
#[derive(Debug, Clone)]
pub(crate) struct Topic {
    pub(crate) image: Arc<TopicImage>,
}

/// By id where there is one (newer versions), else by name.
pub(crate) fn find_topic(broker: &Broker, name: &Str, id: Uuid) -> Result<Topic, Failure> {
    let image = broker.metadata.image();
    if id != Uuid::ZERO {
        let unknown = || Failure::new(ErrorCode::UnknownTopicId, format!("no topic has the id {id}"));
        return image.topic_by_id(id).cloned().map(|image| Topic { image }).ok_or_else(unknown);
    }
    let unknown = || Failure::new(ErrorCode::UnknownTopicOrPartition, format!("no topic is named '{}'", &**name));
    image.topic(name).cloned().map(|image| Topic { image }).ok_or_else(unknown)
}

impl Topic {
    pub(crate) fn partition(&self, broker: &Broker, index: PartitionIndex) -> Result<Arc<Hosted>, Failure> {
        if let Some(hosted) = broker.partitions.get(self.image.id, index) {
            // What this broker knows may be old already, since it could not take in anything new: clients are to look for another leader.
            if hosted.dir().is_hung() && hosted.others_go_on() {
                return Err(Failure::new(ErrorCode::KafkaStorageError, hosted.dir().words()));
            }
            return Ok(hosted);
        }
        let name = &self.image.name;
        Err(match self.image.partition(index) {
            None => {
                let message = format!("topic '{name}' has no partition {index}");
                Failure::new(ErrorCode::UnknownTopicOrPartition, message)
            }
            Some(partition) if !partition.replicas.contains(&broker.id()) => {
                let message = format!("this broker has no replica of partition {index} of topic '{name}'");
                Failure::new(ErrorCode::NotLeaderOrFollower, message)
            }
            Some(_) if !broker.partitions.has_followed(&broker.metadata.image()) => {
                let message = format!("partition {index} of topic '{name}' is not open on this broker yet");
                Failure::new(ErrorCode::NotLeaderOrFollower, message)
            }
            Some(_) => {
                let message = format!("partition {index} of topic '{name}' is not open on this broker");
                Failure::new(ErrorCode::KafkaStorageError, message)
            }
        })
    }

    /// Internal topics hold the coordinators' records: a stray client must not write among them.
    pub(crate) fn refuse_internal(&self, context: &RequestContext) -> Result<(), Failure> {
        let admin = context.client_id.as_deref() == Some(ADMIN_CLIENT_ID);
        if is_internal(&self.image.name) && !admin {
            let message = format!("topic '{}' is internal: clients may not write to it", self.image.name);
            return Err(Failure::new(ErrorCode::InvalidTopicException, message));
        }
        Ok(())
    }
}
