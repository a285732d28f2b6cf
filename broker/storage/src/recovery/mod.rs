//! Loading a log: find its segments, check what may be torn, cut what is.
//!
//! Everything below the recovery point was made durable, with indexes and a producer snapshot, before the point was written: it is not read
//! again. From there on every batch is checked; at the first that is not whole and right the log ends, and what stands behind is cut off.
//! After a clean shutdown the point is the log's end, so the same steps read nothing. All of this can be interrupted and begun again.
//!
//! What must hold: the log is believed over the checkpoints. It is never cut below what is known to have been flushed (the mark of a guarded
//! log; a recovery point with a producer snapshot that was written before it): that would be damage, and what to do about it is not decided
//! here. Records missing between segments are told, not healed. Nothing is deleted because a checkpoint says so.

mod errors;
mod found;
mod segments;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use forebay_broker_wire::types::{Offset, Uuid};

use crate::{
    checkpoint::CheckpointError,
    compaction::swap,
    config::LogConfig,
    disk::{Disk, DiskError},
    flush_mark::FlushMark,
    leader_epochs::{self, LeaderEpochs},
    log::{Loaded, PartitionLog},
    log_dir::{LOG_STARTS, LogDir, RECOVERY_POINTS},
    names::LogName,
    producer_state::{ProducerState, snapshot_name},
    read::View,
    scan::{LocatedBatch, Scanner, Step, next_whole_batch},
    segment::Segment,
    topic_id,
};

pub use errors::{Damaged, OpenLogError, StartBeyondEnd};
use found::Found;
use segments::{close_or_drop_indexes, end_of, indexes_fit, position_of, rebuild_indexes};

/// What loading a log took.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Bytes that were read and checked.
    pub checked_bytes: u64,
    /// Bytes cut off the end.
    pub truncated_bytes: u64,
    /// Segments removed because the log ended before them.
    pub removed_segments: usize,
    /// Segments whose indexes were missing or wrong.
    pub rebuilt_indexes: usize,
    /// A whole batch stood behind the point where the log was cut: a power cut tore several writes, or the disk damaged one.
    pub cut_whole_batch_at: Option<Offset>,
    /// Offsets without records where there should be some, each from and up to. Nothing was cut for that.
    pub missing: Vec<(Offset, Offset)>,
    /// Index files without their log, after a clean stop.
    pub orphaned_indexes: usize,
    /// A recovery point beyond the log's end that nothing else speaks for; the log was believed.
    pub unsupported_recovery_point: Option<Offset>,
}

impl RecoveryReport {
    /// True when records may be missing that no crash can have taken.
    pub fn is_inconsistent(&self) -> bool {
        !self.missing.is_empty() || self.orphaned_indexes > 0 || self.unsupported_recovery_point.is_some()
    }
}

impl PartitionLog {
    /// Loads a log or starts an empty one. With a topic id, a directory of another topic of that name is refused.
    pub fn open(
        log_dir: &Arc<LogDir>,
        name: &LogName,
        topic_id: Option<Uuid>,
        config: LogConfig,
    ) -> Result<(Self, RecoveryReport), OpenLogError> {
        Self::load(log_dir, name, topic_id, config, false)
    }

    /// As [`Self::open`], but keeps a mark of what was flushed and refuses, with [`OpenLogError::Damaged`], to cut anything below it. For logs
    /// without gaps between offsets (never compacted) whose loss must be seen.
    pub fn open_guarded(
        log_dir: &Arc<LogDir>,
        name: &LogName,
        topic_id: Option<Uuid>,
        config: LogConfig,
    ) -> Result<(Self, RecoveryReport), OpenLogError> {
        Self::load(log_dir, name, topic_id, config, true)
    }

