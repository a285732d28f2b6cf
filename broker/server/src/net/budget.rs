//! The bytes of requests in flight over all connections (`queued.max.request.bytes`).
//!
//! Bytes of a frame are charged before they are read and the charge ends when the answer has been written, so that a burst of
//! producers is held back by TCP instead of filling the memory. What must hold: a size that a client has only announced
//! costs nothing, so nobody takes the budget from the others by promises; and frames that are each half read never wait
//! for one another: one frame at a time may go on beyond the budget, up to its end.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Debug, Clone)]
pub(crate) struct ByteBudget {
    semaphore: Arc<Semaphore>,
    bytes: u32,
    /// Held by the one frame that may go on beyond the budget.
    beyond: Arc<Semaphore>,
}

/// Bytes of the budget that a request holds; given back when dropped.
#[derive(Debug, Default)]
pub(crate) struct Charge {
    permit: Option<OwnedSemaphorePermit>,
    beyond: Option<OwnedSemaphorePermit>,
}

impl Charge {
    /// How many bytes may be read for it: no end when its frame goes beyond the budget.
    pub(crate) fn bytes(&self) -> usize {
        match (&self.beyond, &self.permit) {
            (Some(_), _) => usize::MAX,
            (None, Some(permit)) => permit.num_permits(),
            (None, None) => 0,
        }
    }

    /// Splits off up to `most` bytes of it for a frame of its own.
    pub(crate) fn split(&mut self, most: usize) -> Self {
        let permit = self.permit.as_mut().and_then(|permit| permit.split(permit.num_permits().min(most)));
        Self { permit, beyond: None }
    }

    fn add(&mut self, more: OwnedSemaphorePermit) {
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            none => *none = Some(more),
        }
    }
}

impl ByteBudget {
    pub(crate) fn new(bytes: u64) -> Self {
        // Permits are counted in u32 by the semaphore's `acquire_many`: 4 GiB in flight is beyond any sensible setting.
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let permits = usize::try_from(bytes).unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS);
        Self { semaphore: Arc::new(Semaphore::new(permits)), bytes, beyond: Arc::new(Semaphore::new(1)) }
    }

    /// Waits until `charge` may have `more` bytes: from the budget, or as the one frame that goes beyond it. Safe to cancel.
    pub(crate) async fn extend(&self, charge: &mut Charge, more: u32) {
        if let Ok(permit) = Arc::clone(&self.semaphore).try_acquire_many_owned(more) {
            return charge.add(permit);
        }
        tokio::select! {
            biased;
            Ok(permit) = Arc::clone(&self.semaphore).acquire_many_owned(more) => charge.add(permit),
            Ok(permit) = Arc::clone(&self.beyond).acquire_owned() => charge.beyond = Some(permit),
            // The semaphores are never closed.
            else => std::future::pending().await,
        }
    }

    /// Charges `more` bytes if nobody has to wait for that.
    pub(crate) fn try_extend(&self, charge: &mut Charge, more: u32) {
        if let Ok(permit) = Arc::clone(&self.semaphore).try_acquire_many_owned(more) {
            charge.add(permit);
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

    async fn charge(budget: &ByteBudget, bytes: u32) -> Charge {
        let mut charge = Charge::default();
        budget.extend(&mut charge, bytes).await;
        charge
    }

    #[tokio::test]
    async fn a_charge_is_given_back_when_dropped() {
        let budget = ByteBudget::new(100);
        let held = charge(&budget, 60).await;
        assert_eq!((budget.in_flight_bytes(), held.bytes()), (60, 60));
        drop(held);
        assert_eq!(budget.in_flight_bytes(), 0);
    }

    #[tokio::test]
    async fn one_frame_goes_beyond_the_budget_and_what_else_does_not_fit_waits() {
        let budget = ByteBudget::new(100);
        let first = charge(&budget, 60).await;
        let beyond = charge(&budget, 60).await;
        assert_eq!((budget.in_flight_bytes(), beyond.bytes()), (60, usize::MAX));
        assert!(tokio::time::timeout(Duration::from_millis(20), charge(&budget, 60)).await.is_err());
        drop(first);
        assert_eq!(charge(&budget, 60).await.bytes(), 60);
    }

    #[tokio::test]
    async fn the_next_frame_goes_beyond_the_budget_when_the_last_has_been_answered() {
        let budget = ByteBudget::new(100);
        let _all = charge(&budget, 100).await;
        drop(charge(&budget, 60).await);
        assert_eq!(charge(&budget, 60).await.bytes(), usize::MAX);
    }

    #[tokio::test]
    async fn more_than_the_whole_budget_does_not_wait_for_ever() {
        assert_eq!(charge(&ByteBudget::new(100), 1_000).await.bytes(), usize::MAX);
    }
}
