//! The log directories at start: which of them can be used, whose they are, what lies where.
//!
//! What must hold: one disk of several that can't be used keeps the others from nothing, unless the metadata is on it and no other
//! broker has it; a directory of another
//! cluster or broker, or one that another process holds, is an error of the whole start, since somebody has mixed something up; a directory that
//! had partitions and is empty now is not begun anew unless it is plainly another disk; and nothing is written before all that is settled.

mod copies;
pub(crate) mod cordoned;
mod known;
mod moved;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use forebay_broker_config::BrokerConfig;
use forebay_broker_machines::metadata::{CLUSTER_METADATA_TOPIC, MetadataImage};
use forebay_broker_storage::{CheckpointError, Disk, Identity, IdentityError, LogDir, LogName, OpenLogDirError};
use forebay_broker_wire::types::{BrokerId, PartitionIndex, Uuid};

use self::copies::LeftAlone;
use self::known::Known;
use crate::metadata::{HomeError, cluster_id_for, home, random_id};
use crate::status::mounts::mount_of;

/// A directory of `log.dirs` that this life of the broker does without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FailedDir {
    pub(crate) path: PathBuf,
    /// `None` when it was never known or is not readable.
    pub(crate) directory_id: Option<Uuid>,
    pub(crate) reason: String,
}

/// The directories of this broker.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(crate) cluster_id: String,
    /// Never empty.
    pub(crate) dirs: Vec<Arc<LogDir>>,
    pub(crate) failed: Vec<FailedDir>,
    left_alone: LeftAlone,
}

/// What a path of `log.dirs` says about itself.
struct Found {
    path: PathBuf,
    identity: Result<Option<Identity>, String>,
}

/// Takes all directories that can be used.
pub(crate) fn claim(config: &BrokerConfig) -> anyhow::Result<Claimed> {
    let disk = Disk::real();
    let found = config.log_dirs.iter().map(|path| look(&disk, path)).collect::<anyhow::Result<Vec<_>>>()?;
    let identities: Vec<_> = found.iter().filter_map(|dir| dir.identity.clone().ok().flatten()).collect();
    let cluster_id = cluster_id_for(config.cluster_id.as_deref(), &identities)?;
    let known = remembered(&disk, &found);
    none_left_out(&disk, &found, &known)?;
    let mut claimed = Claimed { cluster_id, dirs: Vec::new(), failed: Vec::new(), left_alone: LeftAlone::new() };
    let mut usable = Vec::new();
    for dir in found {
        match check(&dir, &known) {
            Ok(()) => usable.push(dir.path),
            Err(reason) => claimed.failed.push(failed(dir.path, reason, &known)),
        }
    }
    if identities.is_empty() && !claimed.failed.is_empty() {
        // Nobody knows what the failed ones hold: this may not be the first start at all.
        bail!("no log dir says which cluster it belongs to, and {}", words(&claimed.failed));
    }
    for path in usable {
        match open(&disk, &path, config, &claimed.cluster_id)? {
            Ok(dir) => claimed.dirs.push(dir),
            Err(reason) => claimed.failed.push(failed(path, reason, &known)),
        }
    }
    ensure!(!claimed.dirs.is_empty(), "no log dir can be used: {}", words(&claimed.failed));
    for dir in &claimed.failed {
        tracing::error!(dir = %dir.path.display(), reason = %dir.reason, "starting without a log dir: its partitions are offline");
    }
    known::write(&claimed.dirs, &claimed.known());
    moved::set_aside(&claimed.dirs)?;
    claimed.left_alone = copies::settle(&claimed.dirs, &claimed.failed)?;
    Ok(claimed)
}

/// Whose a directory is. What can't be read may be a broken disk; what can be read and is wrong is an error.
fn look(disk: &Disk, path: &Path) -> anyhow::Result<Found> {
    let identity = match Identity::read(disk, path) {
        Ok(identity) => Ok(identity),
        Err(IdentityError::Disk(error)) => Err(error.to_string()),
        Err(error) => return Err(error).with_context(|| format!("log directory {}", path.display())),
    };
    Ok(Found { path: path.to_path_buf(), identity })
}

