//! DeleteTopics: by name, and from version 6 by id. A topic is gone, and its partitions closed, before the answer leaves; its files
//! go after `file.delete.delay.ms`.

use std::sync::Arc;

use forebay_broker_machines::metadata::{Command, DeletedTopic, Reply, TopicReference};
use forebay_broker_wire::messages::delete_topics::{
    DeletableTopicResult, DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse,
};
use forebay_broker_wire::types::{ErrorCode, Str, Uuid};

use super::error_code::{Failure, code_of_delete_topic, failure_of_submit};
use super::request::RequestContext;
use crate::broker::Broker;

/// TOPIC_DELETION_DISABLED is known from this version on.
const DISABLED_FROM_VERSION: i16 = 3;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    let by_name = |name: Str| DeleteTopicState { name: Some(name), topic_id: Uuid::ZERO };
    let asked: Vec<DeleteTopicState> =
        request.topics.into_iter().chain(request.topic_names.into_iter().map(by_name)).collect();
    let read: Vec<_> = asked.iter().map(|topic| reference(broker, context, topic)).collect();
    let references = read.iter().filter_map(|topic| topic.as_ref().ok().cloned()).collect();
    let mut decided = submit(broker, references).await.into_iter();
    let answer = |(asked, reference): (DeleteTopicState, Result<TopicReference, Failure>)| match reference
        .and_then(|_| decided.next().unwrap_or_else(no_answer))
    {
        Ok(gone) => {
            DeletableTopicResult { name: Some(gone.name.into()), topic_id: gone.id, ..DeletableTopicResult::default() }
        }
        Err(failure) => DeletableTopicResult {
            name: asked.name,
            topic_id: asked.topic_id,
            error_code: failure.code.code(),
            error_message: Some(failure.message.into()),
        },
    };
    let responses = asked.into_iter().zip(read).map(answer).collect();
    DeleteTopicsResponse { responses, ..DeleteTopicsResponse::default() }
}

fn reference(broker: &Broker, context: &RequestContext, topic: &DeleteTopicState) -> Result<TopicReference, Failure> {
    if !broker.config.delete_topic_enable {
        let code = if context.api_version < DISABLED_FROM_VERSION {
            ErrorCode::InvalidRequest
        } else {
            ErrorCode::TopicDeletionDisabled
        };
        return Err(Failure::new(code, "delete.topic.enable=false: topics cannot be deleted on this broker"));
    }
    match (&topic.name, topic.topic_id) {
        (Some(name), Uuid::ZERO) => Ok(TopicReference::Name(name.to_string())),
        (None, id) if id != Uuid::ZERO => Ok(TopicReference::Id(id)),
        _ => Err(Failure::new(
            ErrorCode::InvalidRequest,
            "a topic must be named by its name or by its id, not by both or neither",
        )),
    }
}

async fn submit(broker: &Arc<Broker>, topics: Vec<TopicReference>) -> Vec<Result<DeletedTopic, Failure>> {
    let count = topics.len();
    if count == 0 {
        return Vec::new();
    }
    match broker.submit(Command::DeleteTopics { topics }).await {
        Ok(Reply::TopicsDeleted(results)) => {
            let refuse = |error| Failure::new(code_of_delete_topic(&error), error.to_string());
            results.into_iter().map(|result| result.map_err(refuse)).collect()
        }
        Ok(_) => Vec::new(),
        Err(error) => vec![Err(failure_of_submit(&error)); count],
    }
}

fn no_answer<T>() -> Result<T, Failure> {
    Err(Failure::new(ErrorCode::UnknownServerError, "the controller gave no answer for this topic"))
}
