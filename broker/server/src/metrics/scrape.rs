//! What is read off at a scrape rather than counted: gauges of the broker, of partitions, of groups, of the process.
//!
//! What must hold: series exist only for what exists now, because they are made anew for each scrape; consumer lag reads
//! the committed offset first and the end afterwards, so it is never negative and never below the truth.

use std::collections::HashMap;

use forebay_broker_machines::groups::GroupSummary;
use prometheus::core::Collector;
use prometheus::{CounterVec, GaugeVec, Opts, Registry, TextEncoder};

use super::catalog::{self, Metric};
use super::cluster::of_cluster;
use super::groups::of_groups;
use super::process::{self, as_float};
use super::quorum::of_quorum;
use crate::broker::Broker;
use crate::log_dirs::missing_logs;
use crate::status;

/// The whole answer to a scrape; `groups` were asked for just before. Reads `/proc` and asks file systems: for a blocking thread.
pub(crate) fn text(broker: &Broker, groups: &[GroupSummary]) -> prometheus::Result<String> {
    let mut snapshot = Snapshot::default();
    of_broker(broker, &mut snapshot)?;
    of_quorum(broker, &mut snapshot)?;
    of_cluster(broker, &mut snapshot)?;
    of_log_dirs(broker, &mut snapshot)?;
    of_groups(broker, groups, &mut snapshot)?;
    of_partitions(broker, &mut snapshot)?;
    of_status(broker, &mut snapshot)?;
    of_process(&mut snapshot)?;
    let mut families = broker.metrics.registry.gather();
    families.extend(snapshot.registry.gather());
    families.sort_by(|a, b| a.name().cmp(b.name()));
    TextEncoder::new().encode_to_string(&families)
}

/// Values of one scrape.
#[derive(Default)]
pub(super) struct Snapshot {
    registry: Registry,
    gauges: HashMap<&'static str, GaugeVec>,
}

impl Snapshot {
    pub(super) fn set(&mut self, metric: Metric, labels: &[&str], value: f64) -> prometheus::Result<()> {
        if !self.gauges.contains_key(metric.name) {
            let gauge = GaugeVec::new(Opts::new(metric.name, metric.help), metric.labels)?;
            self.registry.register(Box::new(gauge.clone()) as Box<dyn Collector>)?;
            self.gauges.insert(metric.name, gauge);
        }
        if let Some(gauge) = self.gauges.get(metric.name) {
            gauge.with_label_values(labels).set(value);
        }
        Ok(())
    }

    /// A counter that somebody else keeps.
    fn count(&self, metric: Metric, value: f64) -> prometheus::Result<()> {
        let counter = CounterVec::new(Opts::new(metric.name, metric.help), metric.labels)?;
        counter.with_label_values::<&str>(&[]).inc_by(value);
        self.registry.register(Box::new(counter))
    }
}

fn of_broker(broker: &Broker, snapshot: &mut Snapshot) -> prometheus::Result<()> {
    let count = |number: usize| as_float(u64::try_from(number).unwrap_or(u64::MAX));
    snapshot.set(catalog::BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1.0)?;
    snapshot.set(catalog::CONNECTIONS, &[], count(broker.admission.open()))?;
    let (sessions, evicted) = broker.fetch_sessions.count();
    snapshot.set(catalog::FETCH_SESSIONS, &[], count(sessions))?;
    snapshot.count(catalog::FETCH_SESSION_EVICTIONS, as_float(evicted))?;
    snapshot.set(catalog::IN_FLIGHT_BYTES, &[], as_float(broker.budget.in_flight_bytes()))?;
    snapshot.set(catalog::PARTITIONS, &[], count(broker.partitions.count()))?;
    snapshot.set(catalog::THREAD_POOL_BUSY, &["network"], broker.network_busy_ratio())?;
    snapshot.set(catalog::THREAD_POOL_BUSY, &["io"], broker.appender.busy.ratio())
}

