//! Many requests on their way over one connection: answers in the order of the requests.

use forebay_broker_wire::messages::api_versions::ApiVersionsRequest;
use forebay_broker_wire::messages::metadata::MetadataRequest;
use forebay_broker_wire::messages::produce::ProduceRequest;

use crate::harness::{PRODUCE, TestBroker, batch, produce};

#[test]
fn produce_requests_overlap_and_are_answered_and_written_in_order() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    let sent: Vec<i32> = (0..200)
        .map(|number| client.send(&produce("orders", number % 2, batch(&[&number.to_string()]), -1), PRODUCE))
        .collect();
    for (number, sent) in (0_i64..).zip(sent) {
        let (received, response) = client.receive::<ProduceRequest>(PRODUCE);
        assert_eq!(received, sent);
        let answer = &response.responses[0].partition_responses[0];
        assert_eq!((answer.error_code, answer.base_offset), (0, number / 2));
    }
    let values: Vec<_> = client.read_all("orders", 1).into_values().collect();
    assert_eq!(values, (0..100).map(|number| (2 * number + 1).to_string()).collect::<Vec<_>>());
}

#[test]
fn other_requests_wait_for_the_produce_before_them() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    let produced = client.send(&produce("orders", 0, batch(&["x"]), 1), PRODUCE);
    let versions = client.send(&ApiVersionsRequest::default(), 0);
    let metadata = client.send(&MetadataRequest { topics: None, ..MetadataRequest::default() }, 9);
    assert_eq!(client.receive::<ProduceRequest>(PRODUCE).0, produced);
    assert_eq!(client.receive::<ApiVersionsRequest>(0).0, versions);
    assert_eq!(client.receive::<MetadataRequest>(9).0, metadata);
}

#[test]
fn batches_keep_their_order_when_some_wait_for_a_new_segment_and_others_need_not() {
    far_ahead(&TestBroker::start_with(&["log.segment.bytes=1048576"]));
}

/// More than a connection may leave to the disk threads at a time.
#[test]
fn a_client_that_sends_far_ahead_of_flushes_gets_all_its_answers() {
    far_ahead(&TestBroker::start_with(&["log.flush.interval.messages=1"]));
}

/// Sends 8 MB before it takes an answer.
fn far_ahead(broker: &TestBroker) {
    let mut client = broker.client();
    client.create_topic("orders");
    let filler = "x".repeat(40_000);
    for number in 0..200 {
        client.send(&produce("orders", 0, batch(&[&format!("{number} {filler}")]), 1), PRODUCE);
    }
    for number in 0..200 {
        let (_, response) = client.receive::<ProduceRequest>(PRODUCE);
        let answer = &response.responses[0].partition_responses[0];
        assert_eq!((answer.error_code, answer.base_offset), (0, number));
    }
    let values = client.read_all("orders", 0).into_values();
    let numbers: Vec<_> = values.map(|value| value.split_once(' ').unwrap().0.to_owned()).collect();
    assert_eq!(numbers, (0..200).map(|number| number.to_string()).collect::<Vec<_>>());
}
