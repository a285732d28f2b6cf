//! Two replicas of one partition: what one leads and the other follows.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use forebay_broker_machines::metadata::PartitionImage;
use forebay_broker_storage::{Identity, faulty_disk::NeverFlushes};
use forebay_broker_wire::{
    records::{BatchBuilder, NewRecord},
    types::{BrokerId, LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, Uuid},
};

use crate::*;

const NOW_MS: i64 = 1_800_000_000_000;

struct Broker {
    _dir: tempfile::TempDir,
    id: i32,
    partition: Arc<Partition>,
}

fn broker(id: i32, config: LogConfig) -> Broker {
    let dir = tempfile::tempdir().unwrap();
    let identity = Identity { cluster_id: "test".into(), node_id: BrokerId(id), directory_id: Uuid([1; 16]) };
    let log_dir = LogDir::open(NeverFlushes::disk(), dir.path(), &identity, 0).unwrap();
    let name = LogName::new("topic", 0);
    let open = OpenPartition { name, topic_id: None, leader_epoch: LeaderEpoch(-1), config };
    let settings = Settings { min_insync_replicas: 2, lag_time_max_ms: 1000, ..Settings::default() };
    let partition = Arc::new(Partition::open_replica(&log_dir, open, settings).unwrap().0);
    Broker { _dir: dir, id, partition }
}

/// Two brokers, the first of which leads in epoch 1.
fn pair(config: &LogConfig) -> [Broker; 2] {
    let brokers = [broker(1, config.clone()), broker(2, config.clone())];
    lead(&brokers, 1, 1, &[1, 2]);
    brokers
}

/// The metadata names a leader.
fn lead(brokers: &[Broker], leader: i32, epoch: i32, in_sync: &[i32]) {
    let image = PartitionImage {
        index: PartitionIndex(0),
        replicas: vec![BrokerId(1), BrokerId(2)],
        in_sync_replicas: in_sync.iter().copied().map(BrokerId).collect(),
        leader: Some(BrokerId(leader)),
        leader_epoch: LeaderEpoch(epoch),
        partition_epoch: epoch,
        ..PartitionImage::default()
    };
    for broker in brokers {
        if broker.id == leader {
            broker.partition.become_leader(&image, NOW_MS);
        } else {
            broker.partition.become_follower(&image, NOW_MS);
        }
    }
}

fn records(values: &[&str]) -> Bytes {
    let mut builder = BatchBuilder::default();
    for value in values {
        let value = Some(value.as_bytes());
        builder.push(&NewRecord { timestamp_ms: NOW_MS, value, ..NewRecord::default() }).unwrap();
    }
    builder.build().unwrap()
}

fn append(leader: &Broker, values: &[&str]) -> Result<Appended, AppendError> {
    leader.partition.append(&[AppendRequest { records: records(values), origin: Origin::Client }], NOW_MS).remove(0)
}

fn ask(leader: &Broker, follower: &Broker, asked: &FetchPosition) -> Result<ReplicaRead, ReadError> {
    let fetch = ReplicaFetch {
        follower: BrokerId(follower.id),
        broker_epoch: 1,
        offset: asked.offset,
        log_start: asked.log_start,
        last_fetched_epoch: asked.last_fetched_epoch,
        current_leader_epoch: asked.leader_epoch,
        max_bytes: 1 << 20,
        min_one_batch: true,
    };
    leader.partition.read_for_replica(&fetch, NOW_MS)
}

fn answer(asked: FetchPosition, read: ReadResult) -> LeaderAnswer {
    let records = read.slice.map(|slice| slice.read().unwrap()).unwrap_or_default();
    LeaderAnswer { asked, records, high_watermark: read.high_watermark, log_start: read.log_start_offset }
}

/// One fetch and what follows from it. Gives what it came to.
fn fetch(leader: &Broker, follower: &Broker) -> &'static str {
    let asked = follower.partition.fetch_position().unwrap();
    match ask(leader, follower, &asked) {
        Ok(ReplicaRead::Records(read)) => {
            if follower.partition.append_from_leader(&answer(asked, read), NOW_MS).unwrap() {
                follower.partition.flush().unwrap();
            }
            "records"
        }
        Ok(ReplicaRead::Diverging(end)) => {
            follower.partition.truncate_diverging(&asked, end, NOW_MS).unwrap();
            "diverging"
        }
        Err(ReadError::OutOfRange { log_start, log_end, .. }) => {
            follower.partition.out_of_leaders_range(&asked, (log_start, log_end), NOW_MS).unwrap();
            "out of range"
        }
        Err(error) => panic!("{error}"),
    }
}

