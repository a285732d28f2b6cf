//! What to do about a Cluster. Pure: spec, desired children and what was observed in; actions, status and Events out.
//!
//! What must always hold: converged input gives no action; one step that is refused stops no other; a Cluster that is
//! paused or refused is reported on and not touched.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use forebay_broker_config::Settings;
use forebay_broker_config::status::BrokerStatus;
use forebay_crds::{Cluster, ClusterStatus, ConditionReport, ConditionState, ConditionType, Reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::Value;

use super::build::{self, BuildError, Defaults, broker_set_name, config_map};
use super::disks::{self, Growth};
use super::leftovers::{self, Leftover};
use super::listeners::{self, Tell};
use super::observe::Observed;
use super::roll::{Replacement, Situation};
use super::settled::{self, Settled};
use super::{
    disk_add, disk_drain, dynamic, racks, rebalance, rebind, report, roll, room, scale, tuning, tuning_record, windows,
};
use crate::kafka::log_dirs::DirMove;
use crate::kafka::moves::Move;
use crate::kube::apply::{self, Child, Need};
use crate::kube::events::Note;
use crate::kube::status;
use crate::reconcile::Requeue;

/// How soon a Cluster that is not as specified is looked at again; changes of its pods come by the watch anyway.
const UNSETTLED: Duration = Duration::from_secs(3);

/// One write.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Apply(Child),
    GrowClaim(Growth),
    /// Copies the rack label of its node to a pod.
    LabelPod {
        name: String,
        uid: String,
        label: String,
        value: String,
    },
    /// Tells a pod that its broker has no rack.
    TellNoRack {
        name: String,
        uid: String,
        why: String,
    },
    /// Deletes the set and leaves its pods and claims. The pods (name, uid) become the Cluster's before: deleted in this very moment, it
    /// would leave them behind for ever.
    OrphanSet {
        name: String,
        uid: String,
        pods: Vec<(String, String)>,
    },
    ReplacePod(Replacement),
    /// Gives up the disk of a broker whose node is lost: its claims (name, uid), then its pod.
    ReplaceDisk {
        pod: String,
        uid: String,
        claims: Vec<(String, String)>,
        text: String,
    },
    /// Changes settings while the brokers run.
    SetOnBrokers(Settings),
    /// Moves partitions, no faster than that.
    Move {
        moves: Vec<Move>,
        bytes_per_second: i64,
        text: String,
        reason: Reason,
    },
    /// Takes the throttle of moves away, from these topics and from all brokers.
    Unthrottle {
        topics: BTreeSet<String>,
        reason: Reason,
    },
    /// Notes on a claim what has become of its broker.
    MarkClaim {
        name: String,
        mark: Option<&'static str>,
    },
    /// Notes on a claim what has become of its disk.
    MarkDisk {
        claim: String,
        mark: Option<&'static str>,
    },
    /// Moves replicas to other disks of their brokers.
    MoveDirs {
        moves: Vec<DirMove>,
        text: String,
    },
    /// Deletes claims (name, uid) whose disk no broker has any more, or notes that they are kept.
    DisposeClaims {
        claims: Vec<(String, String)>,
        delete: bool,
    },
    /// Sets what single brokers tell clients of listeners, while they run.
    Tell(Tell),
    /// Deletes a child that is wanted no more.
    Remove(Leftover),
    /// Takes a broker that has stopped off the list, then marks its claims or deletes them (name, uid).
    Unregister {
        id: i32,
        claims: Vec<(String, String)>,
        delete: bool,
    },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apply(child) => write!(f, "apply {}", child.key()),
            Self::GrowClaim(growth) => write!(f, "grow claim {} from {} to {}", growth.claim, growth.from, growth.to),
            Self::LabelPod { name, label, value, .. } => write!(f, "label pod {name} {label}={value}"),
            Self::TellNoRack { name, why, .. } => write!(f, "tell pod {name} that it has no rack: {why}"),
            Self::OrphanSet { name, .. } => write!(f, "orphan StatefulSet/{name}"),
            Self::ReplacePod(one) => write!(f, "replace pod {}", one.name),
            Self::ReplaceDisk { pod, claims, .. } => {
                let claims = claims.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
                write!(f, "delete claims {claims} and pod {pod}")
            }
            Self::Move { moves, .. } => {
                let moves = moves.iter().map(|one| format!("{}-{} to {:?}", one.topic, one.index, one.to));
                write!(f, "move {}", moves.collect::<Vec<_>>().join(", "))
            }
            Self::Unthrottle { topics, .. } => write!(f, "take the throttle off {} topics", topics.len()),
            Self::MarkClaim { name, mark } => write!(f, "mark claim {name} {}", mark.unwrap_or("in use")),
            Self::MarkDisk { claim, mark } => write!(f, "mark disk of claim {claim} {}", mark.unwrap_or("in use")),
            Self::MoveDirs { moves, .. } => {
                let one = |one: &DirMove| format!("{}-{} of broker {} to {}", one.topic, one.index, one.broker, one.to);
                write!(f, "move {}", moves.iter().map(one).collect::<Vec<_>>().join(", "))
            }
            Self::DisposeClaims { claims, delete } => {
                let claims = claims.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
                write!(f, "{} {claims}, which no broker has any more", if *delete { "delete" } else { "keep" })
            }
            Self::Unregister { id, claims, delete } => {
                let claims = claims.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
                write!(f, "unregister broker {id} and {} {claims}", if *delete { "delete" } else { "keep" })
            }
            Self::Tell(tell) => write!(f, "{}", listeners::text(tell)),
            Self::Remove(child) => write!(f, "delete {}/{}", child.resource.kind, child.name),
            Self::SetOnBrokers(settings) => write!(f, "set on all brokers: {}", dynamic::text(settings)),
        }
    }
}

