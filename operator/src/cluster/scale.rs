//! Scale-down as part of a Cluster's plan: which brokers leave, what the drain is to look at, and what its steps are in
//! writes and words.
//!
//! An emptied broker is remembered on its claims (`forebay.dev/broker`): `emptied` when nothing is left on it, so that the
//! StatefulSet may shrink; `unregistered` when the brokers have forgotten it as well.

use forebay_crds::{Cluster, Reason, ReclaimPolicy};
use kube::ResourceExt;

use super::build::broker_set_name;
use super::drain::{self, Situation, Step};
use super::observe::{ClaimSeen, Observed};
use super::plan::{Action, Steps};
use super::settled::Settled;

/// On a claim: what has become of its broker.
pub(crate) const BROKER_ANNOTATION: &str = "forebay.dev/broker";
/// Values of the annotation.
pub(crate) const EMPTIED: &str = "emptied";
pub(crate) const UNREGISTERED: &str = "unregistered";

/// Bytes a second for moves, for each broker, where the spec says nothing.
const BYTES_PER_SECOND: i64 = 50 << 20;

/// The claims of one broker.
pub(crate) fn claims_of<'a>(cluster: &Cluster, claims: &'a [ClaimSeen], id: i32) -> Vec<&'a ClaimSeen> {
    let ending = format!("-{}-{id}", broker_set_name(&cluster.name_any()));
    claims.iter().filter(|claim| claim.name.ends_with(&ending)).collect()
}

/// Brokers that are to go and may still have something.
pub(crate) fn leaving(cluster: &Cluster, settled: &Settled) -> Vec<i32> {
    (cluster.spec.replicas..settled.brokers).collect()
}

/// Brokers that were emptied, are gone, and are still registered.
fn emptied(cluster: &Cluster, observed: &Observed) -> Vec<i32> {
    let marked = observed.claims.iter().filter(|claim| claim.broker.as_deref() == Some(EMPTIED));
    let mut ids: Vec<i32> = marked.filter_map(|claim| claim.broker_id(&cluster.name_any())).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Whether brokers are to be asked what is where.
pub(crate) fn asks_brokers(cluster: &Cluster, settled: &Settled, observed: &Observed) -> bool {
    let was_draining = cluster.status.as_ref().is_some_and(|status| !status.draining.is_empty());
    was_draining || !leaving(cluster, settled).is_empty() || !emptied(cluster, observed).is_empty()
}

/// For the status: brokers that are being emptied. Kept as long as something of their moves is left, so that it is tidied up
/// even when the spec is set back.
pub(crate) fn draining(cluster: &Cluster, settled: &Settled, observed: &Observed) -> Vec<i32> {
    let leaving = leaving(cluster, settled);
    if !leaving.is_empty() {
        return leaving;
    }
    let left = match &observed.moves {
        Some(Ok(moves)) => !moves.throttled.is_empty() || moves.bytes_per_second.is_some(),
        _ => true,
    };
    cluster.status.as_ref().filter(|_| left).map(|status| status.draining.clone()).unwrap_or_default()
}

/// Claims of brokers that are to be (again) and were emptied once: the marks go before the brokers come.
pub(crate) fn unmark(cluster: &Cluster, observed: &Observed) -> Vec<Action> {
    let stays = |claim: &&ClaimSeen| {
        claim.broker.is_some() && claim.broker_id(&cluster.name_any()).is_some_and(|id| id < cluster.spec.replicas)
    };
    observed
        .claims
        .iter()
        .filter(stays)
        .map(|claim| Action::MarkClaim { name: claim.name.clone(), mark: None })
        .collect()
}

/// The scale-down's next step. `rolling`: a roll is under way, which goes first.
pub(crate) fn step(steps: &mut Steps, cluster: &Cluster, settled: &Settled, observed: &Observed, rolling: bool) {
    let (Some(brokers), Some(moves)) = (&observed.brokers, &observed.moves) else { return };
    if !asks_brokers(cluster, settled, observed) {
        return;
    }
    let leaving = leaving(cluster, settled);
    let emptied = emptied(cluster, observed);
    let not_ready = not_ready(cluster, observed);
    let situation = Situation {
        staying: cluster.spec.replicas,
        leaving: &leaving,
        not_ready: &not_ready,
        emptied: &emptied,
        brokers,
        moves,
        room: room(cluster, observed),
    };
    let mut say = |reason, text: String| steps.blockers.push((reason, text));
    let next = drain::next(&situation);
    if rolling && !matches!(next, Step::Refuse(_)) {
        return;
    }
    match next {
        Step::Nothing => {}
        Step::Refuse(why) => {
            say(Reason::NotSupported, format!("spec.replicas is {}: {why}", cluster.spec.replicas));
        }
        Step::Wait(why) => say(Reason::ScalingDown, why),
        Step::Move { moves, text } => {
            say(Reason::ScalingDown, text.clone());
            let bytes_per_second = bytes_per_second(cluster);
            steps.actions.push(Action::Move { moves, bytes_per_second, text, reason: Reason::ScalingDown });
        }
        Step::Unthrottle { topics, text } => {
            say(Reason::ScalingDown, text);
            steps.actions.push(Action::Unthrottle { topics, reason: Reason::ScalingDown });
        }
        Step::Emptied(ids) => {
            say(Reason::ScalingDown, format!("brokers {ids:?} are empty and stop"));
            let claims = ids.iter().flat_map(|id| claims_of(cluster, &observed.claims, *id));
            let mark = |claim: &ClaimSeen| Action::MarkClaim { name: claim.name.clone(), mark: Some(EMPTIED) };
            steps.actions.extend(claims.map(mark));
        }
        Step::Unregister(id) => {
            say(Reason::ScalingDown, format!("broker {id} has stopped and is taken off the list"));
            let claims = claims_of(cluster, &observed.claims, id).into_iter();
            let claims = claims.map(|claim| (claim.name.clone(), claim.uid.clone())).collect();
            let delete = cluster.spec.effective_reclaim_policy() == ReclaimPolicy::Delete;
            steps.actions.push(Action::Unregister { id, claims, delete });
        }
        Step::Refilled(id) => {
            say(Reason::ScalingDown, format!("broker {id} has been given partitions since it was emptied"));
            let claims = claims_of(cluster, &observed.claims, id).into_iter();
            steps.actions.extend(claims.map(|claim| Action::MarkClaim { name: claim.name.clone(), mark: None }));
        }
    }
}

/// Brokers that stay and are not ready.
pub(crate) fn not_ready(cluster: &Cluster, observed: &Observed) -> Vec<i32> {
    let ready = |id: &i32| observed.pods.iter().any(|pod| pod.ordinal == *id && pod.ready && !pod.deleting);
    (0..cluster.spec.replicas).filter(|id| !ready(id)).collect()
}

/// How fast partitions move.
pub(crate) fn bytes_per_second(cluster: &Cluster) -> i64 {
    cluster.spec.moves.as_ref().and_then(|moves| moves.bytes_per_second).unwrap_or(BYTES_PER_SECOND)
}

/// What leaving brokers hold, and what is free on those that stay.
fn room(cluster: &Cluster, observed: &Observed) -> Option<(u64, u64)> {
    let (mut held, mut free) = (0, 0);
    for pod in &observed.pods {
        let status = observed.reports.get(&pod.name)?.as_ref().ok()?;
        let dirs = status.log_dirs.iter();
        match pod.ordinal < cluster.spec.replicas {
            true => free += dirs.map(|dir| dir.free_bytes).sum::<u64>(),
            false => held += dirs.map(|dir| dir.used_bytes).sum::<u64>(),
        }
    }
    Some((held, free))
}
