//! DescribeCluster, DescribeTopicPartitions, DescribeLogDirs, ListPartitionReassignments: what a cluster is, for people.

use forebay_broker_wire::messages::describe_cluster::DescribeClusterRequest;
use forebay_broker_wire::messages::describe_log_dirs::{DescribableLogDirTopic, DescribeLogDirsRequest};
use forebay_broker_wire::messages::describe_topic_partitions::{DescribeTopicPartitionsRequest, TopicRequest};
use forebay_broker_wire::messages::list_partition_reassignments::ListPartitionReassignmentsRequest;
use forebay_broker_wire::types::ErrorCode;

use crate::create_topics::{create, topic};
use crate::harness::{TestBroker, batch};

#[test]
fn the_cluster_has_an_id_that_outlives_a_restart() {
    let broker = TestBroker::start();
    let ask = |broker: &TestBroker| broker.client().call(&DescribeClusterRequest::default(), 2);
    let first = ask(&broker);
    assert_eq!((first.error_code, first.cluster_id.len(), first.controller_id), (0, 22, 1));
    assert_eq!(first.brokers[0].port, i32::from(broker.started.kafka_address.port()));
    let broker = TestBroker::start_in(broker.stop(), &[]);
    assert_eq!(ask(&broker).cluster_id, first.cluster_id);
}

#[test]
fn controllers_are_not_to_be_found_here() {
    let broker = TestBroker::start();
    let ask = |endpoint_type: i8| {
        let request = DescribeClusterRequest { endpoint_type, ..DescribeClusterRequest::default() };
        ErrorCode::from_code(broker.client().call(&request, 1).error_code)
    };
    assert_eq!(ask(2), ErrorCode::MismatchedEndpointType);
    assert_eq!(ask(9), ErrorCode::UnsupportedEndpointType);
}

#[test]
fn topics_are_described_in_pages() {
    let broker = TestBroker::start();
    let client = &mut broker.client();
    create(client, topic("a", 3, &[]));
    create(client, topic("b", 1, &[]));
    let request = DescribeTopicPartitionsRequest { response_partition_limit: 2, ..Default::default() };
    let page = client.call(&request, 0);
    assert_eq!((page.topics.len(), page.topics[0].partitions.len()), (1, 2));
    let cursor = page.next_cursor.unwrap();
    assert_eq!((&*cursor.topic_name, cursor.partition_index), ("a", 2));
    let named = vec![TopicRequest { name: "b".into() }, TopicRequest { name: "none".into() }];
    let request = DescribeTopicPartitionsRequest { topics: named, response_partition_limit: 9, cursor: None };
    let codes: Vec<i16> = client.call(&request, 0).topics.iter().map(|topic| topic.error_code).collect();
    assert_eq!(codes, [0, ErrorCode::UnknownTopicOrPartition.code()]);
}

#[test]
fn log_dirs_say_what_they_hold_and_how_much_room_is_left() {
    let broker = TestBroker::start();
    let client = &mut broker.client();
    create(client, topic("t", 2, &[]));
    client.produce("t", 1, batch(&["x"]), 1);
    let dir = client.call(&DescribeLogDirsRequest { topics: None }, 4).results.remove(0);
    assert_eq!(&*dir.log_dir, broker.path().join("data").to_str().unwrap());
    assert!(dir.total_bytes >= dir.usable_bytes && dir.usable_bytes > 0);
    let held = dir.topics.iter().find(|topic| &*topic.name == "t").unwrap();
    let sizes: Vec<i64> = held.partitions.iter().map(|partition| partition.partition_size).collect();
    assert_eq!(sizes, [0, i64::try_from(batch(&["x"]).len()).unwrap()]);
    let one = vec![DescribableLogDirTopic { topic: "t".into(), partitions: vec![1] }];
    for version in 1..=5 {
        let dir = client.call(&DescribeLogDirsRequest { topics: Some(one.clone()) }, version).results.remove(0);
        assert_eq!((dir.topics.len(), dir.topics[0].partitions.len()), (1, 1), "version {version}");
    }
}

#[test]
fn no_partition_is_on_its_way_elsewhere() {
    let broker = TestBroker::start();
    let response = broker.client().call(&ListPartitionReassignmentsRequest::default(), 0);
    assert_eq!((response.error_code, response.topics.len()), (0, 0));
}
