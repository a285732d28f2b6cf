//! CreateTopics: each topic is made, or refused, on its own; one that was made is open before the answer leaves.

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_broker_config::{Layers, describe_topic};
use forebay_broker_machines::metadata::{Command, CreatedTopic, NewTopic, Reply, Settings};
use forebay_broker_wire::messages::create_topics::{
    CreatableTopic, CreatableTopicConfigs, CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse,
};
use forebay_broker_wire::types::{BrokerId, ErrorCode, Str, Uuid};

use super::error_code::{Failure, code_of_create_topic, failure_of_submit, no_room};
use super::request::RequestContext;
use crate::broker::Broker;
use crate::metadata::effective::Beneath;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    _: &RequestContext,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let mut seen = BTreeSet::new();
    // A name that comes twice is refused by the controller, and answered once.
    let read: Vec<_> = request.topics.iter().map(|topic| (topic.name.clone(), read(topic))).collect();
    let asked: Vec<NewTopic> = read.iter().filter_map(|(_, topic)| topic.as_ref().ok().cloned()).collect();
    let mut decided = submit(broker, asked, request.validate_only).await.into_iter();
    let results =
        read.into_iter().map(|(name, topic)| (name, topic.and_then(|_| decided.next().unwrap_or_else(no_answer))));
    let topics = results
        .filter(|(name, _)| seen.insert(name.clone()))
        .map(|(name, result)| match result {
            Ok(created) => made(broker, name, &created, request.validate_only),
            Err(failure) => refused(name, failure),
        })
        .collect();
    CreateTopicsResponse { topics, ..CreateTopicsResponse::default() }
}

async fn submit(
    broker: &Arc<Broker>,
    topics: Vec<NewTopic>,
    validate_only: bool,
) -> Vec<Result<CreatedTopic, Failure>> {
    let count = topics.len();
    if let Err(full) = broker.check_room() {
        return vec![Err(no_room(&full)); count];
    }
    match broker.submit(Command::CreateTopics { topics, validate_only }).await {
        Ok(Reply::TopicsCreated(results)) => {
            let refuse = |error| Failure::new(code_of_create_topic(&error), error.to_string());
            results.into_iter().map(|result| result.map_err(refuse)).collect()
        }
        Ok(_) => Vec::new(),
        Err(error) => vec![Err(failure_of_submit(&error)); count],
    }
}

fn no_answer<T>() -> Result<T, Failure> {
    Err(Failure::new(ErrorCode::UnknownServerError, "the controller gave no answer for this topic"))
}

fn read(topic: &CreatableTopic) -> Result<NewTopic, Failure> {
    let mut config = Settings::new();
    for setting in &topic.configs {
        let Some(value) = &setting.value else {
            let message = format!("{}: must have a value when a topic is created", setting.name);
            return Err(Failure::new(ErrorCode::InvalidConfig, message));
        };
        config.insert(setting.name.to_string(), value.to_string());
    }
    Ok(NewTopic {
        name: topic.name.to_string(),
        partitions: Some(topic.num_partitions).filter(|count| *count != -1),
        replication_factor: Some(topic.replication_factor).filter(|factor| *factor != -1),
        assignment: assignment(topic)?,
        config,
    })
}

fn assignment(topic: &CreatableTopic) -> Result<Option<Vec<Vec<BrokerId>>>, Failure> {
    if topic.assignments.is_empty() {
        return Ok(None);
    }
    let mut sorted: Vec<_> = topic.assignments.iter().collect();
    sorted.sort_by_key(|assignment| assignment.partition_index);
    for (index, assignment) in sorted.iter().enumerate() {
        if usize::try_from(assignment.partition_index) != Ok(index) {
            let message = format!(
                "assignments of topic '{}' name partition {} where {index} is due: must be 0, 1, 2, … without gaps",
                topic.name, assignment.partition_index
            );
            return Err(Failure::new(ErrorCode::InvalidReplicaAssignment, message));
        }
    }
    Ok(Some(sorted.iter().map(|assignment| assignment.broker_ids.iter().copied().map(BrokerId).collect()).collect()))
}

fn made(broker: &Broker, name: Str, created: &CreatedTopic, validate_only: bool) -> CreatableTopicResult {
    let image = broker.metadata.image();
    let beneath = Beneath::new(&broker.config, &image);
    CreatableTopicResult {
        name,
        // Nothing has an id that was only looked at.
        topic_id: if validate_only { Uuid::ZERO } else { created.id },
        num_partitions: i32::try_from(created.partitions).unwrap_or(i32::MAX),
        replication_factor: i16::try_from(created.replication_factor).unwrap_or(i16::MAX),
        configs: Some(configs(beneath.topic(&created.config))),
        ..CreatableTopicResult::default()
    }
}

fn configs(layers: Layers<'_>) -> Vec<CreatableTopicConfigs> {
    let entry = |entry: forebay_broker_config::Entry| CreatableTopicConfigs {
        name: Str::from_static(entry.definition.name),
        value: entry.value.map(Str::from),
        read_only: false,
        config_source: entry.source as i8,
        is_sensitive: false,
    };
    describe_topic(layers).into_iter().map(entry).collect()
}

fn refused(name: Str, failure: Failure) -> CreatableTopicResult {
    CreatableTopicResult {
        name,
        error_code: failure.code.code(),
        error_message: Some(failure.message.into()),
        num_partitions: -1,
        replication_factor: -1,
        ..CreatableTopicResult::default()
    }
}
