//! Room on the brokers' disks. Pure. The condition changes before it hurts, and back only when there is clearly more room
//! again; its text has no figures that change all the time: those are metrics.

use std::collections::BTreeMap;

use forebay_broker_config::status::BrokerStatus;
use forebay_crds::{ClusterSpec, ConditionReport, ConditionState, ConditionType, Reason};

/// Less free than this is little.
const LITTLE_PERCENT: u64 = 15;
/// A disk that had little has room again from here on.
const ENOUGH_PERCENT: u64 = 20;

/// The condition `DisksHaveRoom` over all brokers; `had_little`: it was False before.
pub(crate) fn judge(spec: &ClusterSpec, reports: &BTreeMap<i32, &BrokerStatus>, had_little: bool) -> ConditionReport {
    let report = |state, reason, message| ConditionReport::new(ConditionType::DisksHaveRoom, state, reason, message);
    if reports.is_empty() {
        let message = "no broker has reported how much room its disks have".to_owned();
        return report(ConditionState::Unknown, Reason::NotReported, message);
    }
    let least = if had_little { ENOUGH_PERCENT } else { LITTLE_PERCENT };
    let disk_of = |path: &str| {
        let disk = spec.disks.iter().find(|disk| disk.effective_mount_path() == path);
        disk.map_or(path.to_owned(), |disk| disk.name.clone())
    };
    // One that nothing new comes to is about to go.
    let full = reports.iter().flat_map(|(id, status)| {
        let dirs = status.log_dirs.iter().filter(|dir| dir.total_bytes > 0 && !dir.cordoned);
        let full = dirs.filter(move |dir| dir.free_bytes / (dir.total_bytes / 100).max(1) < least);
        full.map(move |dir| format!("disk {} of broker {id}", disk_of(&dir.path)))
    });
    let full: Vec<String> = full.collect();
    if full.is_empty() {
        return report(ConditionState::True, Reason::AsSpecified, "all disks have room".to_owned());
    }
    let message = format!(
        "less than {least} % is free on {}: raise disks[].size, or keep less (log.retention.ms, log.retention.bytes)",
        full.join(", ")
    );
    report(ConditionState::False, Reason::DiskAlmostFull, message)
}

#[cfg(test)]
mod tests {
    use forebay_broker_config::status::LogDirStatus;
    use serde_json::json;

    use super::*;

    fn judged(free_percent: u64, had_little: bool) -> ConditionReport {
        let disks = json!({"replicas": 1, "disks": [{"name": "data", "size": "1Gi"}]});
        let spec: ClusterSpec = serde_json::from_value(disks).unwrap();
        let dir = LogDirStatus {
            path: "/var/lib/forebay/data".into(),
            total_bytes: 1 << 40,
            free_bytes: (1 << 40) / 100 * free_percent,
            ..LogDirStatus::default()
        };
        let status = BrokerStatus { log_dirs: vec![dir], ..BrokerStatus::default() };
        judge(&spec, &[(2, &status)].into(), had_little)
    }

    #[test]
    fn little_room_is_said_in_time_and_is_over_only_when_there_is_clearly_more() {
        assert_eq!(judged(15, false).state, ConditionState::True);
        let low = judged(14, false);
        assert_eq!((low.state, low.reason), (ConditionState::False, Reason::DiskAlmostFull));
        assert!(low.message.contains("disk data of broker 2") && low.message.contains("disks[].size"), "{low:?}");
        assert_eq!(judged(19, true).state, ConditionState::False);
        assert_eq!(judged(20, true).state, ConditionState::True);
    }

    #[test]
    fn a_disk_that_can_not_be_read_is_no_full_one_and_silence_is_unknown() {
        let spec: ClusterSpec = serde_json::from_value(json!({"replicas": 1, "disks": []})).unwrap();
        let failed = BrokerStatus { log_dirs: vec![LogDirStatus::default()], ..BrokerStatus::default() };
        assert_eq!(judge(&spec, &[(0, &failed)].into(), false).state, ConditionState::True);
        assert_eq!(judge(&spec, &BTreeMap::new(), false).state, ConditionState::Unknown);
    }

    #[test]
    fn a_full_disk_that_is_about_to_go_needs_no_room() {
        let spec: ClusterSpec = serde_json::from_value(json!({"replicas": 1, "disks": []})).unwrap();
        let state = |cordoned| {
            let dir = LogDirStatus { total_bytes: 1000, free_bytes: 1, cordoned, ..LogDirStatus::default() };
            let status = BrokerStatus { log_dirs: vec![dir], ..BrokerStatus::default() };
            judge(&spec, &[(0, &status)].into(), false).state
        };
        assert_eq!((state(false), state(true)), (ConditionState::False, ConditionState::True));
    }
}
