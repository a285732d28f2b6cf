//! Reading a log: what readers see, and finding the range of a file that answers a fetch.
//!
//! Readers take a snapshot under a lock that is never held during I/O: the segment and how far it may be read. They then search without the
//! lock; the tail of the log is found in memory. A range stays readable as long as its handle is held, even if the segment is removed.

use std::{collections::VecDeque, fs::File, sync::Arc};

use bytes::Bytes;
use forebay_broker_wire::types::{LeaderEpoch, Offset};
use parking_lot::Mutex;

use crate::{
    disk::{DiskError, DiskFile},
    leader_epochs::LeaderEpochs,
    log_dir::LogDir,
    scan::LocatedBatch,
    segment::Segment,
};

/// So many of the newest batches are found without touching the disk.
const RECENT_BATCHES: usize = 256;

/// A range of a segment file.
#[derive(Debug, Clone)]
pub struct FileSlice {
    file: DiskFile,
    /// Where the range starts in the file.
    pub position: u64,
    /// Its length in bytes. It may end inside a batch, which clients know to ignore.
    pub length: u32,
    /// Base offset of the first batch: at or before the offset asked for, but in a compacted log.
    pub first_offset: Offset,
    /// True when it starts among the newest batches, which are almost surely in the page cache.
    pub recent: bool,
    /// True when there is more to read behind it: `max_bytes` or the segment's end cut it off.
    pub more: bool,
}

impl FileSlice {
    /// The file, for `sendfile`.
    pub fn file(&self) -> &Arc<File> {
        self.file.handle()
    }

    /// The bytes themselves; fewer when the file was cut meanwhile.
    pub fn read(&self) -> Result<Bytes, DiskError> {
        let mut bytes = vec![0; self.length as usize];
        let length = self.file.read_at(&mut bytes, self.position)?;
        bytes.truncate(length);
        Ok(bytes.into())
    }
}

/// What to read.
#[derive(Debug, Clone, Copy)]
pub struct ReadSpec {
    /// From the batch that holds this offset.
    pub offset: Offset,
    /// At most so many bytes,
    pub max_bytes: u32,
    /// but the first batch whole, if it alone is larger.
    pub min_one_batch: bool,
    /// Only whole batches below this offset (high watermark, last stable offset or log end).
    pub upto: Offset,
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The offset is not in the log.
    #[error("offset {offset} is out of range: the log has {log_start} to {end}")]
    OutOfRange {
        /// The offset asked for.
        offset: Offset,
        /// First offset.
        log_start: Offset,
        /// Next offset.
        end: Offset,
    },
    /// The file system failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Offsets of a log as they are at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogOffsets {
    /// First offset that may be read.
    pub start: Offset,
    /// Next offset.
    pub end: Offset,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) view: Mutex<View>,
    pub(crate) epochs: Mutex<LeaderEpochs>,
    /// Held while a snapshot of producers is saved: a flush and a roll may want the same one at once, and both write it beside its name first.
    /// True once the log is deleted: its directory has another name then, and another log may have the name that it had.
    pub(crate) is_deleted: Mutex<bool>,
    pub(crate) log_dir: Arc<LogDir>,
}

/// What readers see. Segments ascend and there is always one, the active.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) log_start: Offset,
    pub(crate) end: Offset,
    /// Readable bytes of the active segment: the writer may be further.
    pub(crate) active_size: u64,
    /// The newest batches of the active segment, without a gap up to the end.
    recent: VecDeque<RecentBatch>,
}

#[derive(Debug, Clone, Copy)]
struct RecentBatch {
    base: Offset,
    last: Offset,
    position: u64,
    size: u64,
}

/// Where to look for an offset.
struct Target {
    segment: Arc<Segment>,
    /// Readable bytes.
    size: u64,
    /// The batch, when it is among the recent ones.
    found: Option<RecentBatch>,
    /// Where reading must end, when known without a search.
    limit: Option<u64>,
    /// What may be read goes on in the next segment.
    continues: bool,
}

impl View {
    pub(crate) fn new(segments: Vec<Arc<Segment>>, log_start: Offset, end: Offset) -> Self {
        let active_size = segments.last().map_or(0, |segment| segment.size());
        Self { segments, log_start, end, active_size, recent: VecDeque::new() }
    }

    pub(crate) fn active(&self) -> Arc<Segment> {
        Arc::clone(&self.segments[self.segments.len() - 1])
    }

    pub(crate) fn bases(&self) -> Vec<Offset> {
        self.segments.iter().map(|segment| segment.base_offset).collect()
    }

    pub(crate) fn push_segment(&mut self, segment: Arc<Segment>) {
        self.segments.push(segment);
        self.active_size = 0;
        self.recent.clear();
    }

    /// Puts one segment in the place of neighbouring ones that are there.
    pub(crate) fn replace(&mut self, old: &[Arc<Segment>], new: Arc<Segment>) {
        let Some(at) = self.segments.iter().position(|segment| Arc::ptr_eq(segment, &old[0])) else { return };
        self.segments.splice(at..at + old.len(), [new]);
    }

    /// Replaces everything: after a truncation.
    pub(crate) fn reset(&mut self, segments: Vec<Arc<Segment>>, end: Offset) {
        *self = Self::new(segments, self.log_start.min(end), end);
    }

    /// Shows appended batches of the active segment.
    pub(crate) fn publish(&mut self, batches: &[LocatedBatch], end: Offset) {
        for batch in batches {
            if self.recent.len() == RECENT_BATCHES {
                self.recent.pop_front();
            }
            self.recent.push_back(RecentBatch {
                base: batch.header.base_offset,
                last: batch.header.last_offset(),
                position: batch.position,
                size: batch.header.total_bytes() as u64,
            });
            self.active_size = batch.end();
        }
        self.end = end;
    }

