//! Metadata: brokers, topics and who leads what; creates a missing topic when the client asks for it and the broker allows it.
//!
//! What must hold: every topic has a non-zero id in every version that has ids; addresses are those advertised for the
//! listener the client came in by; a topic just created is complete in the same answer, because its partitions are open
//! before `Broker::submit` returns; a leader whose process is perhaps gone is not named before that is settled, or a moment has passed; a
//! topic that is named several times is told of once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_broker_machines::metadata::{
    BrokerImage, Command, CreateTopicError, MetadataImage, NewTopic, PartitionImage, Reply, TopicImage, is_internal,
    name_fault,
};
use forebay_broker_wire::messages::metadata::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition,
    MetadataResponseTopic,
};
use forebay_broker_wire::types::{BrokerId, ErrorCode, Str, Uuid};

use super::error_code::code_of_create_topic;
use super::request::RequestContext;
use crate::absent::await_leaders;
use crate::broker::Broker;

/// "Not asked for", by the protocol.
pub(super) const NO_OPERATIONS: i32 = i32::MIN;
/// Bits of Kafka's ACL operations: read, write, create, delete, alter, describe, describe configs, alter configs.
pub(super) const TOPIC_OPERATIONS: i32 = 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 11;
/// Create, alter, describe, cluster action, describe configs, alter configs, idempotent write.
pub(super) const CLUSTER_OPERATIONS: i32 = 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12;
/// Topics may be asked for by id from this version on.
const BY_ID_FROM_VERSION: i16 = 12;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    mut request: MetadataRequest,
) -> MetadataResponse {
    if let Some(topics) = &mut request.topics {
        let mut seen = BTreeSet::new();
        topics.retain(|topic| seen.insert((topic.topic_id, topic.name.clone())));
    }
    let mut not_created = BTreeMap::new();
    if let Some(topics) = &request.topics
        && request.allow_auto_topic_creation
        && broker.config.auto_create_topics_enable
    {
        not_created = create_missing(broker, topics).await;
    }
    let all =
        request.topics.is_none() || (context.api_version == 0 && request.topics.as_ref().is_some_and(Vec::is_empty));
    let named = request.topics.as_deref().filter(|_| !all);
    await_leaders(broker, |image, look| for_each_partition(image, named, look)).await;
    let image = broker.metadata.image();
    let mut topics: Vec<_> = if all {
        image.topics().map(|topic| describe(&image, topic)).collect()
    } else {
        let asked = request.topics.unwrap_or_default();
        asked.iter().map(|topic| describe_asked(&image, context, topic, &not_created)).collect()
    };
    if request.include_topic_authorized_operations {
        for topic in topics.iter_mut().filter(|topic| topic.error_code == 0) {
            topic.topic_authorized_operations = TOPIC_OPERATIONS;
        }
    }
    MetadataResponse {
        brokers: named_brokers(broker, &image).filter_map(|known| describe_broker(known, context)).collect(),
        cluster_id: Some(broker.cluster_id().into()),
        controller_id: broker.config.broker_id,
        topics,
        cluster_authorized_operations: if request.include_cluster_authorized_operations && context.api_version <= 10 {
            CLUSTER_OPERATIONS
        } else {
            NO_OPERATIONS
        },
        ..MetadataResponse::default()
    }
}

/// Those at work, and for a moment those that were.
fn named_brokers<'a>(broker: &Broker, image: &'a MetadataImage) -> impl Iterator<Item = &'a BrokerImage> {
    let still_named = broker.absent.still_named(image);
    image.brokers().filter(move |known| !known.fenced || still_named.contains(&known.id))
}

fn for_each_partition(
    image: &MetadataImage,
    named: Option<&[MetadataRequestTopic]>,
    look: &mut dyn FnMut(&PartitionImage),
) {
    let Some(named) = named else {
        return image.topics().flat_map(|topic| &topic.partitions).for_each(look);
    };
    let found = named.iter().filter_map(|asked| match &asked.name {
        Some(name) if asked.topic_id == Uuid::ZERO => image.topic(name),
        _ => image.topic_by_id(asked.topic_id),
    });
    found.flat_map(|topic| &topic.partitions).for_each(look);
}

