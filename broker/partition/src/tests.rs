//! Behaviour of a partition: what consumers may see and when waiters are told.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use bytes::Bytes;
use forebay_broker_storage::{
    Identity,
    disk::{Operation, Verdict},
    faulty_disk::FaultyDisk,
};
use forebay_broker_wire::{
    records::{BatchBuilder, NewRecord},
    types::{BrokerId, LeaderEpoch, Offset, Uuid},
};

use crate::*;

const NOW_MS: i64 = 1_800_000_000_000;

#[derive(Default)]
struct Counter {
    bytes: AtomicU64,
    calls: AtomicU64,
    closed: AtomicBool,
}

impl FetchWaiter for Counter {
    fn advanced(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, SeqCst);
        self.calls.fetch_add(1, SeqCst);
    }

    fn closed(&self) {
        self.closed.store(true, SeqCst);
    }
}

struct Fixture {
    _dir: tempfile::TempDir,
    disk: Arc<FaultyDisk>,
    log_dir: Arc<LogDir>,
    partition: Partition,
}

fn fixture(config: LogConfig) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::new(dir.path()).unwrap();
    let identity = Identity { cluster_id: "test".into(), node_id: BrokerId(1), directory_id: Uuid([1; 16]) };
    let log_dir = LogDir::open(disk.disk(), dir.path(), &identity, 0).unwrap();
    let partition = open(&log_dir, config);
    Fixture { _dir: dir, disk, log_dir, partition }
}

fn open(log_dir: &Arc<LogDir>, config: LogConfig) -> Partition {
    let name = LogName::new("topic", 0);
    let open = OpenPartition { name, topic_id: Some(Uuid([7; 16])), leader_epoch: LeaderEpoch(5), config };
    Partition::open(log_dir, open).unwrap().0
}

fn flush_each() -> LogConfig {
    LogConfig { flush_messages: 1, ..LogConfig::default() }
}

fn request(value: &str) -> AppendRequest {
    let mut builder = BatchBuilder::default();
    builder.push(&NewRecord { timestamp_ms: NOW_MS, value: Some(value.as_bytes()), ..NewRecord::default() }).unwrap();
    AppendRequest { records: builder.build().unwrap(), origin: Origin::Client }
}

fn append(partition: &Partition, value: &str) -> Result<Appended, AppendError> {
    partition.append(&[request(value)], NOW_MS).remove(0)
}

fn fetch(offset: i64, isolation: Isolation) -> FetchSpec {
    FetchSpec { offset: Offset(offset), max_bytes: 1 << 20, min_one_batch: true, isolation, current_leader_epoch: None }
}

fn bytes(partition: &Partition, offset: i64, isolation: Isolation) -> Bytes {
    let slice = partition.read(&fetch(offset, isolation)).unwrap().slice;
    slice.map(|slice| slice.read().unwrap()).unwrap_or_default()
}

#[test]
fn what_is_written_is_visible_at_once_and_waiters_are_told_the_bytes() {
    let Fixture { partition, .. } = &fixture(LogConfig::default());
    let waiter = Arc::new(Counter::default());
    let guard = partition.watch(Arc::<Counter>::clone(&waiter));
    let requests = [request("a"), request("b"), AppendRequest { records: Bytes::new(), origin: Origin::Client }];
    let size: usize = requests.iter().map(|request| request.records.len()).sum();
    partition.append(&requests, NOW_MS);
    assert_eq!((waiter.bytes.load(SeqCst), waiter.calls.load(SeqCst)), (size as u64, 1));
    assert_eq!(bytes(partition, 0, Isolation::ReadUncommitted).len(), size);
    drop(guard);
    append(partition, "c").unwrap();
    assert_eq!(waiter.calls.load(SeqCst), 1, "no more after the guard is gone");
}

