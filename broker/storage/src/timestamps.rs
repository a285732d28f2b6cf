//! Finding offsets by time: what ListOffsets asks.
//!
//! The time index leads to a batch, the batch's own records decide: the answer is the first record that is new enough, not the batch's start.

use std::sync::Arc;

use forebay_broker_wire::{
    records::{Batch, TimestampType},
    types::{LeaderEpoch, Offset},
};

use crate::{
    disk::DiskError,
    read::LogReader,
    scan::{LocatedBatch, Scanner},
    segment::{NO_TIMESTAMP, Segment},
};

/// A batch's records are decompressed into at most so many bytes.
const DECOMPRESSED_BYTES_MAX: usize = 64 << 20;

/// Which offset is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimestampSpec {
    /// The bound itself: high watermark or last stable offset (-1).
    Latest,
    /// The first record (-2).
    Earliest,
    /// The record with the largest timestamp (-3).
    Max,
    /// The first record at or after this time in milliseconds.
    At(i64),
}

/// An offset that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundOffset {
    /// The offset.
    pub offset: Offset,
    /// The record's timestamp, -1 for [`TimestampSpec::Latest`] and [`TimestampSpec::Earliest`].
    pub timestamp_ms: i64,
    /// The epoch it was written in, if known.
    pub leader_epoch: Option<LeaderEpoch>,
}

impl LogReader {
    /// Finds an offset below `upto`; `None` when no record fits.
    pub fn offset_for_timestamp(&self, spec: TimestampSpec, upto: Offset) -> Result<Option<FoundOffset>, DiskError> {
        let (segments, log_start) = {
            let view = self.shared.view.lock();
            let bounds: Vec<_> =
                (0..view.segments.len()).map(|at| (Arc::clone(&view.segments[at]), view.bounds(at).0)).collect();
            (bounds, view.log_start)
        };
        let found = match spec {
            TimestampSpec::Latest => Some((upto, NO_TIMESTAMP)),
            TimestampSpec::Earliest => Some((log_start, NO_TIMESTAMP)),
            TimestampSpec::At(timestamp_ms) => first_at(&segments, timestamp_ms, log_start, upto)?,
            TimestampSpec::Max => {
                let largest = segments.iter().map(|(segment, _)| segment.largest().timestamp_ms).max();
                match largest.filter(|largest| *largest != NO_TIMESTAMP) {
                    Some(largest) => first_at(&segments, largest, log_start, upto)?,
                    None => None,
                }
            }
        };
        Ok(found.map(|(offset, timestamp_ms)| FoundOffset {
            offset,
            timestamp_ms,
            leader_epoch: self.epoch_at(offset),
        }))
    }
}

/// The first record between `log_start` and `upto` whose timestamp is at least `timestamp_ms`.
fn first_at(
    segments: &[(Arc<Segment>, u64)],
    timestamp_ms: i64,
    log_start: Offset,
    upto: Offset,
) -> Result<Option<(Offset, i64)>, DiskError> {
    for (segment, size) in segments.iter().filter(|(segment, _)| segment.largest().timestamp_ms >= timestamp_ms) {
        // Nothing up to the entry's offset is new enough.
        let before = segment.times.last_where(|entry| entry.timestamp_ms < timestamp_ms).ok().flatten();
        let from = before.map_or(segment.base_offset, |entry| segment.absolute(entry.relative_offset)).max(log_start);
        let Some(start) = segment.find(from, *size)? else { continue };
        let mut batches = Scanner::headers(&segment.log, start.position, *size);
        while let Some(batch) = batches.next_batch()?.filter(|batch| batch.header.base_offset < upto) {
            if batch.header.max_timestamp_ms < timestamp_ms {
                continue;
            }
            if let Some(found) = first_in_batch(segment, &batch, timestamp_ms, log_start)? {
                return Ok((found.0 < upto).then_some(found));
            }
        }
    }
    Ok(None)
}

/// The first record of a batch that is new enough. A batch whose records cannot be read answers with its start.
fn first_in_batch(
    segment: &Segment,
    batch: &LocatedBatch,
    timestamp_ms: i64,
    log_start: Offset,
) -> Result<Option<(Offset, i64)>, DiskError> {
    let header = &batch.header;
    let start = Some((header.base_offset.max(log_start), header.max_timestamp_ms));
    if header.timestamp_type() == TimestampType::LogAppendTime {
        return Ok(start);
    }
    let mut bytes = vec![0; header.total_bytes()];
    let length = segment.log.read_at(&mut bytes, batch.position)?;
    let whole = Batch { header: *header, bytes: bytes.into() };
    let records = match whole.records(DECOMPRESSED_BYTES_MAX) {
        Ok(records) if length == header.total_bytes() => records,
        _ => return Ok(start),
    };
    for record in records {
        match record {
            Ok(record) if record.timestamp_ms >= timestamp_ms && record.offset >= log_start => {
                return Ok(Some((record.offset, record.timestamp_ms)));
            }
            Ok(_) => {}
            Err(_) => return Ok(start),
        }
    }
    Ok(None)
}
