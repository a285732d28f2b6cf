//! DescribeQuorum: who votes on metadata and how far each has come. Only the quorum's leader knows; it is asked.

use std::sync::Arc;
use std::time::Duration;

use forebay_broker_machines::metadata::CLUSTER_METADATA_TOPIC;
use forebay_broker_wire::messages::describe_quorum::{
    DescribeQuorumRequest, DescribeQuorumResponse, Listener, Node, ReplicaState, RequestTopicData,
    ResponsePartitionData, ResponseTopicData,
};
use forebay_broker_wire::types::{ErrorCode, Uuid};

use super::request::RequestContext;
use crate::broker::Broker;
use crate::io::append::now_ms;
use crate::quorum::{ControllerReply, ControllerRequest, MemberStatus, QuorumStatus};

/// How long the leader may take.
const ANSWER_MAX: Duration = Duration::from_secs(5);

pub(super) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DescribeQuorumRequest,
) -> DescribeQuorumResponse {
    let status = match broker.ask_controller(ControllerRequest::DescribeQuorum, ANSWER_MAX).await {
        Ok(ControllerReply::Quorum(status)) => Ok(status),
        Ok(_) => Err("the metadata quorum's leader changes".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    match status {
        Ok(status) => describe(broker, context, &request.topics, &status),
        Err(message) => DescribeQuorumResponse {
            error_code: ErrorCode::NotLeaderOrFollower.code(),
            error_message: (context.api_version >= 2).then(|| message.into()),
            ..DescribeQuorumResponse::default()
        },
    }
}

fn describe(
    broker: &Broker,
    context: &RequestContext,
    topics: &[RequestTopicData],
    status: &QuorumStatus,
) -> DescribeQuorumResponse {
    let topics = topics.iter().map(|topic| ResponseTopicData {
        topic_name: topic.topic_name.clone(),
        partitions: topic
            .partitions
            .iter()
            .map(|partition| match (&*topic.topic_name, partition.partition_index) {
                (CLUSTER_METADATA_TOPIC, 0) => describe_partition(status, context.api_version, now_ms()),
                (_, partition_index) => ResponsePartitionData {
                    partition_index,
                    error_code: ErrorCode::UnknownTopicOrPartition.code(),
                    ..ResponsePartitionData::default()
                },
            })
            .collect(),
    });
    let topics = topics.collect();
    if context.api_version < 2 {
        return DescribeQuorumResponse { topics, ..DescribeQuorumResponse::default() };
    }
    let listener = broker.config.quorum.as_ref().map_or("CONTROLLER", |quorum| &quorum.listener.name);
    let members = status.voters.iter().chain(&status.learners);
    let nodes = members.map(|member| Node {
        node_id: member.voter.broker.0,
        listeners: vec![Listener {
            name: listener.into(),
            host: member.address.host.as_str().into(),
            port: member.address.port,
        }],
    });
    DescribeQuorumResponse { topics, nodes: nodes.collect(), ..DescribeQuorumResponse::default() }
}

fn describe_partition(status: &QuorumStatus, version: i16, now_ms: i64) -> ResponsePartitionData {
    let replica = |member: &MemberStatus| {
        let heard_at_ms = if member.heard_ms_ago < 0 { -1 } else { now_ms - member.heard_ms_ago };
        let caught_up = member.log_end >= status.high_watermark;
        ReplicaState {
            replica_id: member.voter.broker.0,
            replica_directory_id: if version >= 2 { member.voter.directory } else { Uuid::ZERO },
            log_end_offset: member.log_end,
            last_fetch_timestamp: heard_at_ms,
            last_caught_up_timestamp: if caught_up { heard_at_ms } else { -1 },
        }
    };
    ResponsePartitionData {
        partition_index: 0,
        leader_id: status.leader.map_or(-1, |leader| leader.broker.0),
        leader_epoch: i32::try_from(status.term).unwrap_or(i32::MAX),
        high_watermark: status.high_watermark,
        current_voters: status.voters.iter().map(replica).collect(),
        observers: status.learners.iter().map(replica).collect(),
        ..ResponsePartitionData::default()
    }
}
