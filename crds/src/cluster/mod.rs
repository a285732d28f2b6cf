//! Cluster: brokers and what they run on: disks, threads, ulimits, kernel settings, configuration.
//!
//! A pod spec can't set ulimits or mount options, so these fields say what is *wanted*; `status.brokers` says what is in
//! force, and the condition `TuningInForce` compares the two.

mod listeners;
mod maintenance;
mod page_cache;
mod pod;
mod status;
mod tuning_record;

pub use listeners::{
    Advertised, BrokerNetworkPolicy, Listener, ListenerAddress, ListenerBootstrap, ListenerBroker, ListenerStatus,
    ListenerType, NodeAddressType, TrafficPolicy,
};
pub use maintenance::{Day, MaintenanceWindow, Moves, OnNodeLost, Rack};
pub use page_cache::{PageCache, bytes};
pub use pod::PodTemplate;
pub use status::{
    BrokerState, BrokerStatus, ClusterStatus, DiskInForce, FlushInForce, KernelInForce, NofileInForce, ThreadsInForce,
    TuningCheck,
};
pub use tuning_record::{MeasuredLoad, ParameterChange, TUNING_REASON_ANNOTATION, TuningChange};

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::values::{ConfigMap, ReclaimPolicy};

/// The Kafka names that the operator itself sets, and where they are in this spec.
const OWNED_CONFIG: &str = "!['node.id', 'broker.id', 'listeners', 'advertised.listeners', 'log.dirs', 'log.dir', \
    'num.network.threads', 'num.io.threads', 'num.replica.fetchers', 'forebay.http.listener', 'forebay.ulimit.nofile', \
    'forebay.cluster.id', 'controller.quorum.voters', 'controller.listener.names', 'inter.broker.listener.name', \
    'forebay.listeners.without.address', 'cordoned.log.dirs', 'replica.alter.log.dirs.io.max.bytes.per.second'].exists(name, name in self)";

