//! The store on a real directory: what it says is there after a restart, whatever happened in between.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_broker_config::Settings;
use forebay_broker_machines::metadata::{
    BrokerLife, BrokerRegistration, ConfigChange, ConfigOperation, ConfigResource, NewTopic, TopicReference,
};
use forebay_broker_storage::disk::{Faults, Operation, Verdict};
use forebay_broker_storage::{Disk, Identity, LogDir};
use forebay_broker_wire::types::BrokerId;

use super::*;
use crate::metadata::random_id;
use crate::quorum::Address;

const CLUSTER: &str = "AAAAAAAAAAAAAAAAAAAAAA";

fn config() -> Arc<BrokerConfig> {
    let file = "node.id=0\nlog.dirs=/unused\nlisteners=PLAINTEXT://localhost:0\nnum.partitions=3\n";
    Arc::new(BrokerConfig::parse(file, &[]).unwrap())
}

fn log_dir(path: &Path) -> Arc<LogDir> {
    let identity = Identity { cluster_id: CLUSTER.to_owned(), node_id: BrokerId(0), directory_id: random_id() };
    LogDir::open(Disk::real(), path, &identity, 0).unwrap()
}

/// A broker's store with a runtime of its own: dropped, everything stops where it is, as in a process that is killed.
struct Alone {
    store: MetadataStore,
    runtime: tokio::runtime::Runtime,
}

impl Alone {
    fn open(dir: &Arc<LogDir>) -> Result<Self, OpenQuorumError> {
        Self::open_with(dir, 4 << 20)
    }

    fn open_with(dir: &Arc<LogDir>, snapshot_after_bytes: u64) -> Result<Self, OpenQuorumError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let open = OpenQuorum {
            log_dir: Arc::clone(dir),
            partition: None,
            knows_cluster: false,
            cluster_id: CLUSTER.to_owned(),
            broker_id: BrokerId(0),
            settings: None,
            address: Address::default(),
            snapshot_after_bytes,
        };
        let store = runtime.block_on(MetadataStore::open(open, config()))?;
        let led = async { store.leadership().wait_for(|now| now.here).await.map(drop) };
        runtime.block_on(led).unwrap();
        Ok(Self { store, runtime })
    }

    fn submit(&self, command: Command) -> Result<Reply, SubmitError> {
        self.runtime.block_on(self.store.submit(command)).map(|(reply, _)| reply)
    }

    fn image(&self) -> Arc<MetadataImage> {
        self.store.image()
    }

    fn size_bytes(&self) -> u64 {
        self.store.quorum.log.size_bytes()
    }
}

fn open(path: &Path) -> Alone {
    open_in(&log_dir(path))
}

fn open_in(dir: &Arc<LogDir>) -> Alone {
    registered(Alone::open(dir).unwrap())
}

fn registered(store: Alone) -> Alone {
    let registration =
        BrokerRegistration { broker_id: BrokerId(0), cluster_id: CLUSTER.to_owned(), ..BrokerRegistration::default() };
    let Reply::Registered(Ok(broker_epoch)) = store.submit(Command::RegisterBroker(registration)).unwrap() else {
        panic!("not registered")
    };
    let life = BrokerLife { broker_id: BrokerId(0), broker_epoch };
    store.submit(Command::UnfenceBroker(life)).unwrap();
    store
}

fn create(store: &Alone, name: &str) -> Result<(), String> {
    let topic = NewTopic {
        name: name.to_owned(),
        partitions: None,
        replication_factor: None,
        assignment: None,
        config: Settings::new(),
    };
    match store.submit(Command::CreateTopics { topics: vec![topic], validate_only: false }) {
        Ok(Reply::TopicsCreated(mut results)) => results.remove(0).map(drop).map_err(|error| error.to_string()),
        other => Err(format!("{other:?}")),
    }
}

fn set(store: &Alone, resource: ConfigResource, name: &str, value: &str) -> Result<(), String> {
    let operations = vec![(name.to_owned(), ConfigOperation::Set(value.to_owned()))];
    let change = ConfigChange { resource, operations, replace_all: false };
    match store.submit(Command::AlterConfigs { changes: vec![change], validate_only: false }) {
        Ok(Reply::ConfigsAltered(mut results)) => results.remove(0).map_err(|error| error.to_string()),
        other => Err(format!("{other:?}")),
    }
}

