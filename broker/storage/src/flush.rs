//! Making a log durable: flushes, and the recovery point that spares the next start reading what is flushed.
//!
//! Waiting for the disk is done without holding the log ([`PendingFlush`]), so that appends go on meanwhile. Every
//! [`RECOVERY_BYTES_MAX`] bytes a flush also makes indexes and producer state durable and moves the recovery point: only what lies behind it
//! is read at a start after a crash.

use std::{path::PathBuf, sync::Arc};

use forebay_broker_wire::types::Offset;

use crate::{
    disk::{Disk, DiskError},
    log::PartitionLog,
    log_dir::{LogDir, Poisoned},
    names::parse_segment_file,
    producer_state::snapshot_name,
    read::Shared,
    segment::Segment,
};

/// The recovery point moves when so many bytes lie behind it: what a crash makes recovery read, per log. Small in tests, so that they meet it.
const RECOVERY_BYTES_MAX: u64 = if cfg!(test) { 2 << 10 } else { 64 << 20 };

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

/// A flush to be done without holding the log: see [`PartitionLog::begin_flush`].
#[derive(Debug)]
pub struct PendingFlush {
    segment: Arc<Segment>,
    log_dir: Arc<LogDir>,
    end: Offset,
    truncations: u64,
    checkpoint: Option<Checkpoint>,
}

/// What else must be on disk before the recovery point may move to the flush's end.
#[derive(Debug)]
struct Checkpoint {
    snapshot: Snapshot,
    bytes: u64,
}

/// The producer state at one offset, as it goes to disk.
#[derive(Debug)]
struct Snapshot {
    shared: Arc<Shared>,
    dir: PathBuf,
    end: Offset,
    content: Vec<u8>,
    /// Where segments begin: their snapshots stay.
    bases: Vec<Offset>,
}

impl Snapshot {
    /// Writes it durably and removes older ones that no segment begins with; nothing of a log that was deleted meanwhile.
    fn save(&self, disk: &Disk) -> Result<(), DiskError> {
        let is_deleted = self.shared.is_deleted.lock();
        if *is_deleted {
            return Ok(());
        }
        disk.replace(&self.dir.join(snapshot_name(self.end)), &self.content)?;
        for entry in disk.list(&self.dir)? {
            let other = parse_segment_file(&entry.name, ".snapshot");
            if other.is_some_and(|other| other < self.end && !self.bases.contains(&other)) {
                disk.remove_file(&self.dir.join(&entry.name))?;
            }
        }
        Ok(())
    }
}

impl PendingFlush {
    /// Waits until all that was appended before [`PartitionLog::begin_flush`] is on disk.
    pub fn run(mut self) -> Result<DoneFlush, FlushError> {
        self.log_dir.check_writable()?;
        self.sync().inspect_err(|error| drop(self.log_dir.poison(error)))?;
        let Self { end, truncations, checkpoint, .. } = self;
        Ok(DoneFlush { end, truncations, checkpoint })
    }

    fn sync(&mut self) -> Result<(), DiskError> {
        self.segment.log.sync()?;
        let Some(checkpoint) = &self.checkpoint else { return Ok(()) };
        let saved = self.segment.offsets.sync_written();
        let saved = saved.and_then(|()| self.segment.times.sync_written());
        match saved.and_then(|()| checkpoint.snapshot.save(self.log_dir.disk())) {
            // The records are safe; only the recovery point has to wait.
            Err(error) if error.is_shortage() => {
                self.checkpoint = None;
                Ok(())
            }
            result => result,
        }
    }
}

/// A flush that succeeded, to be told to the log: see [`PartitionLog::end_flush`].
#[derive(Debug)]
pub struct DoneFlush {
    end: Offset,
    truncations: u64,
    checkpoint: Option<Checkpoint>,
}

impl DoneFlush {
    /// True when the recovery point moves with it, so that [`LogDir::write_checkpoints`] is worth it.
    pub fn moves_recovery_point(&self) -> bool {
        self.checkpoint.is_some()
    }
}

impl PartitionLog {
    /// Begins a flush of all that is appended so far; `None` when all is on disk.
    pub fn begin_flush(&mut self) -> Option<PendingFlush> {
        if self.flushed >= self.end {
            return None;
        }
        // Closed segments were flushed when they were closed.
        let segment = self.active();
        let due = self.bytes_since_recovery_point >= RECOVERY_BYTES_MAX;
        // What keeps the recovery point from moving keeps nobody from flushing.
        let checkpoint = if due { self.checkpoint(&segment).ok() } else { None };
        let (log_dir, end, truncations) = (Arc::clone(&self.log_dir), self.end, self.truncations);
        Some(PendingFlush { segment, log_dir, end, truncations, checkpoint })
    }

