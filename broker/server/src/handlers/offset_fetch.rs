//! OffsetFetch: what groups have committed. Versions up to 7 ask for one group, later ones for several, and from version
//! 10 on topics go by id.
//!
//! What must hold: an offset of a topic that was deleted is never told as one of its namesake, also not in the moment
//! before the coordinator has forgotten it.

use std::sync::Arc;

use forebay_broker_machines::groups::{CommittedOffset, FetchOffsets, PerPartition, TopicName};
use forebay_broker_machines::metadata::MetadataImage;
use forebay_broker_wire::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
    OffsetFetchResponse, OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use forebay_broker_wire::types::{ErrorCode, PartitionIndex, Str, Uuid};

use super::error_code::code_of_unavailable;
use super::repeated::Repeated;
use super::request::RequestContext;
use crate::broker::Broker;

const BATCHES_FROM_VERSION: i16 = 8;
const TOPIC_IDS_FROM_VERSION: i16 = 10;
/// The first version that has room for an error of the whole group.
const GROUP_ERROR_FROM_VERSION: i16 = 2;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: OffsetFetchRequest,
) -> OffsetFetchResponse {
    if context.api_version < BATCHES_FROM_VERSION {
        return fetch_one(broker, context.api_version, request).await;
    }
    let image = broker.metadata.image();
    let by_id = context.api_version >= TOPIC_IDS_FROM_VERSION;
    let mut groups = Vec::with_capacity(request.groups.len());
    let ids: Vec<Str> = request.groups.iter().map(|group| group.group_id.clone()).collect();
    let repeated = Repeated::among(ids.iter().map(|id| &**id));
    for group in request.groups {
        groups.push(match repeated.refuse(&group.group_id, "group") {
            Ok(()) => fetch_group(broker, &image, by_id, group).await,
            Err(failure) => OffsetFetchResponseGroup {
                error_code: failure.code.code(),
                group_id: group.group_id,
                ..OffsetFetchResponseGroup::default()
            },
        });
    }
    OffsetFetchResponse { groups, ..OffsetFetchResponse::default() }
}

/// Versions 1 to 7.
async fn fetch_one(broker: &Arc<Broker>, version: i16, request: OffsetFetchRequest) -> OffsetFetchResponse {
    let OffsetFetchRequest { group_id, topics, .. } = request;
    let asked = topics.as_ref().map(|topics| {
        let asked = |topic: &OffsetFetchRequestTopic| (name(&topic.name), indexes(&topic.partition_indexes));
        topics.iter().map(asked).collect()
    });
    let command = FetchOffsets { group: group_id.as_str().into(), topics: asked };
    match broker.groups.fetch_offsets(command).await.map(|offsets| current(&broker.metadata.image(), offsets)) {
        Ok(offsets) => OffsetFetchResponse {
            topics: offsets.into_iter().map(|(topic, offsets)| old_topic(&topic, offsets)).collect(),
            ..OffsetFetchResponse::default()
        },
        Err(unavailable) => {
            let error_code = code_of_unavailable(unavailable).code();
            let topics = if version < GROUP_ERROR_FROM_VERSION { topics.unwrap_or_default() } else { Vec::new() };
            let failed = |topic: OffsetFetchRequestTopic| OffsetFetchResponseTopic {
                partitions: topic
                    .partition_indexes
                    .iter()
                    .map(|index| old_partition(*index, None, error_code))
                    .collect(),
                name: topic.name,
            };
            OffsetFetchResponse {
                topics: topics.into_iter().map(failed).collect(),
                error_code: if version < GROUP_ERROR_FROM_VERSION { 0 } else { error_code },
                ..OffsetFetchResponse::default()
            }
        }
    }
}

fn old_topic(topic: &TopicName, offsets: Vec<(PartitionIndex, Option<CommittedOffset>)>) -> OffsetFetchResponseTopic {
    let partition =
        |(index, committed): (PartitionIndex, Option<CommittedOffset>)| old_partition(index.0, committed, 0);
    OffsetFetchResponseTopic { name: topic.as_str().into(), partitions: offsets.into_iter().map(partition).collect() }
}

fn old_partition(
    partition_index: i32,
    committed: Option<CommittedOffset>,
    error_code: i16,
) -> OffsetFetchResponsePartition {
    let committed = Answer::from(committed);
    OffsetFetchResponsePartition {
        partition_index,
        committed_offset: committed.offset,
        committed_leader_epoch: committed.leader_epoch,
        metadata: Some(committed.metadata),
        error_code,
    }
}

/// Version 8 and later: one of the groups.
async fn fetch_group(
    broker: &Arc<Broker>,
    image: &MetadataImage,
    by_id: bool,
    group: OffsetFetchRequestGroup,
) -> OffsetFetchResponseGroup {
    let OffsetFetchRequestGroup { group_id, topics, .. } = group;
    let asked = topics.map(|topics| ask_topics(image, by_id, topics));
    let (known, unknown) = match asked {
        Some((known, unknown)) => (Some(known), unknown),
        None => (None, Vec::new()),
    };
    let command = FetchOffsets { group: group_id.as_str().into(), topics: known };
    match broker.groups.fetch_offsets(command).await.map(|offsets| current(image, offsets)) {
        Ok(offsets) => OffsetFetchResponseGroup {
            topics: new_topics(image, by_id, offsets).chain(unknown).collect(),
            group_id,
            error_code: 0,
        },
        Err(unavailable) => OffsetFetchResponseGroup {
            error_code: code_of_unavailable(unavailable).code(),
            group_id,
            ..OffsetFetchResponseGroup::default()
        },
    }
}