    fn load(
        log_dir: &Arc<LogDir>,
        name: &LogName,
        topic_id: Option<Uuid>,
        config: LogConfig,
        guarded: bool,
    ) -> Result<(Self, RecoveryReport), OpenLogError> {
        let disk = log_dir.disk();
        let dir = log_dir.path().join(name.to_string());
        if !disk.exists(&dir) {
            disk.create_dir(&dir)?;
        }
        let claimed = topic_id.map_or(Ok(false), |topic_id| topic_id::claim(disk, &dir, topic_id))?;
        let mut loader = Loader::new(log_dir, name, &dir, &config)?;
        loader.is_durable &= !claimed;
        loader.mark = if guarded { Some(FlushMark::load(disk, &dir)?) } else { None };
        let loaded = loader.recover().and_then(|()| loader.finish(config));
        log_dir.note_inconsistent(
            name,
            loaded.as_ref().map_or_else(OpenLogError::needs_a_person, |(_, report)| report.is_inconsistent()),
        );
        let (loaded, report) = loaded?;
        log_dir.note_log(name);
        if report != RecoveryReport::default() {
            tracing::info!(log = %loaded.name, ?report, "log recovered");
        }
        Ok((Self::new(loaded), report))
    }
}

struct Loader<'a> {
    log_dir: &'a Arc<LogDir>,
    disk: &'a Disk,
    name: &'a LogName,
    dir: PathBuf,
    index_interval_bytes: u32,
    segments: Vec<Arc<Segment>>,
    snapshots: Vec<Offset>,
    /// Indexes whose log is not there.
    orphans: Vec<PathBuf>,
    /// What waits for its removal; it goes when the epochs no longer speak of it.
    deleted: Vec<PathBuf>,
    /// The segments among that.
    deleted_bases: Vec<Offset>,
    log_start: Offset,
    /// Everything below had been flushed, as far as checkpoint and snapshots tell.
    flushed: Offset,
    /// Compaction leaves segments that end before the next begins.
    may_have_gaps: bool,
    producers: ProducerState,
    epochs: LeaderEpochs,
    next_offset: Offset,
    report: RecoveryReport,
    mark: Option<FlushMark>,
    /// The directory's entries are on disk as they are.
    is_durable: bool,
}

impl<'a> Loader<'a> {
    fn new(log_dir: &'a Arc<LogDir>, name: &'a LogName, dir: &Path, config: &LogConfig) -> Result<Self, OpenLogError> {
        let disk = log_dir.disk();
        swap::finish_interrupted(disk, dir)?;
        let Found { bases, mut snapshots, orphans, deleted, deleted_bases } = Found::list(disk, dir)?;
        let point = log_dir.recovery_point(name);
        // A snapshot is written, durably, before a point is; without one the point is only a number in a file.
        let supported = bases.is_empty() || snapshots.iter().any(|snapshot| *snapshot >= point);
        let mut segments = Vec::with_capacity(bases.len());
        for base in bases {
            segments.push(Segment::open(disk, dir, base)?);
        }
        let path = dir.join(leader_epochs::FILE_NAME);
        let epochs = match LeaderEpochs::load(disk, path.clone()) {
            Ok(epochs) => epochs,
            Err(CheckpointError::Disk(error)) => return Err(error.into()),
            Err(error) => {
                tracing::warn!(log = %name, %error, "leader epochs cannot be read, they are taken from the log again");
                disk.remove_file(&path)?;
                snapshots.clear(); // so that the whole log is walked
                LeaderEpochs::empty(disk, path)
            }
        };
        let first = segments.first().map_or(Offset(0), |segment| segment.base_offset);
        Ok(Self {
            log_dir,
            disk,
            name,
            dir: dir.to_owned(),
            index_interval_bytes: config.index_interval_bytes,
            segments,
            snapshots,
            orphans,
            deleted,
            deleted_bases,
            flushed: if supported { point } else { Offset(0) },
            may_have_gaps: config.compact || log_dir.clean_to(name).is_some(),
            log_start: log_dir.log_start(name).unwrap_or(first).max(first),
            producers: ProducerState::default(),
            epochs,
            next_offset: first,
            report: RecoveryReport::default(),
            mark: None,
            is_durable: log_dir.was_clean() && log_dir.knows(name),
        })
    }

