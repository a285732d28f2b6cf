//! Scale-down: brokers with the highest ids go, after everything they have is elsewhere. A step function over what is seen,
//! so a restart of the operator loses nothing.
//!
//! What must always hold: a broker goes only when no partition names it and its own disks are empty; who votes on
//! metadata has given that up before; nothing moves while a roll is under way or a broker that stays is down.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::kafka::brokers::{BrokersSeen, PartitionSeen, some_of};
use crate::kafka::moves::{MOVES_AT_ONCE, Move, MovesSeen};

/// What is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation<'a> {
    /// Brokers `0..staying` stay.
    pub(crate) staying: i32,
    /// Brokers that are to go and still have something.
    pub(crate) leaving: &'a [i32],
    /// Brokers that stay and are not ready.
    pub(crate) not_ready: &'a [i32],
    /// Brokers that were emptied and have stopped: only their registration is left.
    pub(crate) emptied: &'a [i32],
    pub(crate) brokers: &'a Result<BrokersSeen, String>,
    pub(crate) moves: &'a Result<MovesSeen, String>,
    /// Bytes that the leaving brokers hold, and bytes free on those that stay; none when one has not said.
    pub(crate) room: Option<(u64, u64)>,
}

/// The next step, and what people are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing leaves, and nothing is left of an earlier scale-down.
    Nothing,
    /// It can't be done as asked.
    Refuse(String),
    /// Something has to come first, or is under way.
    Wait(String),
    /// Partitions are to move.
    Move { moves: Vec<Move>, text: String },
    /// The moves are over: their throttle goes.
    Unthrottle { topics: BTreeSet<String>, text: String },
    /// These brokers have nothing any more: they may go.
    Emptied(Vec<i32>),
    /// This broker has stopped: it is taken off the list.
    Unregister(i32),
    /// This broker was emptied, and has been given partitions since.
    Refilled(i32),
}

pub(crate) fn next(situation: &Situation<'_>) -> Step {
    let (brokers, moves) = match (situation.brokers, situation.moves) {
        (Ok(brokers), Ok(moves)) => (brokers, moves),
        (Err(error), _) | (_, Err(error)) => {
            return Step::Wait(format!("the brokers do not say what is where: {error}"));
        }
    };
    if let Some(id) = situation.emptied.iter().find(|id| has_any(&brokers.partitions, **id)) {
        return Step::Refilled(*id);
    }
    if situation.leaving.is_empty() {
        return after(situation, moves);
    }
    if let Some(why) = impossible(situation, brokers, &moves.moving) {
        return Step::Refuse(why);
    }
    if let Some(id) = situation.leaving.iter().find(|id| brokers.voters.contains(id)) {
        return Step::Wait(format!("broker {id} still votes on metadata"));
    }
    if let Some(id) = situation.not_ready.first() {
        return Step::Wait(format!("broker {id}, which stays, is not ready"));
    }
    drain(situation, brokers, moves)
}

/// Nothing leaves (any more): what is left to tidy up.
fn after(situation: &Situation<'_>, moves: &MovesSeen) -> Step {
    if let Some(id) = situation.emptied.iter().find(|id| !moves.at_work.contains_key(id)) {
        return Step::Unregister(*id);
    }
    if let Some(id) = situation.emptied.first() {
        return Step::Wait(format!("broker {id} is stopping"));
    }
    let throttled = !moves.throttled.is_empty() || moves.bytes_per_second.is_some();
    match (moves.moving.len(), throttled) {
        (0, true) => {
            Step::Unthrottle { topics: moves.throttled.clone(), text: "no partition is on its way any more".to_owned() }
        }
        (count, true) => Step::Wait(format!("{count} partitions are on their way")),
        (_, false) => Step::Nothing,
    }
}