type Asked = (Vec<(TopicName, Vec<PartitionIndex>)>, Vec<OffsetFetchResponseTopics>);

/// Topics by name, and the answers for ids that no topic has.
fn ask_topics(image: &MetadataImage, by_id: bool, topics: Vec<OffsetFetchRequestTopics>) -> Asked {
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for topic in topics {
        let partitions = indexes(&topic.partition_indexes);
        if !by_id {
            known.push((name(&topic.name), partitions));
        } else if let Some(found) = image.topic_by_id(topic.topic_id) {
            known.push((TopicName::from(&*found.name), partitions));
        } else {
            let error_code = ErrorCode::UnknownTopicId.code();
            let partitions = topic.partition_indexes.iter().map(|index| new_partition(*index, None, error_code));
            unknown.push(OffsetFetchResponseTopics {
                topic_id: topic.topic_id,
                partitions: partitions.collect(),
                ..OffsetFetchResponseTopics::default()
            });
        }
    }
    (known, unknown)
}

fn new_topics(
    image: &MetadataImage,
    by_id: bool,
    offsets: PerPartition<Option<CommittedOffset>>,
) -> impl Iterator<Item = OffsetFetchResponseTopics> {
    offsets.into_iter().filter_map(move |(topic, offsets)| {
        let topic_id = image.topic(topic.as_str()).map(|topic| topic.id);
        // A topic that is gone has no id to be named by, and soon no offsets.
        let topic_id = if by_id { topic_id? } else { Uuid::ZERO };
        Some(OffsetFetchResponseTopics {
            name: if by_id { Str::new() } else { topic.as_str().into() },
            topic_id,
            partitions: offsets.into_iter().map(|(index, committed)| new_partition(index.0, committed, 0)).collect(),
        })
    })
}

fn new_partition(
    partition_index: i32,
    committed: Option<CommittedOffset>,
    error_code: i16,
) -> OffsetFetchResponsePartitions {
    let committed = Answer::from(committed);
    OffsetFetchResponsePartitions {
        partition_index,
        committed_offset: committed.offset,
        committed_leader_epoch: committed.leader_epoch,
        metadata: Some(committed.metadata),
        error_code,
    }
}

/// Takes out what was committed for topics that are no more, or are others now.
fn current(
    image: &MetadataImage,
    mut offsets: PerPartition<Option<CommittedOffset>>,
) -> PerPartition<Option<CommittedOffset>> {
    for (topic, partitions) in &mut offsets {
        let id = image.topic(topic.as_str()).map(|topic| topic.id);
        let is_current = |committed: &CommittedOffset| {
            id.is_some_and(|id| committed.topic_id == id || committed.topic_id == Uuid::ZERO)
        };
        for (_, committed) in partitions {
            *committed = committed.take().filter(is_current);
        }
    }
    offsets
}

/// Nothing committed is said as -1.
struct Answer {
    offset: i64,
    leader_epoch: i32,
    metadata: Str,
}

impl From<Option<CommittedOffset>> for Answer {
    fn from(committed: Option<CommittedOffset>) -> Self {
        match committed {
            Some(committed) => Self {
                offset: committed.offset.0,
                leader_epoch: committed.leader_epoch.0,
                metadata: (&*committed.metadata).into(),
            },
            None => Self { offset: -1, leader_epoch: -1, metadata: Str::new() },
        }
    }
}

fn name(name: &Str) -> TopicName {
    TopicName::from(name.as_str())
}

fn indexes(indexes: &[i32]) -> Vec<PartitionIndex> {
    indexes.iter().copied().map(PartitionIndex).collect()
}

#[cfg(test)]
mod tests {
    use forebay_broker_machines::metadata::{Record, TopicRecord};
    use forebay_broker_wire::types::{LeaderEpoch, Offset};

    use super::*;

    #[test]
    fn an_offset_of_a_deleted_topic_is_not_told_as_one_of_its_namesake() {
        let mut image = MetadataImage::default();
        let record = Record::Topic(TopicRecord { topic_id: Uuid([1; 16]), name: "orders".into() });
        image.apply(&record).unwrap();
        let fetched = |topic: &str, id: u8| {
            let committed = CommittedOffset {
                offset: Offset(7),
                leader_epoch: LeaderEpoch(0),
                metadata: "".into(),
                commit_timestamp_ms: 0,
                expire_timestamp_ms: None,
                topic_id: Uuid([id; 16]),
            };
            let offsets = vec![(TopicName::from(topic), vec![(PartitionIndex(0), Some(committed))])];
            current(&image, offsets)[0].1[0].1.is_some()
        };
        assert!(fetched("orders", 1));
        assert!(fetched("orders", 0), "records of old have no id");
        assert!(!fetched("orders", 2));
        assert!(!fetched("gone", 1));
    }
}
