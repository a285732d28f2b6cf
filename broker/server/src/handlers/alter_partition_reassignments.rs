//! AlterPartitionReassignments: partitions move to other brokers or get another number of replicas; or what is under way is called off.

use std::sync::Arc;

use forebay_broker_machines::metadata::{Command, Reassignment, Reply};
use forebay_broker_wire::messages::alter_partition_reassignments::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, ReassignablePartitionResponse,
    ReassignableTopic, ReassignableTopicResponse,
};
use forebay_broker_wire::types::{BrokerId, PartitionIndex};

use super::error_code::{Failure, code_of_reassign, failure_of_submit, no_answer};
use super::request::RequestContext;
use crate::broker::Broker;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    _: &RequestContext,
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse {
    let allow_replication_factor_change = request.allow_replication_factor_change;
    let command = Command::AlterPartitionReassignments {
        reassignments: request.topics.iter().flat_map(read).collect(),
        allow_replication_factor_change,
    };
    let response = AlterPartitionReassignmentsResponse { allow_replication_factor_change, ..Default::default() };
    let failure = match broker.submit(command).await {
        Ok(Reply::Reassigned(results)) => {
            let refuse = |error| Failure::new(code_of_reassign(&error), error.to_string());
            let results = results.into_iter().map(|result| result.map_err(refuse));
            return AlterPartitionReassignmentsResponse { responses: answer(request.topics, results), ..response };
        }
        Ok(_) => no_answer(),
        Err(error) => failure_of_submit(&error),
    };
    AlterPartitionReassignmentsResponse {
        error_code: failure.code.code(),
        error_message: Some(failure.message.into()),
        ..response
    }
}

fn read(topic: &ReassignableTopic) -> impl Iterator<Item = Reassignment> + '_ {
    topic.partitions.iter().map(|partition| Reassignment {
        topic: topic.name.to_string(),
        partition: PartitionIndex(partition.partition_index),
        replicas: partition.replicas.as_ref().map(|ids| ids.iter().copied().map(BrokerId).collect()),
    })
}

/// The results are in the order of the request.
fn answer(
    topics: Vec<ReassignableTopic>,
    mut results: impl Iterator<Item = Result<(), Failure>>,
) -> Vec<ReassignableTopicResponse> {
    let mut one = |partition_index: i32| {
        let failure = results.next().and_then(Result::err);
        ReassignablePartitionResponse {
            partition_index,
            error_code: failure.as_ref().map_or(0, |failure| failure.code.code()),
            error_message: failure.map(|failure| failure.message.into()),
        }
    };
    let mut of = |topic: ReassignableTopic| ReassignableTopicResponse {
        partitions: topic.partitions.iter().map(|partition| one(partition.partition_index)).collect(),
        name: topic.name,
    };
    topics.into_iter().map(&mut of).collect()
}
