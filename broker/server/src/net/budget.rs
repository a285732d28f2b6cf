//! The bytes of requests in flight over all connections (`queued.max.request.bytes`).
//!
//! A frame is charged before its body is read and the charge ends when its answer has been written, so that a burst of
//! producers is held back by TCP instead of filling the memory. A frame larger than the whole budget takes the whole
//! budget: it waits longer, but is not refused for it.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Debug, Clone)]
pub(crate) struct ByteBudget {
    semaphore: Arc<Semaphore>,
    bytes: u32,
}

/// Bytes of the budget that a request holds; given back when dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    _permit: OwnedSemaphorePermit,
}

impl ByteBudget {
    pub(crate) fn new(bytes: u64) -> Self {
        // Permits are counted in u32 by the semaphore's `acquire_many`: 4 GiB in flight is beyond any sensible setting.
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let permits = usize::try_from(bytes).unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS);
        Self { semaphore: Arc::new(Semaphore::new(permits)), bytes }
    }

    /// Waits until `bytes` fit. Safe to cancel.
    pub(crate) async fn charge(&self, bytes: u32) -> Charge {
        match Arc::clone(&self.semaphore).acquire_many_owned(bytes.min(self.bytes)).await {
            Ok(permit) => Charge { _permit: permit },
            // The semaphore is never closed.
            Err(_closed) => std::future::pending().await,
        }
    }

    pub(crate) fn in_flight_bytes(&self) -> u64 {
        let available = u64::try_from(self.semaphore.available_permits()).unwrap_or(u64::MAX);
        u64::from(self.bytes).saturating_sub(available)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_charge_is_given_back_when_dropped() {
        let budget = ByteBudget::new(100);
        let charge = budget.charge(60).await;
        assert_eq!(budget.in_flight_bytes(), 60);
        drop(charge);
        assert_eq!(budget.in_flight_bytes(), 0);
    }

    #[tokio::test]
    async fn what_does_not_fit_waits() {
        let budget = ByteBudget::new(100);
        let first = budget.charge(60).await;
        assert!(tokio::time::timeout(Duration::from_millis(20), budget.charge(60)).await.is_err());
        drop(first);
        budget.charge(60).await;
    }

    #[tokio::test]
    async fn a_frame_larger_than_the_budget_takes_all_of_it_instead_of_waiting_for_ever() {
        let budget = ByteBudget::new(100);
        let charge = budget.charge(1_000).await;
        assert_eq!(budget.in_flight_bytes(), 100);
        drop(charge);
    }
}
