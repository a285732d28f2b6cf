//! Loading a log: find its segments, check what may be torn, cut what is.
//!
//! Everything below the recovery point was made durable, with indexes and a producer snapshot, before the point was written: it is not read
//! again. From there on every batch is checked; at the first that is not whole and right the log ends, and what stands behind is cut off.
//! After a clean shutdown the point is the log's end, so the same steps read nothing. All of this can be interrupted and begun again.
//! A guarded log is never cut below what is known to have been flushed: that would be damage, and what to do about it is not decided here.

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
    log_dir::LogDir,
    names::{DELETED, LogName, parse_segment_file, segment_file},
    producer_state::{ProducerState, snapshot_name},
    read::View,
    scan::{LocatedBatch, Scanner, Step, next_whole_batch},
    segment::{INDEX, LOG, Segment, TIME_INDEX},
    topic_id::{self, TopicIdError},
};

/// Why a log cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum OpenLogError {
    /// The file system failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The directory holds another topic's records under this name.
    #[error(transparent)]
    TopicId(#[from] TopicIdError),
    /// A guarded log would have to be cut below what was flushed.
    #[error(transparent)]
    Damaged(#[from] Damaged),
}

/// Something is wrong with a part of a log that had been flushed: no crash does that. Nothing was cut.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{path} is damaged at offset {offset}, byte {position}: {reason}; all below offset {flushed} had been on disk, so this is no torn write, \
     and cutting it here would lose it{}; restore the log from a copy, or take its directory away if others have its records",
    match whole_batch { Some(offset) => format!(" (a whole batch follows at offset {offset})"), None => String::new() }
)]
pub struct Damaged {
    /// The segment, or the log's directory when segments are missing.
    pub path: String,
    /// Up to where the log is right.
    pub offset: Offset,
    /// Where in the file.
    pub position: u64,
    /// What is wrong.
    pub reason: String,
    /// Everything below had been flushed.
    pub flushed: Offset,
    /// Where the first whole batch behind the damage starts, if one was found.
    pub whole_batch: Option<Offset>,
}

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
        if let Some(topic_id) = topic_id {
            topic_id::claim(disk, &dir, topic_id)?;
        }
        let mut loader = Loader::new(log_dir, name, &dir, &config)?;
        loader.mark = if guarded { Some(FlushMark::load(disk, &dir)?) } else { None };
        loader.recover()?;
        let (loaded, report) = loader.finish(config)?;
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
    log_start: Offset,
    producers: ProducerState,
    epochs: LeaderEpochs,
    next_offset: Offset,
    report: RecoveryReport,
    mark: Option<FlushMark>,
}

