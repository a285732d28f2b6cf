//! The children of a Cluster, one resource a file. Pure: from the Cluster and what the operator was told to objects.

pub(crate) mod config_map;
pub(crate) mod labels;
pub(crate) mod listeners;
mod network_policy;
mod pod;
mod pod_disruption_budget;
mod services;
mod stateful_set;

use forebay_crds::Cluster;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use kube::{Resource, ResourceExt};

pub(crate) use config_map::ConfigProblem;
pub(crate) use pod::{CHECKSUM_ANNOTATION, NO_RACK_ANNOTATION, RESTARTED_FOR_ANNOTATION};
pub(crate) use stateful_set::threads;

use super::settled::Settled;
use crate::kube::apply::Child;
use crate::reconcile::ReconcileError;

/// Port of the Kafka listener.
pub(crate) const KAFKA_PORT: i32 = 9092;
/// Port on which the brokers of a cluster of several listen to each other.
pub(crate) const CONTROLLER_PORT: i32 = 9093;
/// Port of metrics, probes and status.
pub(crate) const HTTP_PORT: i32 = 9644;

/// On a Cluster: each new value restarts all brokers once, one after the other. On a broker's pod: restarts it.
pub(crate) const RESTART_ANNOTATION: &str = "forebay.dev/restart";

/// What the operator was told and a child may depend on.
#[derive(Clone, Debug)]
pub(crate) struct Defaults {
    pub(crate) broker_image: String,
    pub(crate) cluster_domain: String,
}

/// Names of the children of a Cluster.
pub(crate) fn broker_set_name(cluster: &str) -> String {
    format!("{cluster}-broker")
}

pub(crate) fn headless_service_name(cluster: &str) -> String {
    format!("{cluster}-brokers")
}

pub(crate) fn bootstrap_service_name(cluster: &str) -> String {
    format!("{cluster}-bootstrap")
}

pub(crate) fn config_map_name(cluster: &str) -> String {
    format!("{cluster}-broker-config")
}

/// The DNS name of a broker's pod; `pod` may stand for it.
pub(crate) fn broker_host(cluster: &Cluster, defaults: &Defaults, pod: &str) -> String {
    let (service, namespace) = (headless_service_name(&cluster.name_any()), cluster.namespace().unwrap_or_default());
    format!("{pod}.{service}.{namespace}.svc.{}", defaults.cluster_domain)
}

/// Whether there are several brokers, which then listen to each other.
pub(crate) fn is_replicated(cluster: &Cluster) -> bool {
    cluster.spec.replicas > 1
}

/// Metadata of a child: named, labelled, owned. Labels of the Cluster itself are not copied: tools that track objects by
/// label would take the children for their own, and remove them.
fn metadata(cluster: &Cluster, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: cluster.namespace(),
        labels: Some(labels::of(&cluster.name_any())),
        owner_references: owner(cluster).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

fn owner(cluster: &Cluster) -> Option<OwnerReference> {
    cluster.controller_owner_ref(&())
}

/// All children, in the order in which they are applied: the StatefulSet last, so that its pods find the rest.
pub(crate) fn children(cluster: &Cluster, defaults: &Defaults, settled: &Settled) -> Result<Vec<Child>, BuildError> {
    let note = settled.removal.note(cluster);
    // Disks that are being removed are there until they are empty.
    let cluster = &settled.removal.in_force(cluster);
    let settings = config_map::broker_settings(cluster, defaults, settled)?;
    let config_map = config_map::build(cluster, &settings, note);
    let mut children = vec![
        Child::new(&config_map)?,
        Child::new(&services::headless(cluster))?,
        Child::new(&services::bootstrap(cluster))?,
        Child::new(&pod_disruption_budget::build(cluster, settled))?,
    ];
    for service in listeners::services(cluster, settled.replicas(cluster)) {
        children.push(Child::new(&service)?);
    }
    if let Some(policy) = network_policy::build(cluster) {
        children.push(Child::new(&policy)?);
    }
    children.push(Child::new(&stateful_set::build(cluster, defaults, settled, &settings))?);
    Ok(children)
}

/// Why there are no children.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildError {
    /// The configuration is wrong: the user's to mend.
    #[error(transparent)]
    Config(#[from] ConfigProblem),
    /// A child can't be written.
    #[error(transparent)]
    Write(#[from] ReconcileError),
}
