//! The two clocks that a machine is told of: one for deadlines, one for what is stored.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forebay_broker_machines::groups::Now;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    started: Instant,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { started: Instant::now() }
    }

    pub(super) fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { timer_ms: whole_ms(self.started.elapsed()), wall_ms: whole_ms(wall) }
    }

    /// When the timer clock will show `timer_ms`. The wake-up is never early, because the clock shows whole milliseconds.
    pub(super) fn instant(&self, timer_ms: i64) -> Instant {
        self.started + Duration::from_millis(u64::try_from(timer_ms).unwrap_or(0))
    }
}

fn whole_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
