//! Looking into one segment while its log is loaded: where an offset lies, where the segment ends, whether its indexes fit it.

use std::path::Path;

use forebay_broker_wire::types::Offset;

use crate::{
    disk::{Disk, DiskError},
    names::segment_file,
    scan::{Scanner, Step},
    segment::{INDEX, Segment, TIME_INDEX},
};

/// Where the first record at or after `offset` lies, or the segment's end, with the offset after the last record before it; `None` when the
/// batches before it cannot be walked or do not reach so far.
pub(super) fn position_of(segment: &Segment, offset: Offset) -> Result<Option<(u64, Offset)>, DiskError> {
    let relative = offset.0 - segment.base_offset.0;
    let hint = segment.offsets.last_where(|entry| i64::from(entry.relative_offset) < relative)?;
    let from = hint.map_or(0, |entry| u64::from(entry.position));
    let mut batches = Scanner::headers(&segment.log, from, segment.size());
    let mut next_offset = segment.base_offset;
    loop {
        let position = batches.position();
        let reached = (next_offset >= offset).then_some((position, next_offset));
        match batches.step()? {
            // Torn just there: the checksum does not cover the base offset, so a batch may look whole but for that.
            Step::Batch(batch) if batch.header.base_offset < next_offset => return Ok(reached),
            Step::Batch(batch) if batch.header.base_offset >= offset => return Ok(Some((position, next_offset))),
            Step::Batch(batch) => next_offset = batch.header.next_offset(),
            Step::End | Step::Invalid(_) => return Ok(reached),
        }
    }
}

/// Where the last whole batch ends, and the offset after it; the index fits, so that only what lies behind its last entry is walked.
pub(super) fn end_of(segment: &Segment) -> Result<(u64, Offset), DiskError> {
    let from = segment.offsets.last().map_or(0, |entry| u64::from(entry.position));
    let mut batches = Scanner::headers(&segment.log, from, segment.size());
    let mut next_offset = segment.base_offset;
    while let Some(batch) = batches.next_batch()? {
        next_offset = batch.header.next_offset();
    }
    Ok((batches.position(), next_offset))
}

/// True when both index files are there, whole, and the last offset entry points at the batch it names.
pub(super) fn indexes_fit(disk: &Disk, dir: &Path, segment: &Segment) -> Result<bool, DiskError> {
    for (suffix, entry_bytes) in [(INDEX, 8), (TIME_INDEX, 12)] {
        let Some(length) = disk.length(&dir.join(segment_file(segment.base_offset, suffix)))? else {
            return Ok(segment.size() == 0);
        };
        if length % entry_bytes != 0 {
            return Ok(false);
        }
    }
    let Some(last) = segment.offsets.last() else { return Ok(true) };
    let batch = Scanner::headers(&segment.log, u64::from(last.position), segment.size()).next_batch()?;
    Ok(batch.is_some_and(|batch| batch.header.last_offset() == segment.absolute(last.relative_offset)))
}

/// Builds both indexes from the log, which lies below the recovery point and is trusted.
pub(super) fn rebuild_indexes(disk: &Disk, segment: &Segment, interval_bytes: u32) -> Result<(), DiskError> {
    let size = segment.size();
    segment.truncate_indexes(0, segment.base_offset)?;
    segment.rescan_tail(0)?;
    let mut batches = Scanner::headers(&segment.log, 0, size);
    while let Some(batch) = batches.next_batch()? {
        segment.note(&batch, interval_bytes)?;
    }
    close_or_drop_indexes(disk, segment)
}

/// Closes a segment; without room for its indexes they are removed, since half ones would be believed at the next start.
pub(super) fn close_or_drop_indexes(disk: &Disk, segment: &Segment) -> Result<(), DiskError> {
    match segment.close() {
        Err(error) if error.is_shortage() => {
            let [_, offsets, times] = segment.files();
            disk.remove_file(&offsets)?;
            disk.remove_file(&times)
        }
        result => result,
    }
}
