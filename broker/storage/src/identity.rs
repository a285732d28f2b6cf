//! Whose log directory this is: Kafka's `meta.properties`.
//!
//! Written once, durably, before anything else is put into the directory. A directory of another cluster or broker is refused, because
//! serving its partitions would mix two histories. The directory id tells this disk from an emptied one that came back under its name.

use std::path::Path;

use forebay_broker_wire::types::{BrokerId, Uuid};

use crate::disk::{Disk, DiskError};

const FILE_NAME: &str = "meta.properties";

/// What a log directory says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// `cluster.id`.
    pub cluster_id: String,
    /// `node.id`.
    pub node_id: BrokerId,
    /// `directory.id`: new for each directory, never reused.
    pub directory_id: Uuid,
}

/// Why a directory's identity is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file system failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The directory belongs to somebody else.
    #[error(
        "log directory {dir} has {key}={found}, but this broker has {key}={expected}: give it a directory of its own or the right {key}"
    )]
    Mismatch {
        /// The directory.
        dir: String,
        /// `cluster.id` or `node.id`.
        key: &'static str,
        /// What the directory says.
        found: String,
        /// What the broker is.
        expected: String,
    },
    /// A line is missing or cannot be read.
    #[error(
        "{dir}/meta.properties: {key} is {found:?}, expected {expected}: it says whose the directory is and is written whole, so it was damaged; \
         restore it (the other log directories of this broker have the same but for directory.id)"
    )]
    Malformed {
        /// The directory.
        dir: String,
        /// Which key.
        key: &'static str,
        /// What it says.
        found: String,
        /// What it should be.
        expected: &'static str,
    },
    /// Partitions, but no identity: part of the directory is lost.
    #[error(
        "log directory {dir} holds partitions but no meta.properties: it is not known whose they are; restore the file or empty the directory"
    )]
    Missing {
        /// The directory.
        dir: String,
    },
}

impl Identity {
    /// Reads the identity of a directory, `None` when there is none yet.
    pub fn read(disk: &Disk, dir: &Path) -> Result<Option<Self>, IdentityError> {
        let Some(content) = disk.read(&dir.join(FILE_NAME))? else { return Ok(None) };
        let text = String::from_utf8_lossy(&content).into_owned();
        let get = |wanted: &str| {
            let lines = text.lines().filter_map(|line| line.split_once('='));
            lines.into_iter().find(|(key, _)| key.trim() == wanted).map(|(_, value)| value.trim().to_owned())
        };
        let malformed = |key, found: Option<String>, expected| IdentityError::Malformed {
            dir: dir.display().to_string(),
            key,
            found: found.unwrap_or_default(),
            expected,
        };
        let version = get("version");
        if version.as_deref() != Some("1") {
            return Err(malformed("version", version, "1"));
        }
        let cluster_id = get("cluster.id").filter(|id| !id.is_empty());
        let cluster_id = cluster_id.ok_or_else(|| malformed("cluster.id", None, "the cluster's id"))?;
        let node_id = get("node.id");
        let parsed = node_id.as_ref().and_then(|id| id.parse().ok());
        let node_id = BrokerId(parsed.ok_or_else(|| malformed("node.id", node_id, "a number"))?);
        let directory_id = get("directory.id");
        let parsed = directory_id.as_ref().and_then(|id| id.parse().ok());
        let directory_id = parsed.ok_or_else(|| malformed("directory.id", directory_id, "an id of 22 characters"))?;
        Ok(Some(Self { cluster_id, node_id, directory_id }))
    }

    /// Takes a directory for this broker: the identity it has when that is this broker's, or `wanted` written into an empty one.
    pub(crate) fn claim(disk: &Disk, dir: &Path, wanted: &Self, holds_partitions: bool) -> Result<Self, IdentityError> {
        let Some(found) = Self::read(disk, dir)? else {
            if holds_partitions {
                return Err(IdentityError::Missing { dir: dir.display().to_string() });
            }
            disk.replace(&dir.join(FILE_NAME), wanted.to_properties().as_bytes())?;
            return Ok(wanted.clone());
        };
        let mismatch = |key, found: &dyn ToString, expected: &dyn ToString| IdentityError::Mismatch {
            dir: dir.display().to_string(),
            key,
            found: found.to_string(),
            expected: expected.to_string(),
        };
        if found.cluster_id != wanted.cluster_id {
            return Err(mismatch("cluster.id", &found.cluster_id, &wanted.cluster_id));
        }
        if found.node_id != wanted.node_id {
            return Err(mismatch("node.id", &found.node_id.0, &wanted.node_id.0));
        }
        Ok(found)
    }

    fn to_properties(&self) -> String {
        format!(
            "version=1\ncluster.id={}\nnode.id={}\ndirectory.id={}\n",
            self.cluster_id, self.node_id.0, self.directory_id
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(cluster: &str, node: i32) -> Identity {
        Identity { cluster_id: cluster.into(), node_id: BrokerId(node), directory_id: Uuid([7; 16]) }
    }

    #[test]
    fn an_empty_directory_is_taken_and_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::real();
        assert_eq!(Identity::read(&disk, dir.path()).unwrap(), None);
        Identity::claim(&disk, dir.path(), &identity("a", 1), false).unwrap();
        let other_id = Identity { directory_id: Uuid([9; 16]), ..identity("a", 1) };
        assert_eq!(Identity::claim(&disk, dir.path(), &other_id, true).unwrap(), identity("a", 1), "the id stays");
    }

    #[test]
    fn a_foreign_directory_is_refused_with_both_ids() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::real();
        Identity::claim(&disk, dir.path(), &identity("a", 1), false).unwrap();
        let error = Identity::claim(&disk, dir.path(), &identity("b", 1), false).unwrap_err().to_string();
        assert!(error.contains("cluster.id=a") && error.contains("cluster.id=b"), "{error}");
        let error = Identity::claim(&disk, dir.path(), &identity("a", 2), false).unwrap_err().to_string();
        assert!(error.contains("node.id=1") && error.contains("node.id=2"), "{error}");
    }

    #[test]
    fn partitions_without_an_identity_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let error = Identity::claim(&Disk::real(), dir.path(), &identity("a", 1), true).unwrap_err();
        assert!(matches!(error, IdentityError::Missing { .. }));
    }
}
