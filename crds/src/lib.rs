//! The API that people write: group `forebay.dev`, version `v1alpha1`.
//!
//! - `cluster`: brokers and what they run on. A Topic and a ConsumerProfile name theirs in `clusterRef`.
//! - `topic`: one Kafka topic of a Cluster.
//! - `consumer_profile`: the goals of one consumer group; the operator answers with client settings and verdicts.
//! - `solver_request`: what a ConsumerProfile asks the solver; `quantity`: how Kubernetes writes amounts.
//! - `conditions`: the closed sets of condition types and reasons that the three statuses use.
//!
//! What must always hold: no schema default in a spec (a stored default can't be corrected by a later release; effective values
//! are in the status); an object that no operator has looked at says so; no unsigned integer formats (the API server warns about them), and `yaml/` is what `crds()` gives.

#![expect(
    unreachable_pub,
    reason = "KubeSchema derives from a private copy of each struct, which keeps its visibility"
)]

pub mod cluster;
pub mod conditions;
pub mod consumer_profile;
pub mod quantity;
pub mod solver_request;
pub mod topic;
mod values;

pub use cluster::{Cluster, ClusterSpec, ClusterStatus};
pub use conditions::{ConditionReport, ConditionState, ConditionType, Reason};
pub use consumer_profile::{ConsumerProfile, ConsumerProfileSpec, ConsumerProfileStatus};
pub use topic::{Topic, TopicSpec, TopicStatus};
pub use values::{ClusterRef, ConfigMap, ConfigValue, ReclaimPolicy};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSON};
use kube::CustomResourceExt;

/// The API group of all kinds.
pub const GROUP: &str = "forebay.dev";

/// On a Topic: keeps the object until its topic is deleted or let go.
pub const TOPIC_FINALIZER: &str = "forebay.dev/topic";

/// The label that every child of a Cluster carries, with the Cluster's name.
pub const CLUSTER_LABEL: &str = "forebay.dev/cluster";

/// The definitions to install, each with the name of its file in `yaml/`.
pub fn crds() -> Vec<(&'static str, CustomResourceDefinition)> {
    let definitions = [
        ("forebay.dev_clusters.yaml", Cluster::crd()),
        ("forebay.dev_topics.yaml", Topic::crd()),
        ("forebay.dev_consumerprofiles.yaml", ConsumerProfile::crd()),
    ];
    definitions.into_iter().map(|(file, definition)| (file, not_observed_at_first(definition))).collect()
}

/// Lets a status that nobody has written say that it answers no generation. Without it, whatever waits for an object by the rules
/// that all kinds share (kstatus: Helm, Flux, Argo CD) takes one without a status for done right after it was applied.
fn not_observed_at_first(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    let schemas = definition.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut());
    let fields = schemas.filter_map(|schema| schema.open_api_v3_schema.as_mut()?.properties.as_mut());
    for status in fields.filter_map(|fields| fields.get_mut("status")) {
        status.default = Some(JSON(serde_json::json!({"observedGeneration": -1})));
    }
    definition
}
