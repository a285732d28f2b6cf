//! Growth of disks. Claims first, whatever the health of the brokers: a full disk is why they are ill. Then the
//! StatefulSet is deleted, its pods and claims left alone, and made again, because its claim templates can't be changed.

use std::time::Duration;

use forebay_crds::quantity::quantity;
use forebay_crds::{Cluster, ConditionReport, ConditionState, ConditionType, Reason};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::Value;

use super::build::broker_set_name;
use super::observe::{ClaimSeen, PodSeen};
use crate::kube::apply::Child;
use crate::kube::compare;

/// Most file systems grow while they are mounted, a moment after their volume. One that has not by now grows when it is mounted anew.
const GROWS_WITHIN: Duration = Duration::from_secs(60);

/// A claim to be enlarged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Growth {
    pub(crate) claim: String,
    pub(crate) from: String,
    pub(crate) to: String,
}

/// What is to be done about the disks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Disks {
    pub(crate) growths: Vec<Growth>,
    pub(crate) report: ConditionReport,
}

/// Compares each claim with its disk. A claim that is larger than the spec says is left as it is: none can shrink.
pub(crate) fn judge(cluster: &Cluster, claims: &[ClaimSeen]) -> Disks {
    let set = broker_set_name(&cluster.name_any());
    let (mut growths, mut larger, mut pending, mut seen) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for disk in &cluster.spec.disks {
        let prefix = format!("{}-{set}-", disk.name);
        let of_disk = claims
            .iter()
            .filter(|claim| claim.name.strip_prefix(&prefix).is_some_and(|ordinal| ordinal.parse::<u16>().is_ok()));
        for claim in of_disk {
            seen += 1;
            let wanted = quantity(&disk.size.0);
            let requested = quantity(&claim.requested);
            let capacity = claim.capacity.as_deref().and_then(quantity);
            if wanted > requested {
                let (claim, from) = (claim.name.clone(), claim.requested.clone());
                growths.push(Growth { claim, from, to: disk.size.0.clone() });
            } else if requested > wanted {
                larger.push(format!("{} has {}, the spec says {}", claim.name, claim.requested, disk.size.0));
            } else if capacity.is_some() && capacity < requested {
                let has = claim.capacity.as_deref().unwrap_or_default();
                pending.push(format!("{} has {has} of {}", claim.name, claim.requested));
            }
        }
    }
    let report = |state, reason, message| ConditionReport::new(ConditionType::DisksInForce, state, reason, message);
    let report = if !growths.is_empty() {
        let texts = growths.iter().map(|g| format!("{} from {} to {}", g.claim, g.from, g.to));
        report(ConditionState::False, Reason::DiskResizing, texts.collect::<Vec<_>>().join("; "))
    } else if !pending.is_empty() {
        report(ConditionState::False, Reason::DiskResizing, pending.join("; "))
    } else if !larger.is_empty() {
        report(ConditionState::True, Reason::DiskLargerThanSpec, format!("{}; left as it is", larger.join("; ")))
    } else if seen == 0 {
        report(ConditionState::Unknown, Reason::Pending, "no claim exists yet".to_owned())
    } else {
        report(ConditionState::True, Reason::AsSpecified, format!("{seen} claims have the size that the spec says"))
    };
    Disks { growths, report }
}

/// The claims whose file systems wait for this pod to be made anew. A pod that came after a volume had grown has mounted what there
/// was: another restart would change nothing.
pub(crate) fn held_by(pod: &PodSeen, claims: &[&ClaimSeen], now: Timestamp) -> Vec<String> {
    let waits = |claim: &&&ClaimSeen| {
        claim.unmounted_growth.is_some_and(|since| {
            Duration::try_from(now.duration_since(since)).is_ok_and(|waited| waited >= GROWS_WITHIN)
                && pod.created.is_some_and(|made| made < since)
        })
    };
    claims.iter().filter(waits).map(|claim| claim.name.clone()).collect()
}

/// A set that is desired, but for its claim templates: as long as a claim can't be enlarged, everything else goes on.
pub(crate) fn with_live_templates(child: &Child, live: &Value) -> Child {
    let mut value = child.value.clone();
    value["spec"]["volumeClaimTemplates"] = live["spec"]["volumeClaimTemplates"].clone();
    Child { value: compare::with_hash(compare::without_hash(value)), ..child.clone() }
}

/// Whether the live set's claim templates differ from the desired ones: a disk was added or has grown.
pub(crate) fn templates_differ(desired: &Value, live: &Value) -> bool {
    let (desired, live) = (&desired["spec"]["volumeClaimTemplates"], &live["spec"]["volumeClaimTemplates"]);
    let count = |templates: &Value| templates.as_array().map_or(0, Vec::len);
    count(desired) != count(live) || !compare::is_within(desired, live)
}
