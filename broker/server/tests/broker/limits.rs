//! How much one fetch brings: limits of the partition and of the whole, and the first batch that is larger than both.

use forebay_broker_wire::types::ErrorCode;

use crate::harness::{FETCH, TestBroker, batch, fetch, only, values};

#[test]
fn the_first_batch_comes_whole_even_above_every_limit() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    client.produce("orders", 0, batch(&["a0", "a1"]), 1);
    client.produce("orders", 0, batch(&["b2", "b3"]), 1);
    let mut request = fetch(&[("orders", 0, 1)], 1, 0);
    request.max_bytes = 1;
    request.topics[0].partitions[0].partition_max_bytes = 1;
    let found = values(&only(client.call(&request, FETCH)));
    assert_eq!(found.first().unwrap().0, 0, "the batch that holds offset 1 begins at 0");
    assert_eq!(found.len(), 2);
}

#[test]
fn the_whole_limit_leaves_later_partitions_empty() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    let value = "x".repeat(5_000);
    for partition in [0, 1] {
        client.produce("orders", partition, batch(&[&value]), 1);
    }
    let mut request = fetch(&[("orders", 0, 0), ("orders", 1, 0)], 1, 0);
    request.max_bytes = 100;
    let response = client.call(&request, FETCH);
    let sizes: Vec<_> = response.responses[0].partitions.iter().map(|data| values(data).len()).collect();
    assert_eq!(sizes, [1, 0]);
}

#[test]
fn large_ranges_arrive_unchanged() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    // Above what is copied, above one slice of sendfile, and not a multiple of either.
    let values_sent: Vec<String> = (0..12).map(|number| format!("{number:>60001}")).collect();
    for value in &values_sent {
        assert_eq!(client.produce("orders", 0, batch(&[value]), 1).error_code, 0);
    }
    let found = values(&client.fetch("orders", 0, 0));
    assert_eq!(found.into_iter().map(|(_, value)| value).collect::<Vec<_>>(), values_sent);
}

#[test]
fn an_offset_out_of_range_is_an_error_and_the_end_is_not() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    client.produce("orders", 0, batch(&["a"]), 1);
    let at_end = client.fetch("orders", 0, 1);
    assert_eq!((at_end.error_code, at_end.high_watermark), (0, 1));
    let beyond = client.fetch("orders", 0, 2);
    assert_eq!(beyond.error_code, ErrorCode::OffsetOutOfRange.code());
}

#[test]
fn a_batch_above_max_message_bytes_is_refused() {
    let broker = TestBroker::start_with(&["message.max.bytes=2000"]);
    let mut client = broker.client();
    client.create_topic("orders");
    let answer = client.produce("orders", 0, batch(&[&"x".repeat(3_000)]), 1);
    assert_eq!(answer.error_code, ErrorCode::MessageTooLarge.code());
    assert!(answer.error_message.unwrap().contains("max.message.bytes"));
}
