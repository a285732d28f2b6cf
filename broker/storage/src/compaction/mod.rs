//! Compaction (`cleanup.policy=compact`): of the records with one key the newest stays.
//!
//! Three steps: choose closed segments (log held), read them and write their successors beside them (log free, appends go on), put the
//! successors in their place (log held). Offsets, order and batch headers stay; only superseded records and old tombstones go. Nothing is
//! removed before its successor is on disk, and a crash at any point leaves the old or the new segments: see `swap`. Memory is bounded by
//! [`KEYS_MAX`] keys a round; what does not fit waits for the next round.

mod key_map;
mod rewrite;
pub(crate) mod swap;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use forebay_broker_wire::{
    records::Batch,
    types::{Offset, ProducerId},
};

use crate::{
    config::LogConfig,
    disk::{Disk, DiskError},
    log::{LogError, PartitionLog},
    scan::{LocatedBatch, Scanner},
    segment::{NO_TIMESTAMP, Segment},
};
use key_map::KeyMap;
use rewrite::{Rewrite, Rewritten};

/// Keys remembered in one round, about 40 bytes each.
const KEYS_MAX: usize = 1 << 20;
/// Batches are written together up to this size.
const WRITE_BYTES: usize = 1 << 20;

/// What one round of compaction did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactionReport {
    /// Segments read.
    pub segments: usize,
    /// Bytes in them before.
    pub bytes_before: u64,
    /// Bytes in their successors.
    pub bytes_after: u64,
}

/// Why a compaction ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum CompactionError {
    /// It was told to stop.
    #[error("compaction was stopped")]
    Stopped,
    /// The file system failed while the successors were written; the log itself is as it was.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The log failed or is poisoned.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Segments chosen for compaction; [`Self::run`] needs nobody else.
#[derive(Debug)]
pub struct Compaction {
    disk: Disk,
    dir: PathBuf,
    config: LogConfig,
    now_ms: i64,
    /// With the offset where each ends.
    segments: Vec<(Arc<Segment>, Offset)>,
    first_dirty: Offset,
    /// Last offset of each producer: its batch is kept even when it is empty.
    last_offsets: Vec<(ProducerId, Offset)>,
    truncations: u64,
}

/// Successors on disk, not yet in place.
#[derive(Debug)]
pub struct Compacted {
    groups: Vec<Group>,
    truncations: u64,
    clean_to: Offset,
    report: CompactionReport,
}

/// Neighbouring segments and the one that replaces them.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) old: Vec<Arc<Segment>>,
    pub(crate) new: Arc<Segment>,
}

impl PartitionLog {
    /// Chooses what to compact below `upto` (the high watermark); `None` when it is not worth it or not wanted.
    pub fn begin_compaction(&self, upto: Offset, now_ms: i64) -> Option<Compaction> {
        if !self.config.compact || self.log_dir.poisoned().is_some() {
            return None;
        }
        let view = self.shared.view.lock();
        let first = view.segments[0].base_offset;
        let first_dirty = self.log_dir.clean_to(&self.name).unwrap_or(first).max(first);
        let young = |segment: &Segment| {
            let newest = segment.largest().timestamp_ms;
            newest != NO_TIMESTAMP && now_ms.saturating_sub(newest) < self.config.min_compaction_lag_ms
        };
        let closed = view.segments.iter().take(view.segments.len() - 1).enumerate();
        let ends = closed.map(|(at, segment)| (Arc::clone(segment), view.bounds(at).1));
        let segments: Vec<_> = ends.take_while(|(segment, end)| *end <= upto && !young(segment)).collect();
        drop(view);
        let total: u64 = segments.iter().map(|(segment, _)| segment.size()).sum();
        let dirty: Vec<_> = segments.iter().filter(|(_, end)| *end > first_dirty).map(|(segment, _)| segment).collect();
        let dirty_bytes: u64 = dirty.iter().map(|segment| segment.size()).sum();
        let overdue = |first: i64| first >= 0 && now_ms.saturating_sub(first) > self.config.max_compaction_lag_ms;
        let overdue = dirty.iter().filter_map(|segment| segment.first_timestamp_ms()).any(overdue);
        #[expect(clippy::cast_precision_loss, reason = "a ratio, not a count")]
        let ratio = dirty_bytes as f64 / total.max(1) as f64;
        if dirty_bytes == 0 || (ratio < self.config.min_cleanable_dirty_ratio && !overdue) {
            return None;
        }
        Some(Compaction {
            disk: self.log_dir.disk().clone(),
            dir: self.dir.clone(),
            config: self.config.clone(),
            now_ms,
            segments,
            first_dirty,
            last_offsets: self.producers.last_offsets(),
            truncations: self.truncations,
        })
    }

    /// Puts the successors in place, unless the segments have been removed or cut meanwhile.
    pub fn end_compaction(&mut self, compacted: Compacted, now_ms: i64) -> Result<CompactionReport, LogError> {
        let disk = self.log_dir.disk().clone();
        let Compacted { groups, truncations, clean_to, mut report } = compacted;
        let current = self.shared.view.lock().segments.clone();
        let still_there = |segment: &Arc<Segment>| current.iter().any(|other| Arc::ptr_eq(segment, other));
        for group in groups {
            if truncations != self.truncations || !group.old.iter().all(still_there) {
                report.bytes_after -= group.new.size();
                swap::discard(&disk, &group.new)?;
                continue;
            }
            self.write(|log| {
                let (new, renamed) = swap::commit(&disk, &log.dir, &group)?;
                renamed.into_iter().for_each(|path| log.deleted_later(path, now_ms));
                log.shared.view.lock().replace(&group.old, new);
                Ok(())
            })?;
        }
        if truncations == self.truncations {
            self.write(|log| log.log_dir.set_clean_to(&log.name, clean_to))?;
        }
        Ok(report)
    }
}

