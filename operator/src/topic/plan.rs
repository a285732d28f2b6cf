//! What to do about a Topic. Pure: the Topic and what was observed in; actions, status and Events out. Deletion is a plan
//! too: the finalizer goes when the topic is gone, when it is to stay, or when there is nothing left to ask.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use forebay_broker_client::admin::ConfigChange;
use forebay_crds::{
    ConditionReport, ConditionState, ConditionType, Reason, ReclaimPolicy, TOPIC_FINALIZER, Topic, TopicStatus,
};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::config;
use super::observe::{ClusterSeen, Observed};
use super::placement;
use crate::kafka::{TopicSeen, TopicState};
use crate::kube::events::Note;
use crate::kube::status;
use crate::reconcile::Requeue;
use crate::stores::ClusterKey;

/// One change, to the object or to the brokers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    AddFinalizer,
    RemoveFinalizer(Note),
    Create { name: String, partitions: i32, replication_factor: i16, configs: BTreeMap<String, String> },
    AddPartitions { name: String, from: i32, to: i32 },
    AlterConfigs { name: String, changes: Vec<ConfigChange>, text: String },
    Reassign { name: String, from: i32, to: i32, moves: BTreeMap<i32, Vec<i32>> },
    DeleteTopic { name: String },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddFinalizer => f.write_str("add finalizer"),
            Self::RemoveFinalizer(note) => write!(f, "remove finalizer: {}", note.reason.as_str()),
            Self::Create { name, partitions, replication_factor, configs } => {
                write!(f, "create topic {name}: {partitions} partitions, replication factor {replication_factor}")?;
                configs.iter().try_for_each(|(name, value)| write!(f, ", {name}={value}"))
            }
            Self::AddPartitions { name, from, to } => write!(f, "grow topic {name} from {from} to {to} partitions"),
            Self::AlterConfigs { name, text, .. } => write!(f, "configure topic {name}: {text}"),
            Self::Reassign { name, from, to, moves } => {
                let count = moves.len();
                write!(f, "change replication factor of topic {name} from {from} to {to}: {count} partitions")
            }
            Self::DeleteTopic { name } => write!(f, "delete topic {name}"),
        }
    }
}

/// What to do.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) actions: Vec<Action>,
    /// None while a topic is being deleted and all goes well.
    pub(crate) status: Option<TopicStatus>,
    pub(crate) notes: Vec<Note>,
    pub(crate) requeue: Requeue,
    /// The topic needs nothing as it is.
    pub(crate) is_settled: bool,
}

/// When a Topic is looked at again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// While something is in the way.
    pub(crate) resync: Duration,
    /// When it needs nothing: changes of its topic are found by the sweep.
    pub(crate) settled: Duration,
}

/// A topic that this operator has just changed is looked at again soon: a change may take a moment to be seen.
const UNSETTLED: Duration = Duration::from_secs(2);
/// How often the progress of moves is written to the status.
const PROGRESS: Duration = Duration::from_secs(5);

impl Plan {
    /// A plan made after `done`: what it still would do is left to the next pass.
    pub(crate) fn after(mut self, done: &[Action]) -> Self {
        if !self.actions.is_empty() {
            self.requeue = Requeue::After(UNSETTLED);
        }
        if done.iter().any(|action| matches!(action, Action::Create { .. })) {
            self.notes.retain(|note| note.reason != Reason::TopicAdopted);
        }
        self
    }

    /// The plan after brokers refused a change.
    pub(crate) fn refused(self, topic: &Topic, refused: &Refused, now: Timestamp) -> Self {
        let is_deleting = is_deleting(topic);
        let (reason, message) = if is_deleting {
            let way_out = "set spec.reclaimPolicy to Retain to let this object go and keep the topic";
            (Reason::DeleteRefused, format!("{}; {way_out}", refused.0))
        } else {
            (Reason::KafkaError, refused.0.clone())
        };
        let draft = Draft { topic, state: None, report: not_ready(reason, message), requeue: Requeue::Backoff };
        draft.into_plan(Vec::new(), now)
    }
}

/// A change that brokers refused, in their words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused(pub(crate) String);

/// A status to be written.
struct Draft<'a> {
    topic: &'a Topic,
    state: Option<&'a TopicState>,
    report: ConditionReport,
    requeue: Requeue,
}