/// What the directories together remember of themselves and each other.
fn remembered(disk: &Disk, found: &[Found]) -> Known {
    let mut known = Known::new();
    for dir in found {
        if let Ok(Some(identity)) = &dir.identity {
            known.push((dir.path.clone(), identity.directory_id));
            known.extend(known::read(disk, &dir.path).unwrap_or_default());
        }
    }
    known
}

/// Refuses a start without a directory that is there and has logs: they would be begun anew elsewhere, empty.
fn none_left_out(disk: &Disk, found: &[Found], known: &Known) -> anyhow::Result<()> {
    let is_used = |path: &Path, id: Uuid| {
        let same = |dir: &Found| {
            dir.identity.as_ref().is_ok_and(|found| found.as_ref().is_some_and(|found| found.directory_id == id))
        };
        found.iter().any(|dir| dir.path == path || same(dir))
    };
    for (path, id) in known.iter().filter(|(path, id)| !is_used(path, *id)) {
        let is_it = matches!(Identity::read(disk, path), Ok(Some(identity)) if identity.directory_id == *id);
        let entries = if is_it { disk.list(path).unwrap_or_default() } else { Vec::new() };
        let logs = entries.iter().filter(|entry| entry.is_dir).filter_map(|entry| LogName::parse(&entry.name));
        let logs: Vec<_> = logs.filter(|log| log.topic != CLUSTER_METADATA_TOPIC).collect();
        let dir = path.display();
        if let Some(first) = logs.first() {
            bail!(
                "log dir {dir} is not in log.dirs any more, but has {} logs of this broker, such as {first}: must be named there, or \
                 renamed, if this broker is to begin them anew",
                logs.len()
            );
        }
        tracing::warn!(%dir, "a log dir is not in log.dirs any more: logs that were in it are begun anew");
    }
    Ok(())
}

/// Refuses a directory that can't be read, or that should hold something and does not.
fn check(dir: &Found, known: &Known) -> Result<(), String> {
    match &dir.identity {
        Err(reason) => Err(reason.clone()),
        Ok(Some(_)) => Ok(()),
        Ok(None) => match known.iter().find(|(path, _)| *path == dir.path) {
            None => Ok(()),
            Some((_, id)) if is_mount_point(&dir.path) => {
                tracing::error!(dir = %dir.path.display(), lost = %id, "another disk is mounted where a log dir was: begun anew, what was on the old one is not here");
                Ok(())
            }
            Some((_, id)) => Err(format!(
                "it held directory {id} of this broker and has no meta.properties now: is its disk mounted? To begin anew on it, start once \
                 without it in log.dirs"
            )),
        },
    }
}

fn is_mount_point(path: &Path) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    mount_of(&path).is_some_and(|mount| mount.point == path)
}

/// The outer error is one of the whole start.
fn open(
    disk: &Disk,
    path: &Path,
    config: &BrokerConfig,
    cluster_id: &str,
) -> anyhow::Result<Result<Arc<LogDir>, String>> {
    let node_id = BrokerId(config.broker_id);
    let wanted = Identity { cluster_id: cluster_id.to_owned(), node_id, directory_id: random_id() };
    let opened = LogDir::open(disk.clone(), path, &wanted, config.log.reserve_bytes);
    match opened {
        Ok(dir) => Ok(dir.logs().map(|_| dir).map_err(|error| error.to_string())),
        Err(
            OpenLogDirError::Disk(error)
            | OpenLogDirError::Identity(IdentityError::Disk(error))
            | OpenLogDirError::Checkpoint(CheckpointError::Disk(error)),
        ) => Ok(Err(error.to_string())),
        Err(error) => Err(error.into()),
    }
}

fn failed(path: PathBuf, reason: String, known: &Known) -> FailedDir {
    let directory_id = known.iter().find(|(known, _)| *known == path).map(|(_, id)| *id);
    FailedDir { path, directory_id, reason }
}

