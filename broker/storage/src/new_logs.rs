//! Logs that are made: many at a time, with few waits for the disk.
//!
//! What must hold: a log's directory is durable before the log is used, and the checkpoint names the log before it may lead or follow, so
//! that it is missed when it is gone, however young it was.

use std::sync::atomic::Ordering::Relaxed;

use crate::{disk::DiskError, log_dir::LogDir, names::LogName};

impl LogDir {
    /// Makes the directories of logs that are not there yet: one flush makes all of them durable. Gives how many.
    pub fn make_dirs(&self, logs: &[LogName]) -> Result<usize, DiskError> {
        let paths = logs.iter().map(|log| self.path().join(log.to_string()));
        let new: Vec<_> = paths.filter(|path| !self.disk().exists(path)).collect();
        let made = new.iter().try_for_each(|path| self.disk().make_dir(path));
        let made = made.and_then(|()| if new.is_empty() { Ok(()) } else { self.disk().sync_dir(self.path()) });
        if made.is_err() {
            // Whoever finds one of them takes it for durable.
            new.iter().try_for_each(|path| self.disk().remove_dir_all(path))?;
        }
        made.map(|()| new.len())
    }

    /// Makes it durable which logs there are now. On a full disk that waits for the next [`Self::write_checkpoints`].
    pub fn commit_new_logs(&self) -> Result<(), DiskError> {
        if !self.has_new_logs.swap(false, Relaxed) {
            return Ok(());
        }
        let committed = self.write_checkpoints();
        self.has_new_logs.fetch_or(committed.is_err(), Relaxed);
        match committed {
            Err(error) if error.is_shortage() => Ok(()),
            result => result.inspect_err(|error| drop(self.poison(error))),
        }
    }
}
