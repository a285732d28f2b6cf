//! What the broker is doing, for `/readyz` and `/status`: starting, recovering (with progress), running, stopping.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_broker_config::status::{BrokerState, RecoveryProgress};
use parking_lot::Mutex;

#[derive(Debug, Default)]
pub(crate) struct Lifecycle {
    state: Mutex<BrokerState>,
    partitions_done: AtomicU64,
    partitions_total: AtomicU64,
}

impl Lifecycle {
    pub(crate) fn state(&self) -> BrokerState {
        *self.state.lock()
    }

    pub(crate) fn enter(&self, state: BrokerState) {
        *self.state.lock() = state;
        tracing::info!("{}", self.describe());
    }

    pub(crate) fn recovering(&self, partitions_total: u64) {
        self.partitions_total.store(partitions_total, Ordering::Relaxed);
        self.enter(BrokerState::Recovering);
    }

    pub(crate) fn partition_recovered(&self) {
        self.partitions_done.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn recovery(&self) -> Option<RecoveryProgress> {
        (self.state() == BrokerState::Recovering).then(|| RecoveryProgress {
            partitions_done: self.partitions_done.load(Ordering::Relaxed),
            partitions_total: self.partitions_total.load(Ordering::Relaxed),
        })
    }

    pub(crate) fn describe(&self) -> String {
        match (self.state(), self.recovery()) {
            (_, Some(RecoveryProgress { partitions_done, partitions_total })) => {
                format!("recovering: {partitions_done} of {partitions_total} partitions open")
            }
            (BrokerState::Starting | BrokerState::Recovering, None) => "starting".to_owned(),
            (BrokerState::Running, None) => "running".to_owned(),
            (BrokerState::Stopping, None) => "stopping".to_owned(),
        }
    }
}
