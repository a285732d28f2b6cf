//! Connections: how many, how long, and what happens to those whose client has gone or takes nothing.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use forebay_broker_wire::messages::api_versions::ApiVersionsRequest;

use crate::create_topics::{create, topic};
use crate::harness::{BrokerProcess, Client, FETCH, PRODUCE, TestBroker, batch, fetch, produce};

/// Waits until `/metrics` has this line: what is awaited is an event, so the time limit only ends a failing test.
fn await_metric(broker: &TestBroker, line: &str) {
    let began = Instant::now();
    while !broker.http_get("/metrics").lines().any(|found| found == line) {
        assert!(began.elapsed() < Duration::from_secs(20), "never: {line}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn works(mut client: Client) -> bool {
    client.send(&ApiVersionsRequest::default(), 0);
    !client.is_closed()
}

#[test]
fn connections_beyond_the_limit_are_closed_at_once() {
    let broker = TestBroker::start_with(&["max.connections=2"]);
    let first = broker.client();
    let second = broker.client();
    await_metric(&broker, "forebay_connections 2");
    assert!(broker.client().is_closed());
    drop(first);
    await_metric(&broker, "forebay_connections 1");
    assert!(works(broker.client()));
    assert!(works(second));
}

#[test]
fn an_idle_connection_is_closed_and_a_busy_one_is_not() {
    let broker = TestBroker::start_with(&["connections.max.idle.ms=400"]);
    let mut busy = broker.client();
    let mut idle = broker.client();
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(100));
        busy.call(&ApiVersionsRequest::default(), 0);
    }
    assert!(idle.is_closed());
    busy.call(&ApiVersionsRequest::default(), 0);
}

#[test]
fn a_long_poll_whose_client_has_gone_is_given_up() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    client.send(&fetch(&[("orders", 0, 0)], 1, 60_000), FETCH);
    std::thread::sleep(Duration::from_millis(100));
    drop(client);
    await_metric(&broker, "forebay_connections 0");
}

#[test]
fn bytes_in_flight_are_bounded_and_given_back() {
    let broker = TestBroker::start_with(&["queued.max.request.bytes=1048576"]);
    broker.client().create_topic("orders");
    // More than fits together comes at once: some wait until others are done, and all get through.
    let value = "x".repeat(800_000);
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let mut client = broker.client();
            let value = value.clone();
            std::thread::spawn(move || client.produce("orders", 0, batch(&[&value]), 1).error_code)
        })
        .collect();
    assert!(clients.into_iter().all(|client| client.join().unwrap() == 0));
    assert_eq!(broker.client().read_all("orders", 0).len(), 4);
    await_metric(&broker, "forebay_in_flight_bytes 0");
}

#[test]
fn a_client_that_takes_no_answers_does_not_hold_up_the_stop() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    let value = "x".repeat(900_000);
    for _ in 0..20 {
        client.produce("orders", 0, batch(&[&value]), 1);
    }
    let mut request = fetch(&[("orders", 0, 0)], 1, 0);
    request.topics[0].partitions[0].partition_max_bytes = 50 << 20;
    client.send(&request, FETCH);
    std::thread::sleep(Duration::from_millis(100));
    let began = Instant::now();
    broker.stop();
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[test]
fn half_a_frame_is_no_reason_to_wait_at_the_stop() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.stream.write_all(&[0, 0, 1, 0, 7]).unwrap();
    client.stream.flush().unwrap();
    let began = Instant::now();
    broker.stop();
    assert!(began.elapsed() < Duration::from_secs(4));
    assert!(client.is_closed());
}

#[test]
fn flush_messages_1_is_flushed_before_it_is_acknowledged() {
    let broker = TestBroker::start_with(&["log.flush.interval.messages=1"]);
    let mut client = broker.client();
    client.create_topic("orders");
    for _ in 0..3 {
        assert_eq!(client.call(&produce("orders", 0, batch(&["x"]), 1), PRODUCE).responses.len(), 1);
    }
    let metrics = broker.http_get("/metrics");
    let flushes = metrics.lines().find_map(|line| line.strip_prefix("forebay_flush_duration_seconds_count")).unwrap();
    let flushes: u32 = flushes.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(flushes >= 3, "{flushes} flushes for 3 acknowledgements");
    assert_eq!(client.read_all("orders", 0).len(), 3);
}

#[test]
fn connections_leave_open_files_for_logs() {
    let dir = tempfile::tempdir().unwrap();
    let broker = BrokerProcess::start_with_nofile(dir.path(), &[], 256);
    let mut client = broker.client();
    client.create_topic("before");
    let crowd: Vec<_> = (0..300).filter_map(|_| TcpStream::connect(broker.kafka_address).ok()).collect();
    let until = Instant::now() + Duration::from_secs(30);
    while broker.said("connections refused").is_none() {
        assert!(Instant::now() < until, "nobody was refused");
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = broker.said("connections refused").unwrap();
    assert!(said.contains("max=128"), "{said}");
    let made = create(&mut client, topic("after", 20, &[]));
    assert_eq!(made.error_code, 0, "{:?}", made.error_message);
    for partition in 0..20 {
        let answer = client.produce("after", partition, batch(&["x"]), 1);
        assert_eq!(answer.error_code, 0, "{:?}", answer.error_message);
    }
    drop(crowd);
}