impl Compaction {
    /// Reads the segments and writes their successors. Ends early when `stop` is set.
    pub fn run(self, stop: &AtomicBool) -> Result<Compacted, CompactionError> {
        let (map, clean_to) = self.map_keys(stop)?;
        let mut groups = Vec::new();
        if let Err(error) = self.rewrite(&map, clean_to, &mut groups, stop) {
            let discarded = groups.iter().map(|group: &Group| swap::discard(&self.disk, &group.new));
            discarded.for_each(Result::unwrap_or_default); // a later start removes what is left
            return Err(error);
        }
        let mut report = CompactionReport::default();
        for Group { old, new } in &groups {
            report.segments += old.len();
            report.bytes_before += old.iter().map(|segment| segment.size()).sum::<u64>();
            report.bytes_after += new.size();
        }
        Ok(Compacted { groups, truncations: self.truncations, clean_to, report })
    }

    /// The newest offset of each key in the dirty part, and the offset up to which all keys fitted.
    fn map_keys(&self, stop: &AtomicBool) -> Result<(KeyMap, Offset), CompactionError> {
        let mut map = KeyMap::new(KEYS_MAX);
        let mut clean_to = self.first_dirty;
        for (segment, _) in self.segments.iter().filter(|(_, end)| *end > self.first_dirty) {
            let mut batches = Scanner::headers(&segment.log, 0, segment.size());
            while let Some(located) = batches.next_batch()? {
                check(stop)?;
                if located.header.next_offset() <= self.first_dirty {
                    continue;
                }
                let batch = read_batch(segment, &located)?;
                for record in rewrite::records(&batch).into_iter().flatten() {
                    let Some(key) = record.key else { continue };
                    if !map.insert(&key, record.offset) {
                        return Ok((map, clean_to.max(batch.header.base_offset)));
                    }
                }
                clean_to = batch.header.next_offset();
            }
        }
        Ok((map, clean_to))
    }

    /// Writes the successors of all segments up to the one that holds `clean_to`. One takes up neighbours as long as the next one would
    /// surely fit.
    fn rewrite(
        &self,
        map: &KeyMap,
        clean_to: Offset,
        groups: &mut Vec<Group>,
        stop: &AtomicBool,
    ) -> Result<(), CompactionError> {
        let rewrite = Rewrite { map, config: &self.config, now_ms: self.now_ms, last_offsets: &self.last_offsets };
        for (segment, end) in self.segments.iter().filter(|(segment, _)| segment.base_offset < clean_to) {
            let fits = |group: &Group| {
                group.new.size() + segment.size() <= u64::from(self.config.segment_bytes)
                    && end.0 - group.new.base_offset.0 <= i64::from(i32::MAX)
            };
            if !groups.last().is_some_and(fits) {
                groups.last().map_or(Ok(()), |group| group.new.close())?;
                groups.push(Group { old: Vec::new(), new: swap::create(&self.disk, &self.dir, segment.base_offset)? });
            }
            if let Some(group) = groups.last_mut() {
                group.old.push(Arc::clone(segment));
                self.rewrite_segment(segment, &group.new, &rewrite, stop)?;
            }
        }
        Ok(groups.last().map_or(Ok(()), |group| group.new.close())?)
    }

    fn rewrite_segment(
        &self,
        old: &Segment,
        new: &Segment,
        rewrite: &Rewrite<'_>,
        stop: &AtomicBool,
    ) -> Result<(), CompactionError> {
        let mut waiting = Waiting::default();
        let mut batches = Scanner::headers(&old.log, 0, old.size());
        while let Some(located) = batches.next_batch()? {
            check(stop)?;
            let batch = read_batch(old, &located)?;
            match rewrite.batch(&batch) {
                Rewritten::Gone => {}
                Rewritten::Same => waiting.push(&batch),
                Rewritten::Other(other) => waiting.push(&other),
            }
            if waiting.bytes.len() >= WRITE_BYTES {
                waiting.write(new, self.config.index_interval_bytes)?;
            }
        }
        waiting.write(new, self.config.index_interval_bytes)?;
        Ok(())
    }
}

/// Batches that go down in one write.
#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    headers: Vec<forebay_broker_wire::records::BatchHeader>,
}

impl Waiting {
    fn push(&mut self, batch: &Batch) {
        self.bytes.extend_from_slice(&batch.bytes);
        self.headers.push(batch.header);
    }

    fn write(&mut self, segment: &Segment, interval_bytes: u32) -> Result<(), DiskError> {
        let mut position = segment.size();
        if !self.bytes.is_empty() {
            segment.log.write_all_at(&mut [std::io::IoSlice::new(&self.bytes)], position)?;
        }
        for header in self.headers.drain(..) {
            let batch = LocatedBatch { position, header };
            segment.note(&batch, interval_bytes)?;
            position = batch.end();
        }
        self.bytes.clear();
        Ok(())
    }
}

fn read_batch(segment: &Segment, located: &LocatedBatch) -> Result<Batch, DiskError> {
    let mut bytes = vec![0; located.header.total_bytes()];
    segment.log.read_at(&mut bytes, located.position)?;
    Ok(Batch { header: located.header, bytes: bytes.into() })
}

fn check(stop: &AtomicBool) -> Result<(), CompactionError> {
    if stop.load(Relaxed) { Err(CompactionError::Stopped) } else { Ok(()) }
}
