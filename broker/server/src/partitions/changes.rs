//! What a new metadata image means for one broker: decided from the two images alone.

use std::sync::Arc;

use forebay_broker_machines::metadata::{MetadataImage, TopicImage};
use forebay_broker_wire::types::{BrokerId, PartitionIndex};

#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) open: Vec<(Arc<TopicImage>, PartitionIndex)>,
    /// Topics that are there no more.
    pub(super) removed: Vec<Arc<TopicImage>>,
    /// Partitions that this broker has no replica of any more.
    pub(super) left: Vec<(Arc<TopicImage>, PartitionIndex)>,
    /// Topics whose settings may be others now.
    pub(super) configure: Vec<Arc<TopicImage>>,
    /// Partitions whose roles may be others now.
    pub(super) assign: Vec<(Arc<TopicImage>, PartitionIndex)>,
}

/// `anew` assigns all roles, whatever the image before said.
pub(super) fn changes(before: &MetadataImage, after: &MetadataImage, broker: BrokerId, anew: bool) -> Changes {
    let mut changes = Changes::default();
    let broker_settings_changed = before.cluster_config() != after.cluster_config()
        || before.broker_config(broker) != after.broker_config(broker);
    for topic in after.topics() {
        let old = before.topic_by_id(topic.id);
        if old.is_some_and(|old| Arc::ptr_eq(old, topic)) && !broker_settings_changed && !anew {
            continue;
        }
        for partition in &topic.partitions {
            let old = old.and_then(|old| old.partition(partition.index));
            let was_here = old.is_some_and(|old| old.replicas.contains(&broker));
            let is_here = partition.replicas.contains(&broker);
            let this = || (Arc::clone(topic), partition.index);
            if is_here && !was_here {
                changes.open.push(this());
            }
            if is_here && (anew || old != Some(partition)) {
                changes.assign.push(this());
            }
            if was_here && !is_here {
                changes.left.push(this());
            }
        }
        if old.is_some_and(|old| broker_settings_changed || old.config != topic.config) {
            changes.configure.push(Arc::clone(topic));
        }
    }
    changes.removed.extend(before.topics().filter(|topic| after.topic_by_id(topic.id).is_none()).cloned());
    changes
}

#[cfg(test)]
mod tests {
    use forebay_broker_machines::metadata::{ConfigRecord, ConfigResource, PartitionRecord, Record, TopicRecord};

    use forebay_broker_wire::types::Uuid;

    use super::*;

    const HERE: BrokerId = BrokerId(1);
    const ID: Uuid = Uuid([7; 16]);

    fn partition(partition: i32, replica: i32) -> Record {
        Record::Partition(PartitionRecord {
            topic_id: ID,
            partition,
            replicas: vec![replica],
            in_sync_replicas: vec![replica],
            leader: replica,
            leader_epoch: 0,
            partition_epoch: 0,
            ..PartitionRecord::default()
        })
    }

    fn with(image: &MetadataImage, records: &[Record]) -> MetadataImage {
        let mut image = image.clone();
        for record in records {
            image.apply(record).unwrap();
        }
        image
    }

    fn topic() -> MetadataImage {
        let topic = Record::Topic(TopicRecord { topic_id: ID, name: "orders".to_owned() });
        with(&MetadataImage::default(), &[topic, partition(0, 1), partition(1, 2)])
    }

    #[test]
    fn only_partitions_of_this_broker_are_opened_and_only_once() {
        let (none, one) = (MetadataImage::default(), topic());
        let opened = changes(&none, &one, HERE, false).open;
        assert_eq!(opened.iter().map(|(_, index)| index.0).collect::<Vec<_>>(), [0]);
        let grown = with(&one, &[partition(2, 1)]);
        let opened = changes(&one, &grown, HERE, false).open;
        assert_eq!(opened.iter().map(|(_, index)| index.0).collect::<Vec<_>>(), [2]);
        assert!(changes(&grown, &grown, HERE, false).open.is_empty());
    }

    #[test]
    fn a_topic_that_is_gone_is_removed() {
        let one = topic();
        let gone = with(&one, &[Record::TopicRemoved { topic_id: ID }]);
        let removed = changes(&one, &gone, HERE, false).removed;
        assert_eq!(removed.len(), 1);
        assert_eq!(removed[0].id, ID);
    }

    #[test]
    fn a_partition_that_moves_away_is_left_and_one_that_comes_is_opened() {
        let one = topic();
        let moved = with(&one, &[partition(0, 2), partition(1, 1)]);
        let changes = changes(&one, &moved, HERE, false);
        assert_eq!(changes.left.iter().map(|(_, index)| index.0).collect::<Vec<_>>(), [0]);
        assert_eq!(changes.open.iter().map(|(_, index)| index.0).collect::<Vec<_>>(), [1]);
        assert_eq!(changes.assign.iter().map(|(_, index)| index.0).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn roles_are_assigned_when_they_change_and_all_of_them_after_a_registration() {
        let one = topic();
        assert!(changes(&one, &one, HERE, false).assign.is_empty());
        assert_eq!(changes(&one, &one, HERE, true).assign.len(), 1, "the other partition is elsewhere");
    }

    #[test]
    fn settings_reach_the_topics_they_are_for() {
        let one = topic();
        let set = |resource: ConfigResource| {
            let config = ConfigRecord { resource, name: "retention.ms".to_owned(), value: Some("1000".to_owned()) };
            with(&one, &[Record::Config(config)])
        };
        assert_eq!(changes(&one, &set(ConfigResource::Topic("orders".to_owned())), HERE, false).configure.len(), 1);
        assert_eq!(changes(&one, &set(ConfigResource::Cluster), HERE, false).configure.len(), 1);
        assert_eq!(changes(&one, &set(ConfigResource::Broker(2)), HERE, false).configure.len(), 0);
    }
}
