//! Which broker is restarted next, if any: one scheduler for all brokers of a cluster, a step function. It looks at
//! things as they are, so a restart of the operator loses nothing, and however long a broker takes to come back, it
//! waits.
//!
//! What must always hold: at most one broker is down because of the roll; a broker that is down already goes first, so
//! that a bad spec costs one pod and its correction heals that pod, but never one that reads its logs; a broker that
//! runs is only taken down when every partition keeps the in-sync replicas that it needs, and the leader of the
//! metadata quorum after all others. Partitions that can never spare a replica block nothing and are named.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_crds::{Cluster, Reason};
use k8s_openapi::api::core::v1::PodSpec;
use kube::ResourceExt;
use serde_json::Value;

use super::build::{CHECKSUM_ANNOTATION, RESTARTED_FOR_ANNOTATION, broker_set_name};
use super::observe::PodSeen;
use crate::kafka::brokers::{BrokersSeen, PartitionSeen, some_of};

/// Replicas that come no closer for so long are waited for no more, as long as what partitions need is there.
const STALLED_AFTER: Duration = Duration::from_secs(300);

/// What is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation<'a> {
    pub(crate) pods: &'a [PodSeen],
    pub(crate) replicas: i32,
    /// What a new pod would be made from.
    pub(crate) template: &'a Template,
    /// Brokers that read their logs, by pod: how far they are.
    pub(crate) recovering: &'a BTreeMap<String, String>,
    /// What the brokers say; not asked for unless a broker that runs is to be taken down.
    pub(crate) brokers: Option<&'a Result<BrokersSeen, String>>,
    /// What restarts for a changed spec wait for, if no maintenance window is open.
    pub(crate) closed: Option<&'a str>,
    /// How long the number of replicas that are behind has been the same.
    pub(crate) unchanged_for: Duration,
}

/// The set's pod template, as far as reasons go by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Template {
    /// The revision that the StatefulSet would give a new pod.
    pub(crate) revision: String,
    pub(crate) marks: Marks,
    /// The disks of a new pod, by name.
    pub(crate) disks: Vec<String>,
}

/// What tells people why a template differs from another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    pub(crate) image: Option<String>,
    /// Checksum of the configuration that is read at the start only.
    pub(crate) checksum: Option<String>,
    /// Which restart of all brokers was asked for.
    pub(crate) restart: Option<String>,
}

/// What a pod was made from.
pub(crate) fn marks(annotations: &BTreeMap<String, String>, spec: Option<&PodSpec>) -> Marks {
    let mark = |name: &str| annotations.get(name).cloned();
    let image = spec.and_then(|spec| spec.containers.first()).and_then(|container| container.image.clone());
    Marks { image, checksum: mark(CHECKSUM_ANNOTATION), restart: mark(RESTARTED_FOR_ANNOTATION) }
}

/// The same of a template as the API has it.
pub(crate) fn marks_of(template: &Value) -> Marks {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let annotations = &template["metadata"]["annotations"];
    Marks {
        image: text(&template["spec"]["containers"][0]["image"]),
        checksum: text(&annotations[CHECKSUM_ANNOTATION]),
        restart: text(&annotations[RESTARTED_FOR_ANNOTATION]),
    }
}

/// The present template; none until the set's controller has seen it, since its status still names the old revision.
pub(crate) fn template(cluster: &Cluster, children: &BTreeMap<String, Value>) -> Option<Template> {
    let set = children.get(&format!("StatefulSet/{}", broker_set_name(&cluster.name_any())))?;
    let is_seen = set["status"]["observedGeneration"].as_i64() == set["metadata"]["generation"].as_i64();
    let revision = set["status"]["updateRevision"].as_str().filter(|_| is_seen)?;
    let templates = set["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten();
    let disks = templates.filter_map(|template| Some(template["metadata"]["name"].as_str()?.to_owned())).collect();
    Some(Template { revision: revision.to_owned(), marks: marks_of(&set["spec"]["template"]), disks })
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// No broker is to be restarted.
    Nothing,
    /// Restart this one.
    Replace(Replacement),
    /// Something has to come first; the text says what.
    Wait(String),
    /// Restarts have to wait for a maintenance window; the text says which.
    WaitForWindow(String),
}

/// A broker to be restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replacement {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) reason: Reason,
    pub(crate) why: String,
    /// Topics whose partitions have no replica to spare, for people; none if there are none.
    pub(crate) without_spare: Option<String>,
}

