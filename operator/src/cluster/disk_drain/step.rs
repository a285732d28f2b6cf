//! Removal of disks as part of a Cluster's plan: what is to be looked at, and what the steps are in writes and words.
//!
//! Stages, by what there is: a disk that the spec names no more stays in the StatefulSet, and brokers are told to put nothing new on it;
//! what is on it moves; its claims are marked when it is empty on all brokers; then the StatefulSet is made without it and the brokers
//! restarted; when no broker has it any more its claims are deleted or kept.

use forebay_crds::cluster::Disk;
use forebay_crds::{Cluster, Reason, ReclaimPolicy};
use kube::ResourceExt;

use super::removal::{EMPTIED, claims_of};
use super::{BrokerDisks, Situation, Step, disks, next, refilled};
use crate::cluster::build::broker_set_name;
use crate::cluster::observe::{ClaimSeen, Observed};
use crate::cluster::plan::{Action, Steps};
use crate::cluster::settled::Settled;

/// Brokers that are to be asked what is on their disks: those that run and still have one that is to go.
pub(crate) fn asks_brokers(settled: &Settled, observed: &Observed) -> Vec<i32> {
    let has = |disks: &[String]| settled.removal.disks().any(|disk| disks.contains(&disk.name));
    let pods = observed.pods.iter().filter(|pod| pod.ready && !pod.deleting && has(&pod.disks));
    pods.map(|pod| pod.ordinal).collect()
}

fn brokers<'a>(cluster: &Cluster, settled: &Settled, observed: &'a Observed) -> Vec<BrokerDisks<'a>> {
    let one = |id: i32| {
        let pod = observed.pods.iter().find(|pod| pod.ordinal == id);
        BrokerDisks {
            id,
            ready: pod.is_some_and(|pod| pod.ready && !pod.deleting),
            mounts: pod.map(|pod| pod.disks.as_slice()).unwrap_or_default(),
            said: pod.and_then(|pod| observed.reports.get(&pod.name)?.as_ref().ok()),
            dirs: observed.dirs.get(&id),
        }
    };
    (0..settled.replicas(cluster)).map(one).collect()
}

/// Claims of disks that are to be (again) and were emptied once: the marks go before the brokers have them.
pub(crate) fn unmark(cluster: &Cluster, observed: &Observed) -> Vec<Action> {
    let of_disks = cluster.spec.disks.iter().flat_map(|disk| claims_of(cluster, &observed.claims, &disk.name));
    of_disks.filter(|claim| claim.disk.is_some()).map(|claim| mark(claim, None)).collect()
}

fn mark(claim: &ClaimSeen, mark: Option<&'static str>) -> Action {
    Action::MarkDisk { claim: claim.name.clone(), mark }
}

/// Whether brokers may be restarted without the disks that were found empty: not before each says so again that still has them.
/// What has something again is taken up.
pub(crate) fn holds_set(steps: &mut Steps, cluster: &Cluster, settled: &Settled, observed: &Observed) -> bool {
    // While there is no set nobody is restarted, and one must come again.
    if !observed.children.contains_key(&format!("StatefulSet/{}", broker_set_name(&cluster.name_any()))) {
        return false;
    }
    match refilled(&settled.removal.emptied, &brokers(cluster, settled, observed)) {
        Ok(refilled) if refilled.is_empty() => false,
        Ok(refilled) => {
            let text = format!("disk {} was empty, and has replicas again", refilled.join(", "));
            steps.blockers.push((Reason::RemovingDisk, text));
            let claims = refilled.iter().flat_map(|disk| claims_of(cluster, &observed.claims, disk));
            steps.actions.extend(claims.map(|claim| mark(claim, None)));
            true
        }
        Err(why) => {
            steps.blockers.push((Reason::RemovingDisk, why));
            true
        }
    }
}

/// The removal's next step. `held`: something else is under way, which goes first.
pub(crate) fn step(steps: &mut Steps, cluster: &Cluster, settled: &Settled, observed: &Observed, held: bool) {
    steps.actions.extend(dispose(cluster, settled, observed));
    let situation = Situation { removing: &settled.removal.removing, brokers: &brokers(cluster, settled, observed) };
    let next = next(&situation);
    if held && !matches!(next, Step::Refuse(_)) {
        return;
    }
    let mut say = |reason, text: String| steps.blockers.push((reason, text));
    match next {
        Step::Nothing if settled.removal.emptied.is_empty() => {}
        Step::Nothing => {
            let who = disks(&settled.removal.emptied);
            say(Reason::RemovingDisk, format!("{who}: empty on all brokers, which are restarted without it"));
        }
        Step::Refuse(why) => say(Reason::NotSupported, why),
        Step::Wait(why) => say(Reason::RemovingDisk, why),
        // IMPORTANT: at the rate of the spec, which brokers have not taken in as long as they do not tell their settings.
        Step::Move { .. } if !matches!(observed.set_on_brokers, Some(Ok(_))) => {
            say(
                Reason::RemovingDisk,
                "the brokers do not tell their settings, and with them how fast they copy".to_owned(),
            );
        }
        Step::Move { moves, text } => {
            say(Reason::RemovingDisk, text.clone());
            steps.actions.push(Action::MoveDirs { moves, text });
        }
        Step::Emptied(names) => {
            say(Reason::RemovingDisk, format!("disk {}: empty on all brokers", names.join(", ")));
            let claims = names.iter().flat_map(|name| claims_of(cluster, &observed.claims, name));
            let unmarked = claims.filter(|claim| claim.disk.is_none());
            steps.actions.extend(unmarked.map(|claim| mark(claim, Some(EMPTIED))));
        }
    }
}

/// What becomes of claims whose disk no broker has any more.
fn dispose(cluster: &Cluster, settled: &Settled, observed: &Observed) -> Option<Action> {
    let is_wanted = |claim: &ClaimSeen| {
        let mut disks = cluster.spec.disks.iter().chain(settled.removal.disks());
        let is_of = |disk: &Disk| claims_of(cluster, std::slice::from_ref(claim), &disk.name).len() == 1;
        disks.any(is_of)
    };
    let over = observed.claims.iter().filter(|claim| claim.disk.as_deref() == Some(EMPTIED) && !is_wanted(claim));
    let claims: Vec<_> = over.map(|claim| (claim.name.clone(), claim.uid.clone())).collect();
    let delete = cluster.spec.effective_reclaim_policy() == ReclaimPolicy::Delete;
    (!claims.is_empty()).then_some(Action::DisposeClaims { claims, delete })
}
