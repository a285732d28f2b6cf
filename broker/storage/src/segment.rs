//! One segment of a log: the `.log` file with its two sparse indexes.
//!
//! Readers share it with the one writer; a closed segment never changes but by being replaced whole. Bytes beyond the published size are
//! nobody's business yet. Indexes are hints: what they say is checked against the batch that stands there.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use forebay_broker_wire::types::Offset;
use parking_lot::Mutex;

use crate::{
    disk::{Disk, DiskError, DiskFile},
    names::{DELETED, segment_file},
    scan::{LocatedBatch, Scanner},
    sparse_index::{OffsetEntry, SparseIndex, TimeEntry},
};

pub(crate) const LOG: &str = ".log";
pub(crate) const INDEX: &str = ".index";
pub(crate) const TIME_INDEX: &str = ".timeindex";
/// No batch yet.
pub(crate) const NO_TIMESTAMP: i64 = -1;

/// A timestamp and the last offset of the batch that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimestampOffset {
    pub(crate) timestamp_ms: i64,
    pub(crate) offset: Offset,
}

/// Where an index is to lie, and what it says, if that can be known.
pub(crate) type IndexFile = (PathBuf, Option<Vec<u8>>);

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) base_offset: Offset,
    pub(crate) log: DiskFile,
    pub(crate) offsets: SparseIndex<OffsetEntry>,
    pub(crate) times: SparseIndex<TimeEntry>,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    size: u64,
    largest: TimestampOffset,
    first_timestamp_ms: Option<i64>,
    bytes_since_index_entry: u64,
}

impl Segment {
    /// A new, empty segment. What a crash may have left under its name is cut away.
    pub(crate) fn create(
        disk: &Disk,
        dir: &Path,
        base_offset: Offset,
        preallocate_bytes: Option<u64>,
    ) -> Result<Arc<Self>, DiskError> {
        let segment = Self::create_as(disk, dir, base_offset, "")?;
        match preallocate_bytes {
            Some(bytes) => segment.log.preallocate(bytes).map(|()| segment),
            None => Ok(segment),
        }
    }

    /// A new, empty segment whose files have a further suffix: one that is not in place yet.
    pub(crate) fn create_as(
        disk: &Disk,
        dir: &Path,
        base_offset: Offset,
        suffix: &str,
    ) -> Result<Arc<Self>, DiskError> {
        let path = |kind: &str| dir.join(segment_file(base_offset, kind) + suffix);
        let log = disk.open_write(&path(LOG))?;
        log.set_len(0)?;
        let segment = Self::with_files(base_offset, log, [path(INDEX), path(TIME_INDEX)], disk)?;
        segment.offsets.truncate(|_| false)?;
        segment.times.truncate(|_| false)?;
        Ok(Arc::new(segment))
    }

    /// A segment that is there, taken for as long as its file is.
    pub(crate) fn open(disk: &Disk, dir: &Path, base_offset: Offset) -> Result<Arc<Self>, DiskError> {
        let log = disk.open_write(&dir.join(segment_file(base_offset, LOG)))?;
        let size = log.length()?;
        let indexes = [INDEX, TIME_INDEX].map(|suffix| dir.join(segment_file(base_offset, suffix)));
        let segment = Self::with_files(base_offset, log, indexes, disk)?;
        let largest = segment.largest_indexed();
        let mut state = segment.state.lock();
        state.size = size;
        state.largest = largest;
        drop(state);
        Ok(Arc::new(segment))
    }

    fn with_files(
        base_offset: Offset,
        log: DiskFile,
        [offsets, times]: [PathBuf; 2],
        disk: &Disk,
    ) -> Result<Self, DiskError> {
        let largest = TimestampOffset { timestamp_ms: NO_TIMESTAMP, offset: base_offset };
        let state = State { size: 0, largest, first_timestamp_ms: None, bytes_since_index_entry: 0 };
        Ok(Self {
            base_offset,
            log,
            offsets: SparseIndex::open(disk, offsets)?,
            times: SparseIndex::open(disk, times)?,
            state: Mutex::new(state),
        })
    }

