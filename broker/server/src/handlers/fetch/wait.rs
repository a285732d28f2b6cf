//! Waiting for bytes: partitions report what has come below their high watermark, the fetch sleeps until it is enough.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_broker_partition::FetchWaiter;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// What has come since `start_over`, over all partitions of a fetch.
#[derive(Debug, Default)]
pub(super) struct Growth {
    bytes: AtomicU64,
    /// Reported at this many bytes; below it the fetch sleeps on.
    wake_bytes: AtomicU64,
    closed: AtomicBool,
    wake: Notify,
}

impl Growth {
    /// Called before a read: what comes during the read counts, so nothing that it missed is slept through.
    pub(super) fn start_over(&self) {
        self.bytes.store(0, Ordering::SeqCst);
        self.wake_bytes.store(1, Ordering::SeqCst);
    }

    pub(super) fn any(&self) -> bool {
        self.bytes.load(Ordering::SeqCst) > 0
    }

    /// Whether some partition wakes nobody any more: from then on every sleep ends at once, so nobody may sleep again.
    pub(super) fn is_over(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Sleeps until `wake_bytes` have come (true) or `until` is over (false).
    pub(super) async fn reach(&self, wake_bytes: u64, until: Instant) -> bool {
        self.wake_bytes.store(wake_bytes, Ordering::SeqCst);
        let enough = || self.closed.load(Ordering::SeqCst) || self.bytes.load(Ordering::SeqCst) >= wake_bytes;
        let reached = async {
            while !enough() {
                self.wake.notified().await;
            }
        };
        timeout_at(until, reached).await.is_ok()
    }
}

impl FetchWaiter for Growth {
    fn advanced(&self, bytes: u64) {
        let now = self.bytes.fetch_add(bytes, Ordering::SeqCst) + bytes;
        if now >= self.wake_bytes.load(Ordering::SeqCst) {
            // Kept for the next `notified` when nobody sleeps yet.
            self.wake.notify_one();
        }
    }

    fn closed(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    #[tokio::test]
    async fn it_sleeps_until_enough_has_come_in_all() {
        let growth = Arc::new(Growth::default());
        growth.start_over();
        let waiting = tokio::spawn({
            let growth = Arc::clone(&growth);
            async move { growth.reach(10, soon()).await }
        });
        growth.advanced(4);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        growth.advanced(6);
        assert!(waiting.await.unwrap());
    }

    #[tokio::test]
    async fn what_came_before_the_sleep_counts() {
        let growth = Growth::default();
        growth.start_over();
        growth.advanced(10);
        assert!(growth.reach(10, soon()).await);
    }

    #[tokio::test]
    async fn time_ends_the_wait() {
        let growth = Growth::default();
        growth.start_over();
        growth.advanced(1);
        assert!(!growth.reach(10, Instant::now() + Duration::from_millis(5)).await);
        assert!(growth.any());
    }

    #[tokio::test]
    async fn a_partition_that_closes_ends_the_wait() {
        let growth = Growth::default();
        growth.start_over();
        assert!(!growth.is_over());
        growth.closed();
        assert!(growth.reach(10, soon()).await);
        growth.start_over();
        assert!(growth.is_over(), "a second sleep would be none");
    }
}
