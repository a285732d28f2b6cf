//! The log and the state machine by openraft's own suite, on real directories.

use std::sync::Arc;

use forebay_broker_storage::{Disk, Identity, LogDir};
use forebay_broker_wire::types::BrokerId;
use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use tempfile::TempDir;

use super::log_store::LogStore;
use super::state_machine::StateMachine;
use super::types::Types;
use crate::metadata::random_id;

pub(super) fn log_dir(path: &std::path::Path) -> Arc<LogDir> {
    let identity =
        Identity { cluster_id: "AAAAAAAAAAAAAAAAAAAAAA".to_owned(), node_id: BrokerId(0), directory_id: random_id() };
    LogDir::open(Disk::real(), path, &identity, 0).unwrap()
}

pub(super) fn open(log_dir: &Arc<LogDir>) -> (LogStore, StateMachine) {
    let log = LogStore::open(log_dir).unwrap();
    (log, StateMachine::open(log_dir, log_dir.path().join("__cluster_metadata-0")).unwrap())
}

struct Directories;

impl StoreBuilder<Types, LogStore, StateMachine, TempDir> for Directories {
    async fn build(&self) -> Result<(TempDir, LogStore, StateMachine), StorageError<Types>> {
        let dir = tempfile::tempdir().unwrap();
        let (log, machine) = open(&log_dir(dir.path()));
        Ok((dir, log, machine))
    }
}

#[tokio::test]
async fn what_openraft_expects_of_a_store_holds() {
    Suite::test_all(Directories).await.unwrap();
}
