//! Produce with acks 0, 1 and all; errors of one partition beside success of another.

use bytes::Bytes;
use forebay_broker_wire::messages::produce::{PartitionProduceData, ProduceRequest};
use forebay_broker_wire::primitives::Records;
use forebay_broker_wire::records::set_log_append_time;
use forebay_broker_wire::types::ErrorCode;

use crate::harness::{PRODUCE, TestBroker, batch, produce};

#[test]
fn acknowledged_records_come_back_in_order() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    for (acks, values) in [(1, ["a", "b"]), (-1, ["c", "d"])] {
        let answer = client.produce("orders", 0, batch(&values), acks);
        assert_eq!(answer.error_code, 0);
    }
    let all = client.read_all("orders", 0);
    assert_eq!(
        all.into_iter().collect::<Vec<_>>(),
        [(0, "a"), (1, "b"), (2, "c"), (3, "d")].map(|(o, v)| (o, v.to_owned()))
    );
}

#[test]
fn acks_0_is_not_answered_but_written() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    client.send(&produce("orders", 0, batch(&["silent"]), 0), PRODUCE);
    // The answer that comes next is that of the next request.
    let answer = client.produce("orders", 0, batch(&["loud"]), 1);
    assert_eq!((answer.error_code, answer.base_offset), (0, 1));
}

#[test]
fn acks_0_that_fails_ends_the_connection() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.send(&produce("nowhere", 0, batch(&["x"]), 0), PRODUCE);
    assert!(client.is_closed());
}

#[test]
fn other_acks_are_refused() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    let answer = client.produce("orders", 0, batch(&["x"]), 2);
    assert_eq!(answer.error_code, ErrorCode::InvalidRequiredAcks.code());
    assert!(client.read_all("orders", 0).is_empty());
}

#[test]
fn one_failing_partition_stops_no_other_and_says_why() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    let mut request: ProduceRequest = produce("orders", 0, batch(&["fine"]), 1);
    let mut damaged = batch(&["damaged"]).to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    let more = [(1, damaged.into()), (99, batch(&["nowhere"]))];
    request.topic_data[0]
        .partition_data
        .extend(more.map(|(index, records)| PartitionProduceData { index, records: Some(Records::Bytes(records)) }));
    let answers = client.call(&request, PRODUCE).responses.remove(0).partition_responses;
    let codes: Vec<_> = answers.iter().map(|answer| ErrorCode::from_code(answer.error_code)).collect();
    assert_eq!(codes, [ErrorCode::None, ErrorCode::CorruptMessage, ErrorCode::UnknownTopicOrPartition]);
    assert!(answers[1].error_message.as_deref().unwrap().contains("damaged"), "{answers:?}");
    assert_eq!(client.read_all("orders", 0).len(), 1);
    assert_eq!(client.read_all("orders", 1).len(), 0);
}

#[test]
fn records_that_are_not_what_their_batch_says_are_refused_for_good() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    let good = batch(&["a", "b"]);
    let counting = |count: i32| {
        let mut bytes = good.to_vec();
        bytes[23..27].copy_from_slice(&(count - 1).to_be_bytes());
        bytes[57..61].copy_from_slice(&count.to_be_bytes());
        // With a new time comes a right checksum.
        set_log_append_time(&mut bytes, 1_700_000_000_000).unwrap();
        Bytes::from(bytes)
    };
    for count in [1, 3, i32::MAX] {
        let answer = client.produce("orders", 0, counting(count), -1);
        assert_eq!(ErrorCode::from_code(answer.error_code), ErrorCode::InvalidRecord, "{count}: {answer:?}");
    }
    assert_eq!(client.produce("orders", 0, counting(2), -1).base_offset, 0, "nothing is stored of the others");
}

#[test]
fn clients_may_not_write_to_internal_topics_or_transactionally() {
    use forebay_broker_wire::records::BatchBuilder;
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    let transactional = crate::harness::fill(BatchBuilder::default().transactional(true), &["x"]);
    assert_eq!(client.produce("orders", 0, transactional, -1).error_code, ErrorCode::InvalidTxnState.code());
}