/// Brokers and what they run on.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "forebay.dev",
    version = "v1alpha1",
    kind = "Cluster",
    namespaced,
    status = "ClusterStatus",
    shortname = "fc",
    category = "forebay",
    derive = "PartialEq",
    doc = "A Forebay cluster: brokers that speak Kafka's protocol, and the disks, threads, ulimits and configuration they run with.",
    scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.replicas"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Running", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "Bootstrap", type_ = "string", json_path = ".status.bootstrapServers"),
    printcolumn(name = "Tuning", type_ = "string", json_path = ".status.conditions[?(@.type==\"TuningInForce\")].status"),
    printcolumn(name = "Reclaim", type_ = "string", json_path = ".status.reclaimPolicy", priority = 1),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.size() <= 40").message("a Cluster's name has at most 40 characters: the names of its children are made from it"),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')").message("a Cluster's name is a DNS label that starts with a letter: its Services are named after it")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// Number of brokers: 1, or 3 and more (2 stand still when either is lost). From 3 on it may grow, and shrink to 3: what the
    /// brokers of the highest ids have is moved to the others before they go. 1 stays 1, as it has no quorum that others could join.
    #[schemars(range(min = 1, max = 1000))]
    pub replicas: i32,
    /// The broker's image; the operator's `--broker-image` when left out. Another one restarts the brokers, one after the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 500))]
    pub image: Option<String>,
    /// When the image is pulled: `Always`, `IfNotPresent` or `Never`; Kubernetes decides by the tag when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// The disks of each broker. Partitions are spread over them. A disk can be added and can grow; it can't shrink or change its class. One that
    /// is taken out of the list stays mounted until what is on it has moved to the other disks of its broker (`status.removingDisks`). The
    /// disk that has a broker's metadata, the first one of the first start, can't be removed.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[x_kube(validation = Rule::new("self.all(disk, self.exists_one(other, (has(other.mountPath) ? other.mountPath : '/var/lib/forebay/' + other.name) == (has(disk.mountPath) ? disk.mountPath : '/var/lib/forebay/' + disk.name)))").message("two disks have the same mountPath: each needs a folder of its own"))]
    pub disks: Vec<Disk>,
    /// Thread counts; computed from the CPU limit when left out, without one from the cores that each broker finds.
    /// `status.threads` has what was chosen. A change restarts the brokers, one after the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<Threads>,
    /// Limits of the broker process. A change restarts the brokers, one after the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ulimits: Option<Ulimits>,
    /// Kernel settings that the nodes should have. They are read back and compared (condition `TuningInForce`), and set only where whoever
    /// installed the operator has allowed it (`nodeSettings` of its chart); what is left out is not compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Kernel>,
    /// Broker configuration by Kafka's names, for example `log.retention.hours: 48`. Values are integers or strings (`"true"`, `"0.5"`); an
    /// unknown name is refused in the status with the nearest one that exists. What brokers take while they run restarts nobody; the rest
    /// restarts them, one after the other.
    #[serde(default, skip_serializing_if = "ConfigMap::is_empty")]
    #[schemars(extend("maxProperties" = 200))]
    #[x_kube(validation = Rule::new(OWNED_CONFIG).message("config holds a name that the operator sets: node.id, broker.id, listeners, advertised.listeners, forebay.listeners.without.address (use spec.listeners), log.dirs (use spec.disks), num.network.threads, num.io.threads, num.replica.fetchers (use spec.threads), forebay.http.listener, forebay.ulimit.nofile (use spec.ulimits), forebay.cluster.id, controller.quorum.voters, controller.listener.names, inter.broker.listener.name, cordoned.log.dirs, replica.alter.log.dirs.io.max.bytes.per.second (use spec.moves)"))]
    pub config: ConfigMap,
    /// Listeners beside the one on port 9092, which is always there for clients inside: for clients outside the Kubernetes cluster, or
    /// inside on a port of their own. Adding or removing one restarts the brokers, one after the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[x_kube(validation = Rule::new("self.all(one, self.exists_one(other, other.port == one.port))").message("two listeners have the same port: each needs one of its own"))]
    pub listeners: Vec<Listener>,
    /// When given, a NetworkPolicy says who may reach the brokers' pods; `{}` closes the brokers' own port and opens the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<BrokerNetworkPolicy>,
    /// CPU and memory of each broker; no requests and no limits when left out. Leave memory beyond the broker's own to the page cache: it
    /// counts towards the limit. A change restarts the brokers, one after the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Memory that should be left to the page cache, which brokers read and write through. Nothing is compared when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_cache: Option<PageCache>,
    /// What to add to the brokers' pods. A change restarts the brokers, one after the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodTemplate>,
    /// How the brokers' metrics are found. They are always served, on port 9644 at `/metrics`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Metrics>,
    /// Namespaces whose Topics and ConsumerProfiles may name this Cluster, besides its own; `*` for all. Only its own when left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 63)), extend("x-kubernetes-list-type" = "set"))]
    pub allowed_namespaces: Vec<String>,
    /// Racks: each broker registers with the rack of its node, replicas are spread over racks, and brokers over them. No racks when left
    /// out. A change restarts the brokers, one after the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rack: Option<Rack>,
    /// When brokers that run may be restarted for a changed spec; at any time when left out. What is down already is mended at
    /// once, and restarts that an annotation asks for wait for no window.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub maintenance_windows: Vec<MaintenanceWindow>,
    /// What becomes of a broker whose local disk is on a node that is off Kubernetes' list. `Wait` (used when left out): it waits for the
    /// node. `Replace`: its claim and its pod are deleted, and it begins anew on another node and copies its partitions; one broker at a
    /// time, when all others are ready and every partition of it has the in-sync replicas that it needs on them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_node_lost: Option<OnNodeLost>,
    /// How partitions are moved when brokers are taken away or added, or disks removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moves: Option<Moves>,
    /// True: the operator reports but changes nothing; brokers run on as they are. False when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// `Retain` (used when left out): the claims stay when the Cluster is deleted, and a Cluster of the same name finds
    /// its data again. `Delete`: they go with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim_policy: Option<ReclaimPolicy>,
}

impl ClusterSpec {
    /// The policy in force: `Retain` unless said otherwise.
    pub fn effective_reclaim_policy(&self) -> ReclaimPolicy {
        self.reclaim_policy.unwrap_or(ReclaimPolicy::Retain)
    }

    /// Whether objects of `namespace` may name this Cluster, which is in `own`.
    pub fn admits(&self, own: &str, namespace: &str) -> bool {
        own == namespace || self.allowed_namespaces.iter().any(|allowed| allowed == "*" || allowed == namespace)
    }
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::without_description)]
pub enum ImagePullPolicy {
    /// At each start of a pod.
    Always,
    /// When the node does not have it.
    IfNotPresent,
    /// Never: the node must have it.
    Never,
}

