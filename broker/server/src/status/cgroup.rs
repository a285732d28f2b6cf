//! What the container may use of cores and memory, from cgroup v2 or v1. Outside a container: what the machine has.
//!
//! A container sees the host's cores in most places; sizing threads or judging memory by them is the classic mistake.

use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Resources {
    /// Cores that may be used: the quota where there is one, else the cores the scheduler may pick from.
    pub(crate) cores: f64,
    pub(crate) memory_limit_bytes: Option<u64>,
}

pub(crate) fn resources() -> Resources {
    let root = Path::new("/sys/fs/cgroup");
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let available =
        std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX));
    let available = f64::from(available);
    Resources {
        cores: cpu_quota_cores(root, &own).map_or(available, |quota| quota.min(available)),
        memory_limit_bytes: memory_limit_bytes(root, &own),
    }
}

/// Whole cores to size thread pools by: a part of a core still needs a thread.
pub(crate) fn usable_cores() -> usize {
    let cores = resources().cores.ceil();
    (1..=1024).rev().find(|count| f64::from(*count) <= cores).and_then(|count| usize::try_from(count).ok()).unwrap_or(1)
}

/// The directories whose limits hold for this process: its own cgroup and everything above it, as far as it is visible.
/// Inside a container the path of the host is not there and the root is the container's own cgroup.
fn ancestry(root: &Path, own: &str, controller: &str) -> Vec<PathBuf> {
    let line = own.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then_some(path)
    });
    let base = if controller.is_empty() { root.to_owned() } else { root.join(controller) };
    let mut directories = vec![base.clone()];
    let mut directory = base;
    for part in line.unwrap_or_default().split('/').filter(|part| !part.is_empty() && *part != "..") {
        directory = directory.join(part);
        directories.push(directory.clone());
    }
    directories
}

fn cpu_quota_cores(root: &Path, own: &str) -> Option<f64> {
    let v2 = ancestry(root, own, "").into_iter().filter_map(|directory| {
        let text = fs::read_to_string(directory.join("cpu.max")).ok()?;
        let (quota, period) = text.trim().split_once(' ')?;
        cores(quota, period)
    });
    let v1 = ancestry(root, own, "cpu").into_iter().filter_map(|directory| {
        let quota = fs::read_to_string(directory.join("cpu.cfs_quota_us")).ok()?;
        let period = fs::read_to_string(directory.join("cpu.cfs_period_us")).ok()?;
        cores(quota.trim(), period.trim())
    });
    v2.chain(v1).reduce(f64::min)
}

/// `max` (v2) and `-1` (v1) are no quota.
fn cores(quota: &str, period: &str) -> Option<f64> {
    let quota: f64 = quota.parse().ok()?;
    let period: f64 = period.parse().ok()?;
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

fn memory_limit_bytes(root: &Path, own: &str) -> Option<u64> {
    let files = [("", "memory.max"), ("memory", "memory.limit_in_bytes")];
    let limits = files.into_iter().flat_map(|(controller, file)| {
        ancestry(root, own, controller)
            .into_iter()
            .filter_map(move |directory| fs::read_to_string(directory.join(file)).ok()?.trim().parse::<u64>().ok())
    });
    // v1 writes "no limit" as a number near 2^63.
    limits.filter(|bytes| *bytes < 1 << 60).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_tightest_quota_of_version_2_holds() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "cpu.max", "max 100000\n");
        write(root.path(), "kubepods/cpu.max", "400000 100000\n");
        write(root.path(), "kubepods/pod1/cpu.max", "150000 100000\n");
        write(root.path(), "kubepods/pod1/memory.max", "1073741824\n");
        let own = "0::/kubepods/pod1\n";
        assert_eq!(cpu_quota_cores(root.path(), own), Some(1.5));
        assert_eq!(memory_limit_bytes(root.path(), own), Some(1 << 30));
    }

    #[test]
    fn a_container_of_version_1_sees_its_limits_at_the_root() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "cpu/cpu.cfs_quota_us", "50000\n");
        write(root.path(), "cpu/cpu.cfs_period_us", "100000\n");
        write(root.path(), "memory/memory.limit_in_bytes", "536870912\n");
        let own = "4:cpu,cpuacct:/kubepods/x\n3:memory:/kubepods/x\n";
        assert_eq!(cpu_quota_cores(root.path(), own), Some(0.5));
        assert_eq!(memory_limit_bytes(root.path(), own), Some(512 << 20));
    }

    #[test]
    fn no_quota_is_no_limit() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "cpu/cpu.cfs_quota_us", "-1\n");
        write(root.path(), "cpu/cpu.cfs_period_us", "100000\n");
        write(root.path(), "memory/memory.limit_in_bytes", "9223372036854771712\n");
        write(root.path(), "cpu.max", "max 100000\n");
        assert_eq!(cpu_quota_cores(root.path(), "1:cpu:/\n0::/\n"), None);
        assert_eq!(memory_limit_bytes(root.path(), "1:memory:/\n"), None);
    }
}
