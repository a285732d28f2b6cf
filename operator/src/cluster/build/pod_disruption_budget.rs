//! At most one broker is evicted at a time, and none that runs while a replica is not in sync or a broker is missing; one
//! that is not ready may always go, or a drain of its node would wait for it for ever.

use forebay_crds::Cluster;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use super::{broker_set_name, labels, metadata};
use crate::cluster::settled::Settled;

pub(super) fn build(cluster: &Cluster, settled: &Settled) -> PodDisruptionBudget {
    let name = cluster.name_any();
    PodDisruptionBudget {
        metadata: metadata(cluster, broker_set_name(&name)),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(i32::from(!settled.holds_evictions))),
            selector: Some(labels::selector(&name)),
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    }
}