impl Draft<'_> {
    fn into_plan(self, actions: Vec<Action>, now: Timestamp) -> Plan {
        let previous = self.topic.status.clone().unwrap_or_default();
        let reports = [self.report];
        let notes = status::changes(Some(&previous.conditions), &reports);
        let conditions = status::conditions(Some(&previous.conditions), &reports, self.topic.metadata.generation, now);
        let state = self.state;
        let status = TopicStatus {
            observed_generation: self.topic.metadata.generation,
            topic_name: Some(crate::stores::topic_name(self.topic)),
            topic_id: state.map(|state| state.topic_id.clone()).or(previous.topic_id),
            partitions: state.map(|state| state.partitions).or(previous.partitions),
            replication_factor: state.map(|state| state.replication.now).or(previous.replication_factor),
            moving_partitions: state.map(|state| state.replication.moving).filter(|moving| *moving > 0),
            reclaim_policy: Some(self.topic.spec.effective_reclaim_policy()),
            conditions,
        };
        Plan { actions, status: Some(status), notes, requeue: self.requeue, is_settled: false }
    }
}

fn unknown(reason: Reason, message: impl Into<String>) -> ConditionReport {
    ConditionReport::new(ConditionType::Ready, ConditionState::Unknown, reason, message)
}

fn not_ready(reason: Reason, message: impl Into<String>) -> ConditionReport {
    ConditionReport::new(ConditionType::Ready, false, reason, message)
}

fn is_deleting(topic: &Topic) -> bool {
    topic.metadata.deletion_timestamp.is_some()
}

fn is_paused(topic: &Topic) -> bool {
    topic.spec.paused == Some(true)
}

pub(crate) fn plan(topic: &Topic, observed: &Observed, pace: Pace, now: Timestamp) -> Plan {
    if is_deleting(topic) {
        return deletion(topic, observed, now);
    }
    let draft = |report, requeue| Draft { topic, state: None, report, requeue }.into_plan(Vec::new(), now);
    let key = &observed.cluster_key;
    if let Some(owner) = &observed.owner {
        let message =
            format!("topic {} belongs to the older Topic {owner}; delete one of the two", observed.topic_name);
        return draft(not_ready(Reason::ResourceConflict, message), Requeue::After(pace.resync));
    }
    let seen = match &observed.cluster {
        ClusterSeen::Reached(seen) => seen,
        out_of_reach => return draft(unreached(key, out_of_reach), Requeue::Backoff),
    };
    let configs = match config::validated(&topic.spec.config) {
        Ok(configs) => topic.spec.unwritable().map_or(Ok(configs), Err),
        Err(message) => Err(message),
    };
    let configs = match configs {
        Ok(configs) => configs,
        Err(message) => return draft(not_ready(Reason::InvalidConfig, message), Requeue::After(pace.resync)),
    };
    let mut plan = match &**seen {
        TopicSeen::Absent => creation(topic, observed, configs, now),
        TopicSeen::Present(state) => Upkeep { topic, observed, state, pace }.plan(&configs, now),
        TopicSeen::Refused(why) => draft(not_ready(Reason::KafkaError, why), Requeue::Backoff),
    };
    if is_paused(topic) {
        return paused(topic, plan, pace, now);
    }
    // IMPORTANT: first. Without it a topic made now would be left behind by a deletion that comes next.
    if !topic.finalizers().iter().any(|finalizer| finalizer == TOPIC_FINALIZER) {
        plan.actions.insert(0, Action::AddFinalizer);
    }
    plan
}

/// Why brokers can't be asked.
fn unreached<T>(key: &ClusterKey, cluster: &ClusterSeen<T>) -> ConditionReport {
    match cluster {
        ClusterSeen::Missing => not_ready(Reason::ClusterNotFound, format!("Cluster {key} does not exist")),
        ClusterSeen::Deleting => not_ready(Reason::ClusterGone, format!("Cluster {key} is being deleted")),
        ClusterSeen::NotAllowed => not_ready(
            Reason::ClusterNotAllowed,
            format!("Cluster {key} does not admit Topics of this namespace: add it to its spec.allowedNamespaces"),
        ),
        ClusterSeen::Unreachable(why) => {
            unknown(Reason::ClusterNotReachable, format!("brokers of Cluster {key} can't be reached: {why}"))
        }
        ClusterSeen::Reached(_) => unknown(Reason::Pending, "brokers can be asked"),
    }
}

