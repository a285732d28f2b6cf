//! A log on its way to another directory (KIP-113): copied beside the one that serves, which it replaces in the end (`switch.rs`).
//!
//! Segments are copied as they are, file by file: offsets, gaps, epochs, indexes and producers' snapshots with them. Each step looks at the
//! segments that there are now. One that was removed, compacted or cut since it was copied is another one or none: its copy goes, and
//! what took its place is copied. So whatever happens to the log meanwhile, the copy becomes what the log is.
//!
//! What must hold: copying changes nothing of the log and holds none of its locks; it never eats into the reserve of the disk that it fills;
//! a failed write ends it and poisons that disk's directory, never the log's own.

mod errors;
mod settle;
mod switch;

use std::{
    collections::BTreeMap,
    io::IoSlice,
    path::{Path, PathBuf},
    sync::Arc,
};

use forebay_broker_wire::types::{Offset, Uuid};

use crate::{
    disk::{DiskError, DiskFile},
    log_dir::LogDir,
    names::{self, LogName, segment_file},
    producer_state::snapshot_name,
    read::LogReader,
    segment::{INDEX, LOG, Segment, TIME_INDEX},
};

pub use errors::MoveError;
pub use settle::{accept_moved, moved_from, settle_moved};

/// Bytes read and written at once.
const PIECE_BYTES: u64 = 256 << 10;
/// The most that waits for a flush of the copy.
const UNFLUSHED_BYTES_MAX: u64 = 32 << 20;

/// A copy of a log that is not in its place yet.
#[derive(Debug)]
pub struct FutureLog {
    name: LogName,
    target: Arc<LogDir>,
    dir: PathBuf,
    /// By base offset.
    segments: BTreeMap<Offset, SegmentCopy>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct SegmentCopy {
    /// What it is a copy of.
    of: Arc<Segment>,
    /// Open while something may be added.
    log: Option<DiskFile>,
    bytes: u64,
    unflushed_bytes: u64,
    /// Nothing will be added, and all that belongs to it is there and flushed.
    is_complete: bool,
}

/// What a step of copying did, and how far the copy is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied {
    /// Bytes copied in this step.
    pub bytes: u64,
    /// Bytes that the copy has of the log.
    pub done_bytes: u64,
    /// Bytes of the log that it lacks.
    pub left_bytes: u64,
    /// About where it ends; exactly when nothing is left.
    pub end: Offset,
}

/// What a log consists of at one moment.
struct Segments {
    all: Vec<Arc<Segment>>,
    /// Readable bytes of the last one.
    active_size: u64,
    end: Offset,
}

impl Segments {
    fn of(reader: &LogReader) -> Self {
        let view = reader.shared.view.lock();
        Self { all: view.segments.clone(), active_size: view.active_size, end: view.end }
    }

    /// With the bytes of each, and whether it is closed.
    fn iter(&self) -> impl Iterator<Item = (&Arc<Segment>, u64, bool)> {
        self.all.iter().enumerate().map(|(at, segment)| {
            let is_closed = at + 1 < self.all.len();
            (segment, if is_closed { segment.size() } else { self.active_size }, is_closed)
        })
    }
}

impl FutureLog {
    /// Begins an empty copy of a log in another directory. `id` is its own.
    pub fn begin(target: &Arc<LogDir>, name: &LogName, id: Uuid) -> Result<Self, MoveError> {
        target.check_writable()?;
        target.check_room()?;
        let dir = target.path().join(names::future_dir(name, id));
        let future =
            Self { name: name.clone(), target: Arc::clone(target), dir, segments: BTreeMap::new(), buffer: Vec::new() };
        future.write(|disk| disk.make_dir(&future.dir))?;
        Ok(future)
    }

    /// Copies up to `bytes_max` bytes of what the log has and the copy lacks, from the oldest on.
    pub fn copy_some(&mut self, of: &LogReader, bytes_max: u64) -> Result<Copied, MoveError> {
        let now = Segments::of(of);
        self.forget_others(&now)?;
        let mut bytes = 0;
        for (segment, size, is_closed) in now.iter() {
            bytes += self.copy_segment(segment, size, bytes_max - bytes)?;
            let copy = self.segments.get(&segment.base_offset);
            if copy.is_none_or(|copy| copy.bytes < size) {
                break;
            }
            if is_closed && copy.is_some_and(|copy| !copy.is_complete) {
                self.complete(segment)?;
            }
        }
        Ok(self.look(&now, bytes))
    }

    /// Makes durable what is copied, so that the switch has little to wait for.
    pub fn flush(&mut self) -> Result<(), MoveError> {
        let unflushed: Vec<Offset> =
            self.segments.iter().filter(|(_, copy)| copy.unflushed_bytes > 0).map(|(base, _)| *base).collect();
        unflushed.into_iter().try_for_each(|base| self.flush_segment(base))
    }

    /// Where it is copied to.
    pub fn target(&self) -> &Arc<LogDir> {
        &self.target
    }

    /// Removes the copy, which is not wanted any more.
    pub fn discard(self) -> Result<(), DiskError> {
        drop(self.segments);
        self.target.disk().remove_dir_all(&self.dir)
    }