/// Log start, high watermark and log end.
fn offsets(broker: &Broker) -> (i64, i64, i64) {
    let offsets = broker.partition.offsets();
    (offsets.log_start.0, offsets.high_watermark.0, offsets.log_end.0)
}

/// All bytes of a log.
fn log(broker: &Broker) -> Bytes {
    let offsets = broker.partition.offsets();
    let spec = ReadSpec { offset: offsets.log_start, max_bytes: 1 << 20, min_one_batch: true, upto: offsets.log_end };
    broker.partition.read_own(&spec).unwrap().map(|slice| slice.read().unwrap()).unwrap_or_default()
}

#[derive(Default)]
struct Told(Mutex<Option<CommitOutcome>>);

impl CommitWaiter for Told {
    fn done(&self, outcome: CommitOutcome) {
        assert_eq!(self.0.lock().unwrap().replace(outcome), None, "told twice");
    }
}

/// Waits for records up to `end`; the guard keeps the wait going.
fn wait(leader: &Broker, end: i64, epoch: i32) -> (Arc<Told>, CommitGuard) {
    let told = Arc::new(Told::default());
    let waiter = Arc::<Told>::clone(&told);
    let guard = leader.partition.when_committed(Offset(end), LeaderEpoch(epoch), waiter);
    (told, guard.unwrap().unwrap())
}

#[test]
fn a_follower_copies_the_log_byte_for_byte_and_learns_how_far_it_is_safe() {
    let [leader, follower] = &pair(&LogConfig::default());
    append(leader, &["a", "b"]).unwrap();
    append(leader, &["c"]).unwrap();
    assert_eq!(offsets(leader), (0, 0, 3), "nobody else has it");
    fetch(leader, follower);
    assert_eq!((offsets(leader), offsets(follower)), ((0, 0, 3), (0, 0, 3)));
    fetch(leader, follower);
    assert_eq!((offsets(leader), offsets(follower)), ((0, 3, 3), (0, 3, 3)));
    assert_eq!(log(leader), log(follower));
}

#[test]
fn a_producer_is_told_when_all_in_sync_replicas_have_its_records() {
    let [leader, follower] = &pair(&LogConfig::default());
    append(leader, &["a"]).unwrap();
    let (told, _guard) = wait(leader, 1, 1);
    let (given_up, guard) = wait(leader, 1, 1);
    drop(guard);
    fetch(leader, follower);
    assert_eq!(*told.0.lock().unwrap(), None);
    fetch(leader, follower);
    assert_eq!(*told.0.lock().unwrap(), Some(CommitOutcome::Committed));
    assert_eq!(*given_up.0.lock().unwrap(), None);
    let late = leader.partition.when_committed(Offset(1), LeaderEpoch(1), Arc::new(Told::default()));
    assert!(matches!(late, Ok(None)), "it is safe already");
    let old = leader.partition.when_committed(Offset(1), LeaderEpoch(0), Arc::new(Told::default()));
    assert!(matches!(old, Err(CommitOutcome::NotLeader)));
}

#[test]
fn nobody_begins_to_wait_at_a_partition_that_was_closed_meanwhile() {
    let [leader, _follower] = &pair(&LogConfig::default());
    append(leader, &["a"]).unwrap();
    leader.partition.close().unwrap();
    let late = leader.partition.when_committed(Offset(1), LeaderEpoch(1), Arc::new(Told::default()));
    assert!(matches!(late, Err(CommitOutcome::NotLeader)));
}

#[test]
fn a_producer_is_told_when_too_few_are_in_sync_or_another_leads() {
    let brokers = pair(&LogConfig::default());
    append(&brokers[0], &["a"]).unwrap();
    let (few, _guard) = wait(&brokers[0], 1, 1);
    brokers[0].partition.check_followers(NOW_MS + 5000);
    let proposal = brokers[0].partition.take_isr_proposal().unwrap();
    assert_eq!(proposal.in_sync_replicas, [(BrokerId(1), None)]);
    let accepted = IsrAnswer::Accepted {
        partition_epoch: 2,
        in_sync_replicas: vec![BrokerId(1)],
        may_lead_out_of_sync: vec![BrokerId(2)],
    };
    assert!(!brokers[0].partition.is_below_min_isr());
    brokers[0].partition.isr_answered(proposal, accepted, NOW_MS);
    assert_eq!(*few.0.lock().unwrap(), Some(CommitOutcome::NotEnoughReplicas));
    assert!(brokers[0].partition.is_below_min_isr(), "the next one is refused before it is written");
    lead(&brokers, 1, 3, &[1, 2]);
    let (lost, _guard) = wait(&brokers[0], 1, 3);
    lead(&brokers, 2, 4, &[1, 2]);
    assert_eq!(*lost.0.lock().unwrap(), Some(CommitOutcome::NotLeader));
}

