//! Replicas move from one log dir of a broker to another while clients go on, and whatever comes between.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use forebay_broker_wire::messages::alter_replica_log_dirs::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic, AlterReplicaLogDirsRequest,
};
use forebay_broker_wire::messages::delete_records::{DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic};
use forebay_broker_wire::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use forebay_broker_wire::messages::describe_log_dirs::{
    DescribeLogDirsPartition, DescribeLogDirsRequest, DescribeLogDirsResult,
};
use forebay_broker_wire::records::BatchBuilder;
use forebay_broker_wire::types::{ErrorCode, ProducerEpoch, ProducerId};
use tempfile::TempDir;

use crate::configs::{BROKER, SET, alter};
use crate::create_topics::{create, topic};
use crate::harness::{BrokerProcess, Client, TestBroker, batch, eventually, fill};
use crate::mounts::Mount;

const DIRS: [&str; 3] = ["data", "second", "third"];
/// So slow that a move does not end.
const SLOW: &str = "replica.alter.log.dirs.io.max.bytes.per.second=1000";
const RATE: &str = "replica.alter.log.dirs.io.max.bytes.per.second";
/// More than is copied at once at the end of a move.
const LARGE: usize = 16;

fn settings(root: &Path, more: &[&str]) -> Vec<String> {
    let dirs: Vec<_> = DIRS.iter().map(|dir| root.join(dir).display().to_string()).collect();
    let own = [format!("log.dirs={}", dirs.join(",")), "log.retention.ms=-1".to_owned()];
    own.into_iter().chain(more.iter().map(ToString::to_string)).collect()
}

fn start_in(dir: TempDir, more: &[&str]) -> TestBroker {
    let settings = settings(dir.path(), more);
    TestBroker::start_in(dir, &settings.iter().map(String::as_str).collect::<Vec<_>>())
}

fn start(more: &[&str]) -> TestBroker {
    start_in(tempfile::tempdir().unwrap(), more)
}

fn start_process(root: &Path, more: &[&str]) -> BrokerProcess {
    BrokerProcess::start_with(root, &settings(root, more).iter().map(String::as_str).collect::<Vec<_>>())
}

pub(crate) fn ask(client: &mut Client, partition: i32, dir: &Path) -> ErrorCode {
    let topics = vec![AlterReplicaLogDirTopic { name: "orders".into(), partitions: vec![partition] }];
    let dirs = vec![AlterReplicaLogDir { path: dir.display().to_string().into(), topics }];
    let mut results = client.call(&AlterReplicaLogDirsRequest { dirs }, 2).results;
    assert_eq!((&*results[0].topic_name, results[0].partitions[0].partition_index), ("orders", partition));
    ErrorCode::from_code(results.remove(0).partitions[0].error_code)
}

fn describe(client: &mut Client) -> Vec<DescribeLogDirsResult> {
    client.call(&DescribeLogDirsRequest { topics: None }, 5).results
}

/// What a directory has of the partition, moved or on its way.
fn in_dir(client: &mut Client, dir: &Path, partition: i32) -> Option<DescribeLogDirsPartition> {
    let found = describe(client).into_iter().find(|found| Path::new(&*found.log_dir) == dir)?;
    let topic = found.topics.into_iter().find(|topic| &*topic.name == "orders")?;
    topic.partitions.into_iter().find(|found| found.partition_index == partition)
}

pub(crate) fn await_moved(client: &mut Client, dir: &Path, partition: i32) {
    eventually("the replica has moved", || in_dir(client, dir, partition).filter(|found| !found.is_future_key));
}

/// The directory that has the partition's log, and one that has not.
fn here_and_there(root: &Path, partition: i32) -> (PathBuf, PathBuf) {
    let has = |dir: &&&str| root.join(dir).join(format!("orders-{partition}")).exists();
    let here = DIRS.iter().find(has).unwrap();
    let there = DIRS.iter().find(|dir| *dir != here && **dir != "third").unwrap();
    (root.join(here), root.join(there))
}

fn futures(dir: &Path) -> usize {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().ends_with("-future")).count()
}

fn fill_up(client: &mut Client, partition: i32) {
    let large = "x".repeat(900_000);
    for _ in 0..LARGE {
        assert_eq!(client.produce("orders", partition, batch(&[&large]), -1).error_code, 0);
    }
}

