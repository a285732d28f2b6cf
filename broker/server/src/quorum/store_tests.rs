//! The log and the state machine by openraft's own suite, on real directories.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_broker_machines::metadata::{Record, TopicRecord};
use forebay_broker_storage::{Disk, Identity, LogDir, LogName};
use forebay_broker_wire::types::{BrokerId, Uuid};
use openraft::storage::{RaftLogReader, RaftLogStorage, RaftLogStorageExt, RaftSnapshotBuilder, RaftStateMachine};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::{EntryPayload, StorageError};
use tempfile::TempDir;

use super::log_store::LogStore;
use super::state_machine::StateMachine;
use super::types::{Address, Change, Entry, Membership, Types, Vote, VoterId, log_id};
use crate::metadata::random_id;

pub(super) fn log_dir(path: &std::path::Path) -> Arc<LogDir> {
    let identity =
        Identity { cluster_id: "AAAAAAAAAAAAAAAAAAAAAA".to_owned(), node_id: BrokerId(0), directory_id: random_id() };
    LogDir::open(Disk::real(), path, &identity, 0).unwrap()
}

pub(super) fn open(log_dir: &Arc<LogDir>) -> (LogStore, StateMachine) {
    let log = LogStore::open(log_dir, None).unwrap();
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

fn blank(term: u64, index: u64) -> Entry {
    Entry { log_id: log_id(term, index), payload: EntryPayload::Blank }
}

fn change(term: u64, index: u64, based_on_version: i64, name: &str) -> Entry {
    let topic = TopicRecord { topic_id: Uuid([u8::try_from(index).unwrap(); 16]), name: name.to_owned() };
    let change = Change { based_on_version, records: vec![Record::Topic(topic)] };
    Entry { log_id: log_id(term, index), payload: EntryPayload::Normal(change) }
}

#[tokio::test]
async fn a_torn_last_entry_is_none_and_the_ones_before_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("__cluster_metadata-0/00000000000000000000.log");
    let whole = {
        let (mut log, _) = open(&log_dir(dir.path()));
        log.blocking_append([blank(1, 0), change(1, 1, 0, "kept")]).await.unwrap();
        let whole = std::fs::metadata(&path).unwrap().len();
        log.blocking_append([change(1, 2, 1, "torn")]).await.unwrap();
        whole
    };
    // As a power cut leaves it: the end is not there, and nothing says that it was flushed.
    std::fs::remove_file(dir.path().join("__cluster_metadata-0/flushed-offset")).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(whole + 70).unwrap();
    let (mut log, _) = open(&log_dir(dir.path()));
    assert_eq!(log.get_log_state().await.unwrap().last_log_id, Some(log_id(1, 1)));
    log.blocking_append([change(2, 2, 1, "instead")]).await.unwrap();
    assert_eq!(log.try_get_log_entries(2..).await.unwrap(), [change(2, 2, 1, "instead")]);
}

#[tokio::test]
async fn a_vote_and_a_purge_are_there_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let vote = Vote::new(7, VoterId::from(3));
    {
        let (mut log, _) = open(&log_dir(dir.path()));
        assert!(log.is_pristine());
        log.save_vote(&vote).await.unwrap();
        log.blocking_append((0..10).map(|index| blank(7, index)).collect::<Vec<_>>()).await.unwrap();
        log.purge(log_id(7, 5)).await.unwrap();
    }
    let (mut log, _) = open(&log_dir(dir.path()));
    assert!(!log.is_pristine());
    assert_eq!(log.read_vote().await.unwrap(), Some(vote));
    let state = log.get_log_state().await.unwrap();
    assert_eq!((state.last_purged_log_id, state.last_log_id), (Some(log_id(7, 5)), Some(log_id(7, 9))));
    assert_eq!(log.try_get_log_entries(0..).await.unwrap().len(), 4);
}

#[tokio::test]
async fn a_change_counts_only_on_the_version_that_it_was_decided_on() {
    let dir = tempfile::tempdir().unwrap();
    let (_log, machine) = open(&log_dir(dir.path()));
    let entries = [change(1, 0, 0, "first"), change(2, 1, 0, "overtaken"), change(2, 2, 1, "second")];
    let applied = machine.take_in(&entries).unwrap();
    assert_eq!(
        applied.iter().map(|one| (one.accepted, one.version)).collect::<Vec<_>>(),
        [(true, 1), (false, 1), (true, 2)]
    );
    let image = machine.image();
    assert_eq!(image.topics().map(|topic| &*topic.name).collect::<Vec<_>>(), ["first", "second"]);
}

#[tokio::test]
async fn a_snapshot_that_was_installed_is_there_after_a_crash_and_the_log_goes_on_behind_it() {
    let [from, to] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (_log, mut machine) = open(&log_dir(from.path()));
    let voter = VoterId::from(0);
    let nodes = BTreeMap::from([(voter, Address::default())]);
    let membership = Membership::new(vec![BTreeSet::from([voter])], nodes).unwrap();
    let founding = Entry { log_id: log_id(0, 0), payload: EntryPayload::Membership(membership) };
    machine.take_in(&[founding, change(1, 1, 0, "orders")]).unwrap();
    let snapshot = machine.build_snapshot().await.unwrap();
    {
        let (mut log, mut machine) = open(&log_dir(to.path()));
        log.blocking_append([blank(1, 0)]).await.unwrap();
        let mut told = machine.subscribe();
        machine.install_snapshot(&snapshot.meta, snapshot.snapshot.clone()).await.unwrap();
        log.purge(log_id(1, 1)).await.unwrap();
        assert_eq!(*told.borrow_and_update(), 1);
    }
    let (mut log, mut machine) = open(&log_dir(to.path()));
    assert!(machine.image().topic("orders").is_some());
    assert_eq!(machine.applied_state().await.unwrap(), (Some(log_id(1, 1)), snapshot.meta.last_membership));
    log.blocking_append([blank(1, 2)]).await.unwrap();
    assert_eq!(log.get_log_state().await.unwrap().last_log_id, Some(log_id(1, 2)));
}

#[test]
fn an_empty_log_is_begun_only_where_there_are_no_partitions() {
    let root = tempfile::tempdir().unwrap();
    let dir = log_dir(root.path());
    let error = LogStore::open(&dir, Some(&LogName::new("orders", 3))).unwrap_err().to_string();
    assert!(error.contains("is empty, but there are partitions such as orders-3"), "{error}");
    LogStore::open(&dir, None).unwrap();
}
