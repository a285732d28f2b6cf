//! Condition types and reasons: closed sets, so that tools can wait for them and dashboards can count them.
//!
//! What must always hold: every kind reports `Ready` from the first reconcile on, each condition carries the generation
//! it was judged at, and `lastTransitionTime` moves only when the status flips.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// What a condition is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionType {
    /// The object does what its spec says. All kinds.
    Ready,
    /// Work is under way: a pod starts, a roll, a disk's growth or its removal goes on. Cluster.
    Progressing,
    /// What the running brokers report (threads, nofile, mount options, kernel, flush policy) is what the spec wants. Cluster.
    TuningInForce,
    /// Every claim has the size that the spec wants. Cluster.
    DisksInForce,
    /// No disk is about to be full. Cluster.
    DisksHaveRoom,
    /// Every broker has an address on each of `spec.listeners`, and tells it. Cluster with listeners.
    ListenersReady,
}

impl ConditionType {
    /// The name in `status.conditions[].type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Progressing => "Progressing",
            Self::TuningInForce => "TuningInForce",
            Self::DisksInForce => "DisksInForce",
            Self::DisksHaveRoom => "DisksHaveRoom",
            Self::ListenersReady => "ListenersReady",
        }
    }
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionState {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Not known yet.
    Unknown,
}

impl ConditionState {
    /// The name in `status.conditions[].status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionState {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Why a condition has its status, and why an Event was written.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason { $($(#[doc = $doc])+ $name,)+ }

        impl Reason {
            /// All reasons.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The name in `status.conditions[].reason`.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }
        }
    };
}

reasons! {
    /// All is as the spec says.
    AsSpecified,
    /// Nothing is known yet: the object has just been seen.
    Pending,
    /// `spec.paused` is set: the operator looks but does not act.
    Paused,
    /// The spec can't be carried out as written; the message names field, value and what would be right.
    InvalidSpec,
    /// A configuration name or value that brokers don't know.
    InvalidConfig,
    /// Asked for something this version can't do; the message says what to do instead.
    NotSupported,
    /// An object of the same name exists and belongs to someone else, or an older Topic owns the topic.
    ResourceConflict,
    /// The Cluster named in `clusterRef` does not exist.
    ClusterNotFound,
    /// The Cluster named in `clusterRef` does not admit objects of this namespace.
    ClusterNotAllowed,
    /// The Cluster exists but its brokers can't be reached yet.
    ClusterNotReachable,
    /// A topic named in the spec does not exist yet.
    TopicNotFound,
    /// The brokers refused a request; the message has their error.
    KafkaError,
    /// The Kubernetes API refused a request; the message has its error.
    KubernetesError,
    /// Brokers are starting or recovering their logs.
    BrokersStarting,
    /// A broker's pod is being replaced.
    Rolling,
    /// A claim is being enlarged.
    DiskResizing,
    /// A claim can't be enlarged; the message says why.
    DiskResizeRefused,
    /// A claim is larger than the spec says; it is left as it is.
    DiskLargerThanSpec,
    /// A disk has little room; the message says which, and what to do.
    DiskAlmostFull,
    /// The node of a broker's local disk is gone; the message says which, and what to do.
    NodeLost,
    /// No broker has reported what is in force.
    NotReported,
    /// What is in force differs from what is wanted; the message has both figures.
    DiffersFromSpec,
    /// Explicit settings break a rule; the message has the rule, the numbers and the largest value that works.
    SettingsRefused,
    /// No client settings can meet the goals; the message says what has to change.
    Unsatisfiable,
    /// Settings are valid, with warnings in `status.verdicts`.
    AcceptedWithWarnings,
    /// The topic was created.
    TopicCreated,
    /// A topic of that name existed before and is managed from now on.
    TopicAdopted,
    /// Partitions were added.
    PartitionsAdded,
    /// Partitions get replicas on other brokers or lose some; the message says how many are done.
    Reassigning,
    /// A configuration changed behind the operator's back was put back.
    DriftCorrected,
    /// The topic was deleted with its object.
    TopicDeleted,
    /// The object was let go and its topic left in place.
    TopicRetained,
    /// The object was let go because its cluster is gone.
    ClusterGone,
    /// The topic can't be deleted; the message has the brokers' error and the way out.
    DeleteRefused,
    /// A child object was created or changed.
    Applied,
    /// A broker's pod was deleted so that it comes back with the present spec.
    PodReplaced,
    /// A broker was restarted because its image changed.
    ImageChanged,
    /// A broker was restarted because settings changed that it reads at its start only.
    ConfigChanged,
    /// A broker was restarted because an annotation asked for it.
    RestartRequested,
    /// A broker was restarted because a disk of it has grown and its file system only does so when it is mounted anew.
    FileSystemGrows,
    /// Brokers are to go: their partitions move to the others.
    ScalingDown,
    /// A disk is being removed: what is on it moves to the other disks of its broker.
    RemovingDisk,
    /// A broker was restarted because a disk of it was removed, or the claims of a removed disk were let go.
    DiskRemoved,
    /// Partitions move to brokers that have fewer than their share.
    Rebalancing,
    /// Brokers are to be restarted, and wait for a maintenance window.
    MaintenanceWindow,
    /// Settings are being changed while the brokers run.
    ConfigPending,
    /// Settings were changed while the brokers run.
    ConfigApplied,
    /// Parameters were changed; the message has the reason that was given.
    TuningChanged,
    /// The effect of changed parameters is known; the message has the figures.
    TuningMeasured,
    /// A kernel setting of a node was set, as the Cluster wants it.
    NodeSettingChanged,
    /// A kernel setting of a node could not be set; the message has the file and the error.
    NodeSettingRefused,
    /// Clusters with brokers on one node want different values of a kernel setting: none is set.
    NodeSettingConflict,
    /// A restart leaves topics without a replica for a moment: they have none to spare.
    NoSpareReplica,
    /// An address on a listener is not known yet; the message says whose, and what stands in the way.
    AddressPending,
    /// A broker tells clients of a listener another address.
    AddressChanged,
    /// A child object that is wanted no more was deleted.
    Removed,
    /// The StatefulSet was recreated, its pods left running, because its claim templates changed.
    StatefulSetRecreated,
    /// The client settings changed.
    SettingsChanged,
}

