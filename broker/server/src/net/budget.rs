//! The bytes of requests in flight over all connections (`queued.max.request.bytes`).
//!
//! Bytes of a frame are charged before they are read and the charge ends when the request has been dealt with, so that a burst of
//! producers is held back by TCP instead of filling the memory. What must hold: a size that a client has only announced
//! costs nothing, so nobody takes the budget from the others by promises; no client (by address) gets more than half of it; small frames
//! never wait for large ones: an eighth on top is for them alone; and frames that are each half read never wait
//! for one another: one frame at a time may go on beyond the budget, up to its end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Frames up to this size may take from what is kept for them.
const SMALL_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug, Clone)]
pub(crate) struct ByteBudget {
    semaphore: Arc<Semaphore>,
    bytes: usize,
    /// For small frames that find nothing left.
    small: Arc<Semaphore>,
    small_bytes: usize,
    /// Held by the one frame that may go on beyond the budget.
    beyond: Arc<Semaphore>,
    /// How many frames wait for it.
    waiting: Arc<AtomicUsize>,
    /// What this client may have of it.
    share: Arc<Share>,
    shares: Arc<Mutex<HashMap<Arc<str>, Weak<Share>>>>,
}

#[derive(Debug)]
struct Share {
    semaphore: Arc<Semaphore>,
    /// How many of the client's frames wait for it.
    waiting: AtomicUsize,
}

impl Share {
    fn new(bytes: usize) -> Self {
        Self { semaphore: Arc::new(Semaphore::new(bytes)), waiting: AtomicUsize::new(0) }
    }
}

/// Counts as long as somebody waits.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bytes of the budget that a request holds; given back when dropped.
#[derive(Debug, Default)]
pub(crate) struct Charge {
    permit: Option<OwnedSemaphorePermit>,
    share: Option<OwnedSemaphorePermit>,
    small: Option<OwnedSemaphorePermit>,
    beyond: Option<OwnedSemaphorePermit>,
}

impl Charge {
    /// How many bytes may be read for it: no end when its frame goes beyond the budget.
    pub(crate) fn bytes(&self) -> usize {
        let bytes =
            |permit: &Option<OwnedSemaphorePermit>| permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if self.beyond.is_some() { usize::MAX } else { bytes(&self.permit) + bytes(&self.small) }
    }

    /// Splits off up to `most` bytes of it for a frame of its own.
    pub(crate) fn split(&mut self, most: usize) -> Self {
        let split = |permit: &mut Option<OwnedSemaphorePermit>| {
            permit.as_mut().and_then(|permit| permit.split(permit.num_permits().min(most)))
        };
        Self { permit: split(&mut self.permit), share: split(&mut self.share), small: None, beyond: None }
    }

    /// Gives back all but `bytes`: the rest of the frame is not kept.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        for permit in [&mut self.permit, &mut self.share, &mut self.small].into_iter().flatten() {
            drop(permit.split(permit.num_permits().saturating_sub(bytes)));
        }
        self.beyond = None;
    }

    fn add(&mut self, (more, share): (OwnedSemaphorePermit, OwnedSemaphorePermit)) {
        merge(&mut self.permit, more);
        merge(&mut self.share, share);
    }
}

fn merge(permit: &mut Option<OwnedSemaphorePermit>, more: OwnedSemaphorePermit) {
    match permit {
        Some(permit) => permit.merge(more),
        none => *none = Some(more),
    }
}