/// The same look at things, and nothing done.
fn paused(topic: &Topic, plan: Plan, pace: Pace, now: Timestamp) -> Plan {
    let undone: Vec<String> = plan.actions.iter().map(ToString::to_string).collect();
    let undone = if undone.is_empty() {
        "nothing is left undone".to_owned()
    } else {
        format!("left undone: {}", undone.join("; "))
    };
    let message = format!("spec.paused is true: the operator looks but changes nothing; {undone}");
    let report = not_ready(Reason::Paused, message);
    let mut paused =
        Draft { topic, state: None, report, requeue: Requeue::After(pace.resync) }.into_plan(Vec::new(), now);
    if let (Some(new), Some(old)) = (&mut paused.status, plan.status) {
        let conditions = std::mem::take(&mut new.conditions);
        *new = TopicStatus { conditions, ..old };
    }
    Plan { is_settled: plan.is_settled, ..paused }
}

fn creation(topic: &Topic, observed: &Observed, configs: BTreeMap<String, String>, now: Timestamp) -> Plan {
    let create = Action::Create {
        name: observed.topic_name.clone(),
        partitions: topic.spec.partitions,
        replication_factor: topic.spec.replication_factor.and_then(|f| i16::try_from(f).ok()).unwrap_or(-1),
        configs,
    };
    let report = unknown(Reason::Pending, format!("topic {} is being created", observed.topic_name));
    Draft { topic, state: None, report, requeue: Requeue::After(UNSETTLED) }.into_plan(vec![create], now)
}

/// What keeps a topic that is there as declared.
struct Upkeep<'a> {
    topic: &'a Topic,
    observed: &'a Observed,
    state: &'a TopicState,
    pace: Pace,
}

impl Upkeep<'_> {
    fn plan(&self, configs: &BTreeMap<String, String>, now: Timestamp) -> Plan {
        let Self { topic, observed, state, pace } = self;
        let (name, wanted, has) = (&observed.topic_name, topic.spec.partitions, state.partitions);
        let mut actions = Vec::new();
        if wanted > has {
            actions.push(Action::AddPartitions { name: name.clone(), from: has, to: wanted });
        }
        let drifts = config::drifts(configs, &state.configs);
        if !drifts.is_empty() {
            let text = drifts.iter().map(|drift| drift.text.as_str()).collect::<Vec<_>>().join(", ");
            let changes = drifts.into_iter().map(|drift| drift.change).collect();
            actions.push(Action::AlterConfigs { name: name.clone(), changes, text });
        }
        let replication = self.replication(&mut actions);
        let report = if wanted < has {
            let message = format!(
                "topic {name} has {has} partitions, the spec says {wanted}: partitions can't be taken away; set spec.partitions to {has}"
            );
            not_ready(Reason::NotSupported, message)
        } else if let Some(report) = replication {
            report
        } else if actions.is_empty() {
            let message = format!("topic {name} is as declared: {has} partitions, {} settings", configs.len());
            ConditionReport::new(ConditionType::Ready, true, Reason::AsSpecified, message)
        } else {
            let texts: Vec<String> = actions.iter().map(ToString::to_string).collect();
            unknown(Reason::Pending, texts.join("; "))
        };
        let is_settled = actions.is_empty() && state.replication.moving == 0;
        let pause = if is_settled { pace.settled } else { PROGRESS.min(pace.resync) };
        let draft = Draft { topic, state: Some(state), report, requeue: Requeue::After(pause) };
        let mut plan = draft.into_plan(actions, now);
        if topic.status.as_ref().is_none_or(|status| status.topic_name.is_none() && status.topic_id.is_none()) {
            plan.notes.push(Note::normal(
                Reason::TopicAdopted,
                format!("topic {name} existed before and is kept as declared from now on"),
            ));
        }
        Plan { is_settled, ..plan }
    }

    /// What is to be said about replicas, if they are not as declared, and the action that makes them so.
    fn replication(&self, actions: &mut Vec<Action>) -> Option<ConditionReport> {
        let factor = self.topic.spec.replication_factor?;
        let (name, has) = (&self.observed.topic_name, self.state.replication);
        if has.is_to_be(factor) {
            let (moving, all) = (has.moving, self.state.partitions);
            let message =
                format!("topic {name} gets {factor} replicas: {} of {all} partitions have them", all - moving);
            return (moving > 0).then(|| unknown(Reason::Reassigning, message));
        }
        let placement = match self.observed.placement.as_ref()? {
            Ok(placement) => placement,
            Err(why) => {
                return Some(unknown(Reason::KafkaError, format!("replicas of topic {name} are not known: {why}")));
            }
        };
        let (wanted, hosts) = (usize::try_from(factor).unwrap_or(usize::MAX), placement.hosts.len());
        if hosts < wanted {
            let message = format!(
                "topic {name} has replication factor {}, the spec says {factor}, and there are {hosts} brokers: add brokers or set spec.replicationFactor to at most {hosts}",
                has.now
            );
            return Some(not_ready(Reason::NotSupported, message));
        }
        let moves = placement::moves(name, &placement.partitions, &placement.hosts, wanted);
        if moves.is_empty() {
            return Some(unknown(Reason::Reassigning, format!("replicas of topic {name} are on their way elsewhere")));
        }
        let action = Action::Reassign { name: name.clone(), from: has.target_least, to: factor, moves };
        let report = unknown(Reason::Reassigning, action.to_string());
        actions.push(action);
        Some(report)
    }
}

