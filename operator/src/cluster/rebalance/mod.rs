//! Partitions for brokers that were added: each that has far less than its share is given replicas of those that have most.
//! A step function over what is seen, so a restart of the operator loses nothing.
//!
//! What must always hold: no more replicas move than brokers lack; no partition is on fewer racks than before; leaders are spread
//! with the replicas; nothing begins while a broker is not ready or a replica at rest is behind.

mod choose;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use forebay_broker_config::status::BrokerState;
use forebay_crds::{Cluster, Reason};

use super::observe::Observed;
use super::plan::{Action, Steps};
use super::scale;
use super::settled::Settled;
use crate::kafka::brokers::BrokersSeen;
use crate::kafka::moves::{MOVES_AT_ONCE, Move, MovesSeen};

use choose::Shares;

/// What is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation<'a> {
    /// Brokers `0..staying` share what there is.
    pub(crate) staying: i32,
    /// A roll or a scale-down is under way, which goes first.
    pub(crate) held: bool,
    /// Brokers that are not ready.
    pub(crate) not_ready: &'a [i32],
    pub(crate) brokers: &'a Result<BrokersSeen, String>,
    pub(crate) moves: &'a Result<MovesSeen, String>,
    /// The spec asks for it.
    pub(crate) wanted: bool,
    /// It has begun: brokers are filled up to their share. Otherwise only far less than that begins it.
    pub(crate) begun: bool,
}

/// The next step, and what people are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nobody lacks anything, and nothing is left to tidy up.
    Nothing,
    /// Something has to come first, or is under way.
    Wait(String),
    /// Replicas are to move.
    Move { moves: Vec<Move>, text: String },
    /// The moves are over: their throttle goes.
    Unthrottle { topics: BTreeSet<String>, text: String },
}

pub(crate) fn next(situation: &Situation<'_>) -> Step {
    let (brokers, moves) = match (situation.brokers, situation.moves) {
        (Ok(brokers), Ok(moves)) => (brokers, moves),
        (Err(error), _) | (_, Err(error)) => {
            return Step::Wait(format!("the brokers do not say what is where: {error}"));
        }
    };
    let shares = Shares::of(situation.staying, brokers, moves);
    let begins = situation.wanted && (situation.begun || shares.somebody_has_less_than_half());
    let lacking = if begins { shares.lacking() } else { 0 };
    if lacking == 0 {
        return rest(situation, moves);
    }
    if situation.held {
        return Step::Wait(format!("{lacking} replicas will be moved when nothing else is under way"));
    }
    if let Some(id) = situation.not_ready.first() {
        return Step::Wait(format!("broker {id} is not ready: {lacking} replicas will be moved later"));
    }
    let at_rest = brokers.partitions.iter().filter(|one| !moves.moving.contains_key(&(one.topic.clone(), one.index)));
    let behind: usize = at_rest.map(|one| one.replicas.len().saturating_sub(one.in_sync.len())).sum();
    if behind > 0 {
        return Step::Wait(format!("{behind} replicas are catching up: {lacking} will be moved later"));
    }
    let free = MOVES_AT_ONCE.saturating_sub(moves.moving.len());
    let chosen = shares.choose(free);
    match chosen.len() {
        0 if free > 0 => rest(situation, moves),
        0 => Step::Wait(format!("{} partitions are on their way, {lacking} replicas will follow", moves.moving.len())),
        begin => {
            let later = lacking.saturating_sub(begin);
            let text = format!("{begin} replicas begin to move to brokers that have too few, {later} will follow");
            Step::Move { moves: chosen, text }
        }
    }
}

/// Nothing more is to begin: what is left to wait for and to tidy up.
fn rest(situation: &Situation<'_>, moves: &MovesSeen) -> Step {
    let throttled = !moves.throttled.is_empty() || moves.bytes_per_second.is_some();
    match (situation.begun && throttled, moves.moving.len()) {
        (false, _) => Step::Nothing,
        (true, 0) => {
            let text = "every broker has its share of the replicas".to_owned();
            Step::Unthrottle { topics: moves.throttled.clone(), text }
        }
        (true, count) => Step::Wait(format!("{count} partitions are on their way to brokers that had too few")),
    }
}

fn wanted(cluster: &Cluster) -> bool {
    cluster.spec.moves.as_ref().and_then(|moves| moves.to_new_brokers).unwrap_or(false)
}

fn begun(cluster: &Cluster) -> bool {
    cluster.status.as_ref().is_some_and(|status| status.rebalancing)
}

/// Whether brokers are to be asked what is where: by what each says of itself, so that a cluster at rest is asked nothing.
pub(crate) fn asks_brokers(cluster: &Cluster, settled: &Settled, observed: &Observed) -> bool {
    begun(cluster)
        || (wanted(cluster)
            && cluster.spec.replicas > 1
            && scale::leaving(cluster, settled).is_empty()
            && somebody_says_less_than_half(cluster, observed))
}

fn somebody_says_less_than_half(cluster: &Cluster, observed: &Observed) -> bool {
    let staying = observed.pods.iter().filter(|pod| pod.ordinal < cluster.spec.replicas);
    let said = staying.filter_map(|pod| observed.reports.get(&pod.name)?.as_ref().ok());
    let counts: Vec<u64> =
        said.filter(|status| status.state == BrokerState::Running).map(|status| status.partitions).collect();
    let (count, sum) = (u64::try_from(counts.len()).unwrap_or(0), counts.iter().sum::<u64>());
    i32::try_from(counts.len()) == Ok(cluster.spec.replicas) && counts.iter().any(|one| one * 2 * count < sum)
}

/// The next step as part of a Cluster's plan. `held`: something else is under way, which goes first.
pub(crate) fn step(steps: &mut Steps, cluster: &Cluster, settled: &Settled, observed: &Observed, held: bool) {
    let (Some(brokers), Some(moves)) = (&observed.brokers, &observed.moves) else { return };
    if !asks_brokers(cluster, settled, observed) || !scale::leaving(cluster, settled).is_empty() {
        return;
    }
    let not_ready = scale::not_ready(cluster, observed);
    let situation = Situation {
        staying: cluster.spec.replicas,
        held,
        not_ready: &not_ready,
        brokers,
        moves,
        wanted: wanted(cluster),
        begun: begun(cluster),
    };
    let mut say = |text: String| steps.blockers.push((Reason::Rebalancing, text));
    match next(&situation) {
        Step::Nothing => return,
        Step::Wait(why) => say(why),
        Step::Move { moves, text } => {
            say(text.clone());
            let bytes_per_second = scale::bytes_per_second(cluster);
            steps.actions.push(Action::Move { moves, bytes_per_second, text, reason: Reason::Rebalancing });
        }
        Step::Unthrottle { topics, text } => {
            say(text);
            steps.actions.push(Action::Unthrottle { topics, reason: Reason::Rebalancing });
        }
    }
    steps.rebalancing = true;
}
