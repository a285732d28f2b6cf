//! Putting a copy in the place of its log.
//!
//! IMPORTANT: the order decides what a start after a crash takes. The copy is whole and flushed, and says which directory it is from
//! ([`MOVED_FROM`]), before it gets the log's name; then it has the name and so has the log, and the log counts (`settle.rs`); with the log's
//! directory renamed, durably, the copy is all there is, and counts. Nothing is appended to either before that is certain. Where it
//! is not, because the log's own disk failed over it, that directory is poisoned and neither takes a record any more.

use std::{mem, sync::Arc};

use crate::{
    disk::DiskError,
    leader_epochs,
    log::PartitionLog,
    log_dir::LogDir,
    moving::{FutureLog, MoveError, failed},
    producer_state::snapshot_name,
    topic_id,
};

/// In a copy that has its log's name: the id of the directory that it is from. Gone when the log is.
pub(super) const MOVED_FROM: &str = "moved-from";

/// The most that is copied while nobody can append.
const LAST_BYTES_MAX: u64 = 16 << 20;

impl PartitionLog {
    /// Goes on in the copy, which gets the log's place; what was here is deleted. Appends have to wait meanwhile: the copy should have almost
    /// everything, flushed. After an error the log is what it was, but see [`MoveError::NotLeft`]; the copy can be gone on with only
    /// after [`MoveError::Behind`].
    pub fn switch_to(&mut self, future: &mut FutureLog, now_ms: i64) -> Result<(), MoveError> {
        self.log_dir.check_writable()?;
        future.copy_rest(self)?;
        let target = Arc::clone(&future.target);
        future.take_name(self)?;
        let opened = self.open_copy(&target);
        let mut new = opened.inspect_err(|_| take_away(&target, self, now_ms))?;
        self.leave(&target, now_ms)?;
        let marker = new.dir.join(MOVED_FROM);
        let settled = target.disk().remove_file(&marker).and_then(|()| target.disk().sync_dir(&new.dir));
        if let Err(error) = settled {
            target.poison(&error);
        }
        // What a start forgets.
        mem::swap(&mut new.producers, &mut self.producers);
        let epochs = self.shared.epochs.lock().at(target.disk(), new.dir.join(leader_epochs::FILE_NAME));
        *new.shared.epochs.lock() = epochs;
        new.begin_anywhere = self.begin_anywhere;
        // A flush that began before says nothing of the copy.
        new.truncations = self.truncations + 1;
        *self = new;
        Ok(())
    }

    /// Loads the copy as a start would, and compares.
    fn open_copy(&self, target: &Arc<LogDir>) -> Result<Self, MoveError> {
        let (new, report) = Self::open(target, &self.name, None, self.config.clone())?;
        let (start, end) = (self.log_start(), self.end);
        let (found_start, found_end) = (new.log_start(), new.end);
        let is_same = (found_start, found_end) == (start, end)
            && (start == end || new.latest_epoch() == self.latest_epoch())
            && new.reader().size_bytes() == self.reader().size_bytes()
            && report.truncated_bytes == 0;
        let name = self.name.clone();
        if is_same { Ok(new) } else { Err(MoveError::Differs { name, found_start, found_end, start, end }) }
    }

    /// Takes the log away from its directory, for good.
    fn leave(&self, target: &LogDir, now_ms: i64) -> Result<(), MoveError> {
        let not_left = |error: DiskError| {
            self.log_dir.poison(&error);
            MoveError::NotLeft(error)
        };
        if let Err(error) = self.delete(now_ms) {
            if !error.is_shortage() {
                return Err(not_left(error));
            }
            // It has its name yet, surely.
            take_away(target, self, now_ms);
            return Err(MoveError::Write(error));
        }
        self.log_dir.disk().sync_dir(self.log_dir.path()).map_err(not_left)?;
        if let Err(error) = self.log_dir.commit_deletions() {
            tracing::warn!(log = %self.name, %error, "checkpoints still name a log that was moved away");
        }
        Ok(())
    }
}

/// A copy that has the name and is not to have it.
fn take_away(target: &LogDir, log: &PartitionLog, now_ms: i64) {
    let taken = target.delete_log(&log.name, now_ms, now_ms).and_then(|()| target.commit_deletions());
    if let Err(error) = taken {
        tracing::warn!(log = %log.name, %error, "a copy that is of no use is left until the next start");
    }
}

impl FutureLog {
    /// Makes the copy whole and durable. The log must not change meanwhile.
    fn copy_rest(&mut self, log: &PartitionLog) -> Result<(), MoveError> {
        let reader = log.reader();
        let left = self.copy_some(&reader, 0)?.left_bytes;
        if left > LAST_BYTES_MAX {
            return Err(MoveError::Behind { bytes: left });
        }
        let bytes = self.copy_some(&reader, u64::MAX)?.left_bytes;
        if bytes > 0 {
            return Err(MoveError::Behind { bytes });
        }
        self.complete(&log.active())?;
        self.put(&self.dir.join(snapshot_name(log.end)), &log.producers.encode_snapshot())?;
        let path = self.dir.join(leader_epochs::FILE_NAME);
        let epochs = log.shared.epochs.lock().at(self.target.disk(), path);
        self.write(|_| epochs.save())?;
        if let Some(content) = log.log_dir.disk().read(&log.dir.join(topic_id::FILE_NAME)).map_err(MoveError::Read)? {
            self.put(&self.dir.join(topic_id::FILE_NAME), &content)?;
        }
        let from = format!("{}\n", log.log_dir.identity().directory_id);
        self.put(&self.dir.join(MOVED_FROM), from.as_bytes())?;
        self.write(|disk| disk.sync_dir(&self.dir))
    }

    /// Gives the copy the log's name, and notes what a start has to know of it.
    fn take_name(&mut self, log: &PartitionLog) -> Result<(), MoveError> {
        let target = &self.target;
        let path = target.path().join(self.name.to_string());
        if target.disk().exists(&path) {
            return Err(MoveError::Taken { path: path.display().to_string() });
        }
        self.segments.clear();
        self.write(|disk| disk.rename(&self.dir, &path))?;
        let noted = || {
            target.disk().sync_dir(target.path())?;
            target.set_recovery_point(&self.name, log.end);
            target.set_log_start(&self.name, log.log_start())?;
            if let Some(clean_to) = log.log_dir.clean_to(&self.name) {
                target.set_clean_to(&self.name, clean_to)?;
            }
            target.write_checkpoints()
        };
        noted().map_err(|error| {
            take_away(target, log, 0);
            failed(target, error)
        })
    }
}