    fn look(&self, now: &Segments, bytes: u64) -> Copied {
        let mut copied = Copied { bytes, end: now.end, ..Copied::default() };
        for (segment, size, _) in now.iter() {
            let copy = self.segments.get(&segment.base_offset);
            let done_bytes = copy.map_or(0, |copy| copy.bytes.min(size));
            if done_bytes < size && copied.left_bytes == 0 {
                // An index that can't be read only makes it look less.
                let reached =
                    segment.offsets.last_where(|entry| u64::from(entry.position) <= done_bytes).ok().flatten();
                copied.end = reached.map_or(segment.base_offset, |entry| segment.absolute(entry.relative_offset));
            }
            copied.done_bytes += done_bytes;
            copied.left_bytes += size - done_bytes;
        }
        copied
    }

    /// Copies of segments that the log has no more go: before anything else, since another one may have the same name.
    fn forget_others(&mut self, now: &Segments) -> Result<(), MoveError> {
        let is_there = |copy: &SegmentCopy| now.all.iter().any(|segment| Arc::ptr_eq(segment, &copy.of));
        let gone: Vec<Offset> =
            self.segments.iter().filter(|(_, copy)| !is_there(copy)).map(|(base, _)| *base).collect();
        for base in gone {
            self.segments.remove(&base);
            let kinds = [LOG, INDEX, TIME_INDEX].map(|kind| segment_file(base, kind));
            for name in kinds.into_iter().chain([snapshot_name(base)]) {
                self.write(|disk| disk.remove_file(&self.dir.join(&name)))?;
            }
        }
        Ok(())
    }

    /// Gives the bytes that it copied.
    fn copy_segment(&mut self, of: &Arc<Segment>, size: u64, bytes_max: u64) -> Result<u64, MoveError> {
        let base = of.base_offset;
        if !self.segments.contains_key(&base) {
            let path = self.dir.join(segment_file(base, LOG));
            let log = self.write(|disk| disk.open_write(&path))?;
            let copy =
                SegmentCopy { of: Arc::clone(of), log: Some(log), bytes: 0, unflushed_bytes: 0, is_complete: false };
            self.segments.insert(base, copy);
        }
        let mut copied = 0;
        while let Some(copy) = self.segments.get_mut(&base)
            && copied < bytes_max
            && copy.bytes < size
            && let Some(log) = &copy.log
        {
            let wanted = (size - copy.bytes).min(bytes_max - copied).min(PIECE_BYTES);
            self.buffer.resize(usize::try_from(wanted).unwrap_or_default(), 0);
            let read = of.log.read_at(&mut self.buffer, copy.bytes).map_err(MoveError::Read)?;
            if read < self.buffer.len() {
                return Err(MoveError::Short {
                    path: of.log.path().display().to_string(),
                    at: copy.bytes + read as u64,
                });
            }
            self.target.check_space(wanted)?;
            let written = log.write_all_at(&mut [IoSlice::new(&self.buffer)], copy.bytes);
            written.map_err(|error| failed(&self.target, error))?;
            copy.bytes += wanted;
            copy.unflushed_bytes += wanted;
            copied += wanted;
            if copy.unflushed_bytes >= UNFLUSHED_BYTES_MAX {
                self.flush_segment(base)?;
            }
        }
        Ok(copied)
    }

    fn flush_segment(&mut self, base: Offset) -> Result<(), MoveError> {
        let Some(copy) = self.segments.get_mut(&base) else { return Ok(()) };
        copy.log.as_ref().map_or(Ok(()), DiskFile::sync).map_err(|error| failed(&self.target, error))?;
        copy.unflushed_bytes = 0;
        Ok(())
    }

    /// Adds to a copy of which no bytes are missing what else belongs to it: its indexes, and the producers as they were before it.
    fn complete(&mut self, of: &Segment) -> Result<(), MoveError> {
        self.flush_segment(of.base_offset)?;
        self.put_indexes(of)?;
        let name = snapshot_name(of.base_offset);
        let snapshot = of.log.path().parent().map(|dir| self.target.disk().read(&dir.join(&name)));
        if let Some(content) = snapshot.transpose().map_err(MoveError::Read)?.flatten() {
            self.put(&self.dir.join(&name), &content)?;
        }
        if let Some(copy) = self.segments.get_mut(&of.base_offset) {
            (copy.is_complete, copy.log) = (true, None);
        }
        Ok(())
    }

    fn put_indexes(&self, of: &Segment) -> Result<(), MoveError> {
        for (path, content) in of.indexes_in(&self.dir).map_err(MoveError::Read)? {
            if let Some(content) = content {
                self.put(&path, &content)?;
            }
        }
        Ok(())
    }

    /// Writes a small file, whose content is durable then.
    fn put(&self, path: &Path, content: &[u8]) -> Result<(), MoveError> {
        self.target.check_space(content.len() as u64)?;
        self.write(|disk| disk.put(path, content))
    }

    fn write<T>(&self, work: impl FnOnce(&crate::Disk) -> Result<T, DiskError>) -> Result<T, MoveError> {
        self.target.check_writable()?;
        work(self.target.disk()).map_err(|error| failed(&self.target, error))
    }
}

/// A write to the copy that failed. Where something is only used up nothing is broken.
fn failed(target: &LogDir, error: DiskError) -> MoveError {
    if !error.is_shortage() {
        target.poison(&error);
    }
    MoveError::Write(error)
}
