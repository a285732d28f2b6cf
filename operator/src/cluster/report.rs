//! The status of a Cluster: what was observed, in the API's terms. Nothing in it changes by itself on a cluster at rest.

use std::collections::BTreeMap;

use forebay_broker_config::status::{BrokerState as Reported, BrokerStatus as Status};
use forebay_crds::cluster::{BrokerState, BrokerStatus};
use forebay_crds::{Cluster, ClusterStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;

use super::build::{self, Defaults, KAFKA_PORT};
use super::observe::{Observed, PodSeen};
use super::{page_cache, tuning};

pub(crate) fn status(
    cluster: &Cluster,
    observed: &Observed,
    defaults: &Defaults,
    conditions: Vec<Condition>,
) -> ClusterStatus {
    let (name, namespace) = (cluster.name_any(), cluster.namespace().unwrap_or_default());
    let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let threads = build::threads(&cluster.spec);
    let reported = observed.reports.values().filter_map(|report| report.as_ref().ok());
    let known = cluster.status.as_ref().and_then(|status| status.cluster_id.clone());
    ClusterStatus {
        observed_generation: cluster.metadata.generation,
        replicas: Some(count(observed.pods.len())),
        ready_replicas: Some(count(observed.pods.iter().filter(|pod| pod.ready && !pod.deleting).count())),
        bootstrap_servers: Some(format!("{}.{namespace}.svc:{KAFKA_PORT}", build::bootstrap_service_name(&name))),
        cluster_id: reported.map(|status| status.cluster_id.clone()).find(|id| !id.is_empty()).or(known),
        image: Some(cluster.spec.image.clone().unwrap_or_else(|| defaults.broker_image.clone())),
        threads: (threads != forebay_crds::cluster::Threads::default()).then_some(threads),
        reclaim_policy: Some(cluster.spec.effective_reclaim_policy()),
        draining: Vec::new(),
        removing_disks: Vec::new(),
        rebalancing: false,
        listeners: Vec::new(),
        tuning_record: Vec::new(),
        tuned: BTreeMap::new(),
        brokers: observed.pods.iter().map(|pod| broker(cluster, pod, observed.reports.get(&pod.name))).collect(),
        conditions,
    }
}

fn broker(cluster: &Cluster, pod: &PodSeen, report: Option<&Result<Status, String>>) -> BrokerStatus {
    let status = report.and_then(|report| report.as_ref().ok());
    let state = match (pod.deleting, status.map(|status| status.state), &pod.node) {
        (true, _, _) | (_, Some(Reported::Stopping), _) => BrokerState::Stopping,
        (_, Some(Reported::Recovering), _) => BrokerState::Recovering,
        (_, Some(Reported::Running), _) if pod.ordinal >= cluster.spec.replicas => BrokerState::Draining,
        (_, Some(Reported::Running), _) => BrokerState::Running,
        (_, Some(Reported::Starting), _) | (_, None, Some(_)) => BrokerState::Starting,
        (_, None, None) => BrokerState::Pending,
    };
    BrokerStatus {
        id: pod.ordinal,
        pod: pod.name.clone(),
        node: pod.node.clone(),
        state,
        message: if pod.ready { None } else { pod.message.clone() },
        version: status.map(|status| status.version.clone()),
        tuning: status.map(|status| tuning::checks(&cluster.spec, status, &pod.rack)).unwrap_or_default(),
        threads: status.map(tuning::threads_in_force),
        nofile: status.map(tuning::nofile),
        flush: status.map(tuning::flush),
        kernel: status.map(tuning::kernel),
        disks: status.map(tuning::disks).unwrap_or_default(),
        cores: status.map(|status| status.cores),
        memory_limit_bytes: status.and_then(|s| s.memory_limit_bytes).and_then(|bytes| i64::try_from(bytes).ok()),
        // It grows by itself, and so it is told only where somebody goes by it.
        peak_memory_bytes: status.filter(|_| cluster.spec.page_cache.is_some()).and_then(page_cache::peak_bytes),
    }
}

/// Brokers that read their logs, by pod: how far they are.
pub(crate) fn recovering(observed: &Observed) -> BTreeMap<String, String> {
    let all = observed.reports.iter().filter_map(|(pod, report)| Some((pod, report.as_ref().ok()?)));
    let recovering = all.filter(|(_, status)| status.state == Reported::Recovering);
    recovering.map(|(pod, status)| (pod.clone(), progress(pod, status))).collect()
}

/// How far a broker that is not ready has come.
pub(crate) fn progress(pod: &str, status: &Status) -> String {
    match (status.state, &status.recovery) {
        (Reported::Recovering, Some(recovery)) => {
            format!("{pod} recovers: {} of {} partitions", recovery.partitions_done, recovery.partitions_total)
        }
        (Reported::Recovering, None) => format!("{pod} recovers"),
        (Reported::Stopping, _) => format!("{pod} is stopping"),
        (Reported::Starting | Reported::Running, _) => format!("{pod} starts"),
    }
}