impl ImagePullPolicy {
    /// The name in a container's `imagePullPolicy`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

/// One disk of each broker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)").message("storageClassName can't be changed: a claim stays in its class; add a second disk of the new class, then remove this one"))]
#[x_kube(validation = Rule::new("has(self.mountPath) == has(oldSelf.mountPath) && (!has(self.mountPath) || self.mountPath == oldSelf.mountPath)").message("mountPath can't be changed: the broker knows its log directories by path"))]
pub struct Disk {
    /// Name of the disk and of its claim template: claims are `<name>-<cluster>-broker-<n>`. Can't be changed.
    #[schemars(length(min = 1, max = 20), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    #[x_kube(validation = Rule::new("!(self in ['config', 'tmp'])").message("the names config and tmp are taken by the operator's own volumes"))]
    pub name: String,
    /// Size as a quantity of bytes, for example `100Gi`. It can grow where the storage class has `allowVolumeExpansion`, while brokers run,
    /// and never shrinks.
    #[schemars(schema_with = "size_schema")]
    #[x_kube(validation = Rule::new("!isQuantity(self) || !isQuantity(oldSelf) || quantity(self).compareTo(quantity(oldSelf)) >= 0").message("a disk can't shrink: no storage class does that; add a smaller disk, then remove this one"))]
    #[x_kube(validation = Rule::new("isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))").message("size is a positive quantity, for example 100Gi"))]
    pub size: Quantity,
    /// The claim's storage class; the default class when left out. Can't be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub storage_class_name: Option<String>,
    /// Folder where the broker has it; `/var/lib/forebay/<name>` when left out. Can't be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 200), regex(pattern = r"^/[-._a-zA-Z0-9/]*[-_a-zA-Z0-9]$"))]
    #[x_kube(validation = Rule::new("!self.matches('(^|/)[.][.]?(/|$)') && !self.contains('//')").message("mountPath has '.', '..' or '//' in it: write the folder itself, for example /var/lib/forebay/data"))]
    #[x_kube(validation = Rule::new("!self.matches('^/(etc|proc|sys|dev)(/|$)')").message("mountPath is in a folder of the system's own (/etc, /proc, /sys, /dev): choose another one, for example /var/lib/forebay/data"))]
    pub mount_path: Option<String>,
    /// Mount options that the disk should have, for example `noatime`; none when left out. A claim can't ask for them (its StorageClass
    /// or PersistentVolume does), so they are read back and compared (condition `TuningInForce`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), inner(length(min = 1, max = 100)), extend("x-kubernetes-list-type" = "set"))]
    pub mount_options: Vec<String>,
}

impl Disk {
    /// Where the broker has the disk.
    pub fn effective_mount_path(&self) -> String {
        self.mount_path.clone().unwrap_or_else(|| format!("/var/lib/forebay/{}", self.name))
    }
}

/// A quantity as a bounded string: the API server refuses the rules on it when it can't tell what they may cost.
fn size_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 32 })
}

/// Thread counts of a broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Threads {
    /// Threads that own connections (`num.network.threads`). When left out: a thread for each core of the CPU limit, 1 to 6.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub network: Option<i32>,
    /// Threads that write to and read from disks (`num.io.threads`). When left out: a thread for each core of the CPU limit, 2 to 16, and
    /// no fewer than disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub io: Option<i32>,
    /// Connections by which a broker copies from each other one (`num.replica.fetchers`); 1 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub replica_fetchers: Option<i32>,
}

/// Limits of the broker process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ulimits {
    /// Open files wanted; whatever the container runtime gives when left out. The broker raises its soft limit up to the hard limit that the container runtime gives; when
    /// that is lower, the condition `TuningInForce` says so with both figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 1_073_741_824))]
    pub nofile: Option<i64>,
}

/// Kernel settings that the nodes should have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Kernel {
    /// `vm.swappiness`, exactly: how readily memory is swapped out, 0 to 200. 1 suits brokers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 200))]
    pub swappiness: Option<i64>,
    /// `vm.dirty_ratio`, exactly: percent of memory that may wait to be written before writers are held up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub dirty_ratio: Option<i64>,
    /// `vm.dirty_background_ratio`, exactly: percent of memory that waits to be written when the kernel begins to write it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub dirty_background_ratio: Option<i64>,
    /// `vm.max_map_count`, at least: memory mappings of one process.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_map_count: Option<i64>,
    /// `net.core.rmem_max`, at least: bytes of a socket's receive buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub rmem_max: Option<i64>,
    /// `net.core.wmem_max`, at least: bytes of a socket's send buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub wmem_max: Option<i64>,
    /// `net.core.somaxconn`, at least: connections that wait to be accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub somaxconn: Option<i64>,
    /// Transparent huge pages, exactly: `always`, `madvise` or `never`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^(always|madvise|never)$"))]
    pub transparent_hugepage: Option<String>,
}

/// Metrics of the brokers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Metrics {
    /// Whether pods carry the `prometheus.io/scrape`, `port` and `path` annotations; they do when left out. A change restarts the brokers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scrape_annotations: Option<bool>,
}
