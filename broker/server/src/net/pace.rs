//! How slowly a frame may come: a client that has begun one holds bytes of the budget.
//!
//! What must hold: only the time counts in which the socket had nothing, so that nobody is cut off for what this broker takes its time
//! for; single bytes now and then are not progress; what others wait for is not held long; and no frame is waited for longer than any client would wait for its answer.

use std::time::{Duration, Instant};

/// How long so many bytes (or the rest of the frame) may take.
const WINDOW_MAX: Duration = Duration::from_secs(30);
/// The same while other frames wait for the bytes that this one holds.
const SHORT_WINDOW_MAX: Duration = Duration::from_secs(2);
const WINDOW_BYTES: usize = 256 * 1024;
/// How long a whole frame may be waited for: four times what clients wait for an answer by default.
const FRAME_MAX: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(super) struct Pace {
    window_max: Duration,
    waited: Duration,
    waited_in_all: Duration,
    come_bytes: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self::new(WINDOW_MAX)
    }
}

impl Pace {
    pub(super) fn new(window_max: Duration) -> Self {
        Self { window_max, waited: Duration::ZERO, waited_in_all: Duration::ZERO, come_bytes: 0 }
    }

    /// A frame begins.
    pub(super) fn begin(&mut self) {
        *self = Self::new(self.window_max);
    }

    /// Bytes have come.
    pub(super) fn came(&mut self, bytes: usize) {
        self.come_bytes += bytes;
        if self.come_bytes >= WINDOW_BYTES {
            (self.come_bytes, self.waited) = (0, Duration::ZERO);
        }
    }

    /// Begins to wait for more.
    pub(super) fn wait(&mut self) -> Waiting<'_> {
        Waiting { pace: self, since: Instant::now() }
    }
}

/// Counts the time of a wait, also of one that is cancelled.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    pace: &'a mut Pace,
    since: Instant,
}

impl Waiting<'_> {
    /// How long it may still last; not long when others wait for what the frame holds.
    pub(super) fn left(&self, others_wait: bool) -> Duration {
        let Pace { window_max, waited, waited_in_all, .. } = *self.pace;
        let window_max = if others_wait { window_max.min(SHORT_WINDOW_MAX) } else { window_max };
        let left = window_max.saturating_sub(waited).min(FRAME_MAX.saturating_sub(waited_in_all));
        left.saturating_sub(self.since.elapsed())
    }

    /// Gives how long this window's waits lasted.
    pub(super) fn end(self) -> Duration {
        self.pace.waited + self.since.elapsed()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let waited = self.since.elapsed();
        self.pace.waited += waited;
        self.pace.waited_in_all += waited;
    }
}