/// What to do.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) actions: Vec<Action>,
    pub(crate) status: ClusterStatus,
    pub(crate) notes: Vec<Note>,
    pub(crate) requeue: Requeue,
}

/// Why something is not done, for people.
pub(crate) type Refusal = (Reason, String);

/// What the steps below add up to.
#[derive(Default)]
pub(crate) struct Steps {
    pub(crate) actions: Vec<Action>,
    /// Why it is not ready, the gravest first.
    pub(crate) blockers: Vec<Refusal>,
    /// Partitions move to brokers that have too few.
    pub(crate) rebalancing: bool,
}

pub(crate) fn plan(
    cluster: &Cluster,
    desired: Result<Vec<Child>, BuildError>,
    observed: &Observed,
    defaults: &Defaults,
    resync: Duration,
    now: Timestamp,
) -> Plan {
    let disks = disks::judge(cluster, &observed.claims);
    let desired = desired.map_err(|error| (Reason::InvalidConfig, error.to_string()));
    let settled = Settled::of(cluster, observed);
    let refusal = settled::refuse(cluster.spec.replicas, &settled);
    let refusal = refusal.map(|message| (Reason::NotSupported, message));
    let of_disks = || settled.removal.refuse(cluster, observed).map(|message| (Reason::InvalidSpec, message));
    let refusal = refusal.or_else(of_disks).map_or(Ok(()), Err);
    let listeners = listeners::judge(cluster, observed, defaults);
    let (mut steps, refused) = match refusal.and(desired) {
        Ok(children) => (steps(cluster, &children, observed, &settled, &disks.growths, now), false),
        // Disks grow nevertheless: they may be why the configuration was touched at all. And a broker may start at any time.
        Err(refusal) => {
            let actions = growing(&disks.growths).chain(racks::step(cluster, observed)).collect();
            (Steps { actions, blockers: vec![refusal], ..Steps::default() }, true)
        }
    };
    let paused = cluster.spec.paused.unwrap_or(false);
    let by_id = by_id(observed);
    let racks = observed.pods.iter().map(|pod| (pod.ordinal, &pod.rack)).collect();
    let set = observed.children.get(&format!("StatefulSet/{}", broker_set_name(&cluster.name_any())));
    let progress = steps.blockers.first().cloned();
    if !refused && !listeners.tell.is_empty() {
        steps.actions.push(Action::Tell(listeners.tell));
    }
    let mut reports = vec![
        ready(cluster, observed, progress.as_ref()),
        progressing(paused, refused, progress.as_ref(), set, cluster, observed, &disks.report),
        settings_told(tuning::judge(&cluster.spec, &by_id, &racks), observed),
        disks.report,
        room::judge(&cluster.spec, &by_id, had_little_room(cluster)),
    ];
    let untold = listeners.untold && !paused;
    reports.extend(listeners.report);
    let is_settled =
        reports.iter().all(|r| r.condition_type != ConditionType::Progressing || r.state == ConditionState::False);
    let previous = cluster.status.as_ref().map(|status| &status.conditions);
    let notes = status::changes(previous, &reports);
    let conditions = status::conditions(previous, &reports, cluster.metadata.generation, now);
    let recorded = tuning_record::step(&tuning_record::Situation {
        cluster,
        defaults,
        reports: &by_id,
        brokers: observed.pods.len(),
        accepted: !refused && !paused && steps.blockers.iter().all(|(reason, _)| *reason != Reason::NotSupported),
        was_settled: settled_since(previous).is_some(),
        settled_since: settled_since(Some(&conditions)),
        now,
    });
    let actions = if paused { Vec::new() } else { std::mem::take(&mut steps.actions) };
    let status = ClusterStatus {
        draining: scale::draining(cluster, &settled, observed),
        removing_disks: settled.removal.disks().map(|disk| disk.name.clone()).collect(),
        rebalancing: steps.rebalancing,
        listeners: listeners.status,
        tuning_record: recorded.record,
        tuned: recorded.tuned,
        ..report::status(cluster, observed, defaults, conditions)
    };
    // What holds evictions goes by without a change that is watched; so does what brokers tell.
    let is_settled = is_settled && !settled.holds_evictions && !untold;
    // A window may be days away.
    let is_settled = is_settled || progress.is_some_and(|(reason, _)| reason == Reason::MaintenanceWindow);
    let after = if is_settled { resync } else { UNSETTLED };
    let after = recorded.wake.map_or(after, |wake| wake.clamp(UNSETTLED, after.max(UNSETTLED)));
    let notes = notes.into_iter().chain(recorded.notes).collect();
    Plan { actions, status, notes, requeue: Requeue::After(after) }
}

