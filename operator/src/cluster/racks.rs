//! Racks: a broker registers with the rack that its pod's label names, and waits for the label when it starts. The operator copies it from
//! the node; where there is none it says so, so that the broker waits no longer.
//!
//! What must always hold: a pod is told once; what could only not be looked at is looked at again.

use forebay_crds::Cluster;
use forebay_crds::cluster::Rack;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, Client, ResourceExt};

use super::build::NO_RACK_ANNOTATION;
use super::lost;
use super::observe::{Observed, PodSeen};
use super::plan::Action;

/// The rack of a pod's node, by the label that the Cluster names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum RackSeen {
    /// None is asked for, or the pod has no node yet.
    #[default]
    None,
    /// The pod has the label.
    OnPod(String),
    /// The node has the label, and the pod does not have it yet.
    OnNode(String),
    /// The node has no such label.
    Nowhere(NoRack),
    /// The operator may not look.
    Forbidden(NoRack),
    /// The operator could not look this time; the text says why.
    Unknown(String),
}

/// Why there is no rack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NoRack {
    pub(crate) why: String,
    /// Its pod says so.
    pub(crate) is_told: bool,
}

/// Looks for the rack of each pod.
pub(crate) async fn look(client: &Client, rack: &Rack, live: &[Pod], pods: &mut [PodSeen]) {
    for pod in pods {
        let Some(live) = live.iter().find(|live| live.name_any() == pod.name) else { continue };
        let is_told = live.annotations().contains_key(NO_RACK_ANNOTATION);
        pod.rack = match live.labels().get(&rack.node_label).filter(|rack| !rack.is_empty()) {
            Some(rack) => RackSeen::OnPod(rack.clone()),
            None => of_node(client, pod.node.as_deref(), &rack.node_label, is_told).await,
        };
    }
}

async fn of_node(client: &Client, node: Option<&str>, label: &str, is_told: bool) -> RackSeen {
    let Some(name) = node else { return RackSeen::None };
    match Api::<Node>::all(client.clone()).get_opt(name).await {
        Ok(node) => match node.and_then(|node| node.labels().get(label).filter(|rack| !rack.is_empty()).cloned()) {
            Some(rack) => RackSeen::OnNode(rack),
            None => RackSeen::Nowhere(NoRack { why: format!("node {name} has no label {label}"), is_told }),
        },
        Err(error) if lost::is_forbidden(&error) => {
            RackSeen::Forbidden(NoRack { why: lost::unreadable(&error), is_told })
        }
        Err(error) => RackSeen::Unknown(lost::unreadable(&error)),
    }
}

/// What pods are to be told.
pub(crate) fn step(cluster: &Cluster, observed: &Observed) -> Vec<Action> {
    let Some(rack) = &cluster.spec.rack else { return Vec::new() };
    let told = |pod: &PodSeen| {
        let (name, uid) = (pod.name.clone(), pod.uid.clone());
        match &pod.rack {
            RackSeen::OnNode(value) => {
                Some(Action::LabelPod { name, uid, label: rack.node_label.clone(), value: value.clone() })
            }
            RackSeen::Nowhere(NoRack { why, is_told: false }) | RackSeen::Forbidden(NoRack { why, is_told: false }) => {
                Some(Action::TellNoRack { name, uid, why: why.clone() })
            }
            _ => None,
        }
    };
    observed.pods.iter().filter(|pod| !pod.deleting).filter_map(told).collect()
}
