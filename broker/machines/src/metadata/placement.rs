//! Which brokers get the replicas of new partitions: leaders in turn, followers on other racks where there are any.

use std::collections::BTreeMap;

use forebay_broker_wire::types::BrokerId;

/// Brokers, each with its rack.
#[derive(Debug)]
pub(super) struct Candidates<'a> {
    /// Those at work.
    pub(super) live: Vec<(BrokerId, Option<&'a str>)>,
    /// The others: they get a replica only when there are more replicas than brokers at work, and never the first one.
    pub(super) others: Vec<(BrokerId, Option<&'a str>)>,
}

impl Candidates<'_> {
    pub(super) fn count(&self) -> usize {
        self.live.len() + self.others.len()
    }
}

/// Replicas for `count` partitions, the preferred leader first. `start` decides where the turn begins, so that topics of one
/// partition do not all land on the first broker. Needs a live candidate and `1 <= replication_factor <= candidates.count()`.
pub(super) fn place(
    candidates: &Candidates<'_>,
    count: usize,
    replication_factor: usize,
    start: usize,
) -> Vec<Vec<BrokerId>> {
    let (live, others) = (racks_in_turn(&candidates.live), racks_in_turn(&candidates.others));
    if live.is_empty() {
        return vec![Vec::new(); count];
    }
    let racks: BTreeMap<BrokerId, Option<&str>> = candidates.live.iter().chain(&candidates.others).copied().collect();
    let one = |partition: usize| {
        // Each round over the brokers pairs leaders with other followers, so that a lost broker's load spreads.
        let (turn, round) = ((start + partition) % live.len(), partition / live.len());
        let mut replicas = vec![live[turn]];
        let mut followers: Vec<BrokerId> = (1..live.len()).map(|step| live[(turn + step) % live.len()]).collect();
        turn_by(&mut followers, round);
        choose(&mut replicas, followers, replication_factor.min(live.len()), &racks);
        let mut last = others.clone();
        turn_by(&mut last, start + partition);
        choose(&mut replicas, last, replication_factor, &racks);
        replicas
    };
    (0..count).map(one).collect()
}

fn turn_by(brokers: &mut [BrokerId], steps: usize) {
    if !brokers.is_empty() {
        let length = brokers.len();
        brokers.rotate_left(steps % length);
    }
}

/// Takes brokers in order, but always one of those whose rack has the fewest replicas yet.
fn choose(
    replicas: &mut Vec<BrokerId>,
    mut from: Vec<BrokerId>,
    wanted: usize,
    racks: &BTreeMap<BrokerId, Option<&str>>,
) {
    while replicas.len() < wanted && !from.is_empty() {
        let in_rack = |id: &BrokerId| replicas.iter().filter(|other| racks.get(other) == racks.get(id)).count();
        let fewest = (0..from.len()).min_by_key(|place| in_rack(&from[*place])).unwrap_or_default();
        replicas.push(from.remove(fewest));
    }
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

    fn live<'a>(brokers: &[(BrokerId, Option<&'a str>)]) -> Candidates<'a> {
        Candidates { live: brokers.to_vec(), others: Vec::new() }
    }

    #[test]
    fn no_partition_has_a_broker_twice_and_leaders_and_replicas_are_even() {
        let placed = place(&live(&NINE), 90, 3, 4);
        let mut leads: BTreeMap<BrokerId, usize> = BTreeMap::new();
        let mut holds: BTreeMap<BrokerId, usize> = BTreeMap::new();
        for replicas in &placed {
            assert_eq!(replicas.iter().collect::<BTreeSet<_>>().len(), 3);
            *leads.entry(replicas[0]).or_default() += 1;
            replicas.iter().for_each(|id| *holds.entry(*id).or_default() += 1);
        }
        assert!(leads.values().all(|count| *count == 10), "{leads:?}");
        assert!(holds.values().all(|count| (25..=35).contains(count)), "{holds:?}");
    }

    #[test]
    fn replicas_are_on_three_racks_in_every_round() {
        for replicas in place(&live(&NINE), 90, 3, 0) {
            let racks: BTreeSet<_> = replicas.iter().map(|id| id.0 / 3).collect();
            assert_eq!(racks.len(), 3, "{replicas:?}");
        }
    }

    #[test]
    fn with_fewer_racks_than_replicas_no_rack_has_more_than_it_must() {
        for replicas in place(&live(&NINE[..6]), 60, 4, 1) {
            assert_eq!(replicas.iter().filter(|id| id.0 < 3).count(), 2, "{replicas:?}");
        }
    }

    #[test]
    fn one_broker_gets_everything() {
        assert_eq!(place(&live(&[(BrokerId(7), None)]), 2, 1, 5), [vec![BrokerId(7)], vec![BrokerId(7)]]);
    }

    #[test]
    fn a_broker_that_is_down_comes_last_and_only_if_it_must() {
        let candidates = Candidates { live: NINE[..2].to_vec(), others: NINE[3..5].to_vec() };
        for replicas in place(&candidates, 20, 3, 0) {
            assert!(replicas[..2].iter().all(|id| id.0 < 2) && replicas[2].0 >= 3, "{replicas:?}");
        }
        assert!(place(&candidates, 20, 2, 0).iter().flatten().all(|id| id.0 < 2));
    }
}
