//! Warnings that clients can cause: a few a second are told, the others are counted, so that nobody fills the log with them.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

const PERIOD: Duration = Duration::from_secs(10);
const PER_PERIOD: u32 = 10;

/// How many warnings may be told now.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    period_began: Option<Instant>,
    told: u32,
    silent: u64,
}

impl Warnings {
    /// Whether one more may be told; if so, gives how many were not since the last one.
    pub(crate) fn allow(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        if state.period_began.is_none_or(|began| now.saturating_duration_since(began) >= PERIOD) {
            (state.period_began, state.told) = (Some(now), 0);
        }
        if state.told == PER_PERIOD {
            state.silent += 1;
            return None;
        }
        state.told += 1;
        Some(std::mem::take(&mut state.silent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_told_a_few_times_and_then_counted() {
        let (warnings, now) = (Warnings::default(), Instant::now());
        let told = (0..1000).filter(|_| warnings.allow(now).is_some()).count();
        assert_eq!(told, 10);
        assert_eq!(warnings.allow(now + PERIOD), Some(990));
        assert_eq!(warnings.allow(now + PERIOD), Some(0));
    }
}