fn words(failed: &[FailedDir]) -> String {
    let each: Vec<_> =
        failed.iter().map(|dir| format!("log dir {} can't be used: {}", dir.path.display(), dir.reason)).collect();
    each.join("; ")
}

impl Claimed {
    fn known(&self) -> Known {
        let mut known: Known =
            self.dirs.iter().map(|dir| (dir.path().to_owned(), dir.identity().directory_id)).collect();
        known.extend(self.failed.iter().filter_map(|dir| Some((dir.path.clone(), dir.directory_id?))));
        known
    }

    /// The directory that has the metadata log, or is to have it. A broker that gets its metadata from others can do without its own.
    pub(crate) fn home(&self, from_others: bool) -> anyhow::Result<&Arc<LogDir>> {
        if self.failed.is_empty() {
            return match (home(&self.dirs), self.dirs.first()) {
                (Err(error @ HomeError::Lost { .. }), Some(first)) if from_others => {
                    tracing::warn!(%error, "the metadata comes from the other brokers");
                    Ok(first)
                }
                (found, _) => Ok(found?),
            };
        }
        let has_metadata =
            |dir: &LogDir| Ok::<_, anyhow::Error>(dir.logs()?.iter().any(|log| log.topic == CLUSTER_METADATA_TOPIC));
        match home(&self.dirs) {
            Ok(home) if has_metadata(home)? => return Ok(home),
            Ok(_) | Err(HomeError::Lost { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let words = words(&self.failed);
        let Some(first) = self.dirs.first().filter(|_| from_others) else {
            bail!("the cluster's metadata must be on a disk that is missing: {words}");
        };
        tracing::warn!(dir = %first.path().display(), missing = words, "the metadata comes from the other brokers: its disk is missing");
        moved::begin(first, self.failed.iter().filter_map(|dir| dir.directory_id))?;
        Ok(first)
    }

    /// Whether this broker has been part of a cluster, though it may have lost the metadata: then it founds none.
    pub(crate) fn knows_cluster(&self, located: &HashMap<LogName, usize>) -> bool {
        !located.is_empty() || !self.failed.is_empty()
    }

    /// Whether all logs are where they can be found.
    pub(crate) fn has_all(&self) -> bool {
        self.failed.is_empty() && self.left_alone.is_empty()
    }

    /// Which directory has which log. The metadata log is not a partition that clients see.
    pub(crate) fn locate_logs(&self) -> anyhow::Result<HashMap<LogName, usize>> {
        let mut located: HashMap<LogName, usize> = HashMap::new();
        for (number, dir) in self.dirs.iter().enumerate() {
            let mut logs = dir.logs()?;
            logs.retain(|name| name.topic != CLUSTER_METADATA_TOPIC);
            logs.retain(|name| !self.left_alone.contains(&(dir.path().to_owned(), name.clone())));
            for name in logs {
                if let Some(other) = located.get(&name) {
                    let (first, second) = (self.dirs[*other].path().display(), dir.path().display());
                    bail!(
                        "log dirs {first} and {second} both have {name}: must be one; take away the one that is older"
                    );
                }
                located.insert(name, number);
            }
        }
        // One that was moved just before a crash has not vanished.
        self.dirs.iter().for_each(|dir| dir.found_elsewhere(|log| located.contains_key(log)));
        Ok(located)
    }
}

/// Tells of logs that are lost from a directory.
pub(crate) fn tell_missing(dir: &LogDir, image: &MetadataImage, broker: BrokerId) {
    for log in missing_logs(dir, image, broker) {
        tracing::error!(dir = %dir.path().display(), %log, "the log of a partition has vanished from its log dir: its records are not here any more");
    }
}

/// Logs that had vanished from a directory although the metadata has their partitions on this broker.
pub(crate) fn missing_logs(dir: &LogDir, image: &MetadataImage, broker: BrokerId) -> Vec<LogName> {
    let mut missing = dir.missing_logs();
    missing.retain(|log| {
        let partition = image.topic(&log.topic).and_then(|topic| topic.partition(PartitionIndex(log.partition)));
        partition.is_some_and(|partition| partition.replicas.contains(&broker))
    });
    missing
}
