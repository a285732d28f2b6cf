//! Which partitions their preferred leaders should get back: those that are led by another broker although the preferred one is in sync
//! and at work, of brokers that are owed more than a share of what they are to lead.

use std::collections::{BTreeMap, BTreeSet};

use forebay_broker_machines::metadata::{MetadataImage, PartitionImage};
use forebay_broker_wire::types::{BrokerId, PartitionIndex, Uuid};

/// Elections of one command: the rest comes in the next turn, so that clients have not all to find new leaders at once.
const ELECTIONS_MAX: usize = 500;

#[derive(Debug, Default)]
struct Owed<'a> {
    /// Partitions that prefer the broker.
    preferred: usize,
    /// Those of them that somebody else leads.
    led_by_others: usize,
    /// Those of them that it could lead now.
    possible: Vec<(&'a str, PartitionIndex)>,
}

/// Replicas that can't be written to.
pub(super) type Unable = BTreeSet<(BrokerId, (Uuid, PartitionIndex))>;

/// The partitions to elect the preferred leader of.
pub(super) fn to_return(image: &MetadataImage, unable: &Unable, percentage: usize) -> Vec<(String, PartitionIndex)> {
    let mut by_broker: BTreeMap<BrokerId, Owed<'_>> = BTreeMap::new();
    for topic in image.topics() {
        for partition in &topic.partitions {
            let Some(preferred) = partition.replicas.first() else { continue };
            let owed = by_broker.entry(*preferred).or_default();
            owed.preferred += 1;
            if partition.leader != Some(*preferred) {
                owed.led_by_others += 1;
                let is_able = !unable.contains(&(*preferred, (topic.id, partition.index)));
                if is_able && may_return(image, partition, *preferred) {
                    owed.possible.push((&topic.name, partition.index));
                }
            }
        }
    }
    let too_many = |owed: &Owed<'_>| owed.led_by_others * 100 > percentage * owed.preferred;
    let owed = by_broker.into_values().filter(too_many).flat_map(|owed| owed.possible);
    owed.take(ELECTIONS_MAX).map(|(topic, index)| (topic.to_owned(), index)).collect()
}

fn may_return(image: &MetadataImage, partition: &PartitionImage, preferred: BrokerId) -> bool {
    let moving = !partition.adding_replicas.is_empty() || !partition.removing_replicas.is_empty();
    partition.in_sync_replicas.contains(&preferred) && image.may_lead(preferred) && !moving
}

#[cfg(test)]
mod tests {
    use forebay_broker_machines::metadata::{BrokerRecord, PartitionRecord, Record, TopicRecord};

    use super::*;

    /// Brokers 1 and 2 are at work, 3 is fenced; the partitions have a leader and an ISR each, and prefer the first of their replicas.
    fn image(partitions: &[(&[i32], i32, &[i32])]) -> MetadataImage {
        let mut image = MetadataImage::default();
        for broker_id in 1..=3 {
            let record = BrokerRecord { broker_id, fenced: broker_id == 3, ..BrokerRecord::default() };
            image.apply(&Record::Broker(record)).unwrap();
        }
        let topic_id = Uuid([1; 16]);
        image.apply(&Record::Topic(TopicRecord { topic_id, name: "t".to_owned() })).unwrap();
        for (index, (replicas, leader, in_sync)) in partitions.iter().enumerate() {
            let record = PartitionRecord {
                topic_id,
                partition: i32::try_from(index).unwrap(),
                replicas: replicas.to_vec(),
                in_sync_replicas: in_sync.to_vec(),
                leader: *leader,
                ..PartitionRecord::default()
            };
            image.apply(&Record::Partition(record)).unwrap();
        }
        image
    }

    fn indexes(image: &MetadataImage, percentage: usize) -> Vec<i32> {
        to_return(image, &Unable::new(), percentage).iter().map(|(_, index)| index.0).collect()
    }

    #[test]
    fn a_preferred_leader_that_is_in_sync_and_at_work_gets_its_partition_back() {
        let all: &[i32] = &[1, 2, 3];
        let image = image(&[(&[1, 2], 2, all), (&[1, 2], 1, all), (&[1, 2], 2, &[2]), (&[3, 2], 2, all)]);
        assert_eq!(indexes(&image, 0), [0]);
        let unable = Unable::from([(BrokerId(1), (Uuid([1; 16]), PartitionIndex(0)))]);
        assert_eq!(to_return(&image, &unable, 0), [], "it would be taken away again");
    }

    #[test]
    fn a_small_imbalance_is_left_alone() {
        let (own, other) = ((&[1, 2][..], 1, &[1, 2][..]), (&[1, 2][..], 2, &[1, 2][..]));
        let mut partitions = vec![own; 9];
        partitions.push(other);
        assert_eq!(indexes(&image(&partitions), 10), [0; 0]);
        partitions.push(other);
        assert_eq!(indexes(&image(&partitions), 10), [9, 10]);
    }
}