impl<'a> Loader<'a> {
    fn new(log_dir: &'a Arc<LogDir>, name: &'a LogName, dir: &Path, config: &LogConfig) -> Result<Self, OpenLogError> {
        let disk = log_dir.disk();
        swap::finish_interrupted(disk, dir)?;
        let (mut bases, mut snapshots) = (Vec::new(), Vec::new());
        for entry in disk.list(dir)? {
            if entry.name.ends_with(DELETED) || entry.name.ends_with(".tmp") {
                disk.remove_file(&dir.join(&entry.name))?;
            }
            bases.extend(parse_segment_file(&entry.name, LOG));
            snapshots.extend(parse_segment_file(&entry.name, ".snapshot"));
        }
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
            log_start: log_dir.log_start(name).unwrap_or(first).max(first),
            producers: ProducerState::default(),
            epochs,
            next_offset: first,
            report: RecoveryReport::default(),
            mark: None,
        })
    }

    fn recover(&mut self) -> Result<(), OpenLogError> {
        let Some(first) = self.segments.first() else { return Ok(()) };
        let point = self.log_dir.recovery_point(self.name).max(first.base_offset);
        let mut at = self.segments.partition_point(|segment| segment.base_offset <= point) - 1;
        for segment in &self.segments[..at] {
            if !indexes_fit(self.disk, &self.dir, segment)? {
                tracing::warn!(log = %self.name, base_offset = segment.base_offset.0, "index is missing or wrong, it is built again");
                rebuild_indexes(self.disk, segment, self.index_interval_bytes)?;
                self.report.rebuilt_indexes += 1;
            }
        }
        let segment = Arc::clone(&self.segments[at]);
        let usable = indexes_fit(self.disk, &self.dir, &segment)?;
        let position = if usable { position_of(&segment, point)? } else { None };
        // What cannot be found is not trusted: the whole segment is checked.
        let (mut position, point) = position.map_or((0, segment.base_offset), |position| (position, point));
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
        let flushed = self.mark.as_ref().map_or(Offset(0), FlushMark::upto);
        if self.next_offset >= flushed {
            return Ok(());
        }
        let path = path.display().to_string();
        Err(Damaged {
            path,
            offset: self.next_offset,
            position,
            reason: reason.to_owned(),
            flushed,
            whole_batch: whole,
        })
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
            // Records were deleted durably, and what came after them is lost.
            let lost = std::mem::take(&mut self.segments);
            lost.iter().flat_map(|segment| segment.files()).try_for_each(|path| self.disk.remove_file(&path))?;
            self.producers = ProducerState::default();
        }
        if self.segments.is_empty() {
            self.next_offset = self.log_start;
            self.segments.push(Segment::create(self.disk, &self.dir, self.log_start, None)?);
        }
        let end = self.next_offset;
        for offset in self.snapshots.iter().filter(|offset| **offset > end) {
            self.disk.remove_file(&self.dir.join(snapshot_name(*offset)))?;
        }
        let mut epochs_unsaved = false;
        let changed = self.epochs.truncate_end(end) | self.epochs.truncate_start(self.log_start);
        if changed || self.report.checked_bytes > 0 {
            match self.epochs.save() {
                Err(error) if error.is_shortage() => epochs_unsaved = true,
                result => result?,
            }
        }
        if self.report != RecoveryReport::default() {
            // A killed process leaves its last writes to the page cache: from here on they count as flushed, so they must be.
            self.segments[self.segments.len() - 1].log.sync()?;
        }
        self.disk.sync_dir(&self.dir)?;
        let point = self.log_dir.recovery_point(self.name);
        if point > end {
            self.log_dir.set_recovery_point(self.name, end);
            self.log_dir.write_checkpoints()?;
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
}

/// Where the first record at or after `offset` lies, or the segment's end; `None` when the batches before it cannot be walked.
fn position_of(segment: &Segment, offset: Offset) -> Result<Option<u64>, DiskError> {
    let relative = offset.0 - segment.base_offset.0;
    let hint = segment.offsets.last_where(|entry| i64::from(entry.relative_offset) < relative)?;
    let from = hint.map_or(0, |entry| u64::from(entry.position));
    let mut batches = Scanner::headers(&segment.log, from, segment.size());
    let mut next_offset = segment.base_offset;
    loop {
        let position = batches.position();
        match batches.step()? {
            // Torn just there: the checksum does not cover the base offset, so a batch may look whole but for that.
            Step::Batch(batch) if batch.header.base_offset < next_offset => {
                return Ok((next_offset >= offset).then_some(position));
            }
            Step::Batch(batch) if batch.header.base_offset >= offset => return Ok(Some(position)),
            Step::Batch(batch) => next_offset = batch.header.next_offset(),
            Step::End => return Ok(Some(position)),
            Step::Invalid(_) => return Ok((next_offset >= offset).then_some(position)),
        }
    }
}

/// True when both index files are there, whole, and the last offset entry points at the batch it names.
fn indexes_fit(disk: &Disk, dir: &Path, segment: &Segment) -> Result<bool, DiskError> {
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
fn rebuild_indexes(disk: &Disk, segment: &Segment, interval_bytes: u32) -> Result<(), DiskError> {
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
fn close_or_drop_indexes(disk: &Disk, segment: &Segment) -> Result<(), DiskError> {
    match segment.close() {
        Err(error) if error.is_shortage() => {
            let [_, offsets, times] = segment.files();
            disk.remove_file(&offsets)?;
            disk.remove_file(&times)
        }
        result => result,
    }
}