/// What a Topic that is being deleted still has to do before its finalizer goes.
fn deletion(topic: &Topic, observed: &Observed, now: Timestamp) -> Plan {
    if !topic.finalizers().iter().any(|finalizer| finalizer == TOPIC_FINALIZER) {
        return Plan {
            actions: Vec::new(),
            status: None,
            notes: Vec::new(),
            requeue: Requeue::OnChange,
            is_settled: false,
        };
    }
    let (name, key) = (&observed.topic_name, &observed.cluster_key);
    let release = |note| Plan {
        actions: vec![Action::RemoveFinalizer(note)],
        status: None,
        notes: Vec::new(),
        requeue: Requeue::OnChange,
        is_settled: false,
    };
    // IMPORTANT: whether there is a cluster to ask comes before anything that needs it, or a namespace never goes.
    if let Some(owner) = &observed.owner {
        return release(Note::normal(
            Reason::TopicRetained,
            format!("topic {name} stays: it belongs to Topic {owner}"),
        ));
    }
    if topic.spec.effective_reclaim_policy() == ReclaimPolicy::Retain {
        return release(Note::normal(Reason::TopicRetained, format!("topic {name} stays, as spec.reclaimPolicy says")));
    }
    if is_paused(topic) {
        return release(Note::normal(Reason::TopicRetained, format!("topic {name} stays: spec.paused is true")));
    }
    let waiting = |reason, message| {
        let report = not_ready(reason, message);
        Draft { topic, state: None, report, requeue: Requeue::Backoff }.into_plan(Vec::new(), now)
    };
    match &observed.cluster {
        ClusterSeen::Missing => release(Note::warning(
            Reason::ClusterGone,
            format!("Cluster {key} does not exist: topic {name} was not deleted"),
        )),
        ClusterSeen::Deleting => release(Note::warning(
            Reason::ClusterGone,
            format!("Cluster {key} is being deleted: topic {name} was not deleted by itself"),
        )),
        ClusterSeen::NotAllowed => release(Note::warning(
            Reason::ClusterNotAllowed,
            format!("Cluster {key} does not admit this namespace: topic {name} was not deleted"),
        )),
        ClusterSeen::Unreachable(why) if observed.namespace_is_terminating => release(Note::warning(
            Reason::ClusterNotReachable,
            format!(
                "the namespace is being deleted and brokers of Cluster {key} can't be reached ({why}): topic {name} was not deleted"
            ),
        )),
        ClusterSeen::Unreachable(why) => waiting(
            Reason::ClusterNotReachable,
            format!(
                "topic {name} can't be deleted, brokers of Cluster {key} can't be reached: {why}; set spec.reclaimPolicy to Retain to let this object go and keep the topic"
            ),
        ),
        ClusterSeen::Reached(seen) => match &**seen {
            TopicSeen::Absent => release(Note::normal(Reason::TopicDeleted, format!("topic {name} is deleted"))),
            TopicSeen::Present(_) => Plan {
                actions: vec![Action::DeleteTopic { name: name.clone() }],
                status: None,
                notes: Vec::new(),
                requeue: Requeue::After(UNSETTLED),
                is_settled: false,
            },
            TopicSeen::Refused(why) => waiting(Reason::KafkaError, why.clone()),
        },
    }
}