/// A pod that is to be restarted, and why.
struct Due<'a> {
    pod: &'a PodSeen,
    reason: Reason,
    what: String,
}

impl Due<'_> {
    /// One that is down costs nothing, and one that somebody asks for is wanted now.
    fn waits_for_window(&self) -> bool {
        self.pod.ready && self.reason != Reason::RestartRequested
    }

    fn replace(&self, brokers: Option<&BrokersSeen>) -> Step {
        let pod = self.pod;
        let state = if pod.ready { "running" } else { "not ready" };
        let without_spare = brokers.and_then(|brokers| without_spare(&brokers.partitions, pod.ordinal));
        Step::Replace(Replacement {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            reason: self.reason,
            why: format!("{}, {state}: {}", pod.name, self.what),
            without_spare,
        })
    }
}

/// Whether a broker that runs is to be taken down, so that the others must be asked first.
pub(crate) fn asks_brokers(pods: &[PodSeen], replicas: i32, template: &Template, closed: bool) -> bool {
    let mut due = pods.iter().filter(|pod| !pod.deleting).filter_map(|pod| due(pod, template));
    replicas > 1 && due.any(|due| !closed || !due.waits_for_window())
}

pub(crate) fn next(situation: &Situation<'_>) -> Step {
    let Situation { pods, replicas, template, recovering, .. } = *situation;
    let mut due: Vec<Due<'_>> = pods.iter().filter(|pod| !pod.deleting).filter_map(|pod| due(pod, template)).collect();
    if due.is_empty() {
        return Step::Nothing;
    }
    if let Some(closed) = situation.closed {
        due.retain(|due| !due.waits_for_window());
        if due.is_empty() {
            return Step::WaitForWindow(closed.to_owned());
        }
    }
    if let Some(pod) = pods.iter().find(|pod| pod.deleting) {
        return Step::Wait(format!("{} is stopping", pod.name));
    }
    let said = situation.brokers.and_then(|brokers| brokers.as_ref().ok());
    if let Some(down) = due.iter().find(|due| !due.pod.ready) {
        // Killed while it reads its logs, it would begin anew.
        if let Some(progress) = recovering.get(&down.pod.name) {
            return Step::Wait(progress.clone());
        }
        // Not ready is not always down: it may be one of the last that have the records.
        return match said.and_then(|said| would_miss(&said.partitions, down.pod.ordinal)) {
            Some(why) => Step::Wait(format!("{} is not ready, and {why}", down.pod.name)),
            None => down.replace(said),
        };
    }
    // Those that are to go hold nobody up: what they have is looked at partition by partition.
    let staying = || pods.iter().filter(|pod| pod.ordinal < replicas);
    if let Some(pod) = staying().find(|pod| !pod.ready) {
        let why = pod.message.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        let not_ready = || format!("{} is not ready yet{why}", pod.name);
        return Step::Wait(recovering.get(&pod.name).cloned().unwrap_or_else(not_ready));
    }
    let count = i32::try_from(staying().count()).unwrap_or(i32::MAX);
    if count < replicas {
        return Step::Wait(format!("{count} of {replicas} pods exist"));
    }
    if replicas == 1 {
        return due.last().map_or(Step::Nothing, |due| due.replace(None));
    }
    match situation.brokers {
        None => Step::Wait("the brokers have not been asked yet".to_owned()),
        Some(Err(error)) => Step::Wait(format!("the brokers do not say whether one can be spared: {error}")),
        Some(Ok(said)) => running(&due, said, situation),
    }
}

