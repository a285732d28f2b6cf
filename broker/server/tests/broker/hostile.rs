//! Clients that would keep the bytes of `queued.max.request.bytes` for themselves: nobody else may feel it.

use std::io::Write;
use std::time::{Duration, Instant};

use forebay_broker_wire::frame::encode_request;
use forebay_broker_wire::messages::Request;
use forebay_broker_wire::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol};
use forebay_broker_wire::messages::metadata::MetadataRequest;
use forebay_broker_wire::primitives::Part;

use crate::group_client::await_coordinator;
use crate::harness::{Client, FETCH, TestBroker, batch, fetch};

const SETTINGS: &[&str] = &["queued.max.request.bytes=4194304", "group.initial.rebalance.delay.ms=60000"];
const PADDING_BYTES: usize = 400_000;

fn start() -> TestBroker {
    let broker = TestBroker::start_with(SETTINGS);
    broker.client().create_topic("orders");
    broker
}

/// A request with a tagged field that no version knows.
fn padded<R: Request>(request: &R, version: i16) -> Vec<u8> {
    let mut frame = Vec::new();
    for part in encode_request(request, version, 7, Some("test".into())).unwrap() {
        let Part::Bytes(bytes) = part else { unreachable!("requests are in memory") };
        frame.extend_from_slice(&bytes);
    }
    assert_eq!(frame.pop(), Some(0), "no tagged fields yet");
    frame.extend_from_slice(&[1, 99]);
    let mut size = PADDING_BYTES;
    while size > 127 {
        frame.push(u8::try_from(size & 127).unwrap() | 128);
        size >>= 7;
    }
    frame.push(u8::try_from(size).unwrap());
    frame.resize(frame.len() + PADDING_BYTES, 0);
    let size = i32::try_from(frame.len() - 4).unwrap();
    frame[..4].copy_from_slice(&size.to_be_bytes());
    frame
}

fn in_flight_bytes(broker: &TestBroker) -> f64 {
    let metrics = broker.http_get("/metrics");
    let line = metrics.lines().find_map(|line| line.strip_prefix("forebay_in_flight_bytes ")).unwrap();
    line.parse().unwrap()
}

fn await_in_flight(broker: &TestBroker, wanted: impl Fn(f64) -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !wanted(in_flight_bytes(broker)) {
        assert!(Instant::now() < until, "{} bytes are held", in_flight_bytes(broker));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Clients that have each sent one frame and wait.
fn waiting(broker: &TestBroker, frame: impl Fn(i32) -> Vec<u8>) -> Vec<Client> {
    let send = |number| {
        let mut client = broker.client();
        client.stream.write_all(&frame(number)).unwrap();
        client
    };
    (0..20).map(send).collect()
}

/// Others are served as ever.
fn others_are_served(broker: &TestBroker) {
    let client = &mut broker.client();
    client.stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(client.call(&MetadataRequest { topics: None, ..MetadataRequest::default() }, 12).brokers.len(), 1);
    assert_eq!(client.produce("orders", 0, batch(&["small"]), 1).error_code, 0);
}

fn the_budget_is_free_again(broker: &TestBroker) {
    await_in_flight(broker, |bytes| bytes <= 100_000.0);
    others_are_served(broker);
    let large = "x".repeat(900_000);
    assert_eq!(broker.client().produce("orders", 0, batch(&[&large]), 1).error_code, 0);
}

#[test]
fn half_frames_that_take_the_whole_budget_keep_no_small_request_waiting() {
    let broker = start();
    let half_frames: Vec<Client> = (0..12)
        .map(|_| {
            let mut client = broker.client();
            client.stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
            client.stream.write_all(&1_000_000_i32.to_be_bytes()).unwrap();
            let _the_broker_may_not_take_it_all = client.stream.write_all(&vec![0; 700_000]);
            client
        })
        .collect();
    await_in_flight(&broker, |bytes| bytes > 1_000_000.0);
    others_are_served(&broker);
    drop(half_frames);
    the_budget_is_free_again(&broker);
}

#[test]
fn long_polls_keep_only_what_they_need_of_their_frames() {
    let broker = start();
    let mut request = fetch(&[("orders", 0, 0)], i32::MAX, i32::MAX);
    request.max_bytes = i32::MAX;
    let polls = waiting(&broker, |_| padded(&request, FETCH));
    the_budget_is_free_again(&broker);
    drop(polls);
}

#[test]
fn members_that_wait_for_others_keep_only_what_they_need_of_their_frames() {
    let broker = start();
    await_coordinator(&mut broker.client(), "readers");
    let protocols = vec![JoinGroupRequestProtocol { name: "range".into(), ..JoinGroupRequestProtocol::default() }];
    let request = JoinGroupRequest {
        group_id: "readers".into(),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 300_000,
        protocol_type: "consumer".into(),
        group_instance_id: Some("member".into()),
        protocols,
        ..JoinGroupRequest::default()
    };
    let joins = waiting(&broker, |number| {
        padded(&JoinGroupRequest { group_instance_id: Some(number.to_string().into()), ..request.clone() }, 9)
    });
    the_budget_is_free_again(&broker);
    drop(joins);
}

#[test]
fn a_client_that_takes_no_answers_holds_nothing_of_the_budget() {
    let broker = start();
    let large = "x".repeat(900_000);
    for _ in 0..12 {
        assert_eq!(broker.client().produce("orders", 0, batch(&[&large]), 1).error_code, 0);
    }
    let mut request = fetch(&[("orders", 0, 0)], 1, 0);
    (request.max_bytes, request.topics[0].partitions[0].partition_max_bytes) = (i32::MAX, i32::MAX);
    let unread = waiting(&broker, |_| padded(&request, FETCH));
    the_budget_is_free_again(&broker);
    drop(unread);
}