/// Of several moves the first takes what the rate allows for long.
fn await_begun(client: &mut Client, dir: &Path, partition: i32) -> DescribeLogDirsPartition {
    eventually("the copy is there", || (futures(dir) > 0).then_some(()));
    eventually("the move is told", || in_dir(client, dir, partition).filter(|found| found.is_future_key))
}

#[test]
fn replicas_move_to_and_fro_while_clients_produce_and_consume() {
    let broker = start(&["log.flush.interval.messages=1"]);
    let root = broker.path().to_owned();
    create(&mut broker.client(), topic("orders", 1, &[("segment.bytes", Some("1048576"))]));
    let (stop, acknowledged) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = broker.client();
            let padding = "x".repeat(20_000);
            for number in 0.. {
                let builder = BatchBuilder::default().producer(ProducerId(7), ProducerEpoch(0), number);
                let records = fill(builder, &[&format!("{number} {padding}")]);
                let answer = client.produce("orders", 0, records, -1);
                assert_eq!((answer.error_code, answer.base_offset), (0, i64::from(number)));
                acknowledged.store(usize::try_from(number).unwrap() + 1, Ordering::SeqCst);
                if stop.load(Ordering::SeqCst) {
                    return;
                }
            }
        });
        scope.spawn(|| {
            let (mut client, mut next) = (broker.client(), 0);
            while !stop.load(Ordering::SeqCst) {
                let known = acknowledged.load(Ordering::SeqCst);
                let read = client.read_all_from("orders", 0, next);
                let end = next + i64::try_from(read.len()).unwrap();
                assert!(end >= i64::try_from(known).unwrap(), "what was acknowledged is seen");
                for (offset, value) in read {
                    assert_eq!((offset, value.split(' ').next().unwrap()), (next, &*next.to_string()));
                    next += 1;
                }
            }
        });
        let client = &mut broker.client();
        for _ in 0..8 {
            let until = acknowledged.load(Ordering::SeqCst) + 20;
            eventually("more is acknowledged", || (acknowledged.load(Ordering::SeqCst) >= until).then_some(()));
            let (here, there) = here_and_there(&root, 0);
            assert_eq!(ask(client, 0, &there), ErrorCode::None);
            await_moved(client, &there, 0);
            assert!(in_dir(client, &here, 0).is_none());
        }
        stop.store(true, Ordering::SeqCst);
    });
    let count = acknowledged.load(Ordering::SeqCst);
    let (here, there) = here_and_there(&root, 0);
    assert!(here.join("orders-0").exists() && !there.join("orders-0").exists());
    assert!(!here.join("orders-0/moved-from").exists() && DIRS.iter().all(|dir| futures(&root.join(dir)) == 0));
    let broker = start_in(broker.stop(), &[]);
    assert_eq!(broker.client().read_all("orders", 0).len(), count);
    assert!(here.join("orders-0").exists(), "it is where it was");
}

#[test]
fn a_move_is_told_with_what_it_lacks_and_can_be_called_off_or_sent_elsewhere() {
    let broker = start(&[SLOW]);
    let (root, client) = (broker.path().to_owned(), &mut broker.client());
    create(client, topic("orders", 1, &[]));
    fill_up(client, 0);
    let (here, there) = here_and_there(&root, 0);
    assert_eq!(ask(client, 0, &there), ErrorCode::None);
    await_begun(client, &there, 0);
    let future =
        eventually("something is copied", || in_dir(client, &there, 0).filter(|future| future.partition_size > 0));
    assert!(future.offset_lag > 0 && future.offset_lag <= i64::try_from(LARGE).unwrap(), "{future:?}");
    let present = in_dir(client, &here, 0).unwrap();
    assert!(!present.is_future_key && present.partition_size > future.partition_size);
    assert_eq!(ask(client, 0, &there), ErrorCode::None, "it goes on");
    assert_eq!(futures(&there), 1);

    assert_eq!(ask(client, 0, &root.join("third")), ErrorCode::None);
    await_begun(client, &root.join("third"), 0);
    assert!(in_dir(client, &there, 0).is_none());
    eventually("the first copy is gone", || (futures(&there) == 0).then_some(()));

    assert_eq!(ask(client, 0, &here), ErrorCode::None);
    assert!(in_dir(client, &root.join("third"), 0).is_none());
    eventually("the second copy is gone", || (futures(&root.join("third")) == 0).then_some(()));
    assert_eq!(client.read_all("orders", 0).len(), LARGE);

    assert_eq!(ask(client, 0, &there), ErrorCode::None);
    await_begun(client, &there, 0);
    let (code, message) = alter(client, BROKER, "1", &[(RATE, SET, Some("1000000000"))], false);
    assert_eq!(code, ErrorCode::None, "{message}");
    await_moved(client, &there, 0);
    assert_eq!(client.read_all("orders", 0).len(), LARGE);
}