/// One condition as a plan states it; `merge` turns it into what the API stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionReport {
    /// What it is about.
    pub condition_type: ConditionType,
    /// Whether it holds.
    pub state: ConditionState,
    /// Why.
    pub reason: Reason,
    /// For people: names the object in the way, with numbers.
    pub message: String,
}

impl ConditionReport {
    /// A condition with its reason and a message for people.
    pub fn new(
        condition_type: ConditionType,
        state: impl Into<ConditionState>,
        reason: Reason,
        message: impl Into<String>,
    ) -> Self {
        Self { condition_type, state: state.into(), reason, message: message.into() }
    }
}

/// The conditions to store: each report with its generation, and the old transition time where the status did not flip.
pub fn merge(previous: &[Condition], reports: &[ConditionReport], generation: i64, now: Timestamp) -> Vec<Condition> {
    let one = |report: &ConditionReport| {
        let kept = previous
            .iter()
            .find(|old| old.type_ == report.condition_type.as_str() && old.status == report.state.as_str())
            .map(|old| old.last_transition_time.clone());
        Condition {
            type_: report.condition_type.as_str().to_owned(),
            status: report.state.as_str().to_owned(),
            reason: report.reason.as_str().to_owned(),
            message: report.message.clone(),
            observed_generation: Some(generation),
            last_transition_time: kept.unwrap_or(Time(now)),
        }
    };
    reports.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(state: bool, message: &str) -> ConditionReport {
        ConditionReport::new(ConditionType::Ready, state, Reason::AsSpecified, message)
    }

    #[test]
    fn transition_time_moves_only_when_the_status_flips() {
        let (early, late) = (Timestamp::from_second(1).unwrap(), Timestamp::from_second(2).unwrap());
        let first = merge(&[], &[ready(false, "a")], 1, early);
        let same = merge(&first, &[ready(false, "b")], 2, late);
        assert_eq!((same[0].last_transition_time.0, same[0].message.as_str()), (early, "b"));
        assert_eq!(same[0].observed_generation, Some(2));
        assert_eq!(merge(&same, &[ready(true, "b")], 2, late)[0].last_transition_time.0, late);
    }
}
