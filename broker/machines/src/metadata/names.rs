//! What a topic may be called, and the names that the broker uses itself.

/// The log of metadata records; not a topic that clients see.
pub const CLUSTER_METADATA_TOPIC: &str = "__cluster_metadata";
/// Where groups and committed offsets are kept.
pub const CONSUMER_OFFSETS_TOPIC: &str = "__consumer_offsets";
/// Where transactions are kept.
pub const TRANSACTION_STATE_TOPIC: &str = "__transaction_state";

const LONGEST_NAME: usize = 249;

/// Whether a topic is the broker's own.
#[must_use]
pub fn is_internal(name: &str) -> bool {
    name == CONSUMER_OFFSETS_TOPIC || name == TRANSACTION_STATE_TOPIC
}

/// What is wrong with a topic name, as the end of the sentence "topic name … "; none if nothing is.
#[must_use]
pub fn name_fault(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("is empty"),
        "." | ".." => Some("must not be '.' or '..'"),
        CLUSTER_METADATA_TOPIC => Some("belongs to the broker"),
        _ if name.len() > LONGEST_NAME => Some("is longer than 249 characters"),
        _ if !name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-')) => {
            Some("must consist of letters, digits, '.', '_' and '-'")
        }
        _ => None,
    }
}

/// Whether metrics could not tell two names apart, because they write '.' as '_'.
pub(super) fn collide(one: &str, other: &str) -> bool {
    let written = |byte: u8| if byte == b'.' { b'_' } else { byte };
    one.len() == other.len() && one.bytes().zip(other.bytes()).all(|(a, b)| written(a) == written(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_are_allowed() {
        for name in ["orders", "a.b_c-D9", "__consumer_offsets", &"x".repeat(249)] {
            assert_eq!(name_fault(name), None, "{name}");
        }
    }

    #[test]
    fn names_that_files_or_metrics_could_not_carry_are_refused() {
        for name in ["", ".", "..", "a/b", "a b", "ü", "__cluster_metadata", &"x".repeat(250)] {
            assert!(name_fault(name).is_some(), "{name}");
        }
    }
}
