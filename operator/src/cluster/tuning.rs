//! What is in force against what is wanted. Pure: the spec and the brokers' own reports in, differences with both figures
//! out.

use std::collections::BTreeMap;

use forebay_broker_config::status::{BrokerStatus, LogDirStatus};
use forebay_crds::cluster::{DiskInForce, FlushInForce, Kernel, KernelInForce, NofileInForce, ThreadsInForce};
use forebay_crds::{ClusterSpec, ConditionReport, ConditionState, ConditionType, Reason};

use super::build::threads;

/// The condition `TuningInForce` over all brokers.
pub(crate) fn judge(spec: &ClusterSpec, reports: &BTreeMap<i32, &BrokerStatus>) -> ConditionReport {
    let report = |state, reason, message| ConditionReport::new(ConditionType::TuningInForce, state, reason, message);
    if reports.is_empty() {
        return report(
            ConditionState::Unknown,
            Reason::NotReported,
            "no broker has reported what is in force".to_owned(),
        );
    }
    let found = reports.iter().flat_map(|(id, status)| {
        differences(spec, status).into_iter().map(move |difference| format!("broker {id}: {difference}"))
    });
    let found: Vec<String> = found.collect();
    if found.is_empty() {
        let message = format!("{} of {} brokers report what the spec wants", reports.len(), spec.replicas);
        return report(ConditionState::True, Reason::AsSpecified, message);
    }
    report(ConditionState::False, Reason::DiffersFromSpec, found.join("; "))
}

/// How one broker differs from the spec, each with both figures.
fn differences(spec: &ClusterSpec, status: &BrokerStatus) -> Vec<String> {
    let mut found = Vec::new();
    let wanted = threads(spec);
    let threads = [
        ("network threads", wanted.network, status.threads.network),
        ("io threads", wanted.io, status.threads.io),
        ("replica fetchers", wanted.replica_fetchers, status.threads.replica_fetchers),
    ];
    for (what, wanted, in_force) in threads {
        if let Some(wanted) = wanted
            && usize::try_from(wanted) != Ok(in_force)
        {
            found.push(format!("{what} wanted {wanted}, in force {in_force}"));
        }
    }
    if let Some(wanted) = spec.ulimits.as_ref().and_then(|ulimits| ulimits.nofile)
        && u64::try_from(wanted).is_ok_and(|wanted| wanted > status.nofile.soft)
    {
        let (soft, hard) = (status.nofile.soft, status.nofile.hard);
        found.push(format!(
            "nofile wanted {wanted}, in force {soft} (hard limit {hard}, set by the node's container runtime)"
        ));
    }
    found.extend(spec.disks.iter().flat_map(|disk| {
        let path = disk.effective_mount_path();
        let log_dir = status.log_dirs.iter().find(|log_dir| log_dir.path == path);
        disk_differences(&disk.name, &path, &disk.mount_options, log_dir)
    }));
    let configured = |name: &str| spec.config.get(name).and_then(|value| value.to_string().parse::<u64>().ok());
    let flush = [("log.flush.interval.messages", status.flush.messages), ("log.flush.interval.ms", status.flush.ms)];
    for (name, in_force) in flush {
        if let Some(wanted) = configured(name)
            && wanted != in_force
        {
            found.push(format!("{name} wanted {wanted}, in force {in_force}"));
        }
    }
    found.extend(spec.kernel.iter().flat_map(|kernel| kernel_differences(kernel, status)));
    found
}

fn disk_differences(name: &str, path: &str, wanted: &[String], log_dir: Option<&LogDirStatus>) -> Vec<String> {
    let Some(log_dir) = log_dir else {
        return vec![format!("disk {name} wanted at {path}, not among the broker's log directories")];
    };
    let mut found = Vec::new();
    match &log_dir.mount_point {
        Some(mount_point) if mount_point != path => {
            found.push(format!("disk {name} wanted mounted at {path}, in force {mount_point}"));
        }
        _ => {}
    }
    let in_force = &log_dir.mount_options;
    let missing: Vec<&str> = wanted.iter().filter(|option| !in_force.contains(option)).map(String::as_str).collect();
    if !missing.is_empty() {
        found.push(format!(
            "disk {name} mount options wanted {}, in force {} (set mountOptions in its StorageClass or PersistentVolume)",
            missing.join(","),
            in_force.join(",")
        ));
    }
    if log_dir.hung {
        found.push(format!("disk {name} hangs: what is written there does not end"));
    }
    if log_dir.poisoned {
        found.push(format!("disk {name} takes no more writes after a failed write or flush"));
    }
    found
}

