//! Metadata: who is there, what topics exist, creating what is missing.

use forebay_broker_wire::messages::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use forebay_broker_wire::types::{ErrorCode, Uuid};

use crate::harness::{Client, TestBroker, batch};

fn ask(client: &mut Client, name: &str, create: bool) -> MetadataResponse {
    let topics = vec![MetadataRequestTopic { name: Some(name.into()), ..MetadataRequestTopic::default() }];
    let request =
        MetadataRequest { topics: Some(topics), allow_auto_topic_creation: create, ..MetadataRequest::default() };
    client.call(&request, 12)
}

#[test]
fn a_missing_topic_is_created_whole_in_the_same_answer() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    let response = ask(&mut client, "orders", true);
    let topic = &response.topics[0];
    assert_eq!((topic.error_code, topic.partitions.len()), (0, 2));
    assert_ne!(topic.topic_id, Uuid::ZERO);
    assert!(topic.partitions.iter().all(|partition| partition.leader_id == 1 && partition.error_code == 0));
    assert_eq!(response.brokers[0].port, i32::from(broker.started.kafka_address.port()));
    assert_eq!(client.produce("orders", 1, batch(&["at once"]), 1).error_code, 0);
}

#[test]
fn nothing_is_created_unasked_or_when_the_broker_forbids_it() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    let unknown = ErrorCode::UnknownTopicOrPartition.code();
    assert_eq!(ask(&mut client, "orders", false).topics[0].error_code, unknown);
    let strict = TestBroker::start_with(&["auto.create.topics.enable=false"]);
    assert_eq!(ask(&mut strict.client(), "orders", true).topics[0].error_code, unknown);
}

#[test]
fn an_impossible_name_is_refused() {
    let broker = TestBroker::start();
    let response = ask(&mut broker.client(), "a/b", true);
    assert_eq!(response.topics[0].error_code, ErrorCode::InvalidTopicException.code());
}

#[test]
fn topics_are_found_by_id() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    let id = ask(&mut client, "orders", true).topics[0].topic_id;
    let by_id = |client: &mut Client, topic_id| {
        let topics = vec![MetadataRequestTopic { topic_id, name: None }];
        let request = MetadataRequest { topics: Some(topics), ..MetadataRequest::default() };
        client.call(&request, 12).topics.remove(0)
    };
    assert_eq!(by_id(&mut client, id).name.as_deref(), Some("orders"));
    assert_eq!(by_id(&mut client, Uuid([9; 16])).error_code, ErrorCode::UnknownTopicId.code());
}

#[test]
fn all_versions_list_all_topics() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    for version in 0..=13 {
        let topics = if version == 0 { Some(Vec::new()) } else { None };
        let response = client.call(&MetadataRequest { topics, ..MetadataRequest::default() }, version);
        assert_eq!(response.topics.len(), 1, "version {version}");
        assert_eq!(response.topics[0].name.as_deref(), Some("orders"));
    }
}
