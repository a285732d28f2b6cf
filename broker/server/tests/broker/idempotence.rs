//! Idempotent producers: what is sent again is not written again, also after a restart.

use bytes::Bytes;
use forebay_broker_wire::messages::init_producer_id::InitProducerIdRequest;
use forebay_broker_wire::records::BatchBuilder;
use forebay_broker_wire::types::{ErrorCode, ProducerEpoch, ProducerId};

use crate::harness::{Client, TestBroker, fill};

pub(crate) fn producer_id(client: &mut Client) -> ProducerId {
    let request = InitProducerIdRequest { transactional_id: None, ..InitProducerIdRequest::default() };
    let response = client.call(&request, 4);
    assert_eq!((response.error_code, response.producer_epoch), (0, 0));
    ProducerId(response.producer_id)
}

pub(crate) fn numbered(id: ProducerId, sequence: i32, values: &[&str]) -> Bytes {
    fill(BatchBuilder::default().producer(id, ProducerEpoch(0), sequence), values)
}

#[test]
fn a_repeated_batch_gets_its_first_offset_and_is_not_written_again() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    let id = producer_id(&mut client);
    let first = numbered(id, 0, &["a", "b"]);
    assert_eq!(client.produce("orders", 0, first.clone(), -1).base_offset, 0);
    assert_eq!(client.produce("orders", 0, numbered(id, 2, &["c"]), -1).base_offset, 2);
    let again = client.produce("orders", 0, first, -1);
    assert_eq!((again.error_code, again.base_offset), (0, 0));
    assert_eq!(client.read_all("orders", 0).len(), 3);
}

#[test]
fn a_gap_is_refused() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    let id = producer_id(&mut client);
    assert_eq!(client.produce("orders", 0, numbered(id, 0, &["a"]), -1).error_code, 0);
    let gap = client.produce("orders", 0, numbered(id, 5, &["f"]), -1);
    assert_eq!(gap.error_code, ErrorCode::OutOfOrderSequenceNumber.code());
}

#[test]
fn repetition_is_known_and_ids_are_new_after_a_restart() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    let id = producer_id(&mut client);
    let first = numbered(id, 0, &["a", "b"]);
    client.produce("orders", 0, first.clone(), -1);
    let broker = TestBroker::start_in(broker.stop(), &[]);
    let mut client = broker.client();
    let again = client.produce("orders", 0, first, -1);
    assert_eq!((again.error_code, again.base_offset), (0, 0));
    assert_eq!(client.read_all("orders", 0).len(), 2);
    assert_ne!(producer_id(&mut client), id);
}

#[test]
fn a_transactional_id_is_refused() {
    let broker = TestBroker::start();
    let request =
        InitProducerIdRequest { transactional_id: Some("payments".into()), ..InitProducerIdRequest::default() };
    let response = broker.client().call(&request, 4);
    assert_eq!(response.error_code, ErrorCode::TransactionalIdAuthorizationFailed.code());
}