fn kernel_differences(wanted: &Kernel, status: &BrokerStatus) -> Vec<String> {
    let in_force = kernel(status);
    let exact = |wanted: i64, found: i64| wanted == found;
    let at_least = |wanted: i64, found: i64| found >= wanted;
    type Check = fn(i64, i64) -> bool;
    let checks: [(&str, Option<i64>, Option<i64>, Check); 7] = [
        ("vm.swappiness", wanted.swappiness, in_force.swappiness, exact),
        ("vm.dirty_ratio", wanted.dirty_ratio, in_force.dirty_ratio, exact),
        ("vm.dirty_background_ratio", wanted.dirty_background_ratio, in_force.dirty_background_ratio, exact),
        ("vm.max_map_count", wanted.max_map_count, in_force.max_map_count, at_least),
        ("net.core.rmem_max", wanted.rmem_max, in_force.rmem_max, at_least),
        ("net.core.wmem_max", wanted.wmem_max, in_force.wmem_max, at_least),
        ("net.core.somaxconn", wanted.somaxconn, in_force.somaxconn, at_least),
    ];
    let mut found = Vec::new();
    for (name, wanted, in_force, holds) in checks {
        match (wanted, in_force) {
            (Some(wanted), Some(in_force)) if !holds(wanted, in_force) => {
                found.push(format!("{name} wanted {wanted}, in force {in_force}"));
            }
            (Some(wanted), None) => found.push(format!("{name} wanted {wanted}, can't be read in the container")),
            _ => {}
        }
    }
    if let Some(wanted) = &wanted.transparent_hugepage
        && in_force.transparent_hugepage.as_ref() != Some(wanted)
    {
        let in_force = in_force.transparent_hugepage.as_deref().unwrap_or("not readable in the container");
        found.push(format!("transparent_hugepage wanted {wanted}, in force {in_force}"));
    }
    found
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn count(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

pub(crate) fn threads_in_force(status: &BrokerStatus) -> ThreadsInForce {
    ThreadsInForce {
        network: count(status.threads.network),
        io: count(status.threads.io),
        replica_fetchers: count(status.threads.replica_fetchers),
    }
}

pub(crate) fn nofile(status: &BrokerStatus) -> NofileInForce {
    NofileInForce {
        wanted: status.nofile.wanted.map(signed),
        soft: signed(status.nofile.soft),
        hard: signed(status.nofile.hard),
    }
}

pub(crate) fn flush(status: &BrokerStatus) -> FlushInForce {
    FlushInForce { messages: signed(status.flush.messages), ms: signed(status.flush.ms) }
}

pub(crate) fn kernel(status: &BrokerStatus) -> KernelInForce {
    let kernel = &status.kernel;
    KernelInForce {
        swappiness: kernel.vm_swappiness.map(signed),
        dirty_ratio: kernel.vm_dirty_ratio.map(signed),
        dirty_background_ratio: kernel.vm_dirty_background_ratio.map(signed),
        max_map_count: kernel.vm_max_map_count.map(signed),
        rmem_max: kernel.net_core_rmem_max.map(signed),
        wmem_max: kernel.net_core_wmem_max.map(signed),
        somaxconn: kernel.net_core_somaxconn.map(signed),
        transparent_hugepage: kernel.transparent_hugepage.clone(),
    }
}

/// Figures that change all the time (bytes used and free) are metrics, and not here.
pub(crate) fn disks(status: &BrokerStatus) -> Vec<DiskInForce> {
    let disk = |log_dir: &LogDirStatus| DiskInForce {
        path: log_dir.path.clone(),
        mount_point: log_dir.mount_point.clone(),
        fs_type: log_dir.fs_type.clone(),
        mount_options: log_dir.mount_options.clone(),
        total_bytes: Some(signed(log_dir.total_bytes)),
        poisoned: log_dir.poisoned,
    };
    status.log_dirs.iter().map(disk).collect()
}
