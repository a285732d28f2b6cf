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
    disk::DiskError,
    flush_mark::FlushMark,
    leader_epochs::LeaderEpochs,
    log_dir::{LogDir, Poisoned},
    names::LogName,
    producer_state::ProducerState,
    read::{LogReader, Shared, View},
    segment::Segment,
};

/// One partition's log.
#[derive(Debug)]
pub struct PartitionLog {
    pub(crate) name: LogName,
    pub(crate) dir: PathBuf,
    pub(crate) log_dir: Arc<LogDir>,
    pub(crate) config: LogConfig,
    pub(crate) shared: Arc<Shared>,
    pub(crate) producers: ProducerState,
    /// Whether an unknown producer may start with any sequence number.
    pub(crate) begin_anywhere: bool,
    pub(crate) group: WriteGroup,
    /// The next record's offset.
    pub(crate) end: Offset,
    pub(crate) flushed: Offset,
    pub(crate) unflushed_messages: u64,
    pub(crate) bytes_since_recovery_point: u64,
    /// Rises with each truncation: a flush that began before one proves nothing about what came after.
    pub(crate) truncations: u64,
    /// The leader epochs in memory are newer than those on disk.
    pub(crate) epochs_unsaved: bool,
    /// Of a log that must not be cut below what was flushed: see [`PartitionLog::open_guarded`].
    pub(crate) mark: Option<FlushMark>,
    /// Files of removed segments and when to remove them, in milliseconds.
    pub(crate) deleted_files: Vec<(PathBuf, i64)>,
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

    /// Makes the leader epochs durable, without keeping readers waiting meanwhile. On a full disk they wait for the next recovery point:
    /// behind it they are also in the batches.
    pub(crate) fn save_epochs(&mut self) -> Result<(), DiskError> {
        let epochs = self.shared.epochs.lock().clone();
        self.epochs_unsaved = true;
        match epochs.save() {
            Err(error) if error.is_shortage() => Ok(()),
            result => {
                self.epochs_unsaved = result.is_err();
                result
            }
        }
    }

    /// Runs a writing operation: refused in a poisoned directory, and poisoning it when the file system fails. A full disk or too many
    /// open files fail the operation but poison nothing: whatever is written besides batches is replaced whole, so that it can be tried again.
    pub(crate) fn write<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, DiskError>) -> Result<T, LogError> {
        self.log_dir.check_writable()?;
        let log_dir = Arc::clone(&self.log_dir);
        Ok(work(self).inspect_err(|error| {
            if !error.is_shortage() {
                log_dir.poison(error);
            }
        })?)
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
        if self.config.preallocate {
            active.log.set_len(active.size())?; // gives back what was reserved behind the end
        }
        self.save_unsaved_epochs()?;
        self.save_producers()?;
        let preallocate = self.config.preallocate.then(|| u64::from(self.config.segment_bytes));
        let segment = Segment::create(self.log_dir.disk(), &self.dir, self.end, preallocate)?;
        self.log_dir.disk().sync_dir(&self.dir)?;
        self.reached_disk(self.end);
        self.shared.view.lock().push_segment(segment);
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
    /// Durable after [`LogDir::commit_deletions`].
    pub fn delete(&self, now_ms: i64) -> Result<(), DiskError> {
        let delay_ms = i64::try_from(self.config.file_delete_delay_ms).unwrap_or(i64::MAX);
        let mut is_deleted = self.shared.is_deleted.lock();
        self.log_dir.delete_log(&self.name, now_ms, now_ms.saturating_add(delay_ms))?;
        *is_deleted = true;
        Ok(())
    }

    pub(crate) fn new(parts: Loaded) -> Self {
        let Loaded { name, dir, log_dir, config, view, epochs, epochs_unsaved, producers, .. } = parts;
        let (bytes_since_recovery_point, mark) = (parts.bytes_since_recovery_point, parts.mark);
        let end = view.end;
        Self {
            name,
            dir,
            shared: Arc::new(Shared {
                view: Mutex::new(view),
                epochs: Mutex::new(epochs),
                is_deleted: Mutex::default(),
                log_dir: Arc::clone(&log_dir),
            }),
            log_dir,
            config,
            producers,
            begin_anywhere: true,
            group: WriteGroup::default(),
            end,
            flushed: end,
            unflushed_messages: 0,
            bytes_since_recovery_point,
            truncations: 0,
            epochs_unsaved,
            mark,
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
    /// There was no room to save them.
    pub(crate) epochs_unsaved: bool,
    pub(crate) producers: ProducerState,
    pub(crate) bytes_since_recovery_point: u64,
    pub(crate) mark: Option<FlushMark>,
}
