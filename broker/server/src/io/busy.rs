//! How busy a pool of threads is: time spent working against time there was, between two readings.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

#[derive(Debug)]
pub(crate) struct BusyTime {
    threads: usize,
    worked_nanos: AtomicU64,
    last: Mutex<(Instant, u64)>,
}

impl BusyTime {
    pub(crate) fn new(threads: usize) -> Self {
        Self { threads, worked_nanos: AtomicU64::new(0), last: Mutex::new((Instant::now(), 0)) }
    }

    pub(crate) fn add(&self, worked: Duration) {
        self.worked_nanos.fetch_add(nanos(worked), Ordering::Relaxed);
    }

    /// Share of the time since the reading before that the pool's threads worked, 0 to 1.
    pub(crate) fn ratio(&self) -> f64 {
        self.ratio_of(self.worked_nanos.load(Ordering::Relaxed), Instant::now())
    }

    /// The same from a total that somebody else keeps.
    pub(crate) fn ratio_of(&self, worked_nanos: u64, now: Instant) -> f64 {
        let mut last = self.last.lock();
        let (last_at, last_worked) = std::mem::replace(&mut *last, (now, worked_nanos));
        let worked = Duration::from_nanos(worked_nanos.saturating_sub(last_worked)).as_secs_f64();
        let threads = u32::try_from(self.threads.max(1)).unwrap_or(u32::MAX);
        let available = now.saturating_duration_since(last_at).as_secs_f64() * f64::from(threads);
        if available > 0.0 { (worked / available).clamp(0.0, 1.0) } else { 0.0 }
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_that_of_the_time_since_the_last_reading() {
        let busy = BusyTime::new(2);
        let start = busy.last.lock().0;
        let second = Duration::from_secs(1);
        assert!((busy.ratio_of(nanos(second), start + second) - 0.5).abs() < 1e-9);
        assert!((busy.ratio_of(nanos(second), start + 2 * second) - 0.0).abs() < 1e-9);
        assert!((busy.ratio_of(nanos(9 * second), start + 3 * second) - 1.0).abs() < 1e-9, "never above 1");
    }
}