#[test]
fn what_cannot_be_moved_is_refused_with_the_reason() {
    let broker = start(&[]);
    let (root, client) = (broker.path().to_owned(), &mut broker.client());
    create(client, topic("orders", 1, &[]));
    let (here, there) = here_and_there(&root, 0);
    assert_eq!(ask(client, 0, &here), ErrorCode::None, "it is there already");
    assert_eq!(ask(client, 0, &root.join("fourth")), ErrorCode::LogDirNotFound);
    assert_eq!(ask(client, 1, &there), ErrorCode::ReplicaNotAvailable);
    assert_eq!(
        alter(client, BROKER, "1", &[("cordoned.log.dirs", SET, Some(&there.display().to_string()))], false).0,
        ErrorCode::None
    );
    assert_eq!(ask(client, 0, &there), ErrorCode::InvalidReplicaAssignment);
    let one = |dir: &Path| AlterReplicaLogDir {
        path: dir.display().to_string().into(),
        topics: vec![AlterReplicaLogDirTopic { name: "orders".into(), partitions: vec![0] }],
    };
    let twice = AlterReplicaLogDirsRequest { dirs: vec![one(&there), one(&root.join("third"))] };
    let results = client.call(&twice, 2).results;
    assert_eq!((results.len(), results[0].partitions.len()), (1, 1));
    assert_eq!(ErrorCode::from_code(results[0].partitions[0].error_code), ErrorCode::InvalidRequest);
    assert!(here.join("orders-0").exists());
}

#[test]
fn nothing_new_comes_to_a_cordoned_dir_unless_there_is_no_other() {
    let broker = start(&[]);
    let (root, client) = (broker.path().to_owned(), &mut broker.client());
    let cordon = |client: &mut Client, dirs: &str| {
        assert_eq!(alter(client, BROKER, "1", &[("cordoned.log.dirs", SET, Some(dirs))], false).0, ErrorCode::None);
    };
    let (data, second) = (root.join("data"), root.join("second"));
    cordon(client, &format!("{},{}", data.display(), second.display()));
    create(client, topic("orders", 6, &[]));
    assert!((0..6).all(|partition| root.join(format!("third/orders-{partition}")).exists()));
    let cordoned: Vec<_> = describe(client).into_iter().map(|dir| dir.is_cordoned).collect();
    assert_eq!(cordoned, [true, true, false]);
    let status = broker.http_get("/status");
    let status: serde_json::Value = serde_json::from_str(status.split_once("\r\n\r\n").unwrap().1).unwrap();
    let said =
        |field: &str| status["logDirs"].as_array().unwrap().iter().map(|dir| dir[field] == true).collect::<Vec<_>>();
    assert_eq!((said("cordoned"), said("hasMetadata")), (vec![true, true, false], vec![true, false, false]));
    std::fs::create_dir(root.join("second/left-0")).unwrap();
    let status = broker.http_get("/status");
    let status: serde_json::Value = serde_json::from_str(status.split_once("\r\n\r\n").unwrap().1).unwrap();
    let logs: Vec<_> = status["logDirs"].as_array().unwrap().iter().map(|dir| dir["logs"].as_u64()).collect();
    assert_eq!(logs, [Some(1), Some(1), None], "the metadata, what nobody serves, and what is not cordoned");
    cordon(client, "*");
    assert_eq!(create(client, topic("more", 3, &[])).error_code, 0);
    for partition in 0..3 {
        assert_eq!(client.produce("more", partition, batch(&["x"]), -1).error_code, 0);
    }
}