    fn recover(&mut self) -> Result<(), OpenLogError> {
        let Some(first) = self.segments.first() else {
            self.next_offset = self.log_start;
            return Ok(());
        };
        let first = first.base_offset;
        let point = self.log_dir.recovery_point(self.name).max(first);
        let mut at = self.segments.partition_point(|segment| segment.base_offset <= point) - 1;
        self.check_beginning(first)?;
        for closed in 0..at {
            self.check_closed(closed)?;
        }
        let segment = Arc::clone(&self.segments[at]);
        let usable = indexes_fit(self.disk, &self.dir, &segment)?;
        let found = if usable { position_of(&segment, point)? } else { None };
        // What cannot be found is not trusted: the whole segment is checked.
        let (mut position, point) = found.unwrap_or((0, segment.base_offset));
        self.report.rebuilt_indexes += usize::from(!usable && segment.size() > 0);
        self.load_producers(at, point)?;
        self.next_offset = point;
        while at < self.segments.len() {
            if !self.check_segment(at, position)? {
                self.remove_segments_after(at)?;
                break;
            }
            at += 1;
            position = 0;
        }
        Ok(())
    }

    /// The epochs and the checkpoint of log starts say where the log begins. Retention notes the start that it leaves in the epochs; where a
    /// crash came between, the segment that held the earlier start waits for its removal.
    fn check_beginning(&mut self, first: Offset) -> Result<(), OpenLogError> {
        let checkpoint = self.log_dir.log_start(self.name);
        let Some(start) = self.epochs.first_start().max(checkpoint) else { return Ok(()) };
        let held_start = |base: &Offset| *base == start || (*base < start && checkpoint == Some(start));
        if self.deleted_bases.iter().any(held_start) { Ok(()) } else { self.note_missing(start, first) }
    }

    /// Looks at a segment below the recovery point: only its indexes and where it ends.
    fn check_closed(&mut self, at: usize) -> Result<(), OpenLogError> {
        let segment = Arc::clone(&self.segments[at]);
        if !indexes_fit(self.disk, &self.dir, &segment)? {
            tracing::warn!(log = %self.name, base_offset = segment.base_offset.0, "index is missing or wrong, it is built again");
            rebuild_indexes(self.disk, &segment, self.index_interval_bytes)?;
            self.report.rebuilt_indexes += 1;
        }
        let (size, end) = end_of(&segment)?;
        if size < segment.size() {
            segment.rescan_tail(size)?; // readers get whole batches; the file stays as it is
        }
        self.note_missing(end, self.segments[at + 1].base_offset)
    }

    /// Between two offsets there are no records, although there should be; a guarded log is refused for that.
    fn note_missing(&mut self, from: Offset, to: Offset) -> Result<(), OpenLogError> {
        if from >= to || self.may_have_gaps {
            return Ok(());
        }
        if self.mark.is_some() {
            let reason = format!("the next record is at offset {to}");
            return Err(self.damaged(&self.dir, from, 0, &reason, to, None).into());
        }
        tracing::error!(log = %self.name, from = from.0, to = to.0,
            "records are missing in the log: nobody removed them on purpose; the others are served, restore the segment from a copy to have them again");
        self.report.missing.push((from, to));
        Ok(())
    }

    /// Producer state as of `point`: the newest snapshot before it, and the headers from there on.
    fn load_producers(&mut self, last: usize, point: Offset) -> Result<(), DiskError> {
        let first = self.segments[0].base_offset;
        let mut from = first;
        for offset in self.snapshots.iter().rev().filter(|offset| **offset <= point && **offset > first) {
            let content = self.disk.read(&self.dir.join(snapshot_name(*offset)))?.unwrap_or_default();
            if let Some(producers) = ProducerState::decode_snapshot(&content) {
                (self.producers, from) = (producers, *offset);
                break;
            }
        }
        for segment in self.segments[..=last].iter().filter(|_| from < point) {
            let Some(start) = segment.find(from, segment.size())? else { continue };
            let mut batches = Scanner::headers(&segment.log, start.position, segment.size());
            while let Some(LocatedBatch { header, .. }) =
                batches.next_batch()?.filter(|batch| batch.header.base_offset < point)
            {
                if header.has_producer_id() {
                    self.producers.update(&header);
                }
                self.epochs.assign(header.partition_leader_epoch, header.base_offset);
            }
        }
        Ok(())
    }

