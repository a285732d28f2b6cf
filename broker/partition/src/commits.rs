//! Producers that wait until all in-sync replicas have their records (`acks=all`): told by whatever moves the high watermark, so that
//! nobody polls.

use std::{collections::BTreeMap, fmt, sync::Arc};

use forebay_broker_wire::types::{LeaderEpoch, Offset};

use crate::partition::Partition;

/// What came of appended records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitOutcome {
    /// Every in-sync replica has them, and there are at least `min.insync.replicas`.
    Committed,
    /// They are in the log, but fewer than `min.insync.replicas` are in sync now.
    NotEnoughReplicas,
    /// This broker does not lead any more: they may be kept or not.
    NotLeader,
}

/// A producer's request that waits. Called once, on the thread that moves the high watermark: must be quick and must not call the partition.
pub trait CommitWaiter: Send + Sync {
    /// The wait is over.
    fn done(&self, outcome: CommitOutcome);
}

/// A waiter and what to tell it, when no lock is held.
pub(crate) struct Due(Arc<dyn CommitWaiter>, CommitOutcome);

impl Due {
    pub(crate) fn tell(self) {
        self.0.done(self.1);
    }
}

impl fmt::Debug for Due {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.1.fmt(f)
    }
}

/// Who waits for which offset. As many as there are unanswered requests, which the server bounds.
#[derive(Default)]
pub(crate) struct CommitWaiters {
    next_id: u64,
    waiting: BTreeMap<(Offset, u64), Arc<dyn CommitWaiter>>,
}

impl fmt::Debug for CommitWaiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommitWaiters").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

impl CommitWaiters {
    fn add(&mut self, end: Offset, waiter: Arc<dyn CommitWaiter>) -> (Offset, u64) {
        self.next_id += 1;
        self.waiting.insert((end, self.next_id), waiter);
        (end, self.next_id)
    }

    pub(crate) fn committed(&mut self, high_watermark: Offset) -> Vec<Due> {
        let later = self.waiting.split_off(&(high_watermark, u64::MAX));
        Self::due(std::mem::replace(&mut self.waiting, later), CommitOutcome::Committed)
    }

    pub(crate) fn below_min_isr(&mut self) -> Vec<Due> {
        Self::due(std::mem::take(&mut self.waiting), CommitOutcome::NotEnoughReplicas)
    }

    pub(crate) fn lost_leadership(&mut self) -> Vec<Due> {
        Self::due(std::mem::take(&mut self.waiting), CommitOutcome::NotLeader)
    }

    fn due(waiting: BTreeMap<(Offset, u64), Arc<dyn CommitWaiter>>, outcome: CommitOutcome) -> Vec<Due> {
        waiting.into_values().map(|waiter| Due(waiter, outcome)).collect()
    }
}

/// Ends the wait when dropped: the request was given up.
#[derive(Debug)]
pub struct CommitGuard {
    partition: Arc<Partition>,
    key: (Offset, u64),
}

impl Drop for CommitGuard {
    fn drop(&mut self) {
        let removed = self.partition.state.lock().commits.waiting.remove(&self.key);
        drop(removed); // its own drop may do anything, so not under the lock
    }
}

impl Partition {
    /// Tells `waiter` once all records below `end`, appended in `epoch` (taken before the append), are on all in-sync replicas, or that this will not be known.
    /// `Ok(None)` means that they are already, and nothing will be told.
    pub fn when_committed(
        self: &Arc<Self>,
        end: Offset,
        epoch: LeaderEpoch,
        waiter: Arc<dyn CommitWaiter>,
    ) -> Result<Option<CommitGuard>, CommitOutcome> {
        let mut state = self.state.lock();
        // Closed meanwhile: whoever waited then has been told, and nobody will be again.
        let Some(leader) = state.replica.leader().filter(|leader| leader.epoch() == epoch && !state.closed) else {
            return Err(CommitOutcome::NotLeader);
        };
        if leader.is_below_min(state.replica.settings()) {
            return Err(CommitOutcome::NotEnoughReplicas);
        }
        if state.replica.high_watermark() >= end {
            return Ok(None);
        }
        let key = state.commits.add(end, waiter);
        Ok(Some(CommitGuard { partition: Arc::clone(self), key }))
    }

    /// True when fewer than `min.insync.replicas` are in sync: an append that wants all of them is refused before it is written.
    pub fn is_below_min_isr(&self) -> bool {
        let state = self.state.lock();
        state.replica.leader().is_some_and(|leader| leader.is_below_min(state.replica.settings()))
    }
}
