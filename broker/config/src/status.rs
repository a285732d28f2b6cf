//! BrokerStatus: what a running broker says about itself on `/status`, in force rather than as asked.
//!
//! The operator reads it and compares it with the spec, so a field is removed or renamed only together with a reader that takes
//! both. Absent means "could not be read here", never zero.

use serde::{Deserialize, Serialize};

/// One broker's answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerStatus {
    /// `node.id`.
    pub broker_id: i32,
    /// The cluster's id.
    pub cluster_id: String,
    /// The version of the program.
    pub version: String,
    /// What the broker is doing.
    pub state: BrokerState,
    /// While recovering.
    pub recovery: Option<RecoveryProgress>,
    /// Process id.
    pub pid: u32,
    /// Milliseconds since the epoch.
    pub started_at_ms: i64,
    /// What is told, for each listener with an address.
    pub advertised: Vec<String>,
    /// The rack that it is registered with; empty for none.
    pub rack: Option<String>,
    /// The part of it that was set while brokers ran: this broker's own `advertised.listeners`.
    pub advertised_set: Option<String>,
    /// Threads that run.
    pub threads: ThreadStatus,
    /// Open files.
    pub nofile: NofileStatus,
    /// One for each log dir.
    pub log_dirs: Vec<LogDirStatus>,
    /// Kernel settings as read.
    pub kernel: KernelStatus,
    /// How soon records are on disk.
    pub flush: FlushStatus,
    /// Cores the process may use, from its cgroup or the machine; a quota need not be whole.
    pub cores: f64,
    /// The cgroup's limit.
    pub memory_limit_bytes: Option<u64>,
    /// The most that the process itself has had resident since it started (`VmHWM`); the page cache is not in it.
    pub peak_memory_bytes: Option<u64>,
    /// What clients have done in the last minutes; absent in the first seconds.
    pub load: Option<LoadStatus>,
    /// Partitions open.
    pub partitions: u64,
    /// Partitions of the whole cluster, as this broker knows it, with a replica that is not in sync.
    pub under_replicated_partitions: u64,
}

/// What a broker is doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BrokerState {
    /// Nothing is served yet.
    #[default]
    Starting,
    /// Logs are checked after an unclean stop.
    Recovering,
    /// Clients are served.
    Running,
    /// On the way down.
    Stopping,
}

/// How far recovery is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RecoveryProgress {
    /// Logs opened.
    pub partitions_done: u64,
    /// Logs to open.
    pub partitions_total: u64,
}

/// Threads that run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ThreadStatus {
    /// `num.network.threads` in force.
    pub network: usize,
    /// `num.io.threads` in force.
    pub io: usize,
    /// `num.replica.fetchers` in force.
    pub replica_fetchers: usize,
}

/// What clients have done of late.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadStatus {
    /// Over how many seconds, at most 120.
    pub seconds: u64,
    /// Records taken from producers.
    pub records_in_per_second: u64,
    /// Bytes of record batches taken from producers.
    pub bytes_in_per_second: u64,
    /// Bytes of record batches sent to consumers.
    pub bytes_out_per_second: u64,
    /// Within how many milliseconds 99 of 100 Produce requests were answered, by the buckets of `forebay_request_duration_seconds`; absent
    /// when there were none.
    pub produce_p99_ms: Option<f64>,
}

/// Limits of open files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NofileStatus {
    /// In force.
    pub soft: u64,
    /// The most the process may raise it to.
    pub hard: u64,
    /// `forebay.ulimit.nofile`.
    pub wanted: Option<u64>,
}

/// One log dir.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LogDirStatus {
    /// As in `log.dirs`.
    pub path: String,
    /// The directory's own id, which changes when a disk was lost.
    pub directory_id: String,
    /// Where its file system is mounted.
    pub mount_point: Option<String>,
    /// ext4, xfs, …
    pub fs_type: Option<String>,
    /// Mount options in force.
    pub mount_options: Vec<String>,
    /// Of the file system.
    pub total_bytes: u64,
    /// Of the file system, for this user.
    pub free_bytes: u64,
    /// Of the logs in it.
    pub used_bytes: u64,
    /// Nothing is written any more: a write or flush failed, or the directory could not be used at the start.
    pub poisoned: bool,
    /// What is written there does not end; the broker leaves what is there to others until it does.
    pub hung: bool,
    /// Its disk is too full for clients' records; the broker leaves what is there to others that have room.
    pub full: bool,
    /// In `cordoned.log.dirs`: nothing new is placed there.
    pub cordoned: bool,
    /// Logs that lie in it, those that could not be opened among them; only counted where it is cordoned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logs: Option<u64>,
    /// The cluster's metadata is there, and stays there.
    pub has_metadata: bool,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// Kernel settings as read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KernelStatus {
    /// `vm.swappiness`.
    pub vm_swappiness: Option<u64>,
    /// `vm.dirty_ratio`.
    pub vm_dirty_ratio: Option<u64>,
    /// `vm.dirty_background_ratio`.
    pub vm_dirty_background_ratio: Option<u64>,
    /// `vm.max_map_count`.
    pub vm_max_map_count: Option<u64>,
    /// `net.core.rmem_max`.
    pub net_core_rmem_max: Option<u64>,
    /// `net.core.wmem_max`.
    pub net_core_wmem_max: Option<u64>,
    /// `net.core.somaxconn`.
    pub net_core_somaxconn: Option<u64>,
    /// The word in brackets of `transparent_hugepage/enabled`.
    pub transparent_hugepage: Option<String>,
}

/// How soon records are on disk, for topics without a setting of their own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FlushStatus {
    /// `flush.messages`.
    pub messages: u64,
    /// `flush.ms`.
    pub ms: u64,
}
