//! A producer's batches from before a snapshot, which has only the last one of each producer.
//!
//! A producer may send its last five again after a restart, and must be told that they are there: a refusal would end it. So the log's end is
//! read for them, once a producer, when one of its batches is about to be refused; nobody else pays for it.

use std::sync::Arc;

use forebay_broker_wire::{
    records::BatchHeader,
    types::{Offset, ProducerEpoch, ProducerId},
};

use crate::{
    disk::DiskError, log::PartitionLog, producer_state::BATCHES_PER_PRODUCER, scan::Scanner, segment::Segment,
};

/// How far back is looked, which is many times what a producer has on the way.
const LOOKS_BACK_BYTES: u64 = 16 << 20;

impl PartitionLog {
    /// Whether older batches of the producer may be in the log than are known.
    pub(crate) fn may_recall(&self, producer_id: ProducerId) -> bool {
        self.producers.oldest_of_cut(producer_id).is_some()
    }

    /// Makes what is known of a producer whole.
    pub(crate) fn recall(&mut self, producer_id: ProducerId) -> Result<(), DiskError> {
        let Some((epoch, mut before)) = self.producers.oldest_of_cut(producer_id) else { return Ok(()) };
        let segments = self.shared.view.lock().segments.clone();
        let (mut left, mut older) = (LOOKS_BACK_BYTES, Vec::new());
        let at = segments.partition_point(|segment| segment.base_offset < before);
        for segment in segments[..at].iter().rev() {
            if left == 0 || older.len() >= BATCHES_PER_PRODUCER {
                break;
            }
            let mut found = batches_of((producer_id, epoch), segment, before, &mut left)?;
            found.append(&mut older);
            (older, before) = (found, segment.base_offset);
        }
        self.producers.put_before(producer_id, &older);
        Ok(())
    }
}

/// What one incarnation of a producer has in a segment before an offset, as far back as is looked.
fn batches_of(
    (producer_id, epoch): (ProducerId, ProducerEpoch),
    segment: &Arc<Segment>,
    before: Offset,
    left: &mut u64,
) -> Result<Vec<BatchHeader>, DiskError> {
    let end = segment.find(before, segment.size())?.map_or(segment.size(), |batch| batch.position);
    let from = end.saturating_sub(*left);
    let entry = segment.offsets.last_where(|entry| u64::from(entry.position) <= from)?;
    let start = entry.map_or(0, |entry| u64::from(entry.position));
    *left = left.saturating_sub(end - start.min(end));
    let (mut batches, mut found) = (Scanner::headers(&segment.log, start, end), Vec::new());
    while let Some(batch) = batches.next_batch()? {
        let header = batch.header;
        if header.producer_id == producer_id && header.producer_epoch == epoch && !header.is_control() {
            found.push(header);
        }
    }
    Ok(found)
}
