//! All reads of a Cluster's reconcile: its children, claims and pods, what each broker says is in force, and, when a broker
//! is to be taken down, what the brokers say of their partitions.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use forebay_broker_config::Settings;
use forebay_broker_config::status::BrokerStatus;
use forebay_crds::Cluster;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, PodCondition, PodSpec, PodStatus, Service};
use k8s_openapi::api::{apps::v1::StatefulSet, policy::v1::PodDisruptionBudget};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ApiResource, ListParams};
use kube::{Client, ResourceExt};
use serde_json::Value;

use super::build::{self, RESTART_ANNOTATION, config_map, labels};
use super::disk_drain::removal::DISK_ANNOTATION;
use super::listeners::{self, Nodes};
use super::lost::{self, Lost};
use super::racks::{self, RackSeen};
use super::rebind::{self, LostSeen};
use super::roll::{self, Marks};
use super::scale::{self, BROKER_ANNOTATION};
use super::settled::Settled;
use super::{disk_drain, disks, dynamic, rebalance, windows};
use crate::context::Context;
use crate::kafka::KafkaCluster;
use crate::kafka::brokers::{self, BrokersSeen};
use crate::kafka::log_dirs::{self, DirsSeen};
use crate::kafka::moves::{self, MovesSeen};
use crate::kafka::status;
use crate::kube::apply;
use crate::reconcile::ReconcileError;

/// What there is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    /// Live children, by `Kind/name`.
    pub(crate) children: BTreeMap<String, Value>,
    pub(crate) claims: Vec<ClaimSeen>,
    pub(crate) pods: Vec<PodSeen>,
    /// Addresses of the nodes that pods are on; looked at only where a listener tells clients of nodes.
    pub(crate) nodes: Nodes,
    /// What brokers say, by pod; an error when one could not be read.
    pub(crate) reports: BTreeMap<String, Result<BrokerStatus, String>>,
    /// What the brokers say of the whole cluster; asked only when something is to be done that depends on it.
    pub(crate) brokers: Option<Result<BrokersSeen, String>>,
    /// What a scale-down or a rebalance goes by; asked only during one.
    pub(crate) moves: Option<Result<MovesSeen, String>>,
    /// What is on the brokers' disks; asked of those that have one that is being removed.
    pub(crate) dirs: DirsSeen,
    /// What is set on all brokers while they run; asked only where the file has such settings and a broker is ready.
    pub(crate) set_on_brokers: Option<Result<Settings, String>>,
    /// How long the number of replicas that are behind has been the same.
    pub(crate) unchanged_for: Duration,
}

/// A claim.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClaimSeen {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// The volume that it is bound to.
    pub(crate) volume: Option<String>,
    /// What has become of its broker (`scale::BROKER_ANNOTATION`).
    pub(crate) broker: Option<String>,
    /// What has become of its disk (`disk_drain::removal::DISK_ANNOTATION`).
    pub(crate) disk: Option<String>,
    pub(crate) requested: String,
    pub(crate) capacity: Option<String>,
    /// Since when its volume has grown and its file system waits to be mounted anew.
    pub(crate) unmounted_growth: Option<Timestamp>,
}

impl ClaimSeen {
    /// The broker of this Cluster that it belongs to.
    pub(crate) fn broker_id(&self, cluster: &str) -> Option<i32> {
        let (start, ordinal) = self.name.rsplit_once('-')?;
        let ours = start.ends_with(&format!("-{}", build::broker_set_name(cluster)));
        ordinal.parse().ok().filter(|_| ours)
    }
}

/// A broker's pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PodSeen {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// The broker's id.
    pub(crate) ordinal: i32,
    pub(crate) revision: String,
    pub(crate) node: Option<String>,
    pub(crate) ip: Option<IpAddr>,
    /// Its node's.
    pub(crate) host_ip: Option<IpAddr>,
    pub(crate) ready: bool,
    pub(crate) deleting: bool,
    /// The disks that it was made with, by name.
    pub(crate) disks: Vec<String>,
    /// What it was made from.
    pub(crate) marks: Marks,
    pub(crate) rack: RackSeen,
    /// It can't be placed, as the node of its disk is gone.
    pub(crate) lost: Option<LostSeen>,
    /// Since when it can't be placed.
    pub(crate) unplaced_since: Option<Timestamp>,
    /// Its annotation asks for a restart.
    pub(crate) restart_requested: bool,
    pub(crate) created: Option<Timestamp>,
    /// Claims whose file systems only grow when it is made anew.
    pub(crate) holds_growth_of: Vec<String>,
    /// Why it is not ready, in Kubernetes' words.
    pub(crate) message: Option<String>,
}

