//! What is in force against what is wanted. Pure: the spec and the brokers' own reports in, differences with both figures
//! out.

use std::collections::BTreeMap;
use std::fmt::Display;

use forebay_broker_config::status::{BrokerStatus, LogDirStatus};
use forebay_crds::cluster::{
    DiskInForce, FlushInForce, Kernel, KernelInForce, NofileInForce, ThreadsInForce, TuningCheck,
};
use forebay_crds::{ClusterSpec, ConditionReport, ConditionState, ConditionType, Reason};

use super::build::threads;
use super::page_cache;
use super::racks::{NoRack, RackSeen};

/// The condition `TuningInForce` over all brokers.
pub(crate) fn judge(
    spec: &ClusterSpec,
    reports: &BTreeMap<i32, &BrokerStatus>,
    racks: &BTreeMap<i32, &RackSeen>,
) -> ConditionReport {
    let report = |state, reason, message| ConditionReport::new(ConditionType::TuningInForce, state, reason, message);
    if reports.is_empty() {
        return report(
            ConditionState::Unknown,
            Reason::NotReported,
            "no broker has reported what is in force".to_owned(),
        );
    }
    let found = reports.iter().flat_map(|(id, status)| {
        let rack = racks.get(id).copied().unwrap_or(&RackSeen::None);
        let differs = checks(spec, status, rack).into_iter().filter(|check| !check.holds);
        differs.map(move |check| format!("broker {id}: {}", text(&check)))
    });
    let found: Vec<String> = found.collect();
    if found.is_empty() {
        let message = format!("{} of {} brokers report what the spec wants", reports.len(), spec.replicas);
        return report(ConditionState::True, Reason::AsSpecified, message);
    }
    report(ConditionState::False, Reason::DiffersFromSpec, found.join("; "))
}

/// What the spec wants of one broker, what is in force there, and whether that will do.
pub(crate) fn checks(spec: &ClusterSpec, status: &BrokerStatus, rack: &RackSeen) -> Vec<TuningCheck> {
    let mut found = Vec::new();
    let wanted = threads(spec);
    let threads = [
        ("network threads", wanted.network, status.threads.network),
        ("io threads", wanted.io, status.threads.io),
        ("replica fetchers", wanted.replica_fetchers, status.threads.replica_fetchers),
    ];
    let of_threads = threads.into_iter().filter_map(|(what, wanted, in_force)| {
        let wanted = wanted?;
        Some(check(&what, &wanted, &in_force, usize::try_from(wanted) == Ok(in_force)))
    });
    found.extend(of_threads);
    if let Some(wanted) = spec.ulimits.as_ref().and_then(|ulimits| ulimits.nofile) {
        let (soft, hard) = (status.nofile.soft, status.nofile.hard);
        let holds = u64::try_from(wanted).is_ok_and(|wanted| wanted <= soft);
        let hint = format!("hard limit {hard}, set by the node's container runtime");
        found.push(TuningCheck { hint: (!holds).then_some(hint), ..check(&"nofile", &wanted, &soft, holds) });
    }
    found.extend(spec.disks.iter().flat_map(|disk| {
        let path = disk.effective_mount_path();
        let log_dir = status.log_dirs.iter().find(|log_dir| log_dir.path == path);
        disk_checks(&disk.name, &path, &disk.mount_options, log_dir)
    }));
    let configured = |name: &str| spec.config.get(name).and_then(|value| value.to_string().parse::<u64>().ok());
    let flush = [("log.flush.interval.messages", status.flush.messages), ("log.flush.interval.ms", status.flush.ms)];
    let of_flush = flush.into_iter().filter_map(|(name, in_force)| {
        let wanted = configured(name)?;
        Some(check(&name, &wanted, &in_force, wanted == in_force))
    });
    found.extend(of_flush);
    found.extend(spec.kernel.iter().flat_map(|kernel| kernel_checks(kernel, status)));
    found.extend(rack_check(spec, rack, status));
    found.extend(page_cache::check_reserve(spec, status));
    found
}

