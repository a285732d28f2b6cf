//! Of which partitions a connection was told an error lately.
//!
//! What must hold: behind a batch that failed, none is passed on to another broker. The client sends the failed one again first; until then
//! what it had sent behind it may come in here, and a new leader that does not know the producer would take that for its next.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// Longer than a client takes to hear of an error, and than a new leader settles.
const REMEMBERED_FOR: Duration = Duration::from_secs(5);

/// By the numbers of the partitions on this broker.
#[derive(Debug, Default)]
pub(crate) struct Setbacks(HashMap<usize, Instant>);

impl Setbacks {
    pub(super) fn note(&mut self, partition: usize, now: Instant) {
        self.0.retain(|_, at| is_remembered(*at, now));
        self.0.insert(partition, now);
    }

    pub(super) fn has(&self, partition: usize, now: Instant) -> bool {
        self.0.get(&partition).is_some_and(|at| is_remembered(*at, now))
    }
}

fn is_remembered(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < REMEMBERED_FOR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setback_is_forgotten_after_a_while_and_concerns_its_partition_only() {
        let (mut setbacks, begin) = (Setbacks::default(), Instant::now());
        setbacks.note(7, begin);
        assert!(setbacks.has(7, begin + REMEMBERED_FOR / 2) && !setbacks.has(8, begin));
        assert!(!setbacks.has(7, begin + REMEMBERED_FOR));
        setbacks.note(8, begin + REMEMBERED_FOR);
        assert_eq!(setbacks.0.len(), 1, "what is forgotten takes no room");
    }
}
