//! Which partition of a coordinator's topic a key belongs to. Kafka's own rule, so that tools and logs of Kafka agree.

/// `Utils.abs(key.hashCode()) % partitions` of Java: the hash runs over UTF-16 code units.
pub(crate) fn partition_for(key: &str, partitions: usize) -> Option<i32> {
    let hash = key.encode_utf16().fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    let partitions = i32::try_from(partitions).ok().filter(|partitions| *partitions > 0)?;
    Some((hash & i32::MAX) % partitions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_placed_as_javas_string_hash_places_them() {
        // "Aa" and "BB" are the classic collision, 2112; the others were computed by Java's String.hashCode.
        for (key, partition) in [("Aa", 12), ("BB", 12), ("", 0), ("hello", 22), ("console-consumer", 8), ("größe", 7)]
        {
            assert_eq!(partition_for(key, 50), Some(partition), "{key}");
        }
    }

    #[test]
    fn a_hash_below_zero_is_masked_not_negated() {
        // "polygenelubricants" hashes to i32::MIN.
        assert_eq!(partition_for("polygenelubricants", 50), Some(0));
    }

    #[test]
    fn without_partitions_there_is_no_place() {
        assert_eq!(partition_for("g", 0), None);
    }
}
