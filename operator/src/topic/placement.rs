//! Which brokers get a replica more or lose one when a topic's replication factor changes. Pure.
//!
//! What must always hold: brokers that keep a replica keep their place, so that leaders stay; no broker is named twice; when
//! replicas are taken away, those in sync go last.

use std::collections::{BTreeMap, BTreeSet};

/// A broker that can take replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) id: i32,
    pub(crate) rack: Option<String>,
}

/// A partition as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) index: i32,
    /// The preferred leader first.
    pub(crate) replicas: Vec<i32>,
    pub(crate) in_sync: Vec<i32>,
}

/// The replicas that partitions should have which have another number of them now.
pub(crate) fn moves(topic: &str, partitions: &[Placed], hosts: &[Host], factor: usize) -> BTreeMap<i32, Vec<i32>> {
    let wrong = partitions.iter().filter(|partition| partition.replicas.len() != factor);
    wrong
        .map(|partition| {
            let to = match partition.replicas.len() < factor {
                true => grown(topic, partition, hosts, factor),
                false => shrunk(partition, hosts, factor),
            };
            (partition.index, to)
        })
        .collect()
}

/// New replicas go to racks that have none first, then to brokers in turn: each topic and partition begins at another one,
/// so that many topics end up spread without knowing of each other.
fn grown(topic: &str, partition: &Placed, hosts: &[Host], factor: usize) -> Vec<i32> {
    let mut replicas = partition.replicas.clone();
    let mut ids: Vec<&Host> = hosts.iter().collect();
    ids.sort_by_key(|host| host.id);
    let start = turn(topic, partition.index, ids.len());
    ids.rotate_left(start);
    while replicas.len() < factor {
        let used = racks(&replicas, hosts);
        let candidates = ids.iter().filter(|host| !replicas.contains(&host.id));
        let Some(next) = candidates.min_by_key(|host| used.get(&host.rack.as_deref()).copied().unwrap_or(0)) else {
            break;
        };
        replicas.push(next.id);
    }
    replicas
}

/// First goes who is away, then who is not in sync, then who shares a rack, then the last.
fn shrunk(partition: &Placed, hosts: &[Host], factor: usize) -> Vec<i32> {
    let mut replicas = partition.replicas.clone();
    let alive: BTreeSet<i32> = hosts.iter().map(|host| host.id).collect();
    while replicas.len() > factor.max(1) {
        let used = racks(&replicas, hosts);
        let rack = |id: i32| hosts.iter().find(|host| host.id == id).and_then(|host| host.rack.as_deref());
        let worth = |(place, id): &(usize, &i32)| {
            let shares = used.get(&rack(**id)).copied().unwrap_or(0);
            (alive.contains(*id), partition.in_sync.contains(*id), std::cmp::Reverse(shares), std::cmp::Reverse(*place))
        };
        let Some((place, _)) = replicas.iter().enumerate().min_by_key(worth) else { break };
        replicas.remove(place);
    }
    replicas
}

/// Replicas by rack. Brokers that name no rack share one.
fn racks<'a>(replicas: &[i32], hosts: &'a [Host]) -> BTreeMap<Option<&'a str>, usize> {
    let mut used = BTreeMap::new();
    for host in hosts.iter().filter(|host| replicas.contains(&host.id)) {
        *used.entry(host.rack.as_deref()).or_default() += 1;
    }
    used
}

fn turn(topic: &str, index: i32, count: usize) -> usize {
    let name = topic.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)));
    name.wrapping_add(usize::try_from(index).unwrap_or(0)).checked_rem(count).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(racks: &[Option<&str>]) -> Vec<Host> {
        (0..).zip(racks).map(|(id, rack)| Host { id, rack: rack.map(str::to_owned) }).collect()
    }

    fn placed(index: i32, replicas: &[i32], in_sync: &[i32]) -> Placed {
        Placed { index, replicas: replicas.to_vec(), in_sync: in_sync.to_vec() }
    }

    #[test]
    fn new_replicas_are_spread_and_those_there_keep_their_place() {
        let hosts = hosts(&[None; 6]);
        let partitions: Vec<Placed> = (0..60).map(|index| placed(index, &[index % 6], &[index % 6])).collect();
        let found = moves("orders", &partitions, &hosts, 3);
        assert_eq!(found.len(), 60);
        let mut load = [0; 6];
        for (index, replicas) in &found {
            assert_eq!((replicas[0], replicas.len()), (index % 6, 3));
            assert_eq!(replicas.iter().collect::<BTreeSet<_>>().len(), 3, "{replicas:?}");
            replicas.iter().for_each(|id| load[usize::try_from(*id).unwrap()] += 1);
        }
        assert!(load.iter().all(|count| (20..=40).contains(count)), "{load:?}");
    }

    #[test]
    fn each_rack_gets_one_before_any_gets_two() {
        let hosts = hosts(&[Some("a"), Some("a"), Some("b"), Some("b"), Some("c")]);
        for index in 0..20 {
            let found = moves("t", &[placed(index, &[0], &[0])], &hosts, 3);
            let used = racks(&found[&index], &hosts);
            assert_eq!(used.len(), 3, "{found:?}");
        }
    }

    #[test]
    fn who_is_away_or_behind_goes_first_and_the_leader_stays() {
        let hosts = hosts(&[None, None, None]);
        assert_eq!(moves("t", &[placed(0, &[1, 2, 0], &[1, 2, 0])], &hosts, 1)[&0], [1]);
        assert_eq!(moves("t", &[placed(0, &[1, 2, 0], &[2, 0])], &hosts, 2)[&0], [2, 0], "1 is not in sync");
        assert_eq!(moves("t", &[placed(0, &[9, 2, 0], &[2, 0])], &hosts, 2)[&0], [2, 0], "9 is not there");
        let racked = super::tests::hosts(&[Some("a"), Some("a"), Some("b")]);
        assert_eq!(moves("t", &[placed(0, &[0, 1, 2], &[0, 1, 2])], &racked, 2)[&0], [0, 2], "1 shares a rack");
    }

    #[test]
    fn what_has_its_replicas_is_left_alone() {
        assert!(moves("t", &[placed(0, &[1], &[]), placed(1, &[0], &[0])], &hosts(&[None; 3]), 1).is_empty());
    }
}
