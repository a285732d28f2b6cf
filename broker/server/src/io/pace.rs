//! Whether a disk takes writes so promptly that a network thread may do them itself (docs/adr: hot appends).
//!
//! What must hold: of the network threads no more than half are inside writes to one disk, so that a disk that hangs does not take all of them;
//! after a write that was held up, the disk threads have the disk to themselves for a while, and longer each time it happens again.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A write into the page cache is over in well under this: one that takes longer, not counting how long the thread waited for a core, has
/// waited for the disk.
const HELD_UP: Duration = Duration::from_millis(10);
/// How old a thread's reading of its waits for a core may be.
const READING_AGE_MAX: Duration = Duration::from_millis(1);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// After so long without being held up the disk is trusted as at first.
const TRUSTED_AFTER: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Pace {
    writers_max: usize,
    writers: AtomicUsize,
    trust: Mutex<Trust>,
}

/// A thread that is writing.
struct Writing<'a>(&'a AtomicUsize);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct Trust {
    last: Option<HeldUp>,
}

#[derive(Debug, Clone, Copy)]
struct HeldUp {
    at: Instant,
    pause: Duration,
}

impl Trust {
    fn allows(&self, now: Instant) -> bool {
        self.last.is_none_or(|last| now.saturating_duration_since(last.at) >= last.pause)
    }

    fn held_up(&mut self, now: Instant) {
        let again = self.last.filter(|last| now.saturating_duration_since(last.at) < TRUSTED_AFTER);
        let pause = again.map_or(FIRST_PAUSE, |last| (last.pause * 2).min(PAUSE_MAX));
        self.last = Some(HeldUp { at: now, pause });
    }
}

impl Pace {
    pub(crate) fn new(network_threads: usize) -> Self {
        Self { writers_max: (network_threads / 2).max(1), writers: AtomicUsize::new(0), trust: Mutex::default() }
    }

    /// Does the write here and now, or not at all if the disk should be left to its threads.
    pub(crate) fn write_here<T>(&self, write: impl FnOnce() -> T) -> Option<T> {
        let others = self.writers.fetch_add(1, Ordering::Relaxed);
        let _writing = Writing(&self.writers);
        let began = Instant::now();
        if others >= self.writers_max || !self.trust.lock().allows(began) {
            return None;
        }
        let waited_before = waited_for_core(began, READING_AGE_MAX);
        let written = write();
        let ended = Instant::now();
        let took = ended.saturating_duration_since(began);
        if took >= HELD_UP && took.saturating_sub(waited_for_core(ended, Duration::ZERO) - waited_before) >= HELD_UP {
            self.trust.lock().held_up(ended);
        }
        Some(written)
    }
}

/// How long this thread has been ready to run without a core, in all its life, as far as the system tells.
fn waited_for_core(now: Instant, age_max: Duration) -> Duration {
    READING.with_borrow_mut(|reading| {
        if reading.at.is_none_or(|at| now.saturating_duration_since(at) > age_max) {
            let mut text = [0; 80];
            let length = reading.file.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
            reading.waited = wait_of(&text[..length]).unwrap_or(reading.waited);
            reading.at = Some(now);
        }
        reading.waited
    })
}

struct Reading {
    file: Option<File>,
    at: Option<Instant>,
    waited: Duration,
}

thread_local! {
    static READING: RefCell<Reading> = RefCell::new(Reading {
        file: File::open("/proc/thread-self/schedstat").ok(),
        at: None,
        waited: Duration::ZERO,
    });
}

/// The second number: nanoseconds on a run queue.
fn wait_of(schedstat: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(schedstat).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_held_a_write_up_is_left_alone_for_a_while() {
        let (mut trust, now) = (Trust::default(), Instant::now());
        assert!(trust.allows(now));
        trust.held_up(now);
        assert!(!trust.allows(now + FIRST_PAUSE / 2));
        assert!(trust.allows(now + FIRST_PAUSE));
    }

    #[test]
    fn it_is_left_alone_longer_each_time_until_it_has_been_prompt_for_long() {
        let (mut trust, mut now) = (Trust::default(), Instant::now());
        for pause in [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000].map(Duration::from_millis) {
            trust.held_up(now);
            assert!(!trust.allows(now + pause / 2) && trust.allows(now + pause), "{pause:?}");
            now += pause;
        }
        now += TRUSTED_AFTER;
        trust.held_up(now);
        assert!(trust.allows(now + FIRST_PAUSE));
    }

    #[test]
    fn half_of_the_threads_write_and_one_at_least() {
        for (threads, writers) in [(1, 1), (3, 1), (4, 2)] {
            let pace = Pace::new(threads);
            let mut deepest = 0;
            nest(&pace, &mut deepest);
            assert_eq!(deepest, writers, "{threads} threads");
            assert_eq!(pace.write_here(|| 7), Some(7), "all of them have left");
        }
    }

    fn nest(pace: &Pace, deepest: &mut usize) {
        let _refused = pace.write_here(|| {
            *deepest += 1;
            nest(pace, deepest);
        });
    }

    #[test]
    fn waiting_for_a_core_is_the_second_number() {
        assert_eq!(wait_of(b"388710 2500 1\n"), Some(Duration::from_nanos(2_500)));
        assert_eq!(wait_of(b""), None);
    }

    #[test]
    fn a_slow_write_stops_the_next() {
        let pace = Pace::new(2);
        assert_eq!(pace.write_here(|| std::thread::sleep(HELD_UP)), Some(()));
        assert_eq!(pace.write_here(|| ()), None);
    }
}
