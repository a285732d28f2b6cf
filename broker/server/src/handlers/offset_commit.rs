//! OffsetCommit: acknowledged when the offsets are records in `__consumer_offsets`.
//!
//! What must hold: every partition asked about is answered, in the order asked; a topic that does not exist, or not under
//! this id any more, takes no offsets, so that a commit cannot land on a namesake.

use std::sync::Arc;

use forebay_broker_machines::groups::{
    Caller, CommitOffsets, GroupError, PartitionCommit, PerPartition, TopicCommit, TopicName,
};
use forebay_broker_wire::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse,
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use forebay_broker_wire::types::{ErrorCode, LeaderEpoch, Offset, PartitionIndex};

use super::error_code::{Failure, code_of_group, code_of_unavailable};
use super::lookup::{Topic, find_topic};
use super::request::RequestContext;
use crate::broker::Broker;

/// From here on a generation of a group that does not exist has an error of its own.
const GROUP_NOT_FOUND_FROM_VERSION: i16 = 9;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: OffsetCommitRequest,
) -> OffsetCommitResponse {
    let checked: Vec<_> = request.topics.into_iter().map(|topic| check_topic(broker, topic)).collect();
    let command = CommitOffsets {
        group: request.group_id.as_str().into(),
        caller: Caller {
            member_id: request.member_id.as_str().into(),
            instance_id: request.group_instance_id.as_ref().map(|instance| instance.as_str().into()),
            generation: request.generation_id_or_member_epoch,
        },
        retention_ms: Some(request.retention_time_ms).filter(|retention_ms| *retention_ms >= 0),
        topics: checked.iter().filter_map(|topic| topic.accepted.clone()).collect(),
    };
    let outcome = match broker.groups.commit_offsets(command).await {
        Ok(Ok(results)) => Ok(results),
        Ok(Err(GroupError::GroupNotFound { .. })) if context.api_version < GROUP_NOT_FOUND_FROM_VERSION => {
            Err(ErrorCode::IllegalGeneration)
        }
        Ok(Err(error)) => Err(code_of_group(&error)),
        Err(unavailable) => Err(code_of_unavailable(unavailable)),
    };
    OffsetCommitResponse { topics: respond(checked, &outcome), ..OffsetCommitResponse::default() }
}

/// A topic of the request: what of it may be committed, and what is said of each partition already.
struct CheckedTopic {
    response: OffsetCommitResponseTopic,
    accepted: Option<TopicCommit>,
}

fn check_topic(broker: &Broker, topic: OffsetCommitRequestTopic) -> CheckedTopic {
    let found = find_topic(broker, &topic.name, topic.topic_id);
    let mut partitions = Vec::with_capacity(topic.partitions.len());
    let mut accepted = Vec::new();
    for partition in topic.partitions {
        let partition_index = partition.partition_index;
        let checked = check_partition(&found, &partition);
        let error_code = checked.as_ref().map_or_else(|code| code.code(), |_| 0);
        partitions.push(OffsetCommitResponsePartition { partition_index, error_code });
        accepted.extend(checked);
    }
    let accepted = found.ok().filter(|_| !accepted.is_empty()).map(|topic| TopicCommit {
        topic: TopicName::from(&*topic.image.name),
        topic_id: topic.image.id,
        partitions: accepted,
    });
    let response = OffsetCommitResponseTopic { name: topic.name, topic_id: topic.topic_id, partitions };
    CheckedTopic { response, accepted }
}

fn check_partition(
    topic: &Result<Topic, Failure>,
    partition: &OffsetCommitRequestPartition,
) -> Result<PartitionCommit, ErrorCode> {
    let topic = topic.as_ref().map_err(|failure| failure.code)?;
    let index = PartitionIndex(partition.partition_index);
    if !topic.image.partitions.iter().any(|known| known.index == index) {
        return Err(ErrorCode::UnknownTopicOrPartition);
    }
    Ok(PartitionCommit {
        partition: index,
        offset: Offset(partition.committed_offset),
        leader_epoch: LeaderEpoch(partition.committed_leader_epoch),
        metadata: Arc::from(partition.committed_metadata.as_deref().unwrap_or_default()),
    })
}

/// Puts the coordinator's results, which come in the order of what was accepted, into the places left for them.
fn respond(
    checked: Vec<CheckedTopic>,
    outcome: &Result<PerPartition<Result<(), GroupError>>, ErrorCode>,
) -> Vec<OffsetCommitResponseTopic> {
    let results = outcome.as_ref().map_or(&[][..], Vec::as_slice);
    let mut results = results.iter().flat_map(|(_, partitions)| partitions).map(|(_, result)| result);
    let mut next = || match outcome {
        Ok(_) => match results.next() {
            Some(Ok(())) => ErrorCode::None,
            Some(Err(error)) => code_of_group(error),
            None => ErrorCode::UnknownServerError,
        },
        Err(code) => *code,
    };
    let mut topics = Vec::with_capacity(checked.len());
    for CheckedTopic { mut response, .. } in checked {
        for partition in response.partitions.iter_mut().filter(|partition| partition.error_code == 0) {
            partition.error_code = next().code();
        }
        topics.push(response);
    }
    topics
}
