//! Growing pauses per object, so that one that can't succeed does not keep the operator busy: 1 s, doubled, to 5 min.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::metrics::Kind;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(300);

/// What the pauses are kept by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ObjectKey {
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Failures in a row, by object. An object that succeeds or goes is forgotten, so the map is bounded by what fails.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: Mutex<HashMap<ObjectKey, u32>>,
}

impl Backoff {
    /// The pause after one more failure.
    pub(crate) fn failed(&self, key: &ObjectKey) -> Duration {
        let mut failures = self.failures.lock();
        let count = failures.entry(key.clone()).or_default();
        *count = count.saturating_add(1);
        pause(*count)
    }

    /// Forgets the failures.
    pub(crate) fn succeeded(&self, key: &ObjectKey) {
        self.failures.lock().remove(key);
    }
}

fn pause(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    FIRST.saturating_mul(1 << doublings).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_a_limit_and_start_anew_after_a_success() {
        assert_eq!([1, 2, 3, 9, 10, 1000].map(|n| pause(n).as_secs()), [1, 2, 4, 256, 300, 300]);
        let (backoff, key) =
            (Backoff::default(), ObjectKey { kind: Kind::Topic, namespace: "n".into(), name: "t".into() });
        assert_eq!([backoff.failed(&key), backoff.failed(&key)].map(|pause| pause.as_secs()), [1, 2]);
        backoff.succeeded(&key);
        assert_eq!(backoff.failed(&key).as_secs(), 1);
    }
}