/// All brokers run: which of those that are due can be spared?
fn running(due: &[Due<'_>], said: &BrokersSeen, situation: &Situation<'_>) -> Step {
    let Situation { pods, unchanged_for, template: Template { disks, .. }, .. } = *situation;
    let Some(leader) = said.quorum_leader else {
        return Step::Wait("the metadata quorum has no leader".to_owned());
    };
    let behind = behind(&said.partitions, pods);
    if behind > 0 && unchanged_for < STALLED_AFTER {
        return Step::Wait(format!("{behind} replicas are catching up"));
    }
    let votes = |due: &&Due<'_>| said.voters.contains(&due.pod.ordinal);
    let voting = pods.iter().filter(|pod| pod.ready && said.voters.contains(&pod.ordinal)).count();
    if due.iter().any(|due| votes(&due)) && voting.saturating_sub(1) * 2 <= said.voters.len() {
        let (up, all) = (voting, said.voters.len());
        return Step::Wait(format!(
            "{up} of {all} brokers that vote on metadata are ready: none of them can be spared"
        ));
    }
    let (leads, others): (Vec<_>, Vec<_>) = due.iter().partition(|due| due.pod.ordinal == leader);
    // The leader goes last: each time it stops, another must take over, and it would be the next that stops.
    let candidates = if others.is_empty() { leads } else { others };
    let lacking = due.iter().filter(|due| disks.iter().any(|disk| due.pod.lacks(disk)));
    // The set's controller makes no pod again after one that lacks a disk (`disk_add`).
    let candidates = lacking.min_by_key(|due| due.pod.ordinal).map_or(candidates, |lowest| vec![lowest]);
    let mut first_reason = None;
    for due in candidates.iter().rev() {
        match would_miss(&said.partitions, due.pod.ordinal) {
            None => return due.replace(Some(said)),
            Some(why) => drop(first_reason.get_or_insert(format!("{} can't be spared: {why}", due.pod.name))),
        }
    }
    first_reason.map_or(Step::Nothing, Step::Wait)
}

/// Why this pod is to be restarted, if it is.
fn due<'a>(pod: &'a PodSeen, template: &Template) -> Option<Due<'a>> {
    let because = |reason, what| Some(Due { pod, reason, what });
    if pod.restart_requested {
        return because(Reason::RestartRequested, "its annotation asks for a restart".to_owned());
    }
    if !pod.holds_growth_of.is_empty() {
        let claims = pod.holds_growth_of.join(", ");
        return because(
            Reason::FileSystemGrows,
            format!("{claims} grew, and its file system does so when it is mounted anew"),
        );
    }
    if pod.revision == template.revision {
        return None;
    }
    let (has, wanted) = (&pod.marks, &template.marks);
    let image = |marks: &Marks| marks.image.clone().unwrap_or_default();
    if has.image != wanted.image {
        return because(Reason::ImageChanged, format!("its image is {}, now {}", image(has), image(wanted)));
    }
    let gone: Vec<&str> = pod.disks.iter().filter(|disk| !template.disks.contains(disk)).map(String::as_str).collect();
    if !gone.is_empty() {
        return because(Reason::DiskRemoved, format!("disk {} was removed", gone.join(", ")));
    }
    if has.checksum != wanted.checksum {
        let what = "settings changed that are read at the start";
        return because(Reason::ConfigChanged, what.to_owned());
    }
    if has.restart != wanted.restart {
        return because(Reason::RestartRequested, "the Cluster's annotation asks for a restart".to_owned());
    }
    let (old, new) = (&pod.revision, &template.revision);
    because(Reason::PodReplaced, format!("its pod has revision {old}, the present one is {new}"))
}

/// Whether a partition can do without one of its replicas and still take records that all must have.
fn has_spare(partition: &PartitionSeen) -> bool {
    partition.replicas.len() > partition.min_in_sync.max(1)
}

/// Why the partitions can't do without this broker.
fn would_miss(partitions: &[PartitionSeen], broker: i32) -> Option<String> {
    let falls = |partition: &&PartitionSeen| {
        has_spare(partition)
            && partition.in_sync.contains(&broker)
            && partition.in_sync.len() <= partition.min_in_sync.max(1)
    };
    let mut falling = partitions.iter().filter(falls);
    let first = falling.next()?;
    let (topic, index, left, min) = (&first.topic, first.index, first.in_sync.len() - 1, first.min_in_sync.max(1));
    let more = match falling.count() {
        0 => String::new(),
        more => format!(" (and {more} more partitions too few)"),
    };
    Some(format!("{topic}-{index} would have {left} in-sync replicas of the {min} that it needs{more}"))
}

/// Topics with a partition on this broker that has no replica to spare.
fn without_spare(partitions: &[PartitionSeen], broker: i32) -> Option<String> {
    let mine = partitions.iter().filter(|partition| partition.replicas.contains(&broker) && !has_spare(partition));
    Some(some_of(mine.map(|partition| partition.topic.as_str()))).filter(|topics| !topics.is_empty())
}

/// Replicas on brokers that run and are not in sync yet.
pub(crate) fn behind(partitions: &[PartitionSeen], pods: &[PodSeen]) -> usize {
    let runs = |id: &i32| pods.iter().any(|pod| pod.ordinal == *id && pod.ready);
    let of = |partition: &PartitionSeen| {
        partition.replicas.iter().filter(|id| !partition.in_sync.contains(id) && runs(id)).count()
    };
    partitions.iter().map(of).sum()
}
