//! Requests that name one thing very often: refused or answered once, instead of worked on as often.

use forebay_broker_wire::messages::delete_records::{DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic};
use forebay_broker_wire::messages::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use forebay_broker_wire::messages::describe_groups::DescribeGroupsRequest;
use forebay_broker_wire::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use forebay_broker_wire::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use forebay_broker_wire::messages::offset_fetch::{OffsetFetchRequest, OffsetFetchRequestGroup};
use forebay_broker_wire::types::ErrorCode;

use crate::harness::{TestBroker, batch};

const INVALID: i16 = ErrorCode::InvalidRequest.code();
const OFTEN: usize = 100_000;

#[test]
fn a_partition_named_twice_is_not_searched_and_the_others_are() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    let asked = |index| ListOffsetsPartition { partition_index: index, current_leader_epoch: -1, timestamp: 0 };
    let topic = |partitions| ListOffsetsTopic { name: "orders".into(), partitions };
    let mut topics = vec![topic(vec![asked(1)]), topic(vec![asked(0); OFTEN])];
    topics.push(topics[0].clone());
    topics[2].partitions[0].partition_index = 0;
    let request = ListOffsetsRequest { replica_id: -1, topics, ..ListOffsetsRequest::default() };
    let answer = client.call(&request, 7);
    assert_eq!(answer.topics[0].partitions[0].error_code, 0);
    assert!(answer.topics[1..].iter().flat_map(|topic| &topic.partitions).all(|listed| listed.error_code == INVALID));
}

#[test]
fn records_of_a_partition_named_twice_are_not_deleted() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    client.produce("orders", 0, batch(&["a", "b", "c"]), 1);
    let partitions = [1, 2].map(|offset| DeleteRecordsPartition { partition_index: 0, offset }).to_vec();
    let topics = vec![DeleteRecordsTopic { name: "orders".into(), partitions }];
    let answer = client.call(&DeleteRecordsRequest { topics, ..DeleteRecordsRequest::default() }, 2);
    assert!(answer.topics[0].partitions.iter().all(|deleted| deleted.error_code == INVALID), "{answer:?}");
    assert_eq!(client.read_all("orders", 0).len(), 3);
}

#[test]
fn settings_and_groups_named_twice_are_not_told() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    let resource = |name: &str| DescribeConfigsResource {
        resource_type: 2,
        resource_name: name.into(),
        ..DescribeConfigsResource::default()
    };
    let mut resources = vec![resource("orders"); OFTEN];
    resources.push(DescribeConfigsResource { resource_type: 4, ..resource("") });
    let results = client.call(&DescribeConfigsRequest { resources, ..DescribeConfigsRequest::default() }, 4).results;
    assert_eq!(results.last().unwrap().error_code, 0);
    assert!(results[..OFTEN].iter().all(|result| result.error_code == INVALID && result.configs.is_empty()));

    let groups = vec!["group".into(), "other".into(), "group".into()];
    let described = client.call(&DescribeGroupsRequest { groups, ..DescribeGroupsRequest::default() }, 5).groups;
    assert_eq!((described[0].error_code, described[2].error_code), (INVALID, INVALID));
    assert_ne!(described[1].error_code, INVALID);

    let group = OffsetFetchRequestGroup { group_id: "group".into(), ..OffsetFetchRequestGroup::default() };
    let request = OffsetFetchRequest { groups: vec![group; 2], ..OffsetFetchRequest::default() };
    assert!(client.call(&request, 8).groups.iter().all(|group| group.error_code == INVALID));
}

#[test]
fn a_topic_named_often_is_told_of_once() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    let topic = |name: &str| MetadataRequestTopic { name: Some(name.into()), ..MetadataRequestTopic::default() };
    let mut topics = vec![topic("orders"); OFTEN];
    topics.push(topic("nowhere"));
    let answer = client.call(&MetadataRequest { topics: Some(topics), ..MetadataRequest::default() }, 12);
    let names: Vec<_> = answer.topics.iter().map(|topic| &**topic.name.as_ref().unwrap()).collect();
    assert_eq!(names, ["orders", "nowhere"]);
}