/// Since when nothing is left to do, if nothing is.
fn settled_since(conditions: Option<&Vec<Condition>>) -> Option<Timestamp> {
    let mut progressing =
        conditions.into_iter().flatten().filter(|one| one.type_ == ConditionType::Progressing.as_str());
    let settled = progressing.find(|one| one.status == ConditionState::False.as_str())?;
    Some(settled.last_transition_time.0)
}

fn had_little_room(cluster: &Cluster) -> bool {
    let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
    let mut room = conditions.filter(|old| old.type_ == ConditionType::DisksHaveRoom.as_str());
    room.any(|old| old.status == ConditionState::False.as_str())
}

/// What is in force on all brokers is not known when they do not tell their settings.
fn settings_told(judged: ConditionReport, observed: &Observed) -> ConditionReport {
    match &observed.set_on_brokers {
        Some(Err(error)) if judged.state == ConditionState::True => ConditionReport {
            state: ConditionState::Unknown,
            reason: Reason::NotReported,
            message: format!("the brokers do not tell their settings: {error}"),
            ..judged
        },
        _ => judged,
    }
}

fn by_id(observed: &Observed) -> BTreeMap<i32, &BrokerStatus> {
    let reports = observed.pods.iter().filter(|pod| !pod.deleting);
    reports.filter_map(|pod| Some((pod.ordinal, observed.reports.get(&pod.name)?.as_ref().ok()?))).collect()
}