#[test]
fn a_follower_takes_no_appends_and_shows_no_records() {
    let [_, follower] = &pair(&LogConfig::default());
    assert!(matches!(append(follower, &["a"]), Err(AppendError::NotLeader(_))));
    let spec = FetchSpec {
        offset: Offset(0),
        max_bytes: 100,
        min_one_batch: true,
        isolation: Isolation::ReadUncommitted,
        current_leader_epoch: None,
    };
    assert!(matches!(follower.partition.read(&spec), Err(ReadError::NotLeader(_))));
    assert!(matches!(follower.partition.delete_records(None, NOW_MS), Err(UpdateError::NotLeader(_))));
}

#[test]
fn a_follower_cuts_what_its_new_leader_does_not_have() {
    let brokers = pair(&LogConfig::default());
    append(&brokers[0], &["both have this"]).unwrap();
    fetch(&brokers[0], &brokers[1]);
    fetch(&brokers[0], &brokers[1]);
    append(&brokers[0], &["only the first", "has these"]).unwrap();
    lead(&brokers, 2, 2, &[2]);
    // Before the new epoch has a record: the question is where the old one ended.
    assert_eq!(fetch(&brokers[1], &brokers[0]), "diverging");
    assert_eq!(offsets(&brokers[0]), (0, 1, 1));
    append(&brokers[1], &["the second's"]).unwrap();
    assert_eq!(fetch(&brokers[1], &brokers[0]), "records");
    assert_eq!(log(&brokers[0]), log(&brokers[1]));
}

#[test]
fn an_answer_to_an_earlier_question_changes_nothing() {
    let [leader, follower] = &pair(&LogConfig::default());
    append(leader, &["a"]).unwrap();
    let asked = follower.partition.fetch_position().unwrap();
    let Ok(ReplicaRead::Records(read)) = ask(leader, follower, &asked) else { panic!("records") };
    let late = answer(asked, read);
    fetch(leader, follower);
    let error = follower.partition.append_from_leader(&late, NOW_MS).unwrap_err();
    assert!(matches!(error, FollowError::Late { asked: Offset(0), log_end: Offset(1), .. }), "{error}");
    assert_eq!(log(leader), log(follower));
}

#[test]
fn a_follower_appends_at_once_what_wants_no_patience_and_leaves_the_rest_as_it_was() {
    let [leader, follower] = &pair(&LogConfig::default());
    append(leader, &["the first of its epoch"]).unwrap();
    let answered = |leader: &Broker| {
        let asked = follower.partition.fetch_position().unwrap();
        let Ok(ReplicaRead::Records(read)) = ask(leader, follower, &asked) else { panic!("records") };
        answer(asked, read)
    };
    let first = answered(leader);
    assert!(follower.partition.append_from_leader_hot(&first, NOW_MS).is_none(), "an epoch is noted on disk");
    assert_eq!(offsets(follower), (0, 0, 0));
    follower.partition.append_from_leader(&first, NOW_MS).unwrap();
    append(leader, &["more", "of it"]).unwrap();
    let second = answered(leader);
    let writes = follower.partition.writer.lock();
    assert!(follower.partition.append_from_leader_hot(&second, NOW_MS).is_none(), "somebody else is writing");
    drop(writes);
    assert!(matches!(follower.partition.append_from_leader_hot(&second, NOW_MS), Some(Ok(false))));
    assert_eq!((log(follower), offsets(follower)), (log(leader), (0, 1, 3)));
    assert!(matches!(follower.partition.append_from_leader_hot(&second, NOW_MS), Some(Err(FollowError::Late { .. }))));
    let nothing_new = answered(leader);
    assert!(matches!(follower.partition.append_from_leader_hot(&nothing_new, NOW_MS), Some(Ok(false))));
    assert_eq!(offsets(follower), (0, 3, 3), "what is safe is learned without records, too");
    leader.partition.delete_records(Some(Offset(2)), NOW_MS).unwrap();
    assert!(follower.partition.append_from_leader_hot(&answered(leader), NOW_MS).is_none(), "a start is noted on disk");
    assert_eq!(offsets(follower), (0, 3, 3));
}