pub(crate) async fn observe(context: &Context, cluster: &Cluster, now: Timestamp) -> Result<Observed, ReconcileError> {
    let mut observed = kubernetes(&context.client, cluster, now).await?;
    let kafka = context.kafka_of(cluster);
    let file = observed.children.get(&format!("ConfigMap/{}", build::config_map_name(&cluster.name_any())));
    let any_ready = observed.pods.iter().any(|pod| pod.ready && !pod.deleting);
    if any_ready && !dynamic::of(&config_map::settings_of(file)).is_empty() {
        observed.set_on_brokers = Some(brokers::set_on_all(&kafka.admin).await);
    }
    let template = roll::template(cluster, &observed.children);
    let closed = windows::closed(&cluster.spec.maintenance_windows, now).is_some();
    let rolls =
        template.is_some_and(|template| roll::asks_brokers(&observed.pods, cluster.spec.replicas, &template, closed));
    let settled = Settled::of(cluster, &observed);
    observed.dirs = log_dirs::look(&kafka.admin, &disk_drain::step::asks_brokers(&settled, &observed)).await;
    let scales = any_ready && scale::asks_brokers(cluster, &settled, &observed);
    let moves = scales || (any_ready && rebalance::asks_brokers(cluster, &settled, &observed));
    let replaces = any_ready && rebind::asks_brokers(cluster, &observed);
    if rolls || moves || replaces {
        ask_brokers(&kafka, &mut observed).await;
    }
    if let (true, Some(Ok(seen))) = (moves, &observed.brokers) {
        let topics = seen.partitions.iter().map(|partition| partition.topic.as_str()).collect();
        observed.moves = Some(moves::look(&kafka.admin, &topics, &scale::leaving(cluster, &settled)).await);
    }
    Ok(observed)
}

async fn ask_brokers(kafka: &KafkaCluster, observed: &mut Observed) {
    let seen = brokers::look(&kafka.admin).await;
    if let Ok(seen) = &seen {
        let behind = roll::behind(&seen.partitions, &observed.pods);
        observed.unchanged_for = kafka.unchanged_for(behind, Instant::now());
    }
    observed.brokers = Some(seen);
}

async fn kubernetes(client: &Client, cluster: &Cluster, now: Timestamp) -> Result<Observed, ReconcileError> {
    let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    let wanted = [
        (ApiResource::erase::<StatefulSet>(&()), build::broker_set_name(&name)),
        (ApiResource::erase::<Service>(&()), build::headless_service_name(&name)),
        (ApiResource::erase::<Service>(&()), build::bootstrap_service_name(&name)),
        (ApiResource::erase::<ConfigMap>(&()), build::config_map_name(&name)),
        (ApiResource::erase::<PodDisruptionBudget>(&()), build::broker_set_name(&name)),
    ];
    let mut observed = Observed::default();
    for (resource, child) in wanted {
        if let Some(live) = apply::get(client, &namespace, &resource, &child).await? {
            observed.children.insert(format!("{}/{child}", resource.kind), live);
        }
    }
    listeners::observe::children(client, cluster, &mut observed.children).await?;
    let of_cluster = ListParams::default().labels(&labels::query(&name));
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace);
    let claims = claims.list(&of_cluster).await.map_err(ReconcileError::kube("list claims"))?;
    observed.claims = claims.iter().map(claim_seen).collect();
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let pods = pods.list(&of_cluster).await.map_err(ReconcileError::kube("list pods"))?;
    observed.pods = pods.iter().filter_map(pod_seen).collect();
    observed.pods.sort_by_key(|pod| pod.ordinal);
    if let Some(rack) = &cluster.spec.rack {
        racks::look(client, rack, &pods.items, &mut observed.pods).await;
    }
    for pod in &mut observed.pods {
        pod.holds_growth_of = disks::held_by(pod, &scale::claims_of(cluster, &observed.claims, pod.ordinal), now);
        match lost::look(client, pod, &scale::claims_of(cluster, &observed.claims, pod.ordinal)).await {
            Lost::No => {}
            Lost::Yes(lost) => pod.lost = Some(lost),
            Lost::Unknown(why) => pod.message = pod.message.take().map(|message| format!("{message} ({why})")),
        }
    }
    if listeners::asks_nodes(cluster) {
        observed.nodes = listeners::observe::nodes(client, &observed.pods).await;
    }
    let addresses = observed.pods.iter().filter_map(|pod| Some((pod.name.clone(), pod.ip?)));
    let reads = addresses
        .map(async |(pod, ip)| (pod, status::read(ip, status::HTTP_PORT).await.map_err(|error| error.to_string())));
    observed.reports = futures::future::join_all(reads).await.into_iter().collect();
    Ok(observed)
}