fn steps(
    cluster: &Cluster,
    children: &[Child],
    observed: &Observed,
    settled: &Settled,
    growths: &[Growth],
    now: Timestamp,
) -> Steps {
    let mut steps = Steps::default();
    // IMPORTANT: before everything else. A full disk may be why nothing else works.
    steps.actions.extend(growing(growths));
    rebind::step(&mut steps, cluster, observed, now);
    // Brokers that start wait for it.
    steps.actions.extend(racks::step(cluster, observed));
    let mut unmark = scale::unmark(cluster, observed);
    unmark.extend(disk_drain::step::unmark(cluster, observed));
    for child in children {
        let is_set = child.resource.kind == "StatefulSet";
        // IMPORTANT: a broker must not come while its claims say that it or its disk was emptied: it would be let go as it is.
        if is_set && !unmark.is_empty() {
            steps.blockers.push((Reason::BrokersStarting, "claims that were emptied once are taken up".to_owned()));
        } else if !is_set || !disk_drain::step::holds_set(&mut steps, cluster, settled, observed) {
            child_step(&mut steps, cluster, child, observed, settled, growths, now);
        }
    }
    steps.actions.extend(unmark);
    let (_, waits) = disk_add::without_held(cluster, observed);
    steps.blockers.extend(waits.map(|why| (Reason::BrokersStarting, why)));
    steps.actions.extend(leftovers::of(cluster, children, observed).into_iter().map(Action::Remove));
    settings_step(&mut steps, children, observed);
    let rolling = steps.blockers.iter().any(|(reason, _)| !matches!(reason, Reason::DiskResizing | Reason::NodeLost));
    scale::step(&mut steps, cluster, settled, observed, rolling);
    let held = steps.blockers.iter().any(|(reason, _)| !matches!(reason, Reason::DiskResizing | Reason::NodeLost));
    disk_drain::step::step(&mut steps, cluster, settled, observed, held);
    let rolling = rolling || settled.removal.is_under_way();
    rebalance::step(&mut steps, cluster, settled, observed, rolling);
    steps
}

