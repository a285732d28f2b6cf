//! Something that may go wrong hundreds of times a second is told when it begins, and then at most once a minute with how often it happened.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

const TELL_EVERY: Duration = Duration::from_secs(60);

/// What was told of one kind of trouble.
#[derive(Debug, Default)]
pub struct Repeats(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    told_at: Option<Instant>,
    untold: u64,
}

impl Repeats {
    /// It happened. If it is to be told now, gives how often it happened since it was told last.
    pub fn happened(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock();
        state.untold += 1;
        if state.told_at.is_some_and(|told_at| now.saturating_duration_since(told_at) < TELL_EVERY) {
            return None;
        }
        state.told_at = Some(now);
        Some(std::mem::take(&mut state.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_told_once_and_then_counted_by_the_minute() {
        let (repeats, zero) = (Repeats::default(), Instant::now());
        let told: Vec<_> = (0..1000).filter_map(|_| repeats.happened(zero)).collect();
        assert_eq!(told, [1]);
        assert_eq!(repeats.happened(zero + TELL_EVERY / 2), None);
        assert_eq!(repeats.happened(zero + TELL_EVERY), Some(1001));
        assert_eq!(repeats.happened(zero + TELL_EVERY * 3), Some(1));
    }
}
