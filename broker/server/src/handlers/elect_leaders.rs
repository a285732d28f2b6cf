//! ElectLeaders: preferred leaders get their partitions back, or a replica that is not in sync leads where nobody else is left.

use std::sync::Arc;

use forebay_broker_machines::metadata::{Command, Election, ElectionKind, Reply};
use forebay_broker_wire::messages::elect_leaders::{
    ElectLeadersRequest, ElectLeadersResponse, PartitionResult, ReplicaElectionResult, TopicPartitions,
};
use forebay_broker_wire::types::{ErrorCode, PartitionIndex};

use super::error_code::{Failure, code_of_election, failure_of_submit, no_answer};
use super::request::RequestContext;
use crate::broker::Broker;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ElectLeadersRequest,
) -> ElectLeadersResponse {
    let decided = match kind(request.election_type) {
        Ok(kind) => {
            let partitions = request.topic_partitions.as_deref().map(read);
            match broker.submit(Command::ElectLeaders { kind, partitions }).await {
                Ok(Reply::LeadersElected(elections)) => Ok(elections),
                Ok(_) => Err(no_answer()),
                Err(error) => Err(failure_of_submit(&error)),
            }
        }
        Err(failure) => Err(failure),
    };
    match decided {
        Ok(elections) => {
            ElectLeadersResponse { replica_election_results: by_topic(elections), ..ElectLeadersResponse::default() }
        }
        Err(failure) => refuse(context, request, &failure),
    }
}

fn kind(election_type: i8) -> Result<ElectionKind, Failure> {
    match election_type {
        0 => Ok(ElectionKind::Preferred),
        1 => Ok(ElectionKind::Unclean),
        other => {
            let message = format!("election type {other}: must be 0 (preferred) or 1 (unclean)");
            Err(Failure::new(ErrorCode::InvalidRequest, message))
        }
    }
}

fn read(topics: &[TopicPartitions]) -> Vec<(String, PartitionIndex)> {
    let of = |topic: &TopicPartitions| {
        let name = topic.topic.to_string();
        topic.partitions.iter().map(move |index| (name.clone(), PartitionIndex(*index))).collect::<Vec<_>>()
    };
    topics.iter().flat_map(of).collect()
}

/// The controller answers in the order of the question, or of the topics' names: a topic's partitions are together.
fn by_topic(elections: Vec<Election>) -> Vec<ReplicaElectionResult> {
    let mut results: Vec<ReplicaElectionResult> = Vec::new();
    for Election { topic, partition, result } in elections {
        let result = PartitionResult {
            partition_id: partition.0,
            error_code: result.as_ref().err().map_or(0, |error| code_of_election(error).code()),
            error_message: result.err().map(|error| error.to_string().into()),
        };
        match results.last_mut().filter(|last| *last.topic == *topic) {
            Some(last) => last.partition_result.push(result),
            None => results.push(ReplicaElectionResult { topic: topic.into(), partition_result: vec![result] }),
        }
    }
    results
}

/// Before version 1 there is room for an error only beside each partition.
fn refuse(context: &RequestContext, request: ElectLeadersRequest, failure: &Failure) -> ElectLeadersResponse {
    let refused = |partition_id: i32| PartitionResult {
        partition_id,
        error_code: failure.code.code(),
        error_message: Some(failure.message.as_str().into()),
    };
    let of = |topic: TopicPartitions| ReplicaElectionResult {
        topic: topic.topic,
        partition_result: topic.partitions.into_iter().map(refused).collect(),
    };
    ElectLeadersResponse {
        error_code: if context.api_version >= 1 { failure.code.code() } else { 0 },
        replica_election_results: request.topic_partitions.unwrap_or_default().into_iter().map(of).collect(),
        ..ElectLeadersResponse::default()
    }
}
