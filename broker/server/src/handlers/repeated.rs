//! What a request names more than once.
//!
//! What must hold: a repeated thing is refused (INVALID_REQUEST) or answered once, never worked on as often as it is named: a request of a
//! few megabytes must not keep the broker busy for minutes, nor get gigabytes as its answer.

use std::collections::BTreeSet;

use super::error_code::Failure;
use forebay_broker_wire::types::ErrorCode;

/// The keys that come at least twice.
#[derive(Debug)]
pub(super) struct Repeated<K>(BTreeSet<K>);

impl<K: Ord + Copy> Repeated<K> {
    pub(super) fn among(keys: impl IntoIterator<Item = K>) -> Self {
        let mut seen = BTreeSet::new();
        Self(keys.into_iter().filter(|key| !seen.insert(*key)).collect())
    }

    /// Refuses a key that comes at least twice; `what` names it to people.
    pub(super) fn refuse(&self, key: K, what: &str) -> Result<(), Failure> {
        if self.0.contains(&key) {
            let message = format!("the request names the same {what} more than once");
            return Err(Failure::new(ErrorCode::InvalidRequest, message));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_comes_twice_is_refused_and_all_of_it() {
        let repeated = Repeated::among([("a", 0), ("b", 0), ("a", 1), ("b", 0), ("b", 0)]);
        assert!(repeated.refuse(("a", 0), "partition").is_ok() && repeated.refuse(("a", 1), "partition").is_ok());
        let failure = repeated.refuse(("b", 0), "partition").unwrap_err();
        assert_eq!(failure.code, ErrorCode::InvalidRequest);
        assert!(failure.message.contains("same partition"), "{}", failure.message);
    }
}
