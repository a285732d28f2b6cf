//! How fast replicas that are not in sync may be copied, so that moving partitions leaves room for everything else
//! (`leader.replication.throttled.rate`, `follower.replication.throttled.rate`).
//!
//! What must hold: replicas in sync are never held back; one batch may go over the rate, which is paid back before the next.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// What may go at once after a rest.
const BURST: Duration = Duration::from_millis(500);
/// Whoever is held back asks again not sooner than this: asking costs too.
const WAIT_MIN: Duration = Duration::from_millis(100);

/// Bytes that may go, by the rate of a second. No rate is no limit.
#[derive(Debug, Default)]
pub(crate) struct Throttle(Mutex<Option<Bucket>>);

#[derive(Debug, Clone, Copy, PartialEq)]
struct Bucket {
    bytes_per_second: f64,
    bytes: f64,
    at: Instant,
}

impl Bucket {
    fn fill(&mut self, now: Instant) {
        let earned = now.saturating_duration_since(self.at).as_secs_f64() * self.bytes_per_second;
        let most = self.bytes_per_second * BURST.as_secs_f64();
        (self.bytes, self.at) = ((self.bytes + earned).min(most), now);
    }
}

impl Throttle {
    /// Changes the rate; `None` for no limit.
    pub(crate) fn set_rate(&self, bytes_per_second: Option<u64>, now: Instant) {
        // A rate of 0 would never let a reassignment end; one byte hardly does.
        #[expect(clippy::cast_precision_loss, reason = "a rate need not be exact")]
        let rate = bytes_per_second.map(|rate| rate.max(1) as f64);
        let mut bucket = self.0.lock();
        if bucket.map(|bucket| bucket.bytes_per_second) != rate {
            *bucket = rate.map(|bytes_per_second| Bucket { bytes_per_second, bytes: 0.0, at: now });
        }
    }

    /// How long nothing may go; `None` when something may.
    pub(crate) fn wait(&self, now: Instant) -> Option<Duration> {
        let mut bucket = self.0.lock();
        let bucket = bucket.as_mut()?;
        bucket.fill(now);
        let seconds = -bucket.bytes / bucket.bytes_per_second;
        (seconds >= 0.0).then(|| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX).max(WAIT_MIN))
    }

    /// So many bytes went.
    pub(crate) fn take(&self, bytes: u64) {
        if let Some(bucket) = &mut *self.0.lock() {
            #[expect(clippy::cast_precision_loss, reason = "a rate need not be exact")]
            let bytes = bytes as f64;
            bucket.bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_some_seconds_no_more_goes_than_the_rate_allows() {
        let start = Instant::now();
        let throttle = Throttle::default();
        throttle.set_rate(Some(1_000_000), start);
        let (mut now, mut sent) = (start, 0_u64);
        while now < start + Duration::from_secs(10) {
            match throttle.wait(now) {
                Some(wait) => now += wait,
                None => {
                    throttle.take(300_000);
                    sent += 300_000;
                }
            }
        }
        assert!((9_000_000..=11_000_000).contains(&sent), "{sent}");
    }

    #[test]
    fn without_a_rate_nothing_waits_and_a_rate_can_be_taken_away() {
        let now = Instant::now();
        let throttle = Throttle::default();
        throttle.take(1 << 40);
        assert_eq!(throttle.wait(now), None);
        throttle.set_rate(Some(1), now);
        throttle.take(100);
        assert!(throttle.wait(now).is_some_and(|wait| wait >= Duration::from_secs(99)));
        throttle.set_rate(None, now);
        assert_eq!(throttle.wait(now), None);
    }
}
