//! Which topic a log's directory belongs to: Kafka's `partition.metadata`.
//!
//! A topic that was deleted and created again has the same name but another id; its records must never be mixed with the old ones.

use std::path::Path;

use forebay_broker_wire::types::Uuid;

use crate::disk::{Disk, DiskError};

pub(crate) const FILE_NAME: &str = "partition.metadata";

/// Why a log's directory is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum TopicIdError {
    /// The file system failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Another topic of the same name.
    #[error("{dir} belongs to topic id {found}, expected {expected}: it is of an older topic of that name; remove it")]
    Mismatch {
        /// The directory.
        dir: String,
        /// The id in it.
        found: Uuid,
        /// The id wanted.
        expected: Uuid,
    },
    /// The file cannot be read.
    #[error("{dir}/partition.metadata is {found:?}, expected version 0 and a topic id")]
    Malformed {
        /// The directory.
        dir: String,
        /// What it says.
        found: String,
    },
}

/// The topic id of a log's directory, `None` when none is written.
pub fn read(disk: &Disk, dir: &Path) -> Result<Option<Uuid>, TopicIdError> {
    let Some(content) = disk.read(&dir.join(FILE_NAME))? else { return Ok(None) };
    let found = String::from_utf8_lossy(&content).into_owned();
    let id = found.strip_prefix("version: 0\ntopic_id: ").and_then(|id| id.trim_end().parse().ok());
    let malformed = || TopicIdError::Malformed { dir: dir.display().to_string(), found: found.clone() };
    id.ok_or_else(malformed).map(Some)
}

/// Checks a directory's topic id, or writes it when it has none; gives whether it did, since the directory still needs
/// [`Disk::sync_dir`] then.
pub(crate) fn claim(disk: &Disk, dir: &Path, expected: Uuid) -> Result<bool, TopicIdError> {
    match read(disk, dir)? {
        Some(found) if found == expected => Ok(false),
        Some(found) => Err(TopicIdError::Mismatch { dir: dir.display().to_string(), found, expected }),
        None => {
            disk.put(&dir.join(FILE_NAME), format!("version: 0\ntopic_id: {expected}\n").as_bytes())?;
            Ok(true)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_an_older_topic_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::real();
        let (old, new) = (Uuid([1; 16]), Uuid([2; 16]));
        assert!(claim(&disk, dir.path(), old).unwrap());
        assert!(!claim(&disk, dir.path(), old).unwrap());
        assert_eq!(read(&disk, dir.path()).unwrap(), Some(old));
        assert!(matches!(claim(&disk, dir.path(), new), Err(TopicIdError::Mismatch { .. })));
        std::fs::write(dir.path().join(FILE_NAME), "version: 0\ntopic_id: x\n").unwrap();
        assert!(matches!(claim(&disk, dir.path(), new), Err(TopicIdError::Malformed { .. })));
    }
}