#[test]
fn with_flush_messages_1_nothing_is_visible_before_its_flush() {
    let Fixture { partition, disk, .. } = &fixture(flush_each());
    let waiter = Arc::new(Counter::default());
    let _guard = partition.watch(Arc::<Counter>::clone(&waiter));
    assert!(append(partition, "a").unwrap().flush_required);
    append(partition, "b").unwrap();
    assert_eq!(bytes(partition, 0, Isolation::ReadUncommitted).len(), 0);
    assert_ne!(bytes(partition, 0, Isolation::LogEnd).len(), 0, "followers read ahead");
    assert_eq!((partition.offsets().high_watermark, partition.offsets().log_end), (Offset(0), Offset(2)));
    assert_eq!(waiter.calls.load(SeqCst), 0);
    let before = disk.flushes();
    assert_eq!(partition.flush().unwrap(), Offset(2));
    assert_eq!(disk.flushes(), before + 1);
    assert_eq!(waiter.bytes.load(SeqCst), bytes(partition, 0, Isolation::ReadUncommitted).len() as u64);
    assert!(!partition.needs_flush());
    partition.flush().unwrap();
    assert_eq!(disk.flushes(), before + 1, "nothing to flush");
}

#[test]
fn a_failed_flush_never_shows_the_records() {
    let Fixture { partition, disk, log_dir, .. } = &fixture(flush_each());
    append(partition, "a").unwrap();
    disk.inject(|operation| match operation {
        Operation::Sync { .. } => Verdict::Fail(io::Error::from_raw_os_error(5)),
        _ => Verdict::Proceed,
    });
    partition.flush().unwrap_err();
    disk.heal();
    partition.flush().unwrap_err();
    assert_eq!(partition.offsets().high_watermark, Offset(0));
    append(partition, "b").unwrap_err();
    assert!(log_dir.poisoned().is_some());
}

#[test]
fn readers_of_another_epoch_are_told() {
    let Fixture { partition, .. } = &fixture(LogConfig::default());
    let with =
        |epoch| FetchSpec { current_leader_epoch: Some(LeaderEpoch(epoch)), ..fetch(0, Isolation::ReadUncommitted) };
    assert!(partition.read(&with(5)).is_ok());
    assert!(partition.read(&with(-1)).is_ok(), "not said");
    assert!(matches!(partition.read(&with(4)), Err(ReadError::FencedLeaderEpoch { .. })));
    assert!(matches!(partition.read(&with(6)), Err(ReadError::UnknownLeaderEpoch { .. })));
    partition.set_leader_epoch(LeaderEpoch(6));
    assert!(partition.read(&with(6)).is_ok());
    append(partition, "a").unwrap();
    assert_eq!(partition.end_offset_for_epoch(LeaderEpoch(6), None).unwrap(), Some((LeaderEpoch(6), Offset(1))));
}

#[test]
fn offsets_are_listed_below_the_high_watermark() {
    let Fixture { partition, .. } = &fixture(flush_each());
    append(partition, "a").unwrap();
    let list = |spec, isolation| partition.list_offset(spec, isolation, None).unwrap().map(|found| found.offset.0);
    assert_eq!(list(TimestampSpec::Latest, Isolation::ReadUncommitted), Some(0));
    assert_eq!(list(TimestampSpec::At(0), Isolation::ReadUncommitted), None);
    assert_eq!(list(TimestampSpec::Latest, Isolation::LogEnd), Some(1));
    partition.flush().unwrap();
    assert_eq!(list(TimestampSpec::At(0), Isolation::ReadUncommitted), Some(0));
    assert_eq!(list(TimestampSpec::Latest, Isolation::ReadCommitted), Some(1));
    assert_eq!(list(TimestampSpec::Earliest, Isolation::ReadCommitted), Some(0));
}

#[test]
fn records_are_deleted_only_below_the_high_watermark() {
    let Fixture { partition, .. } = &fixture(flush_each());
    append(partition, "a").unwrap();
    partition.flush().unwrap();
    append(partition, "b").unwrap();
    assert!(matches!(
        partition.delete_records(Some(Offset(2)), NOW_MS),
        Err(UpdateError::Log(LogError::OutOfRange { .. }))
    ));
    assert_eq!(partition.delete_records(None, NOW_MS).unwrap(), Offset(1));
    let error = partition.read(&fetch(0, Isolation::ReadUncommitted)).unwrap_err();
    assert!(matches!(error, ReadError::OutOfRange { log_start: Offset(1), log_end: Offset(2), .. }));
}

