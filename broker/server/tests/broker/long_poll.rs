//! Fetches that wait: woken by records, answered at once when the response can't grow, ended by time.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_broker_wire::messages::fetch::{FetchRequest, FetchResponse};

use crate::harness::{Client, FETCH, TestBroker, batch, fetch, only, values};

/// Far more than any test takes: a test that waits it out fails by the clock, not by chance.
const LONG_MS: i32 = 20_000;
const LONG: Duration = Duration::from_millis(15_000);

fn in_background(broker: &TestBroker, request: FetchRequest) -> JoinHandle<(Duration, FetchResponse)> {
    let mut client = broker.client();
    std::thread::spawn(move || {
        let began = Instant::now();
        let response = client.call(&request, FETCH);
        (began.elapsed(), response)
    })
}

fn with_topic(broker: &TestBroker) -> Client {
    let mut client = broker.client();
    client.create_topic("orders");
    client
}

#[test]
fn a_waiting_fetch_wakes_when_records_come() {
    let broker = TestBroker::start();
    let mut client = with_topic(&broker);
    let waiting = in_background(&broker, fetch(&[("orders", 0, 0), ("orders", 1, 0)], 1, LONG_MS));
    std::thread::sleep(Duration::from_millis(100));
    client.produce("orders", 1, batch(&["news"]), 1);
    let (waited, response) = waiting.join().unwrap();
    assert!(waited < LONG, "{waited:?}");
    assert_eq!(values(&response.responses[0].partitions[1]), [(0, "news".to_owned())]);
}

#[test]
fn it_sleeps_on_until_min_bytes_are_there_over_all_partitions() {
    let broker = TestBroker::start();
    let mut client = with_topic(&broker);
    let one = batch(&["a record"]);
    let min_bytes = i32::try_from(3 * one.len()).unwrap();
    let waiting = in_background(&broker, fetch(&[("orders", 0, 0), ("orders", 1, 0)], min_bytes, LONG_MS));
    for partition in [0, 1] {
        client.produce("orders", partition, one.clone(), 1);
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished(), "too little is there");
    }
    client.produce("orders", 0, one, 1);
    let (waited, response) = waiting.join().unwrap();
    assert!(waited < LONG, "{waited:?}");
    let found: usize = response.responses[0].partitions.iter().map(|data| values(data).len()).sum();
    assert_eq!(found, 3);
}

#[test]
fn time_ends_the_wait_with_what_is_there() {
    let broker = TestBroker::start();
    let mut client = with_topic(&broker);
    client.produce("orders", 0, batch(&["little"]), 1);
    let began = Instant::now();
    let data = only(client.call(&fetch(&[("orders", 0, 0)], 10_000, 300), FETCH));
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert_eq!(values(&data).len(), 1);
}

#[test]
fn more_min_bytes_than_the_partition_limit_allows_are_no_trap() {
    let broker = TestBroker::start();
    let mut client = with_topic(&broker);
    let value = "x".repeat(900);
    for _ in 0..3 {
        client.produce("orders", 0, batch(&[&value]), 1);
    }
    let mut request = fetch(&[("orders", 0, 0)], 100_000, LONG_MS);
    request.topics[0].partitions[0].partition_max_bytes = 1_500;
    let began = Instant::now();
    let data = only(client.call(&request, FETCH));
    assert!(began.elapsed() < LONG, "the partition is at its limit");
    assert!(!values(&data).is_empty());
}

#[test]
fn a_request_that_can_never_be_satisfied_is_held_only_while_it_grows() {
    let broker = TestBroker::start();
    let mut client = with_topic(&broker);
    client.produce("orders", 0, batch(&["little"]), 1);
    let mut request = fetch(&[("orders", 0, 0)], 8 << 20, LONG_MS);
    request.topics[0].partitions[0].partition_max_bytes = 1 << 20;
    let began = Instant::now();
    let data = only(client.call(&request, FETCH));
    assert!(began.elapsed() < LONG, "1 MiB can never make 8");
    assert_eq!(values(&data).len(), 1);
}

#[test]
fn a_stopping_broker_answers_those_who_wait() {
    let broker = TestBroker::start();
    with_topic(&broker);
    let waiting = in_background(&broker, fetch(&[("orders", 0, 0)], 1, LONG_MS));
    std::thread::sleep(Duration::from_millis(100));
    broker.stop();
    let (waited, response) = waiting.join().unwrap();
    assert!(waited < LONG, "{waited:?}");
    assert!(values(&only(response)).is_empty());
}
