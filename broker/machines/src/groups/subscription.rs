//! The topics in a consumer's subscription.
//!
//! The metadata of a `consumer` protocol begins with a version and an array of topic names in every version there is;
//! what follows belongs to the assignor and is never looked at. Nothing here trusts a length.

use std::collections::BTreeSet;

use super::ids::TopicName;

/// The protocol type of ordinary consumers.
pub(super) const CONSUMER_PROTOCOL_TYPE: &str = "consumer";

/// The topics that `metadata` subscribes to, or `None` if it isn't a subscription.
pub(super) fn subscribed_topics(metadata: &[u8]) -> Option<BTreeSet<TopicName>> {
    let (_version, rest) = metadata.split_first_chunk::<2>()?;
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let count = i32::from_be_bytes(*count);
    let mut topics = BTreeSet::new();
    for _ in 0..count {
        let (length, after) = rest.split_first_chunk::<2>()?;
        let length = usize::try_from(i16::from_be_bytes(*length)).ok()?;
        let (name, after) = after.split_at_checked(length)?;
        topics.insert(TopicName::from(std::str::from_utf8(name).ok()?));
        rest = after;
    }
    Some(topics)
}

#[cfg(test)]
pub(super) fn encode_subscription(topics: &[&str]) -> bytes::Bytes {
    let mut bytes = vec![0, 1];
    bytes.extend(i32::try_from(topics.len()).unwrap().to_be_bytes());
    for topic in topics {
        bytes.extend(i16::try_from(topic.len()).unwrap().to_be_bytes());
        bytes.extend(topic.as_bytes());
    }
    bytes.extend([0xff, 0xff, 0xff, 0xff]); // no user data
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_the_topics_and_ignores_what_the_assignor_appended() {
        let topics = subscribed_topics(&encode_subscription(&["b", "a", "b"])).unwrap();
        assert_eq!(topics.iter().map(TopicName::as_str).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn a_count_that_the_bytes_do_not_hold_is_no_subscription() {
        assert_eq!(subscribed_topics(&[0, 0, 0x7f, 0xff, 0xff, 0xff]), None);
        assert_eq!(subscribed_topics(&[0, 0, 0, 0, 0, 1, 0, 9, b'a']), None);
        assert_eq!(subscribed_topics(b"x"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_fail(bytes: Vec<u8>) {
            let _ = subscribed_topics(&bytes);
        }
    }
}
