//! DescribeTopicPartitions: topics in pages, so that no answer grows with the cluster.
//!
//! What must hold: topics come in the order of their names; the cursor names the first partition that was left out, also when its
//! topic is gone by the time the client comes back.

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_broker_machines::metadata::{MetadataImage, PartitionImage, TopicImage, is_internal, name_fault};
use forebay_broker_wire::messages::describe_topic_partitions::{
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic, ResponseCursor,
};
use forebay_broker_wire::types::{ErrorCode, Str};

use super::metadata::{TOPIC_OPERATIONS, offline_replicas, shown_leader};
use super::request::RequestContext;
use crate::broker::Broker;

/// The most partitions of one answer, whatever the client asks.
const PARTITIONS_MAX: usize = 2000;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    _: &RequestContext,
    request: DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    page(&broker.metadata.image(), &request)
}

fn page(image: &MetadataImage, request: &DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse {
    let mut room = usize::try_from(request.response_partition_limit).unwrap_or(1).clamp(1, PARTITIONS_MAX);
    let (from, mut first) = match &request.cursor {
        Some(cursor) => (&*cursor.topic_name, usize::try_from(cursor.partition_index).unwrap_or(0)),
        None => ("", 0),
    };
    let mut answer = DescribeTopicPartitionsResponse::default();
    for name in names(image, request, from) {
        if room == 0 {
            answer.next_cursor = Some(ResponseCursor { topic_name: name, partition_index: 0 });
            break;
        }
        let skip = if *name == *from { std::mem::take(&mut first) } else { 0 };
        let Some(topic) = image.topic(&name) else {
            answer.topics.push(unknown(name));
            continue;
        };
        let shown = topic.partitions.iter().skip(skip).take(room);
        answer.topics.push(describe(topic, shown.map(|shown| partition(image, shown)).collect()));
        let next = skip.saturating_add(room);
        if next < topic.partitions.len() {
            let partition_index = i32::try_from(next).unwrap_or(i32::MAX);
            answer.next_cursor = Some(ResponseCursor { topic_name: name, partition_index });
            break;
        }
        room -= topic.partitions.len().saturating_sub(skip);
    }
    answer
}

/// The topics to show, by name: those asked for, or all; from the cursor's on.
fn names(image: &MetadataImage, request: &DescribeTopicPartitionsRequest, from: &str) -> Vec<Str> {
    if request.topics.is_empty() {
        // One more than fits, for the cursor.
        return image.topics_from(from).take(PARTITIONS_MAX + 1).map(|topic| Str::from(&*topic.name)).collect();
    }
    let asked: BTreeSet<&Str> =
        request.topics.iter().map(|topic| &topic.name).filter(|name| ***name >= *from).collect();
    asked.into_iter().cloned().collect()
}

fn describe(
    topic: &TopicImage,
    partitions: Vec<DescribeTopicPartitionsResponsePartition>,
) -> DescribeTopicPartitionsResponseTopic {
    DescribeTopicPartitionsResponseTopic {
        error_code: 0,
        name: Some((&*topic.name).into()),
        topic_id: topic.id,
        is_internal: is_internal(&topic.name),
        partitions,
        topic_authorized_operations: TOPIC_OPERATIONS,
    }
}

fn partition(image: &MetadataImage, partition: &PartitionImage) -> DescribeTopicPartitionsResponsePartition {
    let leader = shown_leader(image, partition);
    DescribeTopicPartitionsResponsePartition {
        error_code: if leader.is_some() { 0 } else { ErrorCode::LeaderNotAvailable.code() },
        partition_index: partition.index.0,
        leader_id: leader.map_or(-1, |id| id.0),
        leader_epoch: partition.leader_epoch.0,
        replica_nodes: partition.replicas.iter().map(|id| id.0).collect(),
        isr_nodes: partition.in_sync_replicas.iter().map(|id| id.0).collect(),
        eligible_leader_replicas: Some(partition.eligible_leader_replicas.iter().map(|id| id.0).collect()),
        last_known_elr: Some(Vec::new()),
        offline_replicas: offline_replicas(image, partition),
    }
}

fn unknown(name: Str) -> DescribeTopicPartitionsResponseTopic {
    let code = match name_fault(&name) {
        Some(_) => ErrorCode::InvalidTopicException,
        None => ErrorCode::UnknownTopicOrPartition,
    };
    DescribeTopicPartitionsResponseTopic {
        error_code: code.code(),
        name: Some(name),
        topic_authorized_operations: super::metadata::NO_OPERATIONS,
        ..DescribeTopicPartitionsResponseTopic::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_broker_machines::metadata::{PartitionRecord, Record, TopicRecord};
    use forebay_broker_wire::messages::describe_topic_partitions::{RequestCursor, TopicRequest};
    use forebay_broker_wire::types::Uuid;

    fn image(topics: &[(&str, i32)]) -> MetadataImage {
        let mut image = MetadataImage::default();
        for (number, (name, partitions)) in topics.iter().enumerate() {
            let topic_id = Uuid([u8::try_from(number).unwrap() + 1; 16]);
            image.apply(&Record::Topic(TopicRecord { topic_id, name: (*name).to_owned() })).unwrap();
            for partition in 0..*partitions {
                let (replicas, in_sync_replicas) = (vec![0], vec![0]);
                let record =
                    PartitionRecord { topic_id, partition, replicas, in_sync_replicas, ..PartitionRecord::default() };
                image.apply(&Record::Partition(record)).unwrap();
            }
        }
        image
    }

    /// Follows the cursor to its end; gives what each page showed.
    fn pages(image: &MetadataImage, topics: &[&str], limit: i32) -> Vec<Vec<(String, Vec<i32>)>> {
        let topics = topics.iter().map(|name| TopicRequest { name: (*name).into() }).collect();
        let mut request = DescribeTopicPartitionsRequest { topics, response_partition_limit: limit, cursor: None };
        let mut pages = Vec::new();
        loop {
            let answer = page(image, &request);
            let indexes = |topic: &DescribeTopicPartitionsResponseTopic| {
                topic.partitions.iter().map(|p| p.partition_index).collect()
            };
            pages.push(
                answer.topics.iter().map(|topic| (topic.name.clone().unwrap().to_string(), indexes(topic))).collect(),
            );
            let Some(next) = answer.next_cursor else { return pages };
            request.cursor = Some(RequestCursor { topic_name: next.topic_name, partition_index: next.partition_index });
        }
    }

    #[test]
    fn pages_cut_topics_and_go_on_where_they_were_cut() {
        let image = image(&[("b", 3), ("a", 2), ("c", 1)]);
        let of = |name: &str, indexes: &[i32]| (name.to_owned(), indexes.to_vec());
        assert_eq!(
            pages(&image, &[], 4),
            [vec![of("a", &[0, 1]), of("b", &[0, 1])], vec![of("b", &[2]), of("c", &[0])]]
        );
        assert_eq!(
            pages(&image, &[], 2),
            [vec![of("a", &[0, 1])], vec![of("b", &[0, 1])], vec![of("b", &[2]), of("c", &[0])]]
        );
        assert_eq!(pages(&image, &["c", "a"], 9), [vec![of("a", &[0, 1]), of("c", &[0])]]);
    }

    #[test]
    fn a_limit_that_makes_no_sense_shows_one_partition() {
        let image = image(&[("a", 2)]);
        assert_eq!(pages(&image, &[], -5).len(), 2);
    }

    #[test]
    fn a_topic_that_does_not_exist_is_said_not_to() {
        let topics = vec![TopicRequest { name: "gone".into() }, TopicRequest { name: "a/b".into() }];
        let request = DescribeTopicPartitionsRequest { topics, response_partition_limit: 9, cursor: None };
        let codes: Vec<i16> = page(&image(&[]), &request).topics.iter().map(|topic| topic.error_code).collect();
        assert_eq!(codes, [ErrorCode::InvalidTopicException.code(), ErrorCode::UnknownTopicOrPartition.code()]);
    }

    #[test]
    fn a_cursor_at_a_topic_that_is_gone_goes_on_with_the_next() {
        let image = image(&[("a", 1), ("c", 1)]);
        let cursor = Some(RequestCursor { topic_name: "b".into(), partition_index: 7 });
        let request = DescribeTopicPartitionsRequest { topics: Vec::new(), response_partition_limit: 9, cursor };
        let answer = page(&image, &request);
        assert_eq!(answer.topics.len(), 1);
        assert_eq!(answer.topics[0].partitions.len(), 1);
    }
}