    fn checkpoint(&mut self, segment: &Segment) -> Result<Checkpoint, DiskError> {
        segment.write_indexes()?;
        self.save_unsaved_epochs()?;
        Ok(Checkpoint { snapshot: self.snapshot(), bytes: self.bytes_since_recovery_point })
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            shared: Arc::clone(&self.shared),
            dir: self.dir.clone(),
            end: self.end,
            content: self.producers.encode_snapshot(),
            bases: self.shared.view.lock().bases(),
        }
    }

    /// Takes note of a flush; gives the offset below which everything is on disk.
    pub fn end_flush(&mut self, done: &DoneFlush) -> Offset {
        if *self.shared.is_deleted.lock() {
            // Another log may have its name by now: nothing is noted under it.
        } else if done.truncations != self.truncations {
            if let Some(Checkpoint { snapshot, .. }) = &done.checkpoint {
                // What it says of the producers was cut; a start would believe it once the log has grown again.
                let path = snapshot.dir.join(snapshot_name(snapshot.end));
                self.log_dir.disk().remove_file(&path).unwrap_or_else(|error| drop(self.log_dir.poison(&error)));
            }
        } else if done.end > self.flushed {
            self.flushed = done.end;
            let unflushed = u64::try_from(self.end.0 - done.end.0).unwrap_or(0);
            self.unflushed_messages = self.unflushed_messages.min(unflushed);
            if let Some(Checkpoint { bytes, .. }) = &done.checkpoint {
                self.bytes_since_recovery_point = self.bytes_since_recovery_point.saturating_sub(*bytes);
                self.log_dir.set_recovery_point(&self.name, done.end);
            }
            self.raise_mark();
        }
        self.flushed
    }

    /// Flushes all that is appended so far; gives the offset below which everything is on disk.
    pub fn flush(&mut self) -> Result<Offset, FlushError> {
        let Some(flush) = self.begin_flush() else {
            self.log_dir.check_writable()?;
            return Ok(self.flushed);
        };
        let done = flush.run()?;
        let flushed = self.end_flush(&done);
        if done.moves_recovery_point() {
            match self.log_dir.write_checkpoints() {
                // The records are safe; the file is written again from time to time.
                Err(error) if error.is_shortage() => {}
                result => result.inspect_err(|error| drop(self.log_dir.poison(error)))?,
            }
        }
        Ok(flushed)
    }

    /// Everything below `offset` is on disk with indexes and producers.
    pub(crate) fn reached_disk(&mut self, offset: Offset) {
        self.flushed = offset;
        self.unflushed_messages = 0;
        self.bytes_since_recovery_point = 0;
        self.log_dir.set_recovery_point(&self.name, offset);
        self.raise_mark();
    }

    /// Notes what is flushed, in a log that is guarded; on a full disk the next flush will.
    fn raise_mark(&mut self) {
        let Some(mark) = &mut self.mark else { return };
        match mark.raise(self.flushed) {
            Err(error) if !error.is_shortage() => drop(self.log_dir.poison(&error)),
            _ => {}
        }
    }

    /// Makes up for a [`Self::save_epochs`] that found no room; fails when there still is none.
    pub(crate) fn save_unsaved_epochs(&mut self) -> Result<(), DiskError> {
        if self.epochs_unsaved {
            self.shared.epochs.lock().clone().save()?;
            self.epochs_unsaved = false;
        }
        Ok(())
    }

    /// Writes the producer snapshot of the log's end, durably.
    pub(crate) fn save_producers(&self) -> Result<(), DiskError> {
        self.snapshot().save(self.log_dir.disk())
    }

    /// Moves the recovery point to the log's end when much has been appended since (or `always`): log, indexes and producers are made
    /// durable first. [`LogDir::write_checkpoints`] then makes the point itself durable.
    pub(crate) fn advance_recovery_point(&mut self, always: bool) -> Result<(), DiskError> {
        if self.bytes_since_recovery_point == 0 && self.log_dir.recovery_point(&self.name) == self.end {
            // The start's judgement of what is there counts on them.
            return if always { self.save_unsaved_epochs() } else { Ok(()) };
        }
        if !always && self.bytes_since_recovery_point < RECOVERY_BYTES_MAX {
            return Ok(());
        }
        self.active().sync()?;
        self.save_unsaved_epochs()?;
        self.save_producers()?;
        self.log_dir.disk().sync_dir(&self.dir)?;
        self.reached_disk(self.end);
        Ok(())
    }
}