    /// Bytes of all segments.
    pub(crate) fn size(&self) -> u64 {
        let closed = self.segments.iter().rev().skip(1).map(|segment| segment.size());
        self.active_size + closed.sum::<u64>()
    }

    /// The place of the segment that would hold `offset`.
    pub(crate) fn segment_at(&self, offset: Offset) -> usize {
        self.segments.partition_point(|segment| segment.base_offset <= offset).saturating_sub(1)
    }

    /// The segment's readable bytes and where the next one begins.
    pub(crate) fn bounds(&self, at: usize) -> (u64, Offset) {
        match self.segments.get(at + 1) {
            Some(next) => (self.segments[at].size(), next.base_offset),
            None => (self.active_size, self.end),
        }
    }

    fn recent_at(&self, offset: Offset) -> Option<RecentBatch> {
        self.recent.front().filter(|first| first.base <= offset)?;
        self.recent.get(self.recent.partition_point(|batch| batch.last < offset)).copied()
    }

    fn target(&self, offset: Offset, upto: Offset) -> Target {
        let at = self.segment_at(offset);
        let (size, next) = self.bounds(at);
        let active = at + 1 == self.segments.len();
        let limit = if upto >= next {
            Some(size)
        } else if active {
            self.recent_at(upto).map(|batch| batch.position)
        } else {
            None
        };
        let found = if active { self.recent_at(offset) } else { None };
        let continues = !active && upto > next;
        Target { segment: Arc::clone(&self.segments[at]), size, found, limit, continues }
    }

    /// The base offset of the segment after the one with `base`.
    fn segment_after(&self, base: Offset) -> Option<Offset> {
        let at = self.segments.partition_point(|segment| segment.base_offset <= base);
        self.segments.get(at).map(|segment| segment.base_offset)
    }
}

/// A reader's handle on a log. It never waits for the writer's disk operations.
#[derive(Debug, Clone)]
pub struct LogReader {
    pub(crate) shared: Arc<Shared>,
}

impl LogReader {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// First and next offset.
    pub fn offsets(&self) -> LogOffsets {
        let view = self.shared.view.lock();
        LogOffsets { start: view.log_start, end: view.end }
    }

    /// Bytes of all segments.
    pub fn size_bytes(&self) -> u64 {
        self.shared.view.lock().size()
    }

    /// The directory the log lies in, with others.
    pub fn log_dir(&self) -> &Arc<LogDir> {
        &self.shared.log_dir
    }

    /// The epoch of the newest records.
    pub fn latest_epoch(&self) -> Option<LeaderEpoch> {
        self.shared.epochs.lock().latest()
    }

    /// The epoch that wrote `offset`.
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        self.shared.epochs.lock().epoch_at(offset)
    }

    /// The largest epoch not above `epoch` and the offset where it ended; `None` when the epoch is not known here.
    pub fn end_offset_for_epoch(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        let end = self.offsets().end;
        self.shared.epochs.lock().end_offset_for(epoch, end)
    }

    /// The range that answers a fetch; `None` when there is nothing below [`ReadSpec::upto`] or the first batch does not fit.
    pub fn read(&self, spec: &ReadSpec) -> Result<Option<FileSlice>, ReadError> {
        let mut offset = spec.offset;
        loop {
            let target = {
                let view = self.shared.view.lock();
                if spec.offset < view.log_start || spec.offset > view.end {
                    let (log_start, end) = (view.log_start, view.end);
                    return Err(ReadError::OutOfRange { offset: spec.offset, log_start, end });
                }
                if offset >= spec.upto.min(view.end) {
                    return Ok(None);
                }
                view.target(offset, spec.upto)
            };
            let base = target.segment.base_offset;
            if let Some(first) = find_first(&target, offset)? {
                return slice(&target, first, spec);
            }
            // Compaction may have left nothing here at or after the offset.
            match self.shared.view.lock().segment_after(base) {
                Some(next) => offset = next,
                None => return Ok(None),
            }
        }
    }
}

fn find_first(target: &Target, offset: Offset) -> Result<Option<RecentBatch>, DiskError> {
    if target.found.is_some() {
        return Ok(target.found);
    }
    let batch = target.segment.find(offset, target.size)?;
    Ok(batch.map(|batch| RecentBatch {
        base: batch.header.base_offset,
        last: batch.header.last_offset(),
        position: batch.position,
        size: batch.header.total_bytes() as u64,
    }))
}

fn slice(target: &Target, first: RecentBatch, spec: &ReadSpec) -> Result<Option<FileSlice>, ReadError> {
    if first.last >= spec.upto {
        return Ok(None);
    }
    let limit = match target.limit {
        Some(limit) => limit,
        None => target.segment.find(spec.upto, target.size)?.map_or(target.size, |batch| batch.position),
    };
    let readable = limit.saturating_sub(first.position);
    let mut length = readable.min(u64::from(spec.max_bytes));
    if length < first.size {
        if !spec.min_one_batch || readable < first.size {
            return Ok(None);
        }
        length = first.size;
    }
    Ok(Some(FileSlice {
        file: target.segment.log.clone(),
        position: first.position,
        length: u32::try_from(length).unwrap_or(u32::MAX),
        first_offset: first.base,
        recent: target.found.is_some(),
        more: target.continues || length < readable,
    }))
}
