//! What is in force, read back from the system and from the broker: the answer of `/status`.
//!
//! What must hold: every figure is read when asked for, not remembered from the configuration; what can't be read here is
//! absent, never zero.

pub(crate) mod cgroup;
pub(crate) mod kernel;
pub(crate) mod limits;
mod memory;
pub(crate) mod mounts;

use std::sync::Arc;

use forebay_broker_config::status::{BrokerStatus, FlushStatus, LogDirStatus, NofileStatus, ThreadStatus};
use forebay_broker_machines::metadata::{ADVERTISED_LISTENERS, BrokerImage, MetadataImage, TopicImage};
use forebay_broker_storage::LogDir;
use forebay_broker_wire::types::Uuid;

use crate::broker::Broker;
use crate::log_dirs::FailedDir;
use crate::log_dirs::cordoned::Cordoned;
use crate::metadata::effective;
use crate::partitions::HostedDir;

/// Reads files and asks file systems: for a blocking thread.
pub(crate) fn of(broker: &Broker) -> BrokerStatus {
    let resources = cgroup::resources();
    let image = broker.metadata.image();
    let no_settings = TopicImage { id: Uuid::ZERO, name: "".into(), partitions: Vec::new(), config: Arc::default() };
    let defaults = effective::topic_config(&broker.config, &image, &no_settings);
    let own = image.broker(broker.id());
    let endpoints = own.map(BrokerImage::reached);
    BrokerStatus {
        broker_id: broker.config.broker_id,
        cluster_id: broker.cluster_id().to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        state: broker.lifecycle.state(),
        recovery: broker.lifecycle.recovery(),
        pid: std::process::id(),
        started_at_ms: broker.started_at_ms,
        advertised: endpoints
            .into_iter()
            .flatten()
            .map(|endpoint| format!("{}://{}:{}", endpoint.listener, endpoint.host, endpoint.port))
            .collect(),
        rack: own.map(|own| own.rack.clone().unwrap_or_default()),
        advertised_set: image.broker_config(broker.id()).get(ADVERTISED_LISTENERS).cloned(),
        threads: ThreadStatus {
            network: broker.threads.network,
            io: broker.threads.io,
            replica_fetchers: broker.config.threads.replica_fetchers,
        },
        nofile: nofile(broker),
        log_dirs: log_dirs(broker),
        kernel: kernel::kernel(),
        flush: FlushStatus { messages: defaults.flush_messages, ms: defaults.flush_ms },
        cores: resources.cores,
        memory_limit_bytes: resources.memory_limit_bytes,
        peak_memory_bytes: memory::peak_bytes(),
        load: broker.metrics.load.recent(),
        partitions: u64::try_from(broker.partitions.count()).unwrap_or(u64::MAX),
        under_replicated_partitions: under_replicated(&image),
    }
}

/// Whoever is about to take a broker down asks this first.
fn under_replicated(image: &MetadataImage) -> u64 {
    let partitions = image.topics().flat_map(|topic| topic.partitions.iter());
    let behind = partitions.filter(|partition| partition.in_sync_replicas.len() < partition.replicas.len());
    u64::try_from(behind.count()).unwrap_or(u64::MAX)
}

fn nofile(broker: &Broker) -> NofileStatus {
    let in_force = limits::nofile();
    // "unlimited" is the largest number there is, to whoever compares.
    let or_unlimited = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
    NofileStatus {
        soft: in_force.map_or(0, |limit| or_unlimited(limit.soft)),
        hard: in_force.map_or(0, |limit| or_unlimited(limit.hard)),
        wanted: broker.config.nofile_wanted,
    }
}

fn log_dirs(broker: &Broker) -> Vec<LogDirStatus> {
    let cordoned = Cordoned::of(&broker.config, &broker.metadata.image());
    let used = broker.partitions.dirs.iter().map(|dir| log_dir(broker, dir, &cordoned));
    used.chain(broker.failed_dirs.iter().map(failed_dir)).collect()
}

fn log_dir(broker: &Broker, dir: &HostedDir, cordoned: &Cordoned) -> LogDirStatus {
    let log_dir = &dir.log_dir;
    let mount = mounts::mount_of(log_dir.path());
    let is_cordoned = cordoned.has(log_dir.path());
    // Whoever asks a disk that hangs may wait for it.
    let space = if dir.is_hung() { None } else { log_dir.disk().space(log_dir.path()).ok() };
    LogDirStatus {
        path: log_dir.path().display().to_string(),
        directory_id: log_dir.identity().directory_id.to_string(),
        mount_point: mount.as_ref().map(|mount| mount.point.display().to_string()),
        fs_type: mount.as_ref().map(|mount| mount.fs_type.clone()),
        mount_options: mount.map(|mount| mount.options).unwrap_or_default(),
        total_bytes: space.map_or(0, |space| space.total_bytes),
        free_bytes: space.map_or(0, |space| space.free_bytes),
        used_bytes: broker.partitions.used_bytes(dir),
        poisoned: log_dir.poisoned().is_some(),
        hung: dir.is_hung(),
        full: dir.is_low(),
        cordoned: is_cordoned,
        logs: if is_cordoned && !dir.is_hung() { count_logs(log_dir) } else { None },
        has_metadata: broker.metadata.quorum().log.is_in(log_dir),
        failure: log_dir.poisoned().map(|poisoned| poisoned.reason).or_else(|| dir.is_hung().then(|| dir.words())),
    }
}

/// What lies there, served or not: whoever takes the disk away goes by it.
fn count_logs(log_dir: &LogDir) -> Option<u64> {
    log_dir.logs().ok().and_then(|logs| u64::try_from(logs.len()).ok())
}

fn failed_dir(dir: &FailedDir) -> LogDirStatus {
    LogDirStatus {
        path: dir.path.display().to_string(),
        directory_id: dir.directory_id.map(|id| id.to_string()).unwrap_or_default(),
        poisoned: true,
        failure: Some(dir.reason.clone()),
        ..LogDirStatus::default()
    }
}
