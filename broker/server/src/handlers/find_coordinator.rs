//! FindCoordinator: which broker keeps a group. The first question makes `__consumer_offsets`.
//!
//! What must hold: the answer names an address of the listener the client came in by; a coordinator is only named when
//! its partition exists, so that the client's next request is understood there.

use std::sync::Arc;

use forebay_broker_machines::metadata::{CONSUMER_OFFSETS_TOPIC, Command, CreateTopicError, MetadataImage, Reply};
use forebay_broker_wire::messages::find_coordinator::{Coordinator, FindCoordinatorRequest, FindCoordinatorResponse};
use forebay_broker_wire::types::{ErrorCode, Str};

use super::error_code::{Failure, code_of_create_topic};
use super::request::RequestContext;
use crate::broker::Broker;
use crate::coordinators::partition_for;
use crate::metadata::internal_topics::consumer_offsets;

const KEY_TYPE_GROUP: i8 = 0;
const KEY_TYPE_TRANSACTION: i8 = 1;
/// From this version on a request may name many keys.
const BATCHES_FROM_VERSION: i16 = 4;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let keys = if context.api_version < BATCHES_FROM_VERSION { vec![request.key] } else { request.coordinator_keys };
    let ready = match request.key_type {
        KEY_TYPE_GROUP => ensure_topic(broker).await,
        other => Err(not_offered(other)),
    };
    let image = broker.metadata.image();
    let find = |key: Str| {
        let found = ready.clone().and_then(|()| find(&image, context, &key));
        found.unwrap_or_else(|failure| Coordinator {
            node_id: -1,
            port: -1,
            error_code: failure.code.code(),
            error_message: Some(failure.message.as_str().into()),
            key,
            ..Coordinator::default()
        })
    };
    let mut coordinators: Vec<Coordinator> = keys.into_iter().map(find).collect();
    if context.api_version >= BATCHES_FROM_VERSION {
        return FindCoordinatorResponse { coordinators, ..FindCoordinatorResponse::default() };
    }
    let only = coordinators.pop().unwrap_or_default();
    FindCoordinatorResponse {
        error_code: only.error_code,
        error_message: only.error_message,
        node_id: only.node_id,
        host: only.host,
        port: only.port,
        ..FindCoordinatorResponse::default()
    }
}

fn not_offered(key_type: i8) -> Failure {
    match key_type {
        // librdkafka asks again for ever after any other code; with this one `init_transactions` fails at once.
        KEY_TYPE_TRANSACTION => Failure::new(
            ErrorCode::TransactionalIdAuthorizationFailed,
            "this broker offers no transactions; an idempotent producer needs no transactional.id",
        ),
        other => Failure::new(
            ErrorCode::InvalidRequest,
            format!("key type {other} is not offered: this broker coordinates groups (0) only"),
        ),
    }
}

fn find(image: &MetadataImage, context: &RequestContext, key: &Str) -> Result<Coordinator, Failure> {
    let not_available = |message: &str| Failure::new(ErrorCode::CoordinatorNotAvailable, message);
    let topic = image.topic(CONSUMER_OFFSETS_TOPIC);
    let topic = topic.ok_or_else(|| not_available("__consumer_offsets does not exist yet"))?;
    let partition = partition_for(key, topic.partitions.len())
        .and_then(|index| topic.partitions.iter().find(|partition| partition.index.0 == index));
    let leader = partition.and_then(|partition| partition.leader);
    let leader = leader.ok_or_else(|| not_available("the group's partition of __consumer_offsets has no leader"))?;
    let broker = image.brokers().find(|broker| broker.id == leader);
    let endpoint = broker.and_then(|broker| broker.endpoint(&context.listener));
    let endpoint = endpoint.ok_or_else(|| not_available("the coordinator has no address on this listener"))?;
    Ok(Coordinator {
        key: key.clone(),
        node_id: leader.0,
        host: endpoint.host.as_str().into(),
        port: i32::from(endpoint.port),
        ..Coordinator::default()
    })
}

async fn ensure_topic(broker: &Arc<Broker>) -> Result<(), Failure> {
    let image = broker.metadata.image();
    if image.topic(CONSUMER_OFFSETS_TOPIC).is_some() {
        return Ok(());
    }
    if let Err(full) = broker.check_room() {
        let message = format!("cannot create __consumer_offsets: {full}");
        return Err(Failure::new(ErrorCode::CoordinatorNotAvailable, message));
    }
    let topic = consumer_offsets(&broker.config, &image);
    let command = Command::CreateTopics { topics: vec![topic], validate_only: false };
    let results = match broker.submit(command).await {
        Ok(Reply::TopicsCreated(results)) => results,
        Ok(_) => Vec::new(),
        Err(error) => {
            let message = format!("cannot create __consumer_offsets: {error}");
            return Err(Failure::new(ErrorCode::CoordinatorNotAvailable, message));
        }
    };
    match results.into_iter().next() {
        // Another client was faster.
        Some(Ok(_) | Err(CreateTopicError::AlreadyExists { .. })) => Ok(()),
        // The others are starting: the client asks again.
        Some(Err(error @ CreateTopicError::InvalidReplicationFactor { .. })) => {
            Err(Failure::new(ErrorCode::CoordinatorNotAvailable, error.to_string()))
        }
        Some(Err(error)) => Err(Failure::new(code_of_create_topic(&error), error.to_string())),
        None => Err(Failure::new(ErrorCode::CoordinatorNotAvailable, "cannot create __consumer_offsets")),
    }
}