    fn largest_indexed(&self) -> TimestampOffset {
        let none = TimestampOffset { timestamp_ms: NO_TIMESTAMP, offset: self.base_offset };
        self.times.last().map_or(none, |entry| TimestampOffset {
            timestamp_ms: entry.timestamp_ms,
            offset: self.absolute(entry.relative_offset),
        })
    }

    /// Bytes of whole batches.
    pub(crate) fn size(&self) -> u64 {
        self.state.lock().size
    }

    /// The largest timestamp in it, [`NO_TIMESTAMP`] when it has none.
    pub(crate) fn largest(&self) -> TimestampOffset {
        self.state.lock().largest
    }

    /// The timestamp of its first batch, as far as known: see [`Self::read_first_timestamp`].
    pub(crate) fn first_timestamp_ms(&self) -> Option<i64> {
        self.state.lock().first_timestamp_ms
    }

    /// Reads the first batch's timestamp after opening.
    pub(crate) fn read_first_timestamp(&self) -> Result<(), DiskError> {
        let first = Scanner::headers(&self.log, 0, self.size()).next_batch()?;
        self.state.lock().first_timestamp_ms = first.map(|batch| batch.header.max_timestamp_ms);
        Ok(())
    }

    /// Takes note of a batch that is now in the file: size, timestamps, and an index entry every `interval_bytes`.
    pub(crate) fn note(&self, batch: &LocatedBatch, interval_bytes: u32) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        let last_offset = batch.header.last_offset();
        if batch.header.max_timestamp_ms > state.largest.timestamp_ms {
            state.largest = TimestampOffset { timestamp_ms: batch.header.max_timestamp_ms, offset: last_offset };
        }
        let index = state.bytes_since_index_entry > u64::from(interval_bytes);
        if index {
            state.bytes_since_index_entry = 0;
        }
        state.bytes_since_index_entry += batch.header.total_bytes() as u64;
        state.first_timestamp_ms.get_or_insert(batch.header.max_timestamp_ms);
        state.size = batch.end();
        drop(state);
        if index {
            let position = u32::try_from(batch.position).unwrap_or(u32::MAX);
            self.offsets.push(OffsetEntry { relative_offset: self.relative(last_offset), position })?;
            self.index_largest()?;
        }
        Ok(())
    }

    fn index_largest(&self) -> Result<(), DiskError> {
        let TimestampOffset { timestamp_ms, offset } = self.largest();
        if timestamp_ms == NO_TIMESTAMP {
            return Ok(());
        }
        self.times.push(TimeEntry { timestamp_ms, relative_offset: self.relative(offset) })
    }

    /// Where both indexes lie in another directory, and what they say. Of a closed segment it is exact.
    pub(crate) fn indexes_in(&self, dir: &Path) -> Result<[IndexFile; 2], DiskError> {
        let path = |suffix| dir.join(segment_file(self.base_offset, suffix));
        Ok([(path(INDEX), self.offsets.content()?), (path(TIME_INDEX), self.times.content()?)])
    }

    /// Writes the index entries that wait in memory.
    pub(crate) fn write_indexes(&self) -> Result<(), DiskError> {
        self.index_largest()?;
        self.offsets.write_pending()?;
        self.times.write_pending()
    }

    /// Makes log and indexes durable.
    pub(crate) fn sync(&self) -> Result<(), DiskError> {
        self.log.sync()?;
        self.index_largest()?;
        self.offsets.sync()?;
        self.times.sync()
    }

    /// Makes log and indexes durable for the last time: nothing will be appended.
    pub(crate) fn close(&self) -> Result<(), DiskError> {
        self.sync()?;
        self.offsets.close()?;
        self.times.close()
    }

    /// Cuts the log at `position` and the indexes at `next_offset`, the offset of the first record that is cut.
    pub(crate) fn truncate(&self, position: u64, next_offset: Offset) -> Result<(), DiskError> {
        self.log.set_len(position)?;
        self.log.sync()?;
        self.truncate_indexes(position, next_offset)?;
        self.rescan_tail(position)
    }

    /// Cuts only the indexes.
    pub(crate) fn truncate_indexes(&self, position: u64, next_offset: Offset) -> Result<(), DiskError> {
        let kept = |relative_offset: u32| self.absolute(relative_offset) < next_offset;
        self.offsets.truncate(|entry| kept(entry.relative_offset) && u64::from(entry.position) < position)?;
        self.times.truncate(|entry| kept(entry.relative_offset))
    }

    /// Restores what is only in memory (largest timestamp, bytes since the last index entry) by walking the batches behind the last entry.
    pub(crate) fn rescan_tail(&self, size: u64) -> Result<(), DiskError> {
        let last = self.offsets.last().map_or(0, |entry| u64::from(entry.position));
        let mut largest = self.largest_indexed();
        let mut batches = Scanner::headers(&self.log, last.min(size), size);
        while let Some(batch) = batches.next_batch()? {
            if batch.header.max_timestamp_ms > largest.timestamp_ms {
                largest =
                    TimestampOffset { timestamp_ms: batch.header.max_timestamp_ms, offset: batch.header.last_offset() };
            }
        }
        let mut state = self.state.lock();
        state.size = size;
        state.largest = largest;
        state.bytes_since_index_entry = size - last.min(size);
        drop(state);
        self.read_first_timestamp()
    }

    /// The first batch that ends at or after `offset` and starts before position `limit`.
    pub(crate) fn find(&self, offset: Offset, limit: u64) -> Result<Option<LocatedBatch>, DiskError> {
        let relative = offset.0 - self.base_offset.0;
        // An index that cannot be read costs time, nothing else.
        let hint = self.offsets.last_where(|entry| i64::from(entry.relative_offset) < relative).ok().flatten();
        let hint = hint.filter(|entry| u64::from(entry.position) < limit);
        if let Some(entry) = hint {
            let mut batches = Scanner::headers(&self.log, u64::from(entry.position), limit);
            let first = batches.next_batch()?;
            if first.is_some_and(|batch| batch.header.last_offset() == self.absolute(entry.relative_offset)) {
                return first_ending_at(batches, offset);
            }
        }
        first_ending_at(Scanner::headers(&self.log, 0, limit), offset)
    }

    /// The files that belong to it.
    pub(crate) fn files(&self) -> [PathBuf; 3] {
        [self.log.path().to_owned(), self.offsets.path().to_owned(), self.times.path().to_owned()]
    }

    /// Renames its files out of the way; readers that hold it read on. Gives the new paths.
    pub(crate) fn mark_deleted(&self, disk: &Disk) -> Result<Vec<PathBuf>, DiskError> {
        let mut renamed = Vec::new();
        for from in self.files() {
            let mut to = from.clone().into_os_string();
            to.push(DELETED);
            let to = PathBuf::from(to);
            match disk.rename(&from, &to) {
                Ok(()) => renamed.push(to),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(renamed)
    }

    pub(crate) fn absolute(&self, relative_offset: u32) -> Offset {
        Offset(self.base_offset.0 + i64::from(relative_offset))
    }

    fn relative(&self, offset: Offset) -> u32 {
        u32::try_from(offset.0 - self.base_offset.0).unwrap_or(u32::MAX)
    }
}

fn first_ending_at(mut batches: Scanner<'_>, offset: Offset) -> Result<Option<LocatedBatch>, DiskError> {
    while let Some(batch) = batches.next_batch()? {
        if batch.header.last_offset() >= offset {
            return Ok(Some(batch));
        }
    }
    Ok(None)
}