#[test]
fn a_new_leader_names_no_end_to_consumers_before_it_knows_how_far_records_are_safe() {
    let brokers = pair(&LogConfig::default());
    append(&brokers[0], &["a"]).unwrap();
    fetch(&brokers[0], &brokers[1]);
    lead(&brokers, 2, 2, &[1, 2]); // it has the record, but does not know that the first one has it
    let list = |spec| brokers[1].partition.list_offset(spec, Isolation::ReadUncommitted, None);
    assert!(matches!(list(TimestampSpec::Latest), Err(ReadError::OffsetNotAvailable { .. })));
    assert_eq!(list(TimestampSpec::Earliest).unwrap().unwrap().offset, Offset(0));
    fetch(&brokers[1], &brokers[0]);
    assert_eq!(list(TimestampSpec::Latest).unwrap().unwrap().offset, Offset(1));
}

#[derive(Default)]
struct Counter(Mutex<(u64, bool)>);

impl FetchWaiter for Counter {
    fn advanced(&self, bytes: u64) {
        self.0.lock().unwrap().0 += bytes;
    }

    fn closed(&self) {
        self.0.lock().unwrap().1 = true;
    }
}

#[test]
fn followers_are_told_of_every_append_and_consumers_of_what_is_safe() {
    let brokers = pair(&LogConfig::default());
    let (follower, consumer) = (Arc::new(Counter::default()), Arc::new(Counter::default()));
    let _follower = brokers[0].partition.watch_log_end(Arc::<Counter>::clone(&follower));
    let _consumer = brokers[0].partition.watch(Arc::<Counter>::clone(&consumer));
    let bytes = append(&brokers[0], &["a"]).unwrap().bytes;
    assert_eq!((*follower.0.lock().unwrap(), *consumer.0.lock().unwrap()), ((bytes, false), (0, false)));
    fetch(&brokers[0], &brokers[1]);
    fetch(&brokers[0], &brokers[1]);
    assert_eq!((*follower.0.lock().unwrap(), *consumer.0.lock().unwrap()), ((bytes, false), (bytes, false)));
    lead(&brokers, 2, 2, &[1, 2]);
    assert_eq!((follower.0.lock().unwrap().1, consumer.0.lock().unwrap().1), (true, true), "look elsewhere");
}

#[test]
fn a_late_word_that_the_logs_part_does_not_cut_a_log_that_has_changed_since() {
    let brokers = pair(&LogConfig::default());
    append(&brokers[0], &["only", "the first has these"]).unwrap();
    lead(&brokers, 2, 2, &[2]);
    append(&brokers[1], &["the second's", "records"]).unwrap();
    let asked = brokers[0].partition.fetch_position().unwrap();
    let Ok(ReplicaRead::Diverging(end)) = ask(&brokers[1], &brokers[0], &asked) else { panic!("diverging") };
    fetch(&brokers[1], &brokers[0]);
    fetch(&brokers[1], &brokers[0]);
    assert_eq!(offsets(&brokers[0]).2, asked.offset.0, "as long as it was, with other records");
    let late = brokers[0].partition.truncate_diverging(&asked, end, NOW_MS);
    assert!(matches!(late, Err(FollowError::Late { .. })));
    assert_eq!(log(&brokers[0]), log(&brokers[1]));
}

#[test]
fn with_flush_messages_1_a_follower_asks_for_more_only_after_its_flush() {
    let [leader, follower] = &pair(&LogConfig { flush_messages: 1, ..LogConfig::default() });
    append(leader, &["a"]).unwrap();
    leader.partition.flush().unwrap();
    let asked = follower.partition.fetch_position().unwrap();
    let Ok(ReplicaRead::Records(read)) = ask(leader, follower, &asked) else { panic!("records") };
    assert!(follower.partition.append_from_leader(&answer(asked, read), NOW_MS).unwrap());
    assert_eq!(follower.partition.fetch_position(), None);
    follower.partition.flush().unwrap();
    fetch(leader, follower);
    assert_eq!(offsets(leader), (0, 1, 1));
}

