//! A broker whose local disk is lost with its node: said, and, where the spec asks for it, begun anew on another node. Pure.
//!
//! What must always hold: a claim is only given up when the node of its volume is off Kubernetes' list for a while, every other broker
//! serves, and every partition of the broker has what it needs in sync on others; one broker at a time.

use std::time::Duration;

use forebay_crds::cluster::OnNodeLost;
use forebay_crds::{Cluster, Reason};
use k8s_openapi::jiff::Timestamp;

use super::observe::{Observed, PodSeen};
use super::plan::{Action, Steps};
use crate::kafka::brokers::{BrokersSeen, PartitionSeen};

/// A node that registers again within this, as after a reboot, has been there all the time.
const GONE_FOR: Duration = Duration::from_secs(60);

/// What a pod that can't be placed has lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LostSeen {
    /// The nodes that its volume could be used on.
    pub(crate) nodes: Vec<String>,
    /// The claims that are bound to volumes there: name, uid.
    pub(crate) claims: Vec<(String, String)>,
}

fn replaces(cluster: &Cluster) -> bool {
    cluster.spec.on_node_lost == Some(OnNodeLost::Replace)
}

/// Whether brokers are to be asked what would be missing.
pub(crate) fn asks_brokers(cluster: &Cluster, observed: &Observed) -> bool {
    replaces(cluster) && observed.pods.iter().any(|pod| pod.lost.is_some())
}

/// Says what is lost, and replaces the first of it when nothing speaks against it.
pub(crate) fn step(steps: &mut Steps, cluster: &Cluster, observed: &Observed, now: Timestamp) {
    let mut acted = false;
    for pod in &observed.pods {
        let Some(lost) = &pod.lost else { continue };
        let names: Vec<&str> = lost.claims.iter().map(|(name, _)| name.as_str()).collect();
        let what =
            format!("{}: its disk {} is on node {}, which is gone", pod.name, names.join(", "), lost.nodes.join(", "));
        if !replaces(cluster) {
            let way_out = "If the node comes back, so does the broker. If not, and its partitions have other replicas: set spec.onNodeLost to Replace, or delete the claim, then the pod; the broker begins anew and copies them";
            steps.blockers.push((Reason::NodeLost, format!("{what}. {way_out}")));
            continue;
        }
        let against = if acted { Some("one at a time".to_owned()) } else { against(cluster, observed, pod, now) };
        let text = match &against {
            Some(why) => format!("{what}; its broker does not begin anew yet: {why}"),
            None => format!("{what}: its broker begins anew on another node"),
        };
        steps.blockers.push((Reason::NodeLost, text.clone()));
        if against.is_none() {
            acted = true;
            let (pod, uid, claims) = (pod.name.clone(), pod.uid.clone(), lost.claims.clone());
            steps.actions.push(Action::ReplaceDisk { pod, uid, claims, text });
        }
    }
}

/// What speaks against giving the disk up, if anything does.
fn against(cluster: &Cluster, observed: &Observed, pod: &PodSeen, now: Timestamp) -> Option<String> {
    let gone_for = pod.unplaced_since.map(|since| now.duration_since(since).unsigned_abs()).unwrap_or_default();
    if gone_for < GONE_FOR {
        return Some(format!("the node may come back within {} s", GONE_FOR.as_secs()));
    }
    let ready = |id: i32| observed.pods.iter().any(|pod| pod.ordinal == id && pod.ready && !pod.deleting);
    if let Some(id) = (0..cluster.spec.replicas).find(|id| *id != pod.ordinal && !ready(*id)) {
        return Some(format!("broker {id} is not ready"));
    }
    match &observed.brokers {
        None => Some("its records may be nowhere else".to_owned()),
        Some(Err(error)) => Some(format!("the brokers do not say what others have: {error}")),
        Some(Ok(brokers)) => missing(brokers, pod.ordinal, ready),
    }
}

/// What would be missing without the broker.
fn missing(brokers: &BrokersSeen, broker: i32, ready: impl Fn(i32) -> bool) -> Option<String> {
    let voting = brokers.voters.iter().filter(|id| **id != broker && ready(**id)).count();
    if voting * 2 <= brokers.voters.len() {
        return Some(format!("only {voting} others of {} that vote on metadata are ready", brokers.voters.len()));
    }
    let others = |partition: &PartitionSeen| partition.in_sync.iter().filter(|id| **id != broker).count();
    // One without a replica to spare can't have as many as it needs on the others.
    let needed =
        |partition: &PartitionSeen| partition.min_in_sync.min(partition.replicas.len().saturating_sub(1)).max(1);
    let mine = brokers.partitions.iter().filter(|partition| partition.replicas.contains(&broker));
    let mut short = mine.filter(|partition| others(partition) < needed(partition));
    let first = short.next()?;
    let more = match short.count() {
        0 => String::new(),
        more => format!(" (and {more} more partitions too few)"),
    };
    let (topic, index, has, needs) = (&first.topic, first.index, others(first), needed(first));
    Some(format!("{topic}-{index} has {has} in-sync replicas on other brokers of the {needs} that it needs{more}"))
}
