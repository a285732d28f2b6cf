//! Which replicas go where: from the brokers with the most to the one with the fewest, until each has its share.

use std::collections::{BTreeMap, BTreeSet};

use crate::kafka::brokers::{BrokersSeen, PartitionSeen};
use crate::kafka::moves::{Move, MovesSeen};

/// What a broker has, counted with what is on its way to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Load {
    replicas: usize,
    /// Partitions that prefer it as their leader.
    leaders: usize,
}

/// Who has what.
#[derive(Debug)]
pub(super) struct Shares<'a> {
    loads: BTreeMap<i32, Load>,
    /// Partitions at rest: those that may move.
    at_rest: Vec<&'a PartitionSeen>,
    racks: &'a BTreeMap<i32, Option<String>>,
    /// What each broker has at least, when replicas are spread evenly.
    share: usize,
    /// The same of preferred leaders.
    leaders_share: usize,
}

/// A replica that could move.
#[derive(Clone, Copy, Debug)]
struct Candidate<'a> {
    partition: &'a PartitionSeen,
    place: usize,
    from: i32,
}

impl<'a> Shares<'a> {
    pub(super) fn of(staying: i32, brokers: &'a BrokersSeen, moves: &'a MovesSeen) -> Self {
        let mut loads: BTreeMap<i32, Load> = (0..staying).map(|id| (id, Load::default())).collect();
        let mut at_rest = Vec::new();
        for partition in &brokers.partitions {
            let goes_to = moves.moving.get(&(partition.topic.clone(), partition.index));
            if goes_to.is_none() {
                at_rest.push(partition);
            }
            for (place, id) in goes_to.unwrap_or(&partition.replicas).iter().enumerate() {
                if let Some(load) = loads.get_mut(id) {
                    load.replicas += 1;
                    load.leaders += usize::from(place == 0);
                }
            }
        }
        let count = loads.len().max(1);
        let share = loads.values().map(|load| load.replicas).sum::<usize>() / count;
        let leaders_share = loads.values().map(|load| load.leaders).sum::<usize>() / count;
        Self { loads, at_rest, racks: &moves.at_work, share, leaders_share }
    }

    pub(super) fn somebody_has_less_than_half(&self) -> bool {
        let total: usize = self.loads.values().map(|load| load.replicas).sum();
        self.loads.values().any(|load| load.replicas * 2 * self.loads.len() < total)
    }

    /// Replicas that brokers have too few, all together.
    pub(super) fn lacking(&self) -> usize {
        self.loads.values().map(|load| self.share.saturating_sub(load.replicas)).sum()
    }

    /// The first moves towards even shares, at most so many, at most one of each partition.
    pub(super) fn choose(mut self, most: usize) -> Vec<Move> {
        let mut chosen: Vec<Move> = Vec::new();
        let mut taken = BTreeSet::new();
        let mut stuck = BTreeSet::new();
        while chosen.len() < most {
            let lacks = |(id, load): &(&i32, &Load)| load.replicas < self.share && !stuck.contains(*id);
            let poorest = self.loads.iter().filter(lacks).min_by_key(|(id, load)| (load.replicas, **id));
            let Some(to) = poorest.map(|(id, _)| *id) else { break };
            match self.best(to, &taken) {
                None => drop(stuck.insert(to)),
                Some(Candidate { partition, place, from }) => {
                    taken.insert((partition.topic.as_str(), partition.index));
                    let mut replicas = partition.replicas.clone();
                    replicas[place] = to;
                    chosen.push(Move { topic: partition.topic.clone(), index: partition.index, to: replicas });
                    self.count(from, to, place == 0);
                }
            }
        }
        chosen
    }

    fn count(&mut self, from: i32, to: i32, leads: bool) {
        if let Some(load) = self.loads.get_mut(&from) {
            load.replicas -= 1;
            load.leaders -= usize::from(leads);
        }
        if let Some(load) = self.loads.get_mut(&to) {
            load.replicas += 1;
            load.leaders += usize::from(leads);
        }
    }

    /// The replica that goes to this broker: a preferred leader if it has too few of these, otherwise none; from the broker that
    /// has most; of a topic that the broker has least of.
    fn best(&self, to: i32, taken: &BTreeSet<(&str, i32)>) -> Option<Candidate<'a>> {
        let has = |id: i32| self.loads.get(&id).copied().unwrap_or_default();
        let wants_leader = has(to).leaders < self.leaders_share;
        let mut of_topic: BTreeMap<&str, usize> = BTreeMap::new();
        for partition in &self.at_rest {
            let there =
                partition.replicas.contains(&to) || taken.contains(&(partition.topic.as_str(), partition.index));
            *of_topic.entry(partition.topic.as_str()).or_default() += usize::from(there);
        }
        let may_move = self.at_rest.iter().filter(|partition| {
            !partition.replicas.contains(&to) && !taken.contains(&(partition.topic.as_str(), partition.index))
        });
        let replicas = may_move.flat_map(|partition| {
            partition.replicas.iter().enumerate().map(|(place, from)| Candidate { partition, place, from: *from })
        });
        let spares = replicas.filter(|one| has(one.from).replicas > self.share && self.keeps_racks(one, to));
        spares.min_by_key(|one| {
            let from = has(one.from);
            // A leader taken from a broker that has too few itself would have to come back.
            let unwanted = (one.place == 0) != wants_leader || (one.place == 0 && from.leaders <= self.leaders_share);
            let topic = one.partition.topic.as_str();
            (unwanted, usize::MAX - from.replicas, of_topic.get(topic).copied(), topic, one.partition.index, one.place)
        })
    }

    /// Whether the partition is on as many racks afterwards. A broker without a rack is one of its own.
    fn keeps_racks(&self, one: &Candidate<'_>, to: i32) -> bool {
        let rack = |id: i32| self.racks.get(&id).cloned().flatten().ok_or(id);
        let before: BTreeSet<_> = one.partition.replicas.iter().map(|id| rack(*id)).collect();
        let others = one.partition.replicas.iter().filter(|id| **id != one.from);
        let after: BTreeSet<_> = others.copied().chain([to]).map(rack).collect();
        after.len() >= before.len()
    }
}
