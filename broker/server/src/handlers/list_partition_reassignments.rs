//! ListPartitionReassignments: partitions on their way to other brokers, those asked for or all.

use std::sync::Arc;

use forebay_broker_machines::metadata::{MetadataImage, PartitionImage, TopicImage};
use forebay_broker_wire::messages::list_partition_reassignments::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, OngoingPartitionReassignment,
    OngoingTopicReassignment,
};
use forebay_broker_wire::types::BrokerId;

use super::request::RequestContext;
use crate::broker::Broker;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    _: &RequestContext,
    request: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    let topics = ongoing(&broker.metadata.image(), &request);
    ListPartitionReassignmentsResponse { topics, ..ListPartitionReassignmentsResponse::default() }
}

fn ongoing(image: &MetadataImage, request: &ListPartitionReassignmentsRequest) -> Vec<OngoingTopicReassignment> {
    let topics: Vec<OngoingTopicReassignment> = match &request.topics {
        None => image.topics().map(|topic| of_topic(topic, None)).collect(),
        Some(asked) => {
            let found = asked.iter().filter_map(|asked| Some((image.topic(&asked.name)?, &asked.partition_indexes)));
            found.map(|(topic, indexes)| of_topic(topic, Some(indexes))).collect()
        }
    };
    topics.into_iter().filter(|topic| !topic.partitions.is_empty()).collect()
}

fn of_topic(topic: &TopicImage, indexes: Option<&[i32]>) -> OngoingTopicReassignment {
    let moves =
        |partition: &&PartitionImage| !partition.adding_replicas.is_empty() || !partition.removing_replicas.is_empty();
    let asked = |partition: &&PartitionImage| indexes.is_none_or(|indexes| indexes.contains(&partition.index.0));
    OngoingTopicReassignment {
        name: (&*topic.name).into(),
        partitions: topic.partitions.iter().filter(moves).filter(asked).map(of_partition).collect(),
    }
}

fn of_partition(partition: &PartitionImage) -> OngoingPartitionReassignment {
    let numbers = |ids: &[BrokerId]| ids.iter().map(|id| id.0).collect();
    OngoingPartitionReassignment {
        partition_index: partition.index.0,
        replicas: numbers(&partition.replicas),
        adding_replicas: numbers(&partition.adding_replicas),
        removing_replicas: numbers(&partition.removing_replicas),
    }
}

#[cfg(test)]
mod tests {
    use forebay_broker_machines::metadata::{PartitionRecord, Record, TopicRecord};
    use forebay_broker_wire::messages::list_partition_reassignments::ListPartitionReassignmentsTopics;
    use forebay_broker_wire::types::Uuid;

    use super::*;

    #[test]
    fn only_partitions_on_their_way_are_listed() {
        let mut image = MetadataImage::default();
        let topic_id = Uuid([1; 16]);
        image.apply(&Record::Topic(TopicRecord { topic_id, name: "t".to_owned() })).unwrap();
        for (partition, adding_replicas) in [(0, vec![]), (1, vec![3]), (2, vec![3])] {
            let record = PartitionRecord {
                topic_id,
                partition,
                replicas: vec![1, 3],
                adding_replicas,
                ..PartitionRecord::default()
            };
            image.apply(&Record::Partition(record)).unwrap();
        }
        let indexes = |topics| {
            let request = ListPartitionReassignmentsRequest { topics, ..ListPartitionReassignmentsRequest::default() };
            let found = ongoing(&image, &request);
            found.iter().flat_map(|topic| topic.partitions.iter().map(|p| p.partition_index)).collect::<Vec<_>>()
        };
        let asked = |name: &str, partition_indexes: &[i32]| {
            let partition_indexes = partition_indexes.to_vec();
            Some(vec![ListPartitionReassignmentsTopics { name: name.into(), partition_indexes }])
        };
        assert_eq!(indexes(None), [1, 2]);
        assert_eq!(indexes(asked("t", &[0, 2])), [2]);
        assert_eq!(indexes(asked("gone", &[1])), [0; 0]);
    }
}
