//! Groups at a scrape: states, committed offsets, lag in records and in seconds.
//!
//! What must hold: the summaries were taken before the ends of the partitions are read here, so lag is never negative for
//! want of order; a partition without a committed offset has no lag, but a series that says so; series of deleted topics
//! are not shown.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use forebay_broker_machines::groups::{GroupState, GroupSummary, OffsetSummary, TopicName};
use forebay_broker_machines::metadata::{MetadataImage, TopicImage};
use forebay_broker_partition::{FetchSpec, Isolation};
use forebay_broker_wire::records::{BatchHeader, HEADER_BYTES, TimestampType};
use forebay_broker_wire::types::{Offset, PartitionIndex};

use super::catalog;
use super::process::as_float;
use super::scrape::{Snapshot, offset};
use crate::broker::Broker;
use crate::io::append::now_ms;
use crate::partitions::Hosted;

const STATES: [GroupState; 4] =
    [GroupState::Empty, GroupState::PreparingRebalance, GroupState::CompletingRebalance, GroupState::Stable];

pub(super) fn of_groups(broker: &Broker, groups: &[GroupSummary], snapshot: &mut Snapshot) -> prometheus::Result<()> {
    for state in STATES {
        let number = groups.iter().filter(|group| group.state == state).count();
        snapshot.set(catalog::GROUPS, &[state.name()], as_float(u64::try_from(number).unwrap_or(u64::MAX)))?;
    }
    let image = broker.metadata.image();
    for group in groups {
        let name = group.group.as_str();
        for committed in &group.offsets {
            of_offset(broker, &image, name, committed, snapshot)?;
        }
        for (topic, partition) in without_offset(&image, group) {
            let labels = [name, topic.as_str(), &partition.to_string()];
            snapshot.set(catalog::CONSUMER_NO_OFFSET, &labels, 1.0)?;
        }
    }
    Ok(())
}

fn of_offset(
    broker: &Broker,
    image: &MetadataImage,
    group: &str,
    committed: &OffsetSummary,
    snapshot: &mut Snapshot,
) -> prometheus::Result<()> {
    let topic = image.topic(committed.topic.as_str());
    let Some(hosted) = topic.and_then(|topic| broker.partitions.get(topic.id, committed.partition)) else {
        return Ok(());
    };
    let partition = committed.partition.to_string();
    let labels = [group, committed.topic.as_str(), &partition];
    let lag = hosted.partition.offsets().high_watermark.0.saturating_sub(committed.offset.0).max(0);
    snapshot.set(catalog::CONSUMER_OFFSET, &labels, offset(committed.offset.0))?;
    snapshot.set(catalog::CONSUMER_LAG, &labels, offset(lag))?;
    if let Some(age_ms) = if lag == 0 { Some(0) } else { age_ms(&hosted, committed.offset) } {
        snapshot.set(catalog::CONSUMER_LAG_SECONDS, &labels, as_float(age_ms) / 1_000.0)?;
    }
    Ok(())
}

/// Age of the record at `offset`, taken from its batch's first one; none if the batch has no time. Reads one batch header,
/// from disk when it is not cached.
fn age_ms(hosted: &Arc<Hosted>, offset: Offset) -> Option<u64> {
    // What retention has removed cannot be read: the oldest record there is counts.
    let offset = offset.max(hosted.partition.offsets().log_start);
    let spec = FetchSpec {
        offset,
        max_bytes: 1,
        min_one_batch: true,
        isolation: Isolation::ReadUncommitted,
        current_leader_epoch: None,
    };
    let slice = hosted.partition.read(&spec).ok()?.slice?;
    let mut header = [0; HEADER_BYTES];
    slice.file().read_exact_at(&mut header, slice.position).ok()?;
    let header = BatchHeader::parse(&header).ok()?;
    let timestamp_ms = match header.timestamp_type() {
        TimestampType::CreateTime => header.base_timestamp_ms,
        TimestampType::LogAppendTime => header.max_timestamp_ms,
    };
    // A producer's clock may be ahead of ours.
    (timestamp_ms >= 0).then(|| u64::try_from(now_ms().saturating_sub(timestamp_ms)).unwrap_or(0))
}

/// Partitions of the topics that the group reads, or has read, for which it has committed nothing.
fn without_offset(image: &MetadataImage, group: &GroupSummary) -> Vec<(TopicName, PartitionIndex)> {
    let mut committed: BTreeMap<&TopicName, BTreeSet<PartitionIndex>> = BTreeMap::new();
    for topic in &group.subscribed_topics {
        committed.entry(topic).or_default();
    }
    for offset in &group.offsets {
        committed.entry(&offset.topic).or_default().insert(offset.partition);
    }
    let missing = |(topic, partitions): (&TopicName, BTreeSet<PartitionIndex>)| -> Vec<_> {
        let all = image.topic(topic.as_str()).map(|topic: &Arc<TopicImage>| &topic.partitions);
        let indexes = all.into_iter().flatten().map(|partition| partition.index);
        indexes.filter(|index| !partitions.contains(index)).map(|index| (topic.clone(), index)).collect()
    };
    committed.into_iter().flat_map(missing).collect()
}
