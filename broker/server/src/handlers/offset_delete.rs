//! OffsetDelete: forgets committed offsets of topics that the group does not read.

use std::sync::Arc;

use forebay_broker_machines::groups::{DeleteOffsets, GroupError, TopicName};
use forebay_broker_wire::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestTopic, OffsetDeleteResponse, OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
};
use forebay_broker_wire::types::{ErrorCode, PartitionIndex, Uuid};

use super::error_code::{code_of_group, code_of_unavailable};
use super::lookup::find_topic;
use super::request::RequestContext;
use crate::broker::Broker;

type TopicResults = (TopicName, Vec<(PartitionIndex, Result<(), GroupError>)>);

pub(super) async fn handle(
    broker: &Arc<Broker>,
    _context: &RequestContext,
    request: OffsetDeleteRequest,
) -> OffsetDeleteResponse {
    let exists = |topic: &OffsetDeleteRequestTopic| find_topic(broker, &topic.name, Uuid::ZERO).is_ok();
    let (known, unknown): (Vec<_>, Vec<_>) = request.topics.into_iter().partition(exists);
    let asked = |topic: &OffsetDeleteRequestTopic| {
        let partitions = topic.partitions.iter().map(|partition| PartitionIndex(partition.partition_index));
        (TopicName::from(topic.name.as_str()), partitions.collect())
    };
    let command = DeleteOffsets { group: request.group_id.as_str().into(), topics: known.iter().map(asked).collect() };
    let code = match broker.groups.delete_offsets(command).await {
        Ok(Ok(results)) => {
            return OffsetDeleteResponse {
                topics: results.into_iter().map(topic_response).chain(unknown.into_iter().map(unknown_topic)).collect(),
                ..OffsetDeleteResponse::default()
            };
        }
        Ok(Err(error)) => code_of_group(&error),
        Err(unavailable) => code_of_unavailable(unavailable),
    };
    OffsetDeleteResponse { error_code: code.code(), ..OffsetDeleteResponse::default() }
}

fn topic_response((topic, results): TopicResults) -> OffsetDeleteResponseTopic {
    let partition = |(index, result): (PartitionIndex, Result<(), GroupError>)| OffsetDeleteResponsePartition {
        partition_index: index.0,
        error_code: result.map_or_else(|error| code_of_group(&error).code(), |()| 0),
    };
    OffsetDeleteResponseTopic { name: topic.as_str().into(), partitions: results.into_iter().map(partition).collect() }
}

fn unknown_topic(topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic {
    let partitions = topic.partitions.iter().map(|partition| OffsetDeleteResponsePartition {
        partition_index: partition.partition_index,
        error_code: ErrorCode::UnknownTopicOrPartition.code(),
    });
    OffsetDeleteResponseTopic { partitions: partitions.collect(), name: topic.name }
}
