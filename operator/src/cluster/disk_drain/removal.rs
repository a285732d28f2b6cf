//! Which disks are being removed, read back from what there is: disks that brokers have and the spec names no more. Known from the
//! StatefulSet, and from a note on the ConfigMap for when the StatefulSet is being made again; empty ones by a mark on their claims.
//!
//! What must always hold: a disk that has not been found empty on every broker is among those that pods are made with.

use forebay_crds::Cluster;
use forebay_crds::cluster::Disk;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use serde_json::Value;

use crate::cluster::build::{broker_set_name, config_map, config_map_name};
use crate::cluster::observe::{ClaimSeen, Observed};

/// On a claim: what has become of its disk.
pub(crate) const DISK_ANNOTATION: &str = "forebay.dev/disk";
/// Values of the annotation: nothing is left on it; and no broker has it any more, and it is kept.
pub(crate) const EMPTIED: &str = "emptied";
pub(crate) const REMOVED: &str = "removed";
/// On the ConfigMap, while a disk is being removed: all disks that brokers have.
pub(crate) const DISKS_ANNOTATION: &str = "forebay.dev/disks";

/// Disks that the spec names no more.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Removal {
    /// May have something on some broker.
    pub(crate) removing: Vec<Disk>,
    /// Found empty on all brokers; some still have it.
    pub(crate) emptied: Vec<Disk>,
    /// All disks that brokers have, in their order.
    known: Vec<Disk>,
    /// Whether the note on the ConfigMap names all that are being removed.
    pub(crate) is_noted: bool,
}

impl Removal {
    pub(crate) fn of(cluster: &Cluster, observed: &Observed) -> Self {
        let name = cluster.name_any();
        let config_map = observed.children.get(&format!("ConfigMap/{}", config_map_name(&name)));
        let set = observed.children.get(&format!("StatefulSet/{}", broker_set_name(&name)));
        let noted = config_map.map(noted).unwrap_or_default();
        let in_set = set.map(in_set).unwrap_or_default();
        let mut known = noted.clone();
        known.extend(in_set.iter().filter(|disk| !names(&noted).contains(&disk.name.as_str())).cloned());
        let is_left = |disk: &&Disk| {
            let is_mounted = observed.pods.iter().any(|pod| pod.disks.contains(&disk.name));
            is_mounted || names(&in_set).contains(&disk.name.as_str())
        };
        let named = names(&cluster.spec.disks);
        let gone = known.iter().filter(|disk| !named.contains(&disk.name.as_str()));
        let (emptied, removing): (Vec<&Disk>, Vec<&Disk>) = gone.partition(|disk| {
            claims_of(cluster, &observed.claims, &disk.name).iter().all(|claim| claim.disk.is_some())
        });
        let emptied: Vec<Disk> = emptied.into_iter().filter(is_left).cloned().collect();
        let removing: Vec<Disk> = removing.into_iter().cloned().collect();
        let is_noted = removing.iter().chain(&emptied).all(|disk| names(&noted).contains(&disk.name.as_str()));
        Self { removing, emptied, known, is_noted }
    }

    /// Whether there is anything to remove.
    pub(crate) fn is_under_way(&self) -> bool {
        !self.removing.is_empty() || !self.emptied.is_empty()
    }

    /// All that are being removed.
    pub(crate) fn disks(&self) -> impl Iterator<Item = &Disk> {
        self.removing.iter().chain(&self.emptied)
    }

    /// The Cluster with the disks that its brokers are to have now: those of the spec, and those that may not be empty. They keep their
    /// order as long as one is being removed, or brokers would be restarted for it.
    pub(crate) fn in_force(&self, cluster: &Cluster) -> Cluster {
        let mut cluster = cluster.clone();
        if self.removing.is_empty() {
            return cluster;
        }
        let mut named = std::mem::take(&mut cluster.spec.disks);
        for known in &self.known {
            let removing = self.removing.iter().find(|disk| disk.name == known.name);
            match named.iter().position(|disk| disk.name == known.name) {
                Some(at) => cluster.spec.disks.push(named.remove(at)),
                None => cluster.spec.disks.extend(removing.cloned()),
            }
        }
        cluster.spec.disks.extend(named);
        cluster
    }

    /// The note for the ConfigMap; none if nothing is being removed.
    pub(crate) fn note(&self, cluster: &Cluster) -> Option<String> {
        let mut disks = self.in_force(cluster).spec.disks;
        disks.extend(self.emptied.iter().cloned());
        self.is_under_way().then(|| serde_json::to_string(&disks).unwrap_or_default())
    }

