//! One partition's log: what may be done with it. The one writer owns it; readers use [`LogReader`]s.
//!
//! What must hold: offsets ascend without a gap at append; what a reader can see is whole batches below the published end; everything below
//! the recovery point is on disk together with its indexes and a producer snapshot; after a failed write or flush nothing more is written.
//! Replication, waiting and locking belong to the partition above.

use std::{path::PathBuf, sync::Arc};

use forebay_broker_wire::types::{LeaderEpoch, Offset};
use parking_lot::Mutex;

use crate::{
    append::WriteGroup,
    config::LogConfig,
    disk::{DiskError, DiskFile},
    leader_epochs::LeaderEpochs,
    log_dir::{LogDir, Poisoned},
    names::LogName,
    producer_state::{ProducerState, snapshot_name},
    read::{LogReader, Shared, View},
    segment::Segment,
};

/// The recovery point moves when so many bytes lie behind it: what a crash makes recovery read, per log.
const RECOVERY_BYTES_MAX: u64 = 16 << 20;

/// One partition's log.
#[derive(Debug)]
pub struct PartitionLog {
    pub(crate) name: LogName,
    pub(crate) dir: PathBuf,
    pub(crate) log_dir: Arc<LogDir>,
    pub(crate) config: LogConfig,
    pub(crate) shared: Arc<Shared>,
    pub(crate) producers: ProducerState,
    pub(crate) group: WriteGroup,
    /// The next record's offset.
    pub(crate) end: Offset,
    pub(crate) flushed: Offset,
    pub(crate) unflushed_messages: u64,
    pub(crate) bytes_since_recovery_point: u64,
    /// Rises with each truncation: a flush that began before one proves nothing about what came after.
    pub(crate) truncations: u64,
    /// Files of removed segments and when to remove them, in milliseconds.
    pub(crate) deleted_files: Vec<(PathBuf, i64)>,
}

/// Why a flush failed. The log directory is poisoned either way.
#[derive(Debug, thiserror::Error)]
pub enum FlushError {
    /// It had failed before.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
    /// It failed now.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Why an operation other than append, read or flush failed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The log directory takes no more writes.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
    /// The file system failed; the log directory is now poisoned.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The offset is not in the log.
    #[error("offset {offset} of {name} is out of range: the log has {log_start} to {end}")]
    OutOfRange {
        /// The log.
        name: LogName,
        /// The offset asked for.
        offset: Offset,
        /// First offset.
        log_start: Offset,
        /// Next offset.
        end: Offset,
    },
}

/// A flush to be done without holding the log: see [`PartitionLog::begin_flush`].
#[derive(Debug)]
pub struct PendingFlush {
    file: DiskFile,
    log_dir: Arc<LogDir>,
    end: Offset,
    truncations: u64,
}

impl PendingFlush {
    /// Waits until all that was appended before [`PartitionLog::begin_flush`] is on disk.
    pub fn run(self) -> Result<DoneFlush, FlushError> {
        self.log_dir.check_writable()?;
        if let Err(error) = self.file.sync() {
            self.log_dir.poison(&error);
            return Err(error.into());
        }
        Ok(DoneFlush { end: self.end, truncations: self.truncations })
    }
}

/// A flush that succeeded, to be told to the log: see [`PartitionLog::end_flush`].
#[derive(Debug)]
pub struct DoneFlush {
    end: Offset,
    truncations: u64,
}

impl PartitionLog {
    /// Whose log it is.
    pub fn name(&self) -> &LogName {
        &self.name
    }

    /// The directory it lies in, with others.
    pub fn log_dir(&self) -> &Arc<LogDir> {
        &self.log_dir
    }

    /// The settings in force.
    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    /// Changes the settings; they count from the next operation on.
    pub fn set_config(&mut self, config: LogConfig) {
        self.config = config;
    }

    /// A handle for readers, which never waits for the writer's disk operations.
    pub fn reader(&self) -> LogReader {
        LogReader::new(Arc::clone(&self.shared))
    }

    /// First offset that may be read.
    pub fn log_start(&self) -> Offset {
        self.shared.view.lock().log_start
    }

    /// The offset that the next record will get.
    pub fn log_end(&self) -> Offset {
        self.end
    }

    /// Everything below is on disk.
    pub fn flushed_to(&self) -> Offset {
        self.flushed
    }

    /// Records appended since the last flush.
    pub fn unflushed_messages(&self) -> u64 {
        self.unflushed_messages
    }

    /// Producers known.
    pub fn producers(&self) -> usize {
        self.producers.len()
    }

    /// The epoch of the newest records.
    pub fn latest_epoch(&self) -> Option<LeaderEpoch> {
        self.shared.epochs.lock().latest()
    }

    pub(crate) fn active(&self) -> Arc<Segment> {
        self.shared.view.lock().active()
    }

    /// Makes the leader epochs durable, without keeping readers waiting meanwhile.
    pub(crate) fn save_epochs(&self) -> Result<(), DiskError> {
        let epochs = self.shared.epochs.lock().clone();
        epochs.save()
    }