#[test]
fn a_stop_or_a_kill_in_the_middle_leaves_the_replica_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let broker = start_process(root, &[SLOW]);
    create(&mut broker.client(), topic("orders", 1, &[]));
    fill_up(&mut broker.client(), 0);
    let (here, there) = here_and_there(root, 0);
    let begin = |broker: &BrokerProcess| {
        let client = &mut broker.client();
        assert_eq!(ask(client, 0, &there), ErrorCode::None);
        await_begun(client, &there, 0);
    };
    begin(&broker);
    assert!(broker.terminate(), "a move does not keep a broker from stopping in order");
    assert_eq!(futures(&there), 0);
    let broker = start_process(root, &[SLOW]);
    begin(&broker);
    broker.kill();
    assert_eq!(futures(&there), 1);
    let broker = start_process(root, &[]);
    let client = &mut broker.client();
    assert_eq!(futures(&there), 0);
    assert!(in_dir(client, &there, 0).is_none() && in_dir(client, &here, 0).is_some());
    assert_eq!(client.read_all("orders", 0).len(), LARGE);
    assert_eq!(ask(client, 0, &there), ErrorCode::None);
    await_moved(client, &there, 0);
    broker.kill();
    let broker = start_process(root, &[]);
    assert_eq!(broker.client().read_all("orders", 0).len(), LARGE, "what has moved is there after a kill");
    assert!(broker.said("has vanished").is_none(), "nothing is missed where it was before");
    assert!(in_dir(&mut broker.client(), &there, 0).is_some());
}

#[test]
fn records_are_deleted_and_topics_too_while_they_move() {
    let broker = start(&[SLOW]);
    let (root, client) = (broker.path().to_owned(), &mut broker.client());
    create(client, topic("orders", 2, &[("segment.bytes", Some("2097152"))]));
    fill_up(client, 0);
    fill_up(client, 1);
    let places: Vec<_> = (0..2).map(|partition| here_and_there(&root, partition)).collect();
    for (partition, (_, there)) in (0..).zip(&places) {
        assert_eq!(ask(client, partition, there), ErrorCode::None);
        await_begun(client, there, partition);
    }
    let partitions = vec![DeleteRecordsPartition { partition_index: 0, offset: 9 }];
    let topics = vec![DeleteRecordsTopic { name: "orders".into(), partitions }];
    let deleted = client.call(&DeleteRecordsRequest { topics, timeout_ms: 5000 }, 2);
    assert_eq!(deleted.topics[0].partitions[0].low_watermark, 9);
    assert_eq!(alter(client, BROKER, "1", &[(RATE, SET, Some("1000000000"))], false).0, ErrorCode::None);
    await_moved(client, &places[0].1, 0);
    assert_eq!(client.read_all_from("orders", 0, 9).len(), LARGE - 9);
    assert_eq!(client.fetch("orders", 0, 8).error_code, ErrorCode::OffsetOutOfRange.code());
    await_moved(client, &places[1].1, 1);
    assert_eq!(alter(client, BROKER, "1", &[(RATE, SET, Some("1000"))], false).0, ErrorCode::None);

    let (_, there) = here_and_there(&root, 1);
    fill_up(client, 1);
    assert_eq!(ask(client, 1, &there), ErrorCode::None);
    await_begun(client, &there, 1);
    let topics = vec![DeleteTopicState { name: Some("orders".into()), ..DeleteTopicState::default() }];
    assert_eq!(client.call(&DeleteTopicsRequest { topics, ..Default::default() }, 6).responses[0].error_code, 0);
    eventually("the copy is gone", || (futures(&there) == 0).then_some(()));
    create(client, topic("orders", 2, &[]));
    assert!(client.read_all("orders", 0).is_empty() && client.read_all("orders", 1).is_empty());
    let broker = start_in(broker.stop(), &[]);
    assert!(broker.client().read_all("orders", 1).is_empty());
}

