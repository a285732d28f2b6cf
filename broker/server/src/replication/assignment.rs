//! Which of a source's fetchers a partition belongs to: by a hash, so that neither the number of brokers nor the order in which topics were
//! made lets partitions pile up on some of them.

use crate::partitions::Key;

pub(super) fn fetcher_of((topic_id, index): Key, fetchers: usize) -> usize {
    let topic = topic_id.as_u128();
    // Only the mixing of all bits matters; both halves of a random id are as good as a hash already.
    let seed = u64::try_from(topic >> 64 ^ topic & u128::from(u64::MAX)).unwrap_or_default();
    let mut hash = seed ^ u64::from(index.0.unsigned_abs()).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    hash = (hash ^ hash >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^= hash >> 31;
    let fetchers = u64::try_from(fetchers.max(1)).unwrap_or(1);
    usize::try_from(hash % fetchers).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use forebay_broker_wire::types::{PartitionIndex, Uuid};

    use super::*;

    #[test]
    fn whatever_the_number_of_fetchers_each_has_its_share() {
        // What one of three brokers follows of a topic whose leaders go round: each third partition.
        for topic in 0..20_u8 {
            let id = Uuid([topic.wrapping_mul(37).wrapping_add(11); 16]);
            for fetchers in 1..=9 {
                let mut counts = vec![0; fetchers];
                for index in (0..900).step_by(3) {
                    counts[fetcher_of((id, PartitionIndex(index)), fetchers)] += 1;
                }
                let share = 300 / fetchers;
                assert!(counts.iter().all(|count| (share / 2..=share * 2).contains(count)), "{fetchers}: {counts:?}");
            }
        }
    }
}