#[test]
fn a_changed_flush_rule_shows_what_waited() {
    let Fixture { partition, .. } = &fixture(flush_each());
    let waiter = Arc::new(Counter::default());
    let _guard = partition.watch(Arc::<Counter>::clone(&waiter));
    append(partition, "a").unwrap();
    partition.update_config(LogConfig::default());
    assert_eq!((partition.offsets().high_watermark, waiter.calls.load(SeqCst)), (Offset(1), 1));
}

#[test]
fn a_closed_partition_refuses_and_wakes_and_opens_again_as_it_was() {
    let Fixture { partition, log_dir, .. } = &fixture(LogConfig::default());
    let waiter = Arc::new(Counter::default());
    let _guard = partition.watch(Arc::<Counter>::clone(&waiter));
    append(partition, "a").unwrap();
    partition.close().unwrap();
    assert!(waiter.closed.load(SeqCst));
    assert!(matches!(append(partition, "b"), Err(AppendError::Closed(_))));
    assert!(matches!(partition.read(&fetch(0, Isolation::ReadUncommitted)), Err(ReadError::Closed(_))));
    let again = open(log_dir, LogConfig::default());
    assert_eq!(
        again.offsets(),
        PartitionOffsets {
            log_start: Offset(0),
            high_watermark: Offset(1),
            last_stable: Offset(1),
            log_end: Offset(1)
        }
    );
}

#[test]
fn a_deleted_partition_leaves_no_log() {
    let Fixture { partition, log_dir, .. } = &fixture(LogConfig::default());
    append(partition, "a").unwrap();
    partition.delete(NOW_MS).unwrap();
    assert_eq!(log_dir.logs().unwrap(), []);
    assert!(matches!(partition.maintain(NOW_MS), Err(UpdateError::Closed(_))));
}

#[test]
fn no_byte_is_missed_between_appenders_flushers_and_waiters() {
    let fixture = fixture(flush_each());
    let partition = &fixture.partition;
    let waiter = Arc::new(Counter::default());
    let _guard = partition.watch(Arc::<Counter>::clone(&waiter));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for n in 0..200 {
                    append(partition, &"x".repeat(n)).unwrap();
                    partition.flush().unwrap();
                    let seen = partition.offsets();
                    assert!(seen.high_watermark <= seen.log_end);
                }
            });
        }
    });
    assert_eq!(partition.offsets().high_watermark, Offset(600));
    assert_eq!(waiter.bytes.load(SeqCst), partition.size_bytes());
}

#[test]
fn compaction_runs_beside_appends_and_ends_when_the_partition_closes() {
    let config = LogConfig { compact: true, delete: false, segment_bytes: 20_000, ..LogConfig::default() };
    let fixture = fixture(config);
    let partition = &fixture.partition;
    let append = |n: i64| {
        let mut builder = BatchBuilder::default();
        let (key, value) = (format!("key {}", n % 10), "v".repeat(200));
        let record =
            NewRecord { timestamp_ms: NOW_MS, key: Some(key.as_bytes()), value: Some(value.as_bytes()), headers: &[] };
        builder.push(&record).unwrap();
        let request = AppendRequest { records: builder.build().unwrap(), origin: Origin::Client };
        partition.append(&[request], NOW_MS).remove(0).unwrap()
    };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..3000 {
                assert_eq!(append(n).base_offset, Offset(n));
            }
            stop.store(true, SeqCst);
        });
        while !stop.load(SeqCst) {
            partition.compact(NOW_MS).unwrap();
        }
    });
    partition.compact(NOW_MS).unwrap();
    assert!(partition.size_bytes() < 100_000, "{} bytes left of 800,000", partition.size_bytes());
    assert_eq!(partition.offsets().log_end, Offset(3000));
    partition.close().unwrap();
    assert!(partition.compact(NOW_MS).unwrap().is_none());
}
