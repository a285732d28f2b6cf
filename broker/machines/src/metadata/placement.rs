//! Which brokers get the replicas of new partitions: leaders in turn, followers on other racks where there are any.

use std::collections::BTreeMap;

use forebay_broker_wire::types::BrokerId;

/// Replicas for `count` partitions, the preferred leader first. `start` decides where the turn begins, so that topics of one
/// partition do not all land on the first broker. Needs `1 <= replication_factor <= brokers.len()`.
pub(super) fn place(
    brokers: &[(BrokerId, Option<&str>)],
    count: usize,
    replication_factor: usize,
    start: usize,
) -> Vec<Vec<BrokerId>> {
    let order = racks_in_turn(brokers);
    if order.is_empty() {
        return vec![Vec::new(); count];
    }
    (0..count)
        .map(|partition| {
            // Each round over the brokers pairs leaders with other followers, so that a lost broker's load spreads.
            let round = partition / order.len();
            let leader = (start + partition) % order.len();
            (0..replication_factor).map(|replica| order[follower(leader, replica, round, order.len())]).collect()
        })
        .collect()
}

fn follower(leader: usize, replica: usize, round: usize, brokers: usize) -> usize {
    if replica == 0 || brokers < 2 {
        return leader;
    }
    (leader + 1 + (round + replica - 1) % (brokers - 1)) % brokers
}

/// Brokers so ordered that neighbours are on different racks as long as racks last.
fn racks_in_turn(brokers: &[(BrokerId, Option<&str>)]) -> Vec<BrokerId> {
    let mut racks: BTreeMap<Option<&str>, Vec<BrokerId>> = BTreeMap::new();
    for (id, rack) in brokers {
        racks.entry(*rack).or_default().push(*id);
    }
    let longest = racks.values().map(Vec::len).max().unwrap_or_default();
    (0..longest).flat_map(|turn| racks.values().filter_map(move |ids| ids.get(turn).copied())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const NINE: [(BrokerId, Option<&str>); 9] = [
        (BrokerId(0), Some("a")),
        (BrokerId(1), Some("a")),
        (BrokerId(2), Some("a")),
        (BrokerId(3), Some("b")),
        (BrokerId(4), Some("b")),
        (BrokerId(5), Some("b")),
        (BrokerId(6), Some("c")),
        (BrokerId(7), Some("c")),
        (BrokerId(8), Some("c")),
    ];

    #[test]
    fn no_partition_has_a_broker_twice_and_leaders_are_even() {
        let placed = place(&NINE, 90, 3, 4);
        let mut leads: BTreeMap<BrokerId, usize> = BTreeMap::new();
        for replicas in &placed {
            assert_eq!(replicas.iter().collect::<BTreeSet<_>>().len(), 3);
            *leads.entry(replicas[0]).or_default() += 1;
        }
        assert!(leads.values().all(|count| *count == 10), "{leads:?}");
    }

    #[test]
    fn the_first_round_puts_replicas_on_three_racks() {
        for replicas in place(&NINE, 9, 3, 0) {
            let racks: BTreeSet<_> = replicas.iter().map(|id| id.0 / 3).collect();
            assert_eq!(racks.len(), 3, "{replicas:?}");
        }
    }

    #[test]
    fn one_broker_gets_everything() {
        assert_eq!(place(&[(BrokerId(7), None)], 2, 1, 5), [vec![BrokerId(7)], vec![BrokerId(7)]]);
    }
}