fn drain(situation: &Situation<'_>, brokers: &BrokersSeen, moves: &MovesSeen) -> Step {
    let leaves = |id: &i32| situation.leaving.contains(id);
    let left: Vec<&PartitionSeen> =
        brokers.partitions.iter().filter(|partition| partition.replicas.iter().any(leaves)).collect();
    let who = ids(situation.leaving);
    let is_moving = |partition: &PartitionSeen| moves.moving.contains_key(&(partition.topic.clone(), partition.index));
    let waiting: Vec<&PartitionSeen> = left.iter().copied().filter(|partition| !is_moving(partition)).collect();
    let text = format!("{who}: {} partitions left, {} of them on their way", left.len(), left.len() - waiting.len());
    let free = MOVES_AT_ONCE.saturating_sub(moves.moving.len());
    if !waiting.is_empty() && free > 0 {
        let moves = choose(situation, brokers, moves, &waiting[..waiting.len().min(free)]);
        let text = format!("{who}: {} partitions left, {} more begin to move", left.len(), moves.len());
        return Step::Move { moves, text };
    }
    if !left.is_empty() {
        return Step::Wait(text);
    }
    if !moves.throttled.is_empty() || moves.bytes_per_second.is_some() {
        return Step::Unthrottle { topics: moves.throttled.clone(), text: format!("{who}: all partitions have moved") };
    }
    match moves.on_disks.iter().find(|(id, replicas)| leaves(id) && **replicas > 0) {
        Some((id, replicas)) => Step::Wait(format!("broker {id} removes {replicas} replicas from its disks")),
        None => Step::Emptied(situation.leaving.to_vec()),
    }
}

/// What can't work, and what to do instead.
fn impossible(
    situation: &Situation<'_>,
    brokers: &BrokersSeen,
    moving: &BTreeMap<(String, i32), Vec<i32>>,
) -> Option<String> {
    let staying = usize::try_from(situation.staying).unwrap_or(0);
    let at_rest = |partition: &&PartitionSeen| !moving.contains_key(&(partition.topic.clone(), partition.index));
    // One on its way has those that it goes to beside those that it leaves.
    let too_wide = brokers.partitions.iter().filter(|one| one.replicas.len() > staying).filter(at_rest);
    let topics = some_of(too_wide.map(|partition| partition.topic.as_str()));
    if !topics.is_empty() {
        return Some(format!(
            "{staying} brokers would be left, and topics have more replicas than that: {topics}; give them fewer, or keep more brokers"
        ));
    }
    let (held, free) = situation.room?;
    (held > free).then(|| {
        format!(
            "{held} bytes are on {}, and the brokers that stay have {free} bytes free: enlarge their disks first",
            ids(situation.leaving)
        )
    })
}

/// Where partitions go: to brokers that stay and have no replica yet; to a rack that has none, if there is one, and there
/// to the broker with the fewest replicas. The order of the replicas stays, and with it the preferred leaders.
fn choose(
    situation: &Situation<'_>,
    brokers: &BrokersSeen,
    moves: &MovesSeen,
    partitions: &[&PartitionSeen],
) -> Vec<Move> {
    let stays = |id: i32| (0..situation.staying).contains(&id);
    let mut counts: BTreeMap<i32, usize> = (0..situation.staying).map(|id| (id, 0)).collect();
    for id in brokers.partitions.iter().flat_map(|partition| &partition.replicas) {
        if let Some(count) = counts.get_mut(id) {
            *count += 1;
        }
    }
    let rack = |id: i32| moves.at_work.get(&id).cloned().flatten();
    let mut chosen = Vec::new();
    for partition in partitions {
        let mut to = partition.replicas.clone();
        for place in 0..to.len() {
            if stays(to[place]) {
                continue;
            }
            let others: Vec<i32> = to.iter().enumerate().filter(|(at, _)| *at != place).map(|(_, id)| *id).collect();
            let racks: BTreeSet<_> = others.iter().filter(|id| stays(**id)).filter_map(|id| rack(*id)).collect();
            let candidates = counts.iter().filter(|(id, _)| !others.contains(id));
            let shares_rack = |id: i32| rack(id).is_some_and(|rack| racks.contains(&rack));
            let best = candidates.min_by_key(|(id, count)| (shares_rack(**id), **count, **id)).map(|(id, _)| *id);
            if let Some(best) = best {
                to[place] = best;
                counts.entry(best).and_modify(|count| *count += 1);
            }
        }
        chosen.push(Move { topic: partition.topic.clone(), index: partition.index, to });
    }
    chosen
}

fn has_any(partitions: &[PartitionSeen], id: i32) -> bool {
    partitions.iter().any(|partition| partition.replicas.contains(&id))
}

fn ids(ids: &[i32]) -> String {
    let named: Vec<String> = ids.iter().map(ToString::to_string).collect();
    format!("{} {}", if ids.len() == 1 { "broker" } else { "brokers" }, named.join(", "))
}