#[test]
fn a_disk_that_fails_under_the_copy_ends_the_move_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let Some(disk) = Mount::ext4(&root.join("third"), 64) else { return };
    let broker = start_process(root, &["replica.alter.log.dirs.io.max.bytes.per.second=2000000"]);
    let client = &mut broker.client();
    create(client, topic("orders", 1, &[]));
    let here =
        ["data", "second", "third"].map(|dir| root.join(dir)).into_iter().find(|dir| dir.join("orders-0").exists());
    assert_ne!(here.unwrap(), root.join("third"), "the first one is placed in the first dir");
    fill_up(client, 0);
    assert_eq!(ask(client, 0, &root.join("third")), ErrorCode::None);
    await_begun(client, &root.join("third"), 0);
    disk.fail();
    eventually("the move has ended", || broker.said("a replica is not moved to another log dir"));
    assert_eq!(client.produce("orders", 0, batch(&["after"]), -1).error_code, 0);
    assert_eq!(client.read_all("orders", 0).len(), LARGE + 1);
    assert_eq!(ask(client, 0, &root.join("third")), ErrorCode::KafkaStorageError);
    broker.terminate();
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// The id in a directory's `meta.properties`.
fn directory_id(dir: &Path) -> String {
    let properties = std::fs::read_to_string(dir.join("meta.properties")).unwrap();
    properties.lines().find_map(|line| line.strip_prefix("directory.id=")).unwrap().to_owned()
}

#[test]
fn of_a_log_and_its_copy_the_right_one_is_served_wherever_a_crash_came() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let broker = start_process(root, &[]);
    create(&mut broker.client(), topic("orders", 1, &[]));
    assert_eq!(broker.client().produce("orders", 0, batch(&["a", "b"]), -1).error_code, 0);
    let (here, there) = here_and_there(root, 0);
    broker.kill();
    // The copy has the name, and the log too.
    let mark =
        |from: &Path, copy: &Path| std::fs::write(copy.join("orders-0/moved-from"), directory_id(from) + "\n").unwrap();
    copy_dir(&here.join("orders-0"), &there.join("orders-0"));
    mark(&here, &there);
    let broker = start_process(root, &[]);
    assert_eq!(broker.client().produce("orders", 0, batch(&["c"]), -1).base_offset, 2);
    assert!(in_dir(&mut broker.client(), &here, 0).is_some() && !there.join("orders-0").exists());
    broker.kill();

    // Only the copy has it; the checkpoints of the other directory do not know yet.
    copy_dir(&here.join("orders-0"), &there.join("orders-0"));
    mark(&here, &there);
    std::fs::rename(here.join("orders-0"), here.join("orders-0.00000000000000000000000000000000-delete")).unwrap();
    let broker = start_process(root, &[]);
    assert_eq!(broker.client().read_all("orders", 0).len(), 3);
    assert!(broker.said("has vanished").is_none() && !there.join("orders-0/moved-from").exists());
    assert_eq!(broker.client().produce("orders", 0, batch(&["d"]), -1).base_offset, 3);
    broker.kill();
    let broker = start_process(root, &[]);
    assert_eq!(broker.client().read_all("orders", 0).len(), 4);
    broker.kill();
}

#[test]
fn a_copy_whose_log_may_be_on_a_missing_disk_waits_for_that_disk() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let (data, second, away) = (root.join("data"), root.join("second"), root.join("away"));
    let broker = start_process(root, &[]);
    let client = &mut broker.client();
    // The first one gets the log of the metadata, which must not be on the disk that is missing.
    create(client, topic("orders", 1, &[]));
    if data.join("orders-0").exists() {
        assert_eq!(ask(client, 0, &second), ErrorCode::None);
        await_moved(client, &second, 0);
    }
    assert_eq!(client.produce("orders", 0, batch(&["a", "b"]), -1).error_code, 0);
    broker.kill();
    let log = |dir: &Path| dir.join("orders-0");
    copy_dir(&log(&second), &log(&data));
    std::fs::write(log(&data).join("moved-from"), directory_id(&second) + "\n").unwrap();
    std::fs::rename(&second, &away).unwrap();
    std::fs::create_dir(&second).unwrap();
    let broker = start_process(root, &[]);
    assert!(broker.said("it is offline until that is back").is_some());
    eventually("it is offline", || {
        (broker.client().fetch("orders", 0, 0).error_code == ErrorCode::KafkaStorageError.code()).then_some(())
    });
    broker.kill();
    std::fs::remove_dir_all(&second).unwrap();
    std::fs::rename(&away, &second).unwrap();
    let broker = start_process(root, &[]);
    assert_eq!(broker.client().read_all("orders", 0).len(), 2);
    assert!(in_dir(&mut broker.client(), &second, 0).is_some() && !log(&data).exists());
}
