//! Waiting until all in-sync replicas have what was appended (acks=all), told by whatever moves the high watermark.
//!
//! What must hold: where one replica is all there is, nobody waits; a wait ends at its deadline, and one that is given up leaves nothing
//! behind in the partition.

use std::sync::Arc;

use forebay_broker_partition::{CommitGuard, CommitOutcome, CommitWaiter, Partition};
use forebay_broker_wire::types::{LeaderEpoch, Offset};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// Why records are not known to be on all in-sync replicas. They may be kept or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotCommitted {
    #[error("the records are written, but fewer than min.insync.replicas replicas are in sync now")]
    NotEnoughReplicas,
    #[error("this broker has stopped leading the partition before all in-sync replicas had the records")]
    NotLeader,
    #[error("the in-sync replicas did not all fetch the records within the request's timeout")]
    Timeout,
}

/// A wait that has begun.
#[derive(Debug)]
pub(crate) struct Commit {
    told: oneshot::Receiver<CommitOutcome>,
    _guard: CommitGuard,
}

struct Teller(Mutex<Option<oneshot::Sender<CommitOutcome>>>);

impl CommitWaiter for Teller {
    fn done(&self, outcome: CommitOutcome) {
        if let Some(sender) = self.0.lock().take() {
            let _given_up = sender.send(outcome);
        }
    }
}

/// Begins to wait for all up to `last`, appended in `epoch`; `None` when all in-sync replicas have them already.
pub(crate) fn begin(
    partition: &Arc<Partition>,
    last: Offset,
    epoch: LeaderEpoch,
) -> Result<Option<Commit>, NotCommitted> {
    let (sender, told) = oneshot::channel();
    let teller = Arc::new(Teller(Mutex::new(Some(sender))));
    match partition.when_committed(Offset(last.0 + 1), epoch, teller) {
        Ok(None) => Ok(None),
        Ok(Some(guard)) => Ok(Some(Commit { told, _guard: guard })),
        Err(outcome) => outcome_of(outcome).map(|()| None),
    }
}

impl Commit {
    /// Safe to cancel.
    pub(crate) async fn ready(&mut self, deadline: Instant) -> Result<(), NotCommitted> {
        match timeout_at(deadline, &mut self.told).await {
            Ok(Ok(outcome)) => outcome_of(outcome),
            Ok(Err(_partition_gone)) => Err(NotCommitted::NotLeader),
            Err(_elapsed) => Err(NotCommitted::Timeout),
        }
    }
}

fn outcome_of(outcome: CommitOutcome) -> Result<(), NotCommitted> {
    match outcome {
        CommitOutcome::Committed => Ok(()),
        CommitOutcome::NotEnoughReplicas => Err(NotCommitted::NotEnoughReplicas),
        CommitOutcome::NotLeader => Err(NotCommitted::NotLeader),
    }
}