    /// Runs a writing operation: refused in a poisoned directory, and poisoning it when the file system fails.
    pub(crate) fn write<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, DiskError>) -> Result<T, LogError> {
        self.log_dir.check_writable()?;
        Ok(work(self).inspect_err(|error| {
            self.log_dir.poison(error);
        })?)
    }

    /// Begins a flush of all that is appended so far; `None` when all is on disk.
    pub fn begin_flush(&self) -> Option<PendingFlush> {
        // Closed segments were flushed when they were closed.
        (self.flushed < self.end).then(|| PendingFlush {
            file: self.active().log.clone(),
            log_dir: Arc::clone(&self.log_dir),
            end: self.end,
            truncations: self.truncations,
        })
    }

    /// Takes note of a flush; gives the offset below which everything is on disk.
    pub fn end_flush(&mut self, done: &DoneFlush) -> Offset {
        if done.truncations == self.truncations && done.end > self.flushed {
            self.flushed = done.end;
            let unflushed = u64::try_from(self.end.0 - done.end.0).unwrap_or(0);
            self.unflushed_messages = self.unflushed_messages.min(unflushed);
        }
        self.flushed
    }

    /// Flushes all that is appended so far; gives the offset below which everything is on disk.
    pub fn flush(&mut self) -> Result<Offset, FlushError> {
        if let Some(flush) = self.begin_flush() {
            let done = flush.run()?;
            self.end_flush(&done);
        } else {
            self.log_dir.check_writable()?;
        }
        Ok(self.flushed)
    }

    /// Closes the active segment and starts a new one, if it holds anything.
    pub fn roll(&mut self) -> Result<(), LogError> {
        self.write(Self::roll_now)
    }

    pub(crate) fn roll_now(&mut self) -> Result<(), DiskError> {
        let active = self.active();
        if active.size() == 0 {
            return Ok(());
        }
        active.close()?;
        self.save_producers()?;
        let preallocate = self.config.preallocate.then(|| u64::from(self.config.segment_bytes));
        let segment = Segment::create(self.log_dir.disk(), &self.dir, self.end, preallocate)?;
        self.log_dir.disk().sync_dir(&self.dir)?;
        self.reached_disk(self.end);
        self.shared.view.lock().push_segment(segment);
        Ok(())
    }

    fn reached_disk(&mut self, offset: Offset) {
        self.flushed = offset;
        self.unflushed_messages = 0;
        self.bytes_since_recovery_point = 0;
        self.log_dir.set_recovery_point(&self.name, offset);
    }

    /// Writes the producer snapshot of the log's end, durably, and removes those that no segment starts with.
    fn save_producers(&self) -> Result<(), DiskError> {
        let disk = self.log_dir.disk();
        disk.replace(&self.dir.join(snapshot_name(self.end)), &self.producers.encode_snapshot())?;
        let bases = self.shared.view.lock().bases();
        for entry in disk.list(&self.dir)? {
            let snapshot = crate::names::parse_segment_file(&entry.name, ".snapshot");
            if snapshot.is_some_and(|offset| offset != self.end && !bases.contains(&offset)) {
                disk.remove_file(&self.dir.join(&entry.name))?;
            }
        }
        Ok(())
    }

    /// Moves the recovery point to the log's end when much has been appended since (or `always`): log, indexes and producers are made
    /// durable first. [`LogDir::write_checkpoints`] then makes the point itself durable.
    pub(crate) fn advance_recovery_point(&mut self, always: bool) -> Result<(), DiskError> {
        if self.bytes_since_recovery_point == 0 && self.log_dir.recovery_point(&self.name) == self.end {
            return Ok(());
        }
        if !always && self.bytes_since_recovery_point < RECOVERY_BYTES_MAX {
            return Ok(());
        }
        self.active().sync()?;
        self.save_producers()?;
        self.log_dir.disk().sync_dir(&self.dir)?;
        self.reached_disk(self.end);
        Ok(())
    }

    /// Makes everything durable, so that the next start need not read the log. The log stays usable.
    pub fn close_clean(&mut self) -> Result<(), LogError> {
        self.write(|log| {
            log.advance_recovery_point(true)?;
            log.remove_deleted_files(i64::MAX)
        })
    }

    /// Takes the log out of service for good (it must not be used after that); its directory is removed when `file.delete.delay.ms` is over.
    pub fn delete(&self, now_ms: i64) -> Result<(), DiskError> {
        let delay_ms = i64::try_from(self.config.file_delete_delay_ms).unwrap_or(i64::MAX);
        self.log_dir.delete_log(&self.name, now_ms, now_ms.saturating_add(delay_ms))
    }

    pub(crate) fn new(parts: Loaded) -> Self {
        let Loaded { name, dir, log_dir, config, view, epochs, producers, bytes_since_recovery_point } = parts;
        let end = view.end;
        Self {
            name,
            dir,
            shared: Arc::new(Shared {
                view: Mutex::new(view),
                epochs: Mutex::new(epochs),
                log_dir: Arc::clone(&log_dir),
            }),
            log_dir,
            config,
            producers,
            group: WriteGroup::default(),
            end,
            flushed: end,
            unflushed_messages: 0,
            bytes_since_recovery_point,
            truncations: 0,
            deleted_files: Vec::new(),
        }
    }
}

/// What loading a log has found: see `recovery`.
pub(crate) struct Loaded {
    pub(crate) name: LogName,
    pub(crate) dir: PathBuf,
    pub(crate) log_dir: Arc<LogDir>,
    pub(crate) config: LogConfig,
    pub(crate) view: View,
    pub(crate) epochs: LeaderEpochs,
    pub(crate) producers: ProducerState,
    pub(crate) bytes_since_recovery_point: u64,
}