fn child_step(
    steps: &mut Steps,
    cluster: &Cluster,
    child: &Child,
    observed: &Observed,
    settled: &Settled,
    growths: &[Growth],
    now: Timestamp,
) {
    let live = observed.children.get(&child.key());
    let is_set = child.resource.kind == "StatefulSet";
    let enlarging = |live: &&Value| is_set && !growths.is_empty() && disks::templates_differ(&child.value, live);
    // A new set does not enlarge old claims: its templates come when every claim has been enlarged.
    let later = live.filter(enlarging).map(|live| disks::with_live_templates(child, live));
    let child = later.as_ref().unwrap_or(child);
    let differs = |live: &Value| is_set && disks::templates_differ(&child.value, live);
    let need = apply::need(child, live, &cluster.uid().unwrap_or_default());
    {
        match (need, live) {
            (Need::Conflict(why), _) => {
                steps.blockers.push((Reason::ResourceConflict, format!("{}: {why}", child.key())));
            }
            (Need::Wait, _) => {
                steps.blockers.push((Reason::BrokersStarting, format!("{} is being deleted", child.key())));
            }
            // Between the old set and the new one the note is all that tells of a disk that is being removed.
            (Need::Apply, Some(live)) if differs(live) && !settled.removal.is_noted => {
                steps.blockers.push((Reason::RemovingDisk, "what is removed is noted first".to_owned()));
            }
            (Need::Apply, Some(live)) if differs(live) => {
                let uid = live["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
                let staying = observed.pods.iter().filter(|pod| !pod.deleting);
                let pods = staying.map(|pod| (pod.name.clone(), pod.uid.clone())).collect();
                steps.actions.push(Action::OrphanSet { name: child.name.clone(), uid, pods });
                let reason = if settled.removal.is_under_way() { Reason::RemovingDisk } else { Reason::DiskResizing };
                steps.blockers.push((reason, "claim templates change".to_owned()));
            }
            (Need::Apply, _) => {
                steps.actions.push(Action::Apply(child.clone()));
                if is_set {
                    steps.blockers.push((Reason::BrokersStarting, format!("{} is being applied", child.key())));
                }
            }
            (Need::Nothing, Some(_)) if is_set => roll_step(steps, cluster, observed, now),
            (Need::Nothing, _) => {}
        }
    }
}

/// Settings that brokers take while they run.
fn settings_step(steps: &mut Steps, children: &[Child], observed: &Observed) {
    let file = children.iter().find(|child| child.resource.kind == "ConfigMap").map(|child| &child.value);
    let wanted = dynamic::of(&config_map::settings_of(file));
    let Some(Ok(set)) = &observed.set_on_brokers else { return };
    let changes = dynamic::changes(&wanted, set);
    if !changes.is_empty() {
        let text = dynamic::text(&changes);
        steps.blockers.push((Reason::ConfigPending, format!("to be set while the brokers run: {text}")));
        steps.actions.push(Action::SetOnBrokers(changes));
    }
}

fn growing(growths: &[Growth]) -> impl Iterator<Item = Action> {
    growths.iter().cloned().map(Action::GrowClaim)
}

fn roll_step(steps: &mut Steps, cluster: &Cluster, observed: &Observed, now: Timestamp) {
    let Some(template) = roll::template(cluster, &observed.children) else {
        steps
            .blockers
            .push((Reason::BrokersStarting, "the StatefulSet is being taken in by its controller".to_owned()));
        return;
    };
    let closed = windows::closed(&cluster.spec.maintenance_windows, now);
    let situation = Situation {
        pods: &observed.pods,
        replicas: cluster.spec.replicas,
        template: &template,
        recovering: &report::recovering(observed),
        brokers: observed.brokers.as_ref(),
        closed: closed.as_deref(),
        unchanged_for: observed.unchanged_for,
    };
    match roll::next(&situation) {
        roll::Step::Nothing => {}
        roll::Step::Wait(why) => steps.blockers.push((Reason::Rolling, why)),
        roll::Step::WaitForWindow(why) => steps.blockers.push((Reason::MaintenanceWindow, why)),
        roll::Step::Replace(replacement) => {
            steps.blockers.push((Reason::Rolling, replacement.why.clone()));
            steps.actions.push(Action::ReplacePod(replacement));
        }
    }
}

/// Brokers that do not run, each with why.
fn missing(cluster: &Cluster, observed: &Observed) -> Vec<String> {
    let one = |ordinal: i32| match observed.pods.iter().find(|pod| pod.ordinal == ordinal) {
        None => Some(format!("broker {ordinal} has no pod yet")),
        Some(pod) if pod.deleting => {
            let why = pod.message.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            Some(format!("{} is stopping{why}", pod.name))
        }
        Some(pod) if !pod.ready => Some(match (&pod.message, observed.reports.get(&pod.name)) {
            (Some(message), _) => format!("{}: {message}", pod.name),
            (None, Some(Ok(status))) => report::progress(&pod.name, status),
            (None, _) => format!("{} starts", pod.name),
        }),
        Some(_) => None,
    };
    (0..cluster.spec.replicas).filter_map(one).collect()
}

fn ready(cluster: &Cluster, observed: &Observed, blocker: Option<&Refusal>) -> ConditionReport {
    let report = |state: bool, reason, message| ConditionReport::new(ConditionType::Ready, state, reason, message);
    let missing = missing(cluster, observed);
    match blocker {
        // What moves or grows keeps no broker from serving: `Progressing` and `DisksInForce` tell of it.
        Some((Reason::BrokersStarting | Reason::DiskResizing | Reason::RemovingDisk | Reason::Rebalancing, _))
        | None
            if !missing.is_empty() =>
        {
            report(false, Reason::BrokersStarting, missing.join("; "))
        }
        Some((reason, message))
            if !matches!(reason, Reason::DiskResizing | Reason::RemovingDisk | Reason::Rebalancing) =>
        {
            report(false, *reason, message.clone())
        }
        _ => {
            let replicas = cluster.spec.replicas;
            report(true, Reason::AsSpecified, format!("{replicas} of {replicas} brokers run"))
        }
    }
}

fn progressing(
    paused: bool,
    refused: bool,
    blocker: Option<&Refusal>,
    set: Option<&Value>,
    cluster: &Cluster,
    observed: &Observed,
    disks: &ConditionReport,
) -> ConditionReport {
    let report =
        |state: bool, reason, message| ConditionReport::new(ConditionType::Progressing, state, reason, message);
    let missing = missing(cluster, observed);
    if paused {
        return report(false, Reason::Paused, "spec.paused is true: the operator looks but changes nothing".to_owned());
    }
    match blocker {
        Some((reason, message)) if refused || *reason == Reason::ResourceConflict => {
            report(false, *reason, message.clone())
        }
        Some((reason, message)) => report(true, *reason, message.clone()),
        None if set.is_none() || !missing.is_empty() => report(true, Reason::BrokersStarting, missing.join("; ")),
        None if disks.reason == Reason::DiskResizing => report(true, Reason::DiskResizing, disks.message.clone()),
        None => report(false, Reason::AsSpecified, "nothing is left to do".to_owned()),
    }
}

/// The desired children, or why there are none.
pub(crate) fn desired(cluster: &Cluster, defaults: &Defaults, observed: &Observed) -> Result<Vec<Child>, BuildError> {
    let (now, _) = disk_add::without_held(cluster, observed);
    build::children(&now, defaults, &Settled::of(cluster, observed))
}
