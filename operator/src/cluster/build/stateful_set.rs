//! The StatefulSet: all brokers at once (Parallel), replaced by the operator (OnDelete), claims kept or deleted as the
//! reclaim policy says.

use forebay_broker_config::Settings;
use forebay_crds::cluster::{Disk, Threads};
use forebay_crds::quantity::quantity;
use forebay_crds::{Cluster, ClusterSpec, ReclaimPolicy};
use k8s_openapi::api::apps::v1::{
    StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec, StatefulSetUpdateStrategy,
};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements};
use kube::ResourceExt;
use kube::core::ObjectMeta;

use super::{Defaults, broker_set_name, headless_service_name, labels, metadata, pod};
use crate::cluster::settled::Settled;

/// Thread counts: what the spec says, and what follows from the CPU limit. What neither says is left to each broker, which
/// goes by the cores it finds.
pub(crate) fn threads(spec: &ClusterSpec) -> Threads {
    let stated = spec.threads.clone().unwrap_or_default();
    let limits = spec.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    let cpu = limits.and_then(|limits| limits.get("cpu")).and_then(|cpu| quantity(&cpu.0));
    let cores = cpu.map(|thousandths| usize::try_from((thousandths + 999) / 1000).unwrap_or(1).max(1));
    let none = forebay_broker_config::Threads {
        network: None,
        io: None,
        recovery_per_data_dir: 1,
        background: 1,
        replica_fetchers: 1,
        replica_alter_log_dirs: None,
    };
    let computed = cores.map(|cores| none.in_force(cores));
    let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    Threads {
        network: stated.network.or(computed.map(|threads| count(threads.network))),
        io: stated.io.or(computed.map(|threads| count(threads.io.max(spec.disks.len())))),
        replica_fetchers: stated.replica_fetchers,
    }
}

pub(super) fn build(cluster: &Cluster, defaults: &Defaults, settled: &Settled, settings: &Settings) -> StatefulSet {
    let name = cluster.name_any();
    let when_deleted = match cluster.spec.effective_reclaim_policy() {
        ReclaimPolicy::Delete => "Delete",
        ReclaimPolicy::Retain => "Retain",
    };
    StatefulSet {
        metadata: metadata(cluster, broker_set_name(&name)),
        spec: Some(StatefulSetSpec {
            replicas: Some(settled.replicas(cluster)),
            service_name: Some(headless_service_name(&name)),
            pod_management_policy: Some("Parallel".to_owned()),
            update_strategy: Some(StatefulSetUpdateStrategy {
                type_: Some("OnDelete".to_owned()),
                rolling_update: None,
            }),
            selector: labels::selector(&name),
            template: pod::template(cluster, defaults, settled, settings),
            volume_claim_templates: Some(cluster.spec.disks.iter().map(|disk| claim(&name, disk)).collect()),
            persistent_volume_claim_retention_policy: Some(StatefulSetPersistentVolumeClaimRetentionPolicy {
                when_deleted: Some(when_deleted.to_owned()),
                when_scaled: Some("Retain".to_owned()),
            }),
            ..StatefulSetSpec::default()
        }),
        ..StatefulSet::default()
    }
}

fn claim(cluster: &str, disk: &Disk) -> PersistentVolumeClaim {
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(disk.name.clone()),
            labels: Some(labels::of(cluster)),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: disk.storage_class_name.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some([("storage".to_owned(), disk.size.clone())].into()),
                limits: None,
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        ..PersistentVolumeClaim::default()
    }
}