#[test]
fn a_follower_begins_anew_behind_what_its_leader_has_deleted_even_inside_a_batch() {
    let brokers = pair(&LogConfig { segment_bytes: 200, ..LogConfig::default() });
    lead(&brokers, 1, 2, &[1]);
    brokers[0].partition.update_replication(Settings::default());
    for n in 0..10 {
        append(&brokers[0], &[&format!("{n} one"), &format!("{n} two")]).unwrap();
    }
    brokers[0].partition.delete_records(Some(Offset(15)), NOW_MS).unwrap();
    assert_eq!(fetch(&brokers[0], &brokers[1]), "out of range");
    assert_eq!(offsets(&brokers[1]), (15, 0, 15));
    while offsets(&brokers[1]).2 < 20 {
        assert_eq!(fetch(&brokers[0], &brokers[1]), "records");
    }
    assert_eq!(offsets(&brokers[1]), (15, 20, 20));
    assert_eq!(log(&brokers[0]), log(&brokers[1]));
}

#[test]
fn what_cannot_be_compared_with_the_leaders_log_never_counts_as_safe() {
    let brokers = pair(&LogConfig { segment_bytes: 200, ..LogConfig::default() });
    append(&brokers[0], &["a", "b", "c", "d", "e", "f"]).unwrap(); // epoch 1, on the first broker only
    lead(&brokers, 2, 2, &[2]);
    brokers[1].partition.update_replication(Settings::default());
    append(&brokers[1], &["A", "B"]).unwrap();
    append(&brokers[1], &["C", "D"]).unwrap();
    brokers[1].partition.delete_records(Some(Offset(3)), NOW_MS).unwrap();
    assert_eq!(fetch(&brokers[1], &brokers[0]), "diverging");
    while offsets(&brokers[0]).2 < 4 {
        fetch(&brokers[1], &brokers[0]);
        assert!(offsets(&brokers[0]).1 <= 0 || offsets(&brokers[0]).0 == 3, "{:?}", offsets(&brokers[0]));
    }
    fetch(&brokers[1], &brokers[0]);
    assert_eq!(offsets(&brokers[0]), (3, 4, 4));
    assert_eq!(log(&brokers[0]), log(&brokers[1]));
}

#[test]
fn a_restarted_leader_alone_in_sync_knows_all_it_has_to_be_safe() {
    let brokers = pair(&LogConfig::default());
    lead(&brokers, 1, 2, &[1]);
    append(&brokers[0], &["a"]).unwrap();
    assert_eq!(offsets(&brokers[0]), (0, 0, 1), "below min.insync.replicas");
    brokers[0].partition.update_replication(Settings::default());
    assert_eq!(offsets(&brokers[0]), (0, 1, 1));
}

/// One record of an idempotent producer.
fn append_numbered(leader: &Broker, sequence: i32, at_ms: i64) -> Result<Appended, AppendError> {
    let mut builder = BatchBuilder::default().producer(ProducerId(7), ProducerEpoch(0), sequence);
    builder.push(&NewRecord { timestamp_ms: NOW_MS, ..NewRecord::default() }).unwrap();
    let request = AppendRequest { records: builder.build().unwrap(), origin: Origin::Client };
    leader.partition.append(&[request], at_ms).remove(0)
}

#[test]
fn a_leader_that_has_just_begun_calls_no_sequence_broken_since_batches_may_be_on_their_way() {
    let brokers = pair(&LogConfig::default());
    let leader = &brokers[0];
    let unsettled = |appended| matches!(appended, Err(AppendError::Unsettled { .. }));
    assert!(unsettled(append_numbered(leader, 3, NOW_MS)), "its first batches may come yet");
    append_numbered(leader, 0, NOW_MS).unwrap();
    assert!(unsettled(append_numbered(leader, 2, NOW_MS + 2999)));
    append_numbered(leader, 1, NOW_MS + 2999).unwrap();
    let broken = |appended| matches!(appended, Err(AppendError::Log(forebay_broker_storage::AppendError::Sequence(_))));
    assert!(broken(append_numbered(leader, 3, NOW_MS + 3000)), "nobody passes anything on any more");
    assert!(broken(append_numbered(leader, 3, NOW_MS - 1)), "a clock that was set back");
    lead(&brokers, 1, 2, &[1, 2]);
    assert!(unsettled(append_numbered(leader, 3, NOW_MS)), "another epoch: somebody else may have led");
}

#[test]
fn a_producer_whose_records_are_gone_may_begin_anywhere_when_the_leader_has_settled() {
    let brokers = pair(&LogConfig::default());
    append_numbered(&brokers[0], 3, NOW_MS + 3000).unwrap();
}
