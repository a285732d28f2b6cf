//! A follower's fetches: what they are told of their leader's log, and when.

use std::time::{Duration, Instant};

use forebay_broker_wire::messages::fetch::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData, ReplicaState,
};
use forebay_broker_wire::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use forebay_broker_wire::types::{ErrorCode, Uuid};

use crate::harness::{Client, TestBroker, batch, values};

const FETCH: i16 = 18;
const PATIENT_MS: i32 = 20_000;

fn topic_id(client: &mut Client, topic: &str) -> Uuid {
    let topics = vec![MetadataRequestTopic { name: Some(topic.into()), ..MetadataRequestTopic::default() }];
    client.call(&MetadataRequest { topics: Some(topics), ..MetadataRequest::default() }, 12).topics[0].topic_id
}

/// As broker 7 would ask for partition 0.
fn ask(topic_id: Uuid, partition: &FetchPartition, max_wait_ms: i32) -> FetchRequest {
    let partition = FetchPartition { partition_max_bytes: 1 << 20, log_start_offset: 0, ..partition.clone() };
    FetchRequest {
        replica_state: ReplicaState { replica_id: 7, replica_epoch: 1 },
        max_wait_ms,
        min_bytes: 1,
        max_bytes: 10 << 20,
        session_epoch: -1,
        topics: vec![FetchTopic { topic_id, partitions: vec![partition], ..FetchTopic::default() }],
        ..FetchRequest::default()
    }
}

fn at(fetch_offset: i64, current_leader_epoch: i32, last_fetched_epoch: i32) -> FetchPartition {
    FetchPartition { fetch_offset, current_leader_epoch, last_fetched_epoch, ..FetchPartition::default() }
}

fn answered(response: FetchResponse) -> Option<PartitionData> {
    assert_eq!(response.error_code, 0);
    response.responses.into_iter().flat_map(|topic| topic.partitions).next()
}

#[test]
fn a_follower_sees_the_whole_log_and_is_told_where_its_own_parts_from_it() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    client.produce("orders", 0, batch(&["a", "b"]), 1);
    let id = topic_id(&mut client, "orders");
    let mut fetch = |partition| answered(client.call(&ask(id, &partition, 0), FETCH)).unwrap();
    let all = fetch(at(0, 0, -1));
    assert_eq!(values(&all).into_iter().map(|(_, value)| value).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((all.high_watermark, all.log_start_offset), (2, 0));
    // It has three records of this epoch, and there are two.
    let parts = fetch(at(3, 0, 0));
    assert_eq!((parts.diverging_epoch.epoch, parts.diverging_epoch.end_offset), (0, 2));
    assert!(values(&parts).is_empty());
    // It begins where the log does not reach; both of the leader's ends are told.
    let beyond = fetch(at(9, 0, -1));
    assert_eq!(ErrorCode::from_code(beyond.error_code), ErrorCode::OffsetOutOfRange);
    assert_eq!((beyond.log_start_offset, beyond.last_stable_offset), (0, 2));
    let newer = fetch(at(0, 1, -1));
    assert_eq!(ErrorCode::from_code(newer.error_code), ErrorCode::UnknownLeaderEpoch);
}

#[test]
fn a_follower_that_knows_everything_is_told_nothing_until_something_comes() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    client.produce("orders", 0, batch(&["a"]), 1);
    let id = topic_id(&mut client, "orders");
    let knows = |high_watermark| FetchPartition { high_watermark, ..at(1, 0, 0) };
    assert_eq!(answered(client.call(&ask(id, &knows(1), 0), FETCH)), None);
    let behind = answered(client.call(&ask(id, &knows(0), 0), FETCH)).unwrap();
    assert_eq!(behind.high_watermark, 1);
    let mut follower = broker.client();
    follower.send(&ask(id, &knows(1), PATIENT_MS), FETCH);
    client.produce("orders", 0, batch(&["b"]), 1);
    let (_, response) = follower.receive::<FetchRequest>(FETCH);
    assert_eq!(values(&answered(response).unwrap()), [(1, "b".to_owned())]);
}

#[test]
fn a_fetch_that_waits_is_answered_when_its_follower_asks_for_more() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    let id = topic_id(&mut client, "orders");
    let began = Instant::now();
    let first = client.send(&ask(id, &at(0, 0, -1), PATIENT_MS), FETCH);
    std::thread::sleep(Duration::from_millis(50));
    let second = client.send(&ask(id, &at(0, 0, -1), 0), FETCH);
    for sent in [first, second] {
        assert_eq!(client.receive::<FetchRequest>(FETCH).0, sent);
    }
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[test]
fn consumers_see_no_difference_between_versions_that_may_read_from_followers() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    client.produce("orders", 0, batch(&["a"]), 1);
    let id = topic_id(&mut client, "orders");
    let consumer = FetchRequest { replica_state: ReplicaState::default(), ..ask(id, &at(0, -1, -1), 0) };
    let data = answered(client.call(&FetchRequest { rack_id: "a".into(), ..consumer }, FETCH)).unwrap();
    assert_eq!(values(&data), [(0, "a".to_owned())]);
    assert_eq!(data.preferred_read_replica, -1);
}