impl ByteBudget {
    pub(crate) fn new(bytes: u64) -> Self {
        // Permits are counted in u32 by the semaphore's `acquire_many`: 4 GiB in flight is beyond any sensible setting.
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let bytes = usize::try_from(bytes).unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS);
        let semaphore = |bytes| Arc::new(Semaphore::new(bytes));
        Self {
            semaphore: semaphore(bytes),
            bytes,
            small: semaphore(bytes / 8),
            small_bytes: bytes / 8,
            beyond: semaphore(1),
            waiting: Arc::default(),
            share: Arc::new(Share::new(bytes)),
            shares: Arc::default(),
        }
    }

    /// The budget as a client may use it: all connections from one address share a half.
    pub(crate) fn of_client(&self, host: &Arc<str>) -> Self {
        let mut shares = self.shares.lock();
        let known = shares.get(host).and_then(Weak::upgrade);
        let share = known.unwrap_or_else(|| {
            shares.retain(|_, share| share.strong_count() > 0);
            let share = Arc::new(Share::new(self.bytes / 2));
            shares.insert(Arc::clone(host), Arc::downgrade(&share));
            share
        });
        drop(shares);
        Self { share, ..self.clone() }
    }

    /// Waits until `charge` may have `more` bytes for a frame of `size`: from the budget, from what is kept for small ones, or as the one
    /// frame that goes beyond it. Safe to cancel.
    pub(crate) async fn extend(&self, charge: &mut Charge, more: u32, size: usize) {
        if self.try_extend(charge, more) {
            return;
        }
        let within = async {
            // The share first: who waits for its own bytes takes none from the others meanwhile.
            let waiting = Waiting::begin(&self.share.waiting);
            let share = Arc::clone(&self.share.semaphore).acquire_many_owned(more).await?;
            drop(waiting);
            let _waiting = Waiting::begin(&self.waiting);
            Ok::<_, tokio::sync::AcquireError>((Arc::clone(&self.semaphore).acquire_many_owned(more).await?, share))
        };
        tokio::select! {
            biased;
            Ok(permit) = Arc::clone(&self.small).acquire_many_owned(more), if size <= SMALL_BYTES_MAX => merge(&mut charge.small, permit),
            Ok(permits) = within => charge.add(permits),
            Ok(permit) = Arc::clone(&self.beyond).acquire_owned() => charge.beyond = Some(permit),
            // The semaphores are never closed.
            else => std::future::pending().await,
        }
    }

    /// Charges `more` bytes if nobody has to wait for that.
    pub(crate) fn try_extend(&self, charge: &mut Charge, more: u32) -> bool {
        let Ok(share) = Arc::clone(&self.share.semaphore).try_acquire_many_owned(more) else { return false };
        let Ok(permit) = Arc::clone(&self.semaphore).try_acquire_many_owned(more) else { return false };
        charge.add((permit, share));
        true
    }

    /// Whether a frame, of this client or of any, waits for bytes that others hold.
    pub(crate) fn is_short(&self) -> bool {
        self.share.waiting.load(Ordering::Relaxed) > 0 || self.waiting.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn in_flight_bytes(&self) -> u64 {
        let left = self.semaphore.available_permits() + self.small.available_permits();
        u64::try_from((self.bytes + self.small_bytes).saturating_sub(left)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn charge(budget: &ByteBudget, bytes: u32) -> Charge {
        let mut charge = Charge::default();
        budget.extend(&mut charge, bytes, SMALL_BYTES_MAX + 1).await;
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

    fn is_within(budget: &ByteBudget, bytes: u32, size: usize) -> bool {
        use futures::FutureExt as _;
        let mut charge = Charge::default();
        budget.extend(&mut charge, bytes, size).now_or_never().is_some() && charge.beyond.is_none()
    }

    #[tokio::test]
    async fn a_small_frame_never_waits_for_large_ones() {
        let budget = ByteBudget::new(1 << 20);
        let _all = charge(&budget, 1 << 20).await;
        let _beyond = charge(&budget, 1 << 20).await;
        assert!(!is_within(&budget, 1000, SMALL_BYTES_MAX + 1));
        assert!(is_within(&budget, 1000, 1000));
    }

    #[tokio::test]
    async fn one_client_leaves_half_of_it_to_the_others() {
        let budget = ByteBudget::new(1 << 20);
        let [greedy, other] = ["greedy", "other"].map(|host| budget.of_client(&host.into()));
        let _half = charge(&greedy, 1 << 19).await;
        let _beyond = charge(&greedy, 1 << 19).await;
        assert!(!is_within(&budget.of_client(&"greedy".into()), 1000, SMALL_BYTES_MAX + 1), "by any connection");
        assert!(is_within(&other, 1 << 19, 1 << 19));
    }

    #[tokio::test]
    async fn what_is_not_kept_of_a_frame_is_given_back() {
        let budget = ByteBudget::new(1000);
        let mut held = charge(&budget, 900).await;
        held.shrink_to(100);
        assert_eq!((budget.in_flight_bytes(), held.bytes()), (100, 100));
        held.shrink_to(200);
        assert_eq!(budget.in_flight_bytes(), 100);
    }
}