fn of_log_dirs(broker: &Broker, snapshot: &mut Snapshot) -> prometheus::Result<()> {
    let image = broker.metadata.image();
    for dir in &broker.failed_dirs {
        snapshot.set(catalog::LOG_DIR_POISONED, &[&dir.path.display().to_string()], 1.0)?;
    }
    for dir in &broker.partitions.dirs {
        let path = dir.log_dir.path().display().to_string();
        let poisoned = if dir.log_dir.poisoned().is_some() { 1.0 } else { 0.0 };
        snapshot.set(catalog::LOG_DIR_POISONED, &[&path], poisoned)?;
        let hung = if dir.is_hung() { 1.0 } else { 0.0 };
        snapshot.set(catalog::LOG_DIR_HUNG, &[&path], hung)?;
        let full = if dir.is_low() { 1.0 } else { 0.0 };
        snapshot.set(catalog::LOG_DIR_FULL, &[&path], full)?;
        let missing = u64::try_from(missing_logs(&dir.log_dir, &image, broker.id()).len()).unwrap_or(u64::MAX);
        snapshot.set(catalog::LOG_DIR_MISSING_LOGS, &[&path], as_float(missing))?;
        let inconsistent = u64::try_from(dir.log_dir.inconsistent_logs().len()).unwrap_or(u64::MAX);
        snapshot.set(catalog::LOG_DIR_INCONSISTENT_LOGS, &[&path], as_float(inconsistent))?;
        snapshot.set(catalog::LOG_DIR_BYTES, &[&path, "used"], as_float(broker.partitions.used_bytes(dir)))?;
        // Whoever asks a disk that hangs may wait for it.
        let space = if dir.is_hung() { None } else { dir.log_dir.refresh_space().ok() };
        if let Some(space) = space {
            snapshot.set(catalog::LOG_DIR_BYTES, &[&path, "free"], as_float(space.free_bytes))?;
            snapshot.set(catalog::LOG_DIR_BYTES, &[&path, "total"], as_float(space.total_bytes))?;
        }
    }
    Ok(())
}

fn of_partitions(broker: &Broker, snapshot: &mut Snapshot) -> prometheus::Result<()> {
    for hosted in broker.partitions.all() {
        let offsets = hosted.partition.offsets();
        let partition = hosted.index.to_string();
        let labels = [&*hosted.topic, partition.as_str()];
        snapshot.set(catalog::PARTITION_END_OFFSET, &labels, offset(offsets.high_watermark.0))?;
        snapshot.set(catalog::PARTITION_START_OFFSET, &labels, offset(offsets.log_start.0))?;
    }
    Ok(())
}

/// The settings that the operator compares with what was asked for.
fn of_status(broker: &Broker, snapshot: &mut Snapshot) -> prometheus::Result<()> {
    let status = status::of(broker);
    let kernel = &status.kernel;
    let count = |number: usize| u64::try_from(number).ok();
    let settings = [
        ("num.network.threads", count(status.threads.network)),
        ("num.io.threads", count(status.threads.io)),
        ("nofile.soft", Some(status.nofile.soft)),
        ("nofile.hard", Some(status.nofile.hard)),
        ("flush.messages", Some(status.flush.messages)),
        ("flush.ms", Some(status.flush.ms)),
        ("memory.limit.bytes", status.memory_limit_bytes),
        ("memory.peak.bytes", status.peak_memory_bytes),
        ("vm.swappiness", kernel.vm_swappiness),
        ("vm.dirty_ratio", kernel.vm_dirty_ratio),
        ("vm.dirty_background_ratio", kernel.vm_dirty_background_ratio),
        ("vm.max_map_count", kernel.vm_max_map_count),
        ("net.core.rmem_max", kernel.net_core_rmem_max),
        ("net.core.wmem_max", kernel.net_core_wmem_max),
        ("net.core.somaxconn", kernel.net_core_somaxconn),
    ];
    for (name, value) in settings {
        if let Some(value) = value {
            snapshot.set(catalog::IN_FORCE, &[name], as_float(value))?;
        }
    }
    snapshot.set(catalog::IN_FORCE, &["cores"], status.cores)
}

fn of_process(snapshot: &mut Snapshot) -> prometheus::Result<()> {
    let Some(process) = process::process() else { return Ok(()) };
    snapshot.count(catalog::PROCESS_CPU, process.cpu_seconds)?;
    snapshot.set(catalog::PROCESS_START, &[], process.start_time_seconds)?;
    snapshot.set(catalog::PROCESS_RESIDENT, &[], process.resident_bytes)?;
    snapshot.set(catalog::PROCESS_VIRTUAL, &[], process.virtual_bytes)?;
    snapshot.set(catalog::PROCESS_FDS, &[], process.open_fds)?;
    snapshot.set(catalog::PROCESS_THREADS, &[], process.threads)?;
    if let Some(max) = status::limits::nofile().and_then(|limit| limit.soft) {
        snapshot.set(catalog::PROCESS_FDS_MAX, &[], as_float(max))?;
    }
    Ok(())
}

/// Offsets are never negative here.
pub(super) fn offset(offset: i64) -> f64 {
    as_float(u64::try_from(offset).unwrap_or(0))
}
