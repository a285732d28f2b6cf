//! Moving a partition's log to another directory of the broker while it serves.
//!
//! What must hold: the log changes hands while the writer is held and nothing is compacted, so that every append is in the one log or in the
//! other, and none between; whoever reads or flushes the old one at that moment gets what is right for the new one too.

use std::sync::Arc;

use forebay_broker_machines::replication::Event;
use forebay_broker_storage::{Copied, FutureLog, MoveError};

use crate::{errors::Closed, partition::Partition};

/// Why the log did not change hands.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// The partition is closed: deleted, say.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// A compaction is going on: to be tried again.
    #[error("the log is being compacted")]
    Compacting,
    /// The log could not be moved.
    #[error(transparent)]
    Move(#[from] MoveError),
}

impl Partition {
    /// Copies up to `bytes_max` bytes of what the log has and the copy lacks. Holds nobody up.
    pub fn copy_some(&self, future: &mut FutureLog, bytes_max: u64) -> Result<Copied, SwitchError> {
        self.state.lock().check_open(&self.name)?;
        let reader = self.reader.load_full();
        Ok(future.copy_some(&reader, bytes_max)?)
    }

    /// Goes on in the copy, which should have almost everything. Appends wait meanwhile.
    pub fn switch_to(&self, future: &mut FutureLog, now_ms: i64) -> Result<(), SwitchError> {
        let Some(_none) = self.compaction.try_lock() else { return Err(SwitchError::Compacting) };
        let mut log = self.writer.lock();
        self.state.lock().check_open(&self.name)?;
        log.switch_to(future, now_ms)?;
        self.reader.store(Arc::new(log.reader()));
        // All of the copy is flushed. Told before the log can be cut: an end that is flushed must still be there.
        let wakeups = self.tell(&Event::Flushed { upto: log.flushed_to() });
        drop(log);
        self.wake(wakeups);
        Ok(())
    }
}