    /// Checks a segment from `position` on. Gives whether it is whole; otherwise it has been cut.
    fn check_segment(&mut self, at: usize, position: u64) -> Result<bool, OpenLogError> {
        let segment = Arc::clone(&self.segments[at]);
        let file_size = segment.size();
        if segment.base_offset < self.next_offset && position == 0 && file_size > 0 && at > 0 {
            return self.cut(&segment, 0, file_size, "the segment begins before the one before it ends");
        }
        self.note_missing(self.next_offset, segment.base_offset)?;
        self.next_offset = self.next_offset.max(segment.base_offset);
        segment.truncate_indexes(position, self.next_offset)?;
        segment.rescan_tail(position)?;
        let mut batches = Scanner::checked(&segment.log, position, file_size);
        let reason = loop {
            match batches.step()? {
                Step::End => break None,
                Step::Invalid(reason) => break Some(reason),
                Step::Batch(batch) if batch.header.base_offset < self.next_offset => {
                    break Some("the offsets go back".to_owned());
                }
                Step::Batch(batch) if self.mark.is_some() && batch.header.base_offset > self.next_offset => {
                    break Some(format!("the offsets leap to {}", batch.header.base_offset));
                }
                Step::Batch(batch) if batch.header.last_offset().0 - segment.base_offset.0 > i64::from(i32::MAX) => {
                    break Some("the offsets are too far from the segment's base".to_owned());
                }
                Step::Batch(batch) => self.take(&segment, &batch)?,
            }
        };
        self.report.checked_bytes += segment.size() - position;
        match reason {
            None => {
                if at + 1 < self.segments.len() {
                    close_or_drop_indexes(self.disk, &segment)?;
                }
                Ok(true)
            }
            Some(reason) => self.cut(&segment, segment.size(), file_size, &reason),
        }
    }

    fn take(&mut self, segment: &Segment, batch: &LocatedBatch) -> Result<(), DiskError> {
        segment.note(batch, self.index_interval_bytes)?;
        self.log_dir.add_recovered_bytes(batch.header.total_bytes() as u64);
        if batch.header.has_producer_id() {
            self.producers.update(&batch.header);
        }
        self.epochs.assign(batch.header.partition_leader_epoch, batch.header.base_offset);
        self.next_offset = batch.header.next_offset();
        Ok(())
    }

    fn cut(&mut self, segment: &Segment, position: u64, file_size: u64, reason: &str) -> Result<bool, OpenLogError> {
        let whole = next_whole_batch(&segment.log, position, file_size)?;
        let whole = whole.map(|batch| batch.header.base_offset);
        self.check_flushed(segment.log.path(), position, reason, whole)?;
        match whole {
            None => {
                tracing::warn!(log = %self.name, base_offset = segment.base_offset.0, position, file_size, reason, "the log's end is torn and cut off");
            }
            Some(offset) => {
                tracing::error!(log = %self.name, base_offset = segment.base_offset.0, position, file_size, reason, whole_batch_at = offset.0,
                    "the log is cut although a whole batch follows: the power failed before several writes were on disk, or the disk damaged one");
            }
        }
        self.report.cut_whole_batch_at = whole;
        segment.truncate(position, self.next_offset)?;
        self.report.truncated_bytes += file_size - position;
        Ok(false)
    }

    /// Refuses to end the log here when more of it had been flushed.
    fn check_flushed(&self, path: &Path, position: u64, reason: &str, whole: Option<Offset>) -> Result<(), Damaged> {
        let flushed = self.mark.as_ref().map_or(self.flushed, |mark| mark.upto().max(self.flushed));
        if self.next_offset >= flushed {
            return Ok(());
        }
        Err(self.damaged(path, self.next_offset, position, reason, flushed, whole))
    }

