//! CreatePartitions: topics get more partitions, never fewer.

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_broker_machines::metadata::{Command, NewPartitions, Reply};
use forebay_broker_wire::messages::create_partitions::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic, CreatePartitionsTopicResult,
};
use forebay_broker_wire::types::{BrokerId, ErrorCode};

use super::error_code::{Failure, code_of_create_partitions, failure_of_submit, no_room};
use super::request::RequestContext;
use crate::broker::Broker;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    _: &RequestContext,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let topics = request.topics.iter().map(read).collect();
    let submitted = match broker.check_room() {
        Ok(()) => {
            let submitted = broker.submit(Command::CreatePartitions { topics, validate_only: request.validate_only });
            submitted.await.map_err(|error| failure_of_submit(&error))
        }
        Err(full) => Err(no_room(&full)),
    };
    let decided = match submitted {
        Ok(Reply::PartitionsCreated(results)) => {
            let refuse = |error| Failure::new(code_of_create_partitions(&error), error.to_string());
            results.into_iter().map(|result| result.map_err(refuse)).collect()
        }
        Ok(_) => vec![
            Err(Failure::new(ErrorCode::UnknownServerError, "the controller gave no answer"));
            request.topics.len()
        ],
        Err(failure) => vec![Err(failure); request.topics.len()],
    };
    // A name that comes twice is refused by the controller, and answered once.
    let mut seen = BTreeSet::new();
    let results = request.topics.into_iter().zip(decided).filter(|(topic, _)| seen.insert(topic.name.clone()));
    let results = results.map(|(topic, result)| answer(topic, result.err())).collect();
    CreatePartitionsResponse { results, ..CreatePartitionsResponse::default() }
}

fn read(topic: &CreatePartitionsTopic) -> NewPartitions {
    let replicas = |ids: &Vec<i32>| ids.iter().copied().map(BrokerId).collect();
    NewPartitions {
        topic: topic.name.to_string(),
        count: topic.count,
        assignment: topic.assignments.as_ref().map(|all| all.iter().map(|one| replicas(&one.broker_ids)).collect()),
    }
}

fn answer(topic: CreatePartitionsTopic, failure: Option<Failure>) -> CreatePartitionsTopicResult {
    CreatePartitionsTopicResult {
        name: topic.name,
        error_code: failure.as_ref().map_or(0, |failure| failure.code.code()),
        error_message: failure.map(|failure| failure.message.into()),
    }
}
