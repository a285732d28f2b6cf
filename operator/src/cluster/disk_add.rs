//! Adding disks to brokers that run. A StatefulSet's controller tries to put a new claim into each pod that lacks it, which pods refuse, and
//! looks at no pod after the first where that fails: a broker with a lower one that lacks the disk would not be made again.
//!
//! What must hold: while a broker is missing, or lacks the disk and is not ready, and one before it lacks the disk, the set is as if the disk
//! were not to be. So brokers take a disk in from the lowest id on (`roll`), and what goes wrong in between heals as ever.

use forebay_crds::Cluster;

use super::observe::{Observed, PodSeen};

/// The Cluster without the disks that have to wait, and why they do.
pub(crate) fn without_held(cluster: &Cluster, observed: &Observed) -> (Cluster, Option<String>) {
    let mut now = cluster.clone();
    let mut why = None;
    now.spec.disks.retain(|disk| match held(&disk.name, cluster.spec.replicas, &observed.pods) {
        None => true,
        Some(broker) => {
            why = Some(format!("disk {} is added when broker {broker} runs", disk.name));
            false
        }
    });
    // All of them are new to a broker: a set needs one.
    if now.spec.disks.is_empty() { (cluster.clone(), None) } else { (now, why) }
}

/// The broker for which a disk has to wait.
fn held(disk: &str, replicas: i32, pods: &[PodSeen]) -> Option<i32> {
    let pod_of = |id: i32| pods.iter().find(|pod| pod.ordinal == id);
    let lowest = pods.iter().filter(|pod| pod.lacks(disk)).map(|pod| pod.ordinal).min()?;
    (lowest + 1..replicas).find(|id| pod_of(*id).is_none_or(|pod| !pod.ready && pod.lacks(disk)))
}

impl PodSeen {
    /// Whether it was made without a disk.
    pub(crate) fn lacks(&self, disk: &str) -> bool {
        !self.disks.is_empty() && !self.disks.iter().any(|has| has == disk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(all: &[(i32, bool, &[&str])]) -> Vec<PodSeen> {
        let one = |(ordinal, ready, disks): &(i32, bool, &[&str])| PodSeen {
            ordinal: *ordinal,
            ready: *ready,
            disks: disks.iter().map(|disk| (*disk).to_owned()).collect(),
            ..PodSeen::default()
        };
        all.iter().map(one).collect()
    }

    #[test]
    fn a_disk_waits_for_a_broker_that_could_not_be_made_again_after_one_that_lacks_it() {
        let (old, new): (&[&str], &[&str]) = (&["data"], &["data", "new"]);
        let held = |all: &[(i32, bool, &[&str])]| held("new", 3, &pods(all));
        assert_eq!(held(&[(0, true, old), (1, true, old), (2, true, old)]), None, "all run");
        assert_eq!(held(&[(1, true, old), (2, true, old)]), None, "the lowest is being made again, with it");
        assert_eq!(held(&[(0, true, new), (2, true, old)]), None, "so is the next");
        assert_eq!(held(&[(0, true, new), (1, true, old)]), Some(2), "the last is gone and one before it lacks it");
        assert_eq!(held(&[(0, true, old), (1, false, old), (2, true, old)]), Some(1), "it would be replaced first");
        assert_eq!(held(&[(0, false, new), (1, true, old), (2, true, old)]), None, "it waits for its new disk");
        assert_eq!(held(&[(0, true, new), (1, true, new)]), None, "nobody lacks it");
        assert_eq!(held(&[]), None, "a first start");
    }

    #[test]
    fn what_waits_is_left_out_and_told_and_what_is_there_stays() {
        let spec = serde_json::json!({
            "apiVersion": "forebay.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "c"},
            "spec": {"replicas": 3, "disks": [{"name": "data", "size": "1Gi"}, {"name": "new", "size": "1Gi"}]},
        });
        let cluster: Cluster = serde_json::from_value(spec).unwrap();
        let observed = Observed { pods: pods(&[(0, true, &["data"]), (1, true, &["data"])]), ..Observed::default() };
        let (now, why) = without_held(&cluster, &observed);
        assert_eq!(now.spec.disks.iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>(), ["data"]);
        assert_eq!(why.as_deref(), Some("disk new is added when broker 2 runs"));
    }
}
