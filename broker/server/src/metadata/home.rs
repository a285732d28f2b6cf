//! Which log dir has the metadata log: the first one at the very first start, later the one that has it.
//!
//! What must hold: a broker whose metadata is lost never starts on the partitions that are left, since it would take them for strays
//! and its topics for new.

use std::sync::Arc;

use forebay_broker_machines::metadata::CLUSTER_METADATA_TOPIC;
use forebay_broker_storage::{DiskError, LogDir, LogName};

/// Why it is not clear where the metadata is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HomeError {
    /// Partitions, but no metadata.
    #[error(
        "no log dir has the cluster's metadata (__cluster_metadata-0), but {dir} has partitions such as {log}: log.dirs must name all \
         disks of this broker; if the disk with the metadata is lost, the topics have to be made anew on empty disks"
    )]
    Lost { dir: String, log: LogName },
    /// Two logs.
    #[error(
        "log dirs {first} and {second} both have the cluster's metadata: must be one; take away the one that is older"
    )]
    Two { first: String, second: String },
    /// A directory cannot be listed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// `log.dirs` is empty.
    #[error("log.dirs is empty: must name at least one directory")]
    NoDirs,
}

/// The log dir that has the metadata log, or is to have it.
pub(crate) fn home(log_dirs: &[Arc<LogDir>]) -> Result<&Arc<LogDir>, HomeError> {
    let path = |log_dir: &LogDir| log_dir.path().display().to_string();
    let mut found: Option<&Arc<LogDir>> = None;
    let mut partition = None;
    for log_dir in log_dirs {
        for log in log_dir.logs()? {
            match (log.topic == CLUSTER_METADATA_TOPIC, found) {
                (true, Some(first)) => return Err(HomeError::Two { first: path(first), second: path(log_dir) }),
                (true, None) => found = Some(log_dir),
                (false, _) => partition = Some((log_dir, log)),
            }
        }
    }
    match (found, partition) {
        (Some(log_dir), _) => Ok(log_dir),
        (None, Some((log_dir, log))) => Err(HomeError::Lost { dir: path(log_dir), log }),
        (None, None) => log_dirs.first().ok_or(HomeError::NoDirs),
    }
}

#[cfg(test)]
mod tests {
    use forebay_broker_storage::{Disk, Identity};
    use forebay_broker_wire::types::BrokerId;

    use super::*;
    use crate::metadata::random_id;

    fn dirs(root: &std::path::Path, logs: [&[&str]; 2]) -> Vec<Arc<LogDir>> {
        let open = |(number, logs): (usize, &[&str])| {
            let path = root.join(number.to_string());
            let directory_id = random_id();
            let identity = Identity { cluster_id: "c".to_owned(), node_id: BrokerId(0), directory_id };
            let log_dir = LogDir::open(Disk::real(), &path, &identity, 0).unwrap();
            for log in logs {
                std::fs::create_dir(path.join(log)).unwrap();
            }
            log_dir
        };
        logs.into_iter().enumerate().map(open).collect()
    }

    fn check(logs: [&[&str]; 2]) -> Result<usize, String> {
        let root = tempfile::tempdir().unwrap();
        let dirs = dirs(root.path(), logs);
        let found = home(&dirs).map_err(|error| error.to_string())?;
        Ok(dirs.iter().position(|dir| Arc::ptr_eq(dir, found)).unwrap())
    }

    #[test]
    fn the_first_start_takes_the_first_dir_and_later_ones_the_dir_that_has_it() {
        assert_eq!(check([&[], &[]]), Ok(0));
        assert_eq!(check([&["t-0"], &["__cluster_metadata-0", "t-1"]]), Ok(1));
    }

    #[test]
    fn partitions_without_metadata_are_not_started_on() {
        let error = check([&[], &["t-1"]]).unwrap_err();
        assert!(error.starts_with("no log dir has the cluster's metadata (__cluster_metadata-0), but "), "{error}");
        assert!(error.contains("such as t-1"), "{error}");
    }

    #[test]
    fn two_logs_of_metadata_are_one_too_many() {
        assert!(check([&["__cluster_metadata-0"], &["__cluster_metadata-0"]]).unwrap_err().contains("both have"));
    }
}
