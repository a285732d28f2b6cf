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
use crate::kafka::{TopicSeen, TopicState};
use crate::kube::events::Note;
use crate::kube::status;
use crate::reconcile::Requeue;

/// One change, to the object or to the brokers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    AddFinalizer,
    RemoveFinalizer(Note),
    Create { name: String, partitions: i32, replication_factor: i16, configs: BTreeMap<String, String> },
    AddPartitions { name: String, from: i32, to: i32 },
    AlterConfigs { name: String, changes: Vec<ConfigChange>, text: String },
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
}

/// A topic that this operator has just changed is looked at again soon: a change may take a moment to be seen.
const UNSETTLED: Duration = Duration::from_secs(2);

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
        let is_deleting = topic.metadata.deletion_timestamp.is_some();
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
            replication_factor: state.map(|state| state.replication_factor).or(previous.replication_factor),
            reclaim_policy: Some(self.topic.spec.effective_reclaim_policy()),
            conditions,
        };
        Plan { actions, status: Some(status), notes, requeue: self.requeue }
    }
}

fn not_ready(reason: Reason, message: impl Into<String>) -> ConditionReport {
    ConditionReport::new(ConditionType::Ready, false, reason, message)
}

pub(crate) fn plan(topic: &Topic, observed: &Observed, resync: Duration, now: Timestamp) -> Plan {
    if topic.metadata.deletion_timestamp.is_some() {
        return deletion(topic, observed, now);
    }
    let draft = |report, requeue| Draft { topic, state: None, report, requeue };
    let key = &observed.cluster_key;
    if let Some(owner) = &observed.owner {
        let message =
            format!("topic {} belongs to the older Topic {owner}; delete one of the two", observed.topic_name);
        return draft(not_ready(Reason::ResourceConflict, message), Requeue::After(resync)).into_plan(Vec::new(), now);
    }
    let seen = match &observed.cluster {
        ClusterSeen::Missing => {
            let report = not_ready(Reason::ClusterNotFound, format!("Cluster {key} does not exist"));
            return draft(report, Requeue::Backoff).into_plan(Vec::new(), now);
        }
        ClusterSeen::Deleting => {
            let report = not_ready(Reason::ClusterGone, format!("Cluster {key} is being deleted"));
            return draft(report, Requeue::Backoff).into_plan(Vec::new(), now);
        }
        ClusterSeen::NotAllowed => {
            let message =
                format!("Cluster {key} does not admit Topics of this namespace: add it to its spec.allowedNamespaces");
            return draft(not_ready(Reason::ClusterNotAllowed, message), Requeue::Backoff).into_plan(Vec::new(), now);
        }
        ClusterSeen::Unreachable(why) => {
            let message = format!("brokers of Cluster {key} can't be reached: {why}");
            let report = ConditionReport::new(
                ConditionType::Ready,
                ConditionState::Unknown,
                Reason::ClusterNotReachable,
                message,
            );
            return draft(report, Requeue::Backoff).into_plan(Vec::new(), now);
        }
        ClusterSeen::Reached(seen) => seen,
    };
    let configs = match config::validated(&topic.spec.config) {
        Ok(configs) => configs,
        Err(message) => {
            return draft(not_ready(Reason::InvalidConfig, message), Requeue::After(resync)).into_plan(Vec::new(), now);
        }
    };
    let mut plan = match seen {
        TopicSeen::Absent => creation(topic, observed, configs, now),
        TopicSeen::Present(state) => upkeep(topic, observed, state, &configs, resync, now),
        TopicSeen::Refused(why) => {
            draft(not_ready(Reason::KafkaError, why), Requeue::Backoff).into_plan(Vec::new(), now)
        }
    };
    // IMPORTANT: first. Without it a topic made now would be left behind by a deletion that comes next.
    if !topic.finalizers().iter().any(|finalizer| finalizer == TOPIC_FINALIZER) {
        plan.actions.insert(0, Action::AddFinalizer);
    }
    plan
}

fn creation(topic: &Topic, observed: &Observed, configs: BTreeMap<String, String>, now: Timestamp) -> Plan {
    let create = Action::Create {
        name: observed.topic_name.clone(),
        partitions: topic.spec.partitions,
        replication_factor: topic.spec.replication_factor.and_then(|f| i16::try_from(f).ok()).unwrap_or(-1),
        configs,
    };
    let report = ConditionReport::new(
        ConditionType::Ready,
        ConditionState::Unknown,
        Reason::Pending,
        format!("topic {} is being created", observed.topic_name),
    );
    Draft { topic, state: None, report, requeue: Requeue::After(UNSETTLED) }.into_plan(vec![create], now)
}

fn upkeep(
    topic: &Topic,
    observed: &Observed,
    state: &TopicState,
    configs: &BTreeMap<String, String>,
    resync: Duration,
    now: Timestamp,
) -> Plan {
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
    let report = if wanted < has {
        let message = format!(
            "topic {name} has {has} partitions, the spec says {wanted}: partitions can't be taken away; set spec.partitions to {has}"
        );
        not_ready(Reason::NotSupported, message)
    } else if let Some(factor) = topic.spec.replication_factor.filter(|factor| *factor != state.replication_factor) {
        let message = format!(
            "topic {name} has replication factor {}, the spec says {factor}: changing it is not supported; set spec.replicationFactor to {} or create a second Topic",
            state.replication_factor, state.replication_factor
        );
        not_ready(Reason::NotSupported, message)
    } else if actions.is_empty() {
        let message = format!("topic {name} is as declared: {has} partitions, {} settings", configs.len());
        ConditionReport::new(ConditionType::Ready, true, Reason::AsSpecified, message)
    } else {
        let texts: Vec<String> = actions.iter().map(ToString::to_string).collect();
        ConditionReport::new(ConditionType::Ready, ConditionState::Unknown, Reason::Pending, texts.join("; "))
    };
    let mut plan = Draft { topic, state: Some(state), report, requeue: Requeue::After(resync) }.into_plan(actions, now);
    let known = topic.status.as_ref().and_then(|status| status.topic_id.as_deref());
    let was_made_here = topic.status.as_ref().is_some_and(|status| status.topic_name.is_some());
    if known.is_none() && !was_made_here {
        plan.notes.push(Note::normal(
            Reason::TopicAdopted,
            format!("topic {name} existed before and is kept as declared from now on"),
        ));
    }
    plan
}

/// What a Topic that is being deleted still has to do before its finalizer goes.
fn deletion(topic: &Topic, observed: &Observed, now: Timestamp) -> Plan {
    if !topic.finalizers().iter().any(|finalizer| finalizer == TOPIC_FINALIZER) {
        return Plan { actions: Vec::new(), status: None, notes: Vec::new(), requeue: Requeue::OnChange };
    }
    let (name, key) = (&observed.topic_name, &observed.cluster_key);
    let release = |note| Plan {
        actions: vec![Action::RemoveFinalizer(note)],
        status: None,
        notes: Vec::new(),
        requeue: Requeue::OnChange,
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
        ClusterSeen::Reached(TopicSeen::Absent) => {
            release(Note::normal(Reason::TopicDeleted, format!("topic {name} is deleted")))
        }
        ClusterSeen::Reached(TopicSeen::Present(_)) => Plan {
            actions: vec![Action::DeleteTopic { name: name.clone() }],
            status: None,
            notes: Vec::new(),
            requeue: Requeue::After(UNSETTLED),
        },
        ClusterSeen::Reached(TopicSeen::Refused(why)) => waiting(Reason::KafkaError, why.clone()),
    }
}