/// A broker reads its rack when it starts, which may be before its pod has the label.
fn rack_check(spec: &ClusterSpec, rack: &RackSeen, status: &BrokerStatus) -> Option<TuningCheck> {
    let label = &spec.rack.as_ref()?.node_label;
    // Absent: a version that does not tell.
    let in_force = status.rack.as_deref()?;
    let shown = if in_force.is_empty() { "none" } else { in_force };
    match rack {
        RackSeen::None | RackSeen::Nowhere(_) => None,
        RackSeen::OnPod(wanted) | RackSeen::OnNode(wanted) => {
            let holds = wanted == in_force;
            let hint =
                "it started before its pod had the label: annotate the pod with forebay.dev/restart=now".to_owned();
            Some(TuningCheck { hint: (!holds).then_some(hint), ..check(&"rack", wanted, &shown, holds) })
        }
        RackSeen::Forbidden(NoRack { why, .. }) | RackSeen::Unknown(why) => {
            let wanted = format!("{label} of its node");
            let holds = !in_force.is_empty();
            Some(TuningCheck { hint: (!holds).then(|| why.clone()), ..check(&"rack", &wanted, &shown, holds) })
        }
    }
}

pub(crate) fn check(setting: &dyn Display, wanted: &dyn Display, in_force: &dyn Display, holds: bool) -> TuningCheck {
    TuningCheck {
        setting: setting.to_string(),
        wanted: wanted.to_string(),
        in_force: in_force.to_string(),
        holds,
        hint: None,
    }
}

fn text(check: &TuningCheck) -> String {
    let hint = check.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
    format!("{} wanted {}, in force {}{hint}", check.setting, check.wanted, check.in_force)
}

fn disk_checks(name: &str, path: &str, wanted: &[String], log_dir: Option<&LogDirStatus>) -> Vec<TuningCheck> {
    let Some(log_dir) = log_dir else {
        return vec![check(&format!("disk {name}"), &path, &"none of the broker's log directories", false)];
    };
    let mut found = Vec::new();
    if let Some(mount_point) = &log_dir.mount_point {
        found.push(check(&format!("disk {name} mount point"), &path, mount_point, mount_point == path));
    }
    if !wanted.is_empty() {
        let in_force = &log_dir.mount_options;
        let missing: Vec<&str> =
            wanted.iter().filter(|option| !in_force.contains(option)).map(String::as_str).collect();
        let holds = missing.is_empty();
        let shown = if holds { wanted.join(",") } else { missing.join(",") };
        let hint = "set mountOptions in its StorageClass or PersistentVolume".to_owned();
        found.push(TuningCheck {
            hint: (!holds).then_some(hint),
            ..check(&format!("disk {name} mount options"), &shown, &in_force.join(","), holds)
        });
    }
    if log_dir.poisoned {
        found.push(check(&format!("disk {name}"), &"writes", &"none after a failed write or flush", false));
    }
    found
}

fn kernel_checks(wanted: &Kernel, status: &BrokerStatus) -> Vec<TuningCheck> {
    const UNREADABLE: &str = "not readable in the container";
    let in_force = kernel(status);
    let exact = |wanted: i64, found: i64| wanted == found;
    let at_least = |wanted: i64, found: i64| found >= wanted;
    type Judge = fn(i64, i64) -> bool;
    let settings: [(&str, Option<i64>, Option<i64>, Judge); 7] = [
        ("vm.swappiness", wanted.swappiness, in_force.swappiness, exact),
        ("vm.dirty_ratio", wanted.dirty_ratio, in_force.dirty_ratio, exact),
        ("vm.dirty_background_ratio", wanted.dirty_background_ratio, in_force.dirty_background_ratio, exact),
        ("vm.max_map_count", wanted.max_map_count, in_force.max_map_count, at_least),
        ("net.core.rmem_max", wanted.rmem_max, in_force.rmem_max, at_least),
        ("net.core.wmem_max", wanted.wmem_max, in_force.wmem_max, at_least),
        ("net.core.somaxconn", wanted.somaxconn, in_force.somaxconn, at_least),
    ];
    let numbers = settings.into_iter().filter_map(|(name, wanted, in_force, holds)| {
        let wanted = wanted?;
        Some(match in_force {
            Some(in_force) => check(&name, &wanted, &in_force, holds(wanted, in_force)),
            None => check(&name, &wanted, &UNREADABLE, false),
        })
    });
    let mut found: Vec<TuningCheck> = numbers.collect();
    if let Some(wanted) = &wanted.transparent_hugepage {
        let in_force = in_force.transparent_hugepage.as_deref().unwrap_or(UNREADABLE);
        found.push(check(&"transparent_hugepage", wanted, &in_force, in_force == wanted));
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
        has_metadata: log_dir.has_metadata,
    };
    status.log_dirs.iter().map(disk).collect()
}
