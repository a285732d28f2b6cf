//! What the operator has seen of a Cluster. Figures that change all the time (bytes used, lag) are metrics, not status:
//! a converged cluster writes no status.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ListenerStatus, Threads, TuningChange};
use crate::values::ReclaimPolicy;

/// What the operator has seen and done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterStatus {
    /// The generation of the spec that this status answers; -1 until an operator has looked at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Brokers that exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Brokers that are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// What clients put in `bootstrap.servers`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_servers: Option<String>,
    /// The cluster's id, as clients see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// The image that the spec asks for, or the operator's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Thread counts chosen for the brokers, from the spec or the CPU limit; what neither says is each broker's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<Threads>,
    /// The reclaim policy in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim_policy: Option<ReclaimPolicy>,
    /// Brokers that are to go and are being emptied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub draining: Vec<i32>,
    /// Disks that the spec names no more, from when that was seen until no broker has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub removing_disks: Vec<String>,
    /// True while partitions move to brokers that have fewer than their share.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub rebalancing: bool,
    /// Each broker, with what it says is in force.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["id"]))]
    pub brokers: Vec<BrokerStatus>,
    /// Changes of parameters, the newest last, at most 20, with what brokers measured before and after.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub tuning_record: Vec<TuningChange>,
    /// The parameters that the record last knew, by their path in the spec: what differs from them is a change.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub tuned: BTreeMap<String, String>,
    /// Each of `spec.listeners`, with its addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub listeners: Vec<ListenerStatus>,
    /// `Ready`, `Progressing`, `TuningInForce`, `DisksInForce`, `DisksHaveRoom`, and `ListenersReady` where there are listeners.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// One broker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BrokerStatus {
    /// The broker's id.
    pub id: i32,
    /// Its pod.
    pub pod: String,
    /// The node that the pod is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What it is doing.
    pub state: BrokerState,
    /// Why it is not running, when it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The program's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What the spec wants of it, what is in force, and the verdict of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub tuning: Vec<TuningCheck>,
    /// Threads in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<ThreadsInForce>,
    /// Open files: wanted and in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nofile: Option<NofileInForce>,
    /// Flush policy in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush: Option<FlushInForce>,
    /// Kernel settings in force on its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelInForce>,
    /// Its log directories and how they are mounted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<DiskInForce>,
    /// CPU cores that it may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<f64>,
    /// Memory that it may use, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<i64>,
    /// The most memory that the process itself has had since it started, in bytes, in steps of 16 MiB; the page cache is not in it. Told only with `pageCache`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<i64>,
}

/// A setting that the spec wants, and what is in force on a broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TuningCheck {
    /// Which.
    pub setting: String,
    /// What the spec wants.
    pub wanted: String,
    /// What the broker reports.
    pub in_force: String,
    /// The verdict: whether that will do.
    pub holds: bool,
    /// Who can set it, when it does not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// What a broker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BrokerState {
    /// Its pod is not there or not placed on a node.
    Pending,
    /// The process starts, or does not answer yet.
    Starting,
    /// It reads its logs after an unclean stop.
    Recovering,
    /// It serves.
    Running,
    /// It serves, and its partitions move to others, because it is to go.
    Draining,
    /// It stops.
    Stopping,
}

/// Thread counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ThreadsInForce {
    /// Threads that own connections.
    pub network: i32,
    /// Threads that write to and read from disks.
    pub io: i32,
    /// Connections by which a follower fetches from each source.
    pub replica_fetchers: i32,
}

/// Open files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NofileInForce {
    /// What the spec wants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted: Option<i64>,
    /// The limit in force.
    pub soft: i64,
    /// The most that the container runtime allows.
    pub hard: i64,
}

/// Flush policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlushInForce {
    /// Records after which a partition is flushed; 1 = before they are acknowledged.
    pub messages: i64,
    /// Longest time without a flush, in milliseconds: what a power cut can take from one replica.
    pub ms: i64,
}

/// Kernel settings of a node. A setting that can't be read is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KernelInForce {
    /// `vm.swappiness`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swappiness: Option<i64>,
    /// `vm.dirty_ratio`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dirty_ratio: Option<i64>,
    /// `vm.dirty_background_ratio`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dirty_background_ratio: Option<i64>,
    /// `vm.max_map_count`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_map_count: Option<i64>,
    /// `net.core.rmem_max`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rmem_max: Option<i64>,
    /// `net.core.wmem_max`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wmem_max: Option<i64>,
    /// `net.core.somaxconn`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub somaxconn: Option<i64>,
    /// Transparent huge pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transparent_hugepage: Option<String>,
}

/// A log directory and how it is mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskInForce {
    /// The log directory.
    pub path: String,
    /// The mount point that it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount_point: Option<String>,
    /// Type of the file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_type: Option<String>,
    /// Mount options in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mount_options: Vec<String>,
    /// Size of the file system, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<i64>,
    /// True after a failed write or flush: the directory takes no more writes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub poisoned: bool,
    /// True where the broker's metadata is: the disk can't be removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_metadata: bool,
}