#[test]
fn what_was_answered_is_there_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    create(&store, "orders").unwrap();
    set(&store, ConfigResource::Topic("orders".to_owned()), "retention.ms", "5").unwrap();
    let before = MetadataImage::clone(&store.image());
    // Nothing is closed: the files stay as a killed process leaves them.
    drop(store);
    let store = Alone::open(&log_dir(dir.path())).unwrap();
    assert_eq!(*store.image(), before);
    assert_eq!(store.image().topic("orders").unwrap().partitions.len(), 3);
}

#[test]
fn defaults_that_change_while_the_broker_runs_count_for_the_next_topic() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    set(&store, ConfigResource::Cluster, "num.partitions", "7").unwrap();
    create(&store, "t").unwrap();
    assert_eq!(store.image().topic("t").unwrap().partitions.len(), 7);
}

#[test]
fn a_topics_settings_are_judged_by_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    create(&store, "t").unwrap();
    let error = set(&store, ConfigResource::Topic("t".to_owned()), "retension.ms", "5").unwrap_err();
    assert_eq!(error, "unknown topic setting 'retension.ms'; did you mean 'retention.ms'?");
}

#[test]
fn many_callers_at_once_all_get_their_own_answer() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    std::thread::scope(|scope| {
        for caller in 0..16 {
            let store = &store;
            scope.spawn(move || {
                for number in 0..8 {
                    create(store, &format!("t-{caller}-{number}")).unwrap();
                    create(store, "shared").ok();
                }
            });
        }
    });
    assert_eq!(store.image().topics().len(), 16 * 8 + 1);
}

#[test]
fn a_log_that_has_grown_long_is_replaced_by_a_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let store = registered(Alone::open_with(&log_dir(dir.path()), 100_000).unwrap());
    let long = "x".repeat(200);
    let (mut rounds, mut longest) = (0, 0);
    while rounds < 1000 && store.size_bytes() >= longest {
        longest = store.size_bytes();
        let name = format!("{long}-{rounds}");
        create(&store, &name).unwrap();
        store.submit(Command::DeleteTopics { topics: vec![TopicReference::Name(name)] }).unwrap();
        rounds += 1;
    }
    assert!(longest > 50_000, "{longest} bytes after {rounds} rounds");
    assert!(store.size_bytes() < longest / 2, "{} bytes after {rounds} rounds", store.size_bytes());
    create(&store, "after").unwrap();
    let before = MetadataImage::clone(&store.image());
    drop(store);
    let store = Alone::open(&log_dir(dir.path())).unwrap();
    assert_eq!(*store.image(), before);
    assert_eq!(store.store.removed_topics().len(), rounds, "what is deleted is remembered for those that were away");
}

#[derive(Debug, Default)]
struct FailingSync {
    on: AtomicBool,
}

impl Faults for FailingSync {
    fn before(&self, operation: Operation<'_>) -> Verdict {
        match operation {
            Operation::Sync { .. } if self.on.load(Ordering::Relaxed) => {
                Verdict::Fail(std::io::Error::other("no such luck"))
            }
            _ => Verdict::Proceed,
        }
    }

    fn after(&self, _: Operation<'_>) {}
}

#[test]
fn what_could_not_be_flushed_is_refused_and_not_seen() {
    let dir = tempfile::tempdir().unwrap();
    let faults = Arc::new(FailingSync::default());
    let identity = Identity { cluster_id: CLUSTER.to_owned(), node_id: BrokerId(0), directory_id: random_id() };
    let log_dir = LogDir::open(Disk::with_faults(Arc::clone(&faults) as _), dir.path(), &identity, 0).unwrap();
    let store = Alone::open(&log_dir).unwrap();
    faults.on.store(true, Ordering::Relaxed);
    let before = store.image();
    assert!(store.submit(Command::AllocateProducerIds).is_err());
    assert_eq!(store.image(), before);
    assert!(store.submit(Command::AllocateProducerIds).is_err());
}

#[test]
fn a_bit_that_fell_over_in_the_metadata_log_is_an_error_and_never_another_truth() {
    let folder = tempfile::tempdir().unwrap();
    let dir = log_dir(folder.path());
    let store = open_in(&dir);
    create(&store, "orders").unwrap();
    create(&store, "payments").unwrap();
    store.runtime.block_on(store.store.close()).unwrap();
    drop(store);
    dir.close_clean().unwrap();
    drop(dir);
    let path = folder.path().join("__cluster_metadata-0/00000000000000000000.log");
    let mut bytes = std::fs::read(&path).unwrap();
    let position = bytes.windows(6).position(|window| window == b"orders").unwrap();
    bytes[position] = b'0';
    std::fs::write(&path, bytes).unwrap();
    let error = Alone::open(&log_dir(folder.path())).err().unwrap().to_string();
    assert!(error.contains("crc"), "{error}");
}