    /// What is wrong with the disks of the spec, given those that brokers have, and what would be right.
    pub(crate) fn refuse(&self, cluster: &Cluster, observed: &Observed) -> Option<String> {
        let file = observed.children.get(&format!("ConfigMap/{}", config_map_name(&cluster.name_any())));
        let log_dirs = config_map::settings_of(file).remove("log.dirs").unwrap_or_default();
        // One that brokers do not use, as after a change of the set by hand, is no other place.
        let is_used = |known: &&Disk| log_dirs.split(',').any(|path| path == known.effective_mount_path());
        let other = |disk: &Disk| {
            let mut known = self.known.iter().filter(is_used);
            known.find(|known| known.name == disk.name && is_another(known, disk))
        };
        if let Some((disk, known)) = cluster.spec.disks.iter().find_map(|disk| Some((disk, other(disk)?))) {
            return Some(format!(
                "spec.disks has {} as {}, and brokers have a disk of that name as {}: write it as that, or leave it out until status.removingDisks does not name it",
                disk.name,
                place(disk),
                place(known)
            ));
        }
        unknown_claim(cluster, &self.known, observed).map(|claim| {
            format!(
                "claim {claim} is of a disk that spec.disks does not name, and may hold records: name its disk, with the mountPath that it had, or delete the claim"
            )
        })
    }
}

/// A claim of a broker that is to be, whose disk nobody knows of: it was left behind by an earlier Cluster of this name.
fn unknown_claim<'a>(cluster: &Cluster, known: &[Disk], observed: &'a Observed) -> Option<&'a str> {
    let name = cluster.name_any();
    let is_known = |claim: &ClaimSeen| {
        let mut disks = known.iter().chain(&cluster.spec.disks);
        disks.any(|disk| ordinal_of(cluster, &disk.name, &claim.name).is_some())
    };
    let unknown = observed.claims.iter().find(|claim| {
        let is_of_broker = claim.broker_id(&name).is_some_and(|id| id < cluster.spec.replicas);
        is_of_broker && claim.disk.is_none() && claim.broker.is_none() && !is_known(claim)
    });
    unknown.map(|claim| claim.name.as_str())
}

fn is_another(known: &Disk, disk: &Disk) -> bool {
    known.effective_mount_path() != disk.effective_mount_path() || known.storage_class_name != disk.storage_class_name
}

fn place(disk: &Disk) -> String {
    let class = disk.storage_class_name.as_deref().unwrap_or("the default class");
    format!("mountPath {} in {class}", disk.effective_mount_path())
}

fn names(disks: &[Disk]) -> Vec<&str> {
    disks.iter().map(|disk| disk.name.as_str()).collect()
}

/// What the note says; one that somebody has broken by hand says nothing.
fn noted(config_map: &Value) -> Vec<Disk> {
    let note = config_map["metadata"]["annotations"][DISKS_ANNOTATION].as_str().unwrap_or_default();
    serde_json::from_str(note).unwrap_or_default()
}

/// The disks of a live set, in its order.
fn in_set(set: &Value) -> Vec<Disk> {
    let mounts = set["spec"]["template"]["spec"]["containers"][0]["volumeMounts"].as_array();
    let path = |name: &str| {
        let mount = mounts.into_iter().flatten().find(|mount| mount["name"] == name);
        mount.and_then(|mount| mount["mountPath"].as_str()).map(str::to_owned)
    };
    let disk = |template: &Value| {
        let name = template["metadata"]["name"].as_str()?.to_owned();
        let (spec, mount_path) = (&template["spec"], path(&name));
        let size = Quantity(spec["resources"]["requests"]["storage"].as_str()?.to_owned());
        let storage_class_name = spec["storageClassName"].as_str().map(str::to_owned);
        Some(Disk { name, size, storage_class_name, mount_path, mount_options: Vec::new() })
    };
    set["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten().filter_map(disk).collect()
}

/// The broker whose claim of a disk this is.
fn ordinal_of(cluster: &Cluster, disk: &str, claim: &str) -> Option<i32> {
    let ordinal = claim.strip_prefix(&format!("{disk}-{}-", broker_set_name(&cluster.name_any())))?;
    ordinal.parse::<u16>().ok().map(i32::from)
}

/// The claims of one disk.
pub(crate) fn claims_of<'a>(cluster: &Cluster, claims: &'a [ClaimSeen], disk: &str) -> Vec<&'a ClaimSeen> {
    claims.iter().filter(|claim| ordinal_of(cluster, disk, &claim.name).is_some()).collect()
}