    fn damaged(
        &self,
        path: &Path,
        offset: Offset,
        position: u64,
        reason: &str,
        flushed: Offset,
        whole_batch: Option<Offset>,
    ) -> Damaged {
        let mut remedy =
            "restore the log from a copy, or take its directory away while other replicas are in sync".to_owned();
        if self.mark.is_none() {
            let LogName { topic, partition } = self.name;
            let point = self.log_dir.recovery_point(self.name);
            remedy += &format!(
                "; to go on with what is left, take the line \"{topic} {partition} {point}\" out of {RECOVERY_POINTS} while the broker is stopped"
            );
        }
        let (path, reason) = (path.display().to_string(), reason.to_owned());
        Damaged { path, offset, position, reason, flushed, whole_batch, remedy }
    }

    fn remove_segments_after(&mut self, at: usize) -> Result<(), DiskError> {
        for segment in self.segments.drain(at + 1..) {
            self.report.truncated_bytes += segment.size();
            self.report.removed_segments += 1;
            segment.files().iter().try_for_each(|path| self.disk.remove_file(path))?;
        }
        Ok(())
    }

    fn finish(mut self, config: LogConfig) -> Result<(Loaded, RecoveryReport), OpenLogError> {
        self.check_flushed(&self.dir, 0, "the log ends before that", None)?;
        if self.next_offset < self.log_start {
            let checkpoint = self.log_dir.path().join(LOG_STARTS).display().to_string();
            let (log, log_start, end) = (self.name.clone(), self.log_start, self.next_offset);
            return Err(StartBeyondEnd { log, checkpoint, log_start, end }.into());
        }
        self.look_at_orphans()?;
        if self.segments.is_empty() {
            self.next_offset = self.log_start;
            self.segments.push(Segment::create(self.disk, &self.dir, self.log_start, None)?);
            self.is_durable = false;
        }
        let end = self.next_offset;
        for offset in self.snapshots.iter().filter(|offset| **offset > end) {
            self.disk.remove_file(&self.dir.join(snapshot_name(*offset)))?;
            self.is_durable = false;
        }
        let mut epochs_unsaved = false;
        let changed = self.epochs.truncate_end(end) | self.epochs.truncate_start(self.log_start);
        if changed || self.report.checked_bytes > 0 {
            match self.epochs.save() {
                Err(error) if error.is_shortage() => epochs_unsaved = true,
                result => result?,
            }
        }
        self.deleted.iter().try_for_each(|path| self.disk.remove_file(path))?;
        self.check_recovery_point(end)?;
        if self.report != RecoveryReport::default() {
            // A killed process leaves its last writes to the page cache: from here on they count as flushed, so they must be.
            self.segments[self.segments.len() - 1].log.sync()?;
            self.is_durable = false;
        }
        if !self.is_durable {
            self.disk.sync_dir(&self.dir)?;
        }
        let loaded = Loaded {
            name: self.name.clone(),
            dir: self.dir,
            log_dir: Arc::clone(self.log_dir),
            config,
            view: View::new(self.segments, self.log_start, end),
            epochs: self.epochs,
            epochs_unsaved,
            producers: self.producers,
            bytes_since_recovery_point: self.report.checked_bytes,
            mark: self.mark,
        };
        Ok((loaded, self.report))
    }

    /// A crash while a segment was removed leaves its indexes; nothing else does.
    fn look_at_orphans(&mut self) -> Result<(), DiskError> {
        for path in &self.orphans {
            if self.log_dir.was_clean() {
                tracing::error!(log = %self.name, index = %path.display(), "an index is there without its log: records are missing");
                self.report.orphaned_indexes += 1;
            } else {
                self.disk.remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Takes back a recovery point that lies beyond the log's end.
    fn check_recovery_point(&mut self, end: Offset) -> Result<(), DiskError> {
        let point = self.log_dir.recovery_point(self.name);
        if point <= end {
            return Ok(());
        }
        tracing::error!(log = %self.name, recovery_point = point.0, end = end.0,
            "the recovery point lies beyond the log's end and no producer snapshot speaks for it: it is not believed");
        self.report.unsupported_recovery_point = Some(point);
        self.log_dir.set_recovery_point(self.name, end);
        match self.log_dir.write_checkpoints() {
            Err(error) if error.is_shortage() => Ok(()), // it is written again from time to time
            result => result,
        }
    }
}