fn claim_seen(claim: &PersistentVolumeClaim) -> ClaimSeen {
    let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref());
    ClaimSeen {
        name: claim.name_any(),
        uid: claim.uid().unwrap_or_default(),
        volume: claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()),
        broker: claim.annotations().get(BROKER_ANNOTATION).cloned(),
        disk: claim.annotations().get(DISK_ANNOTATION).cloned(),
        requested: requests.and_then(|r| r.get("storage")).map(|size| size.0.clone()).unwrap_or_default(),
        capacity: capacity.and_then(|capacity| capacity.get("storage")).map(|size| size.0.clone()),
        unmounted_growth: claim.status.as_ref().and_then(|status| {
            let mut waits = status.conditions.iter().flatten();
            let waits = waits.find(|one| one.type_ == "FileSystemResizePending" && one.status == "True")?;
            waits.last_transition_time.as_ref().map(|time| time.0)
        }),
    }
}

/// The claims of a StatefulSet's pod are volumes by the names of their templates.
fn disks_of(spec: &PodSpec) -> Vec<String> {
    let with_claim = spec.volumes.iter().flatten().filter(|volume| volume.persistent_volume_claim.is_some());
    with_claim.map(|volume| volume.name.clone()).collect()
}

fn pod_seen(pod: &Pod) -> Option<PodSeen> {
    let name = pod.name_any();
    let ordinal = forebay_broker_config::broker_id_from_name(&name).ok()?;
    let status = pod.status.clone().unwrap_or_default();
    let conditions = status.conditions.clone().unwrap_or_default();
    Some(PodSeen {
        uid: pod.uid().unwrap_or_default(),
        ordinal,
        revision: pod.labels().get("controller-revision-hash").cloned().unwrap_or_default(),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        ip: status.pod_ip.as_ref().and_then(|ip| ip.parse().ok()),
        host_ip: status.host_ip.as_ref().and_then(|ip| ip.parse().ok()),
        ready: conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"),
        deleting: pod.metadata.deletion_timestamp.is_some(),
        disks: pod.spec.as_ref().map(disks_of).unwrap_or_default(),
        marks: roll::marks(pod.annotations(), pod.spec.as_ref()),
        restart_requested: pod.annotations().contains_key(RESTART_ANNOTATION),
        created: pod.creation_timestamp().map(|time| time.0),
        holds_growth_of: Vec::new(),
        rack: RackSeen::None,
        lost: None,
        unplaced_since: unplaced(&status).and_then(|condition| Some(condition.last_transition_time.as_ref()?.0)),
        message: disrupted(&status).or_else(|| pod_message(&status)),
        name,
    })
}

/// Who takes the pod away, in Kubernetes' words: an eviction, or a node that does not answer.
fn disrupted(status: &PodStatus) -> Option<String> {
    let disrupted = status.conditions.iter().flatten().find(|c| c.type_ == "DisruptionTarget" && c.status == "True");
    disrupted.and_then(|condition| condition.message.clone().or_else(|| condition.reason.clone()))
}

fn unplaced(status: &PodStatus) -> Option<&PodCondition> {
    status.conditions.iter().flatten().find(|c| c.type_ == "PodScheduled" && c.status == "False")
}

/// The most telling reason: why it can't be placed, or why its container does not run.
fn pod_message(status: &PodStatus) -> Option<String> {
    if let Some(condition) = unplaced(status) {
        return Some(condition.message.clone().or_else(|| condition.reason.clone()).unwrap_or_default());
    }
    let containers = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    let waiting = containers.filter_map(|container| {
        let state = container.state.as_ref()?;
        let last = container.last_state.as_ref().and_then(|last| last.terminated.as_ref());
        let exit = last.map(|last| format!(", last exit code {}", last.exit_code)).unwrap_or_default();
        let waiting = state.waiting.as_ref()?;
        let reason = waiting.reason.clone().unwrap_or_default();
        let message = waiting.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
        // The message of a crash loop counts seconds, and would change the status all the time.
        Some(if reason == "CrashLoopBackOff" { format!("{reason}{exit}") } else { format!("{reason}{message}{exit}") })
    });
    waiting
        .into_iter()
        .find(|message| !message.starts_with("ContainerCreating") && !message.starts_with("PodInitializing"))
}
