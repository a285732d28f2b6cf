//! The cluster as this broker sees it: partitions that have too few replicas in sync, or nobody to lead them; and what has changed.
//!
//! What must hold: brokers' values add up: a partition is counted by its leader alone, and what has no leader by the controller alone.

use std::sync::Arc;

use forebay_broker_machines::metadata::{MetadataImage, PartitionImage};
use forebay_broker_wire::types::BrokerId;
use prometheus::{IntCounter, Registry};
use tokio_util::sync::CancellationToken;

use super::catalog;
use super::counters::counter;
use super::process::as_float;
use super::scrape::Snapshot;
use crate::broker::Broker;

/// What happened to partitions that this broker leads.
#[derive(Debug)]
pub(crate) struct ClusterCounters {
    elections: IntCounter,
    isr_shrinks: IntCounter,
    isr_expands: IntCounter,
}

impl ClusterCounters {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        Ok(Self {
            elections: counter(registry, catalog::LEADER_ELECTIONS)?,
            isr_shrinks: counter(registry, catalog::ISR_SHRINKS)?,
            isr_expands: counter(registry, catalog::ISR_EXPANDS)?,
        })
    }
}

/// Counts until `stop` is cancelled; changes that come together are seen as one.
pub(crate) async fn count_changes(broker: Arc<Broker>, stop: CancellationToken) {
    let mut versions = broker.metadata.subscribe();
    let mut before = broker.metadata.image();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = versions.changed() => if changed.is_err() { return },
        }
        let image = broker.metadata.image();
        let changes = changes(&before, &image, broker.id());
        let counters = &broker.metrics.cluster;
        counters.elections.inc_by(changes.elections);
        counters.isr_shrinks.inc_by(changes.isr_shrinks);
        counters.isr_expands.inc_by(changes.isr_expands);
        before = image;
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Changes {
    elections: u64,
    isr_shrinks: u64,
    isr_expands: u64,
}

fn changes(before: &MetadataImage, after: &MetadataImage, own: BrokerId) -> Changes {
    let mut changes = Changes::default();
    for topic in after.topics() {
        let Some(earlier) = before.topic_by_id(topic.id).filter(|earlier| !Arc::ptr_eq(earlier, topic)) else {
            continue;
        };
        for (was, is) in earlier.partitions.iter().zip(&topic.partitions).filter(|(_, is)| is.leader == Some(own)) {
            changes.elections += u64::from(is.leader_epoch > was.leader_epoch);
            changes.isr_shrinks += u64::from(is.in_sync_replicas.len() < was.in_sync_replicas.len());
            changes.isr_expands += u64::from(is.in_sync_replicas.len() > was.in_sync_replicas.len());
        }
    }
    changes
}

pub(super) fn of_cluster(broker: &Broker, snapshot: &mut Snapshot) -> prometheus::Result<()> {
    let count = |number: usize| as_float(u64::try_from(number).unwrap_or(u64::MAX));
    let image = broker.metadata.image();
    let is_controller = broker.metadata.leadership().borrow().here;
    let partitions = || image.topics().flat_map(|topic| &topic.partitions);
    let under_replicated = partitions().filter(|partition| is_under_replicated(partition, broker.id())).count();
    let below_min = broker.partitions.all().iter().filter(|hosted| hosted.partition.is_below_min_isr()).count();
    let offline =
        if is_controller { partitions().filter(|partition| is_offline(&image, partition)).count() } else { 0 };
    snapshot.set(catalog::UNDER_REPLICATED_PARTITIONS, &[], count(under_replicated))?;
    snapshot.set(catalog::UNDER_MIN_ISR_PARTITIONS, &[], count(below_min))?;
    snapshot.set(catalog::OFFLINE_REPLICAS, &[], count(broker.partitions.on_failed_dirs().len()))?;
    snapshot.set(catalog::OFFLINE_PARTITIONS, &[], count(offline))?;
    snapshot.set(catalog::ACTIVE_CONTROLLER, &[], if is_controller { 1.0 } else { 0.0 })
}

/// Replicas that a reassignment has yet to fill are not missed.
fn is_under_replicated(partition: &PartitionImage, own: BrokerId) -> bool {
    let wanted = partition.replicas.len() - partition.adding_replicas.len();
    partition.leader == Some(own) && partition.in_sync_replicas.len() < wanted
}

fn is_offline(image: &MetadataImage, partition: &PartitionImage) -> bool {
    partition.leader.and_then(|leader| image.broker(leader)).is_none_or(|leader| leader.fenced)
}

#[cfg(test)]
mod tests {
    use forebay_broker_machines::metadata::{BrokerRecord, PartitionRecord, Record, TopicRecord};
    use forebay_broker_wire::types::Uuid;

    use super::*;

    const TOPIC: Uuid = Uuid([1; 16]);

    fn partition(leader: i32, leader_epoch: i32, in_sync: &[i32]) -> PartitionRecord {
        let (replicas, in_sync_replicas) = (vec![1, 2, 3], in_sync.to_vec());
        PartitionRecord {
            topic_id: TOPIC,
            replicas,
            in_sync_replicas,
            leader,
            leader_epoch,
            ..PartitionRecord::default()
        }
    }

    fn image(partition: PartitionRecord) -> MetadataImage {
        let mut image = MetadataImage::default();
        for broker_id in 1..=3 {
            let record = BrokerRecord { broker_id, fenced: broker_id == 3, ..BrokerRecord::default() };
            image.apply(&Record::Broker(record)).unwrap();
        }
        image.apply(&Record::Topic(TopicRecord { topic_id: TOPIC, name: "t".to_owned() })).unwrap();
        image.apply(&Record::Partition(partition)).unwrap();
        image
    }

    #[test]
    fn a_change_is_counted_by_the_leader_alone() {
        let (before, after) = (image(partition(1, 0, &[1, 2, 3])), image(partition(2, 1, &[2, 3])));
        assert_eq!(changes(&before, &after, BrokerId(2)), Changes { elections: 1, isr_shrinks: 1, isr_expands: 0 });
        assert_eq!(changes(&before, &after, BrokerId(1)), Changes::default());
        let back = image(partition(2, 1, &[2, 3, 1]));
        assert_eq!(changes(&after, &back, BrokerId(2)), Changes { elections: 0, isr_shrinks: 0, isr_expands: 1 });
    }

    #[test]
    fn a_partition_is_missed_by_its_leader_and_an_orphan_by_nobody_who_leads() {
        let of = |record| image(record).topic_by_id(TOPIC).unwrap().partitions[0].clone();
        let short = of(partition(1, 0, &[1, 2]));
        assert!(is_under_replicated(&short, BrokerId(1)) && !is_under_replicated(&short, BrokerId(2)));
        assert!(!is_under_replicated(&of(partition(1, 0, &[1, 2, 3])), BrokerId(1)));
        let moving = of(PartitionRecord { adding_replicas: vec![3], ..partition(1, 0, &[1, 2]) });
        assert!(!is_under_replicated(&moving, BrokerId(1)));
    }

    #[test]
    fn a_partition_whose_leader_is_fenced_is_offline() {
        let offline = |leader| {
            let image = image(partition(leader, 0, &[1]));
            is_offline(&image, &image.topic_by_id(TOPIC).unwrap().partitions[0])
        };
        assert!(!offline(1) && offline(3) && offline(-1));
    }
}