/// Creates what was asked for by name and is not there. Gives the error of each name that could not be created.
async fn create_missing(broker: &Arc<Broker>, asked: &[MetadataRequestTopic]) -> BTreeMap<Str, ErrorCode> {
    let image = broker.metadata.image();
    let missing = asked.iter().filter(|topic| topic.topic_id == Uuid::ZERO).filter_map(|topic| topic.name.clone());
    let mut missing: Vec<Str> = missing
        .filter(|name| image.topic(name).is_none() && name_fault(name).is_none() && !is_internal(name))
        .collect();
    missing.sort();
    missing.dedup();
    if missing.is_empty() {
        return BTreeMap::new();
    }
    if let Err(full) = broker.check_room() {
        tracing::warn!(topics = ?missing, %full, "topics that a client asked for are not created");
        return missing.into_iter().map(|name| (name, ErrorCode::KafkaStorageError)).collect();
    }
    let topics = missing.iter().map(|name| NewTopic { name: name.to_string(), ..NewTopic::default() }).collect();
    let submitted = broker.submit(Command::CreateTopics { topics, validate_only: false }).await;
    let Ok(Reply::TopicsCreated(results)) = submitted else {
        return missing.into_iter().map(|name| (name, ErrorCode::KafkaStorageError)).collect();
    };
    let failed = |error: &CreateTopicError| match error {
        // Another client was faster.
        CreateTopicError::AlreadyExists { .. } => None,
        error => Some(code_of_create_topic(error)),
    };
    let results = missing.into_iter().zip(results);
    results.filter_map(|(name, result)| Some((name, failed(&result.err()?)?))).collect()
}

fn describe_asked(
    image: &MetadataImage,
    context: &RequestContext,
    asked: &MetadataRequestTopic,
    not_created: &BTreeMap<Str, ErrorCode>,
) -> MetadataResponseTopic {
    if asked.topic_id != Uuid::ZERO {
        if context.api_version < BY_ID_FROM_VERSION {
            return failed(asked, ErrorCode::InvalidRequest);
        }
        let found = image.topic_by_id(asked.topic_id);
        return found.map_or_else(|| failed(asked, ErrorCode::UnknownTopicId), |topic| describe(image, topic));
    }
    let Some(name) = &asked.name else { return failed(asked, ErrorCode::InvalidRequest) };
    if let Some(topic) = image.topic(name) {
        return describe(image, topic);
    }
    if name_fault(name).is_some() {
        return failed(asked, ErrorCode::InvalidTopicException);
    }
    failed(asked, not_created.get(name).copied().unwrap_or(ErrorCode::UnknownTopicOrPartition))
}

fn failed(asked: &MetadataRequestTopic, code: ErrorCode) -> MetadataResponseTopic {
    let name = if asked.topic_id == Uuid::ZERO { asked.name.clone() } else { None };
    MetadataResponseTopic {
        error_code: code.code(),
        // A null name exists from version 12 on, and only ids can be asked for without one.
        name: name.or_else(|| (asked.topic_id == Uuid::ZERO).then(Str::default)),
        topic_id: asked.topic_id,
        topic_authorized_operations: NO_OPERATIONS,
        ..MetadataResponseTopic::default()
    }
}

fn describe(image: &MetadataImage, topic: &TopicImage) -> MetadataResponseTopic {
    MetadataResponseTopic {
        name: Some((&*topic.name).into()),
        topic_id: topic.id,
        is_internal: is_internal(&topic.name),
        partitions: topic.partitions.iter().map(|partition| describe_partition(image, partition)).collect(),
        topic_authorized_operations: NO_OPERATIONS,
        ..MetadataResponseTopic::default()
    }
}

fn describe_partition(image: &MetadataImage, partition: &PartitionImage) -> MetadataResponsePartition {
    let leader = shown_leader(image, partition);
    MetadataResponsePartition {
        error_code: if leader.is_some() { 0 } else { ErrorCode::LeaderNotAvailable.code() },
        partition_index: partition.index.0,
        leader_id: leader.map_or(-1, |leader| leader.0),
        leader_epoch: partition.leader_epoch.0,
        replica_nodes: partition.replicas.iter().map(|id| id.0).collect(),
        isr_nodes: partition.in_sync_replicas.iter().map(|id| id.0).collect(),
        offline_replicas: offline_replicas(image, partition),
    }
}

/// The leader, if clients can go to it: an only replica that is starting leads already, but serves nobody.
pub(super) fn shown_leader(image: &MetadataImage, partition: &PartitionImage) -> Option<BrokerId> {
    partition.leader.filter(|id| image.broker(*id).is_some_and(|broker| !broker.fenced))
}

/// The replicas on brokers that are not at work.
pub(super) fn offline_replicas(image: &MetadataImage, partition: &PartitionImage) -> Vec<i32> {
    let offline = |id: &&BrokerId| image.broker(**id).is_none_or(|broker| broker.fenced);
    partition.replicas.iter().filter(offline).map(|id| id.0).collect()
}

/// `None` for a broker without an address on the client's listener: the client could not reach it.
fn describe_broker(broker: &BrokerImage, context: &RequestContext) -> Option<MetadataResponseBroker> {
    let endpoint = broker.endpoint(&context.listener)?;
    Some(MetadataResponseBroker {
        node_id: broker.id.0,
        host: endpoint.host.as_str().into(),
        port: i32::from(endpoint.port),
        rack: broker.rack.as_deref().map(Str::from),
    })
}
