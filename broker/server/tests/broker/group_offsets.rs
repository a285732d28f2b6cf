//! Committed offsets over TCP: what is acknowledged is there, whatever ends the broker; what cannot be is refused.

use forebay_broker_wire::messages::delete_groups::DeleteGroupsRequest;
use forebay_broker_wire::messages::delete_topics::DeleteTopicsRequest;
use forebay_broker_wire::messages::find_coordinator::FindCoordinatorRequest;
use forebay_broker_wire::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use forebay_broker_wire::messages::offset_commit::OffsetCommitRequest;
use forebay_broker_wire::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use forebay_broker_wire::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use forebay_broker_wire::types::{ErrorCode, Uuid};

use crate::group_client::{
    AT_ONCE, COMMIT, FETCH_OFFSETS, Member, await_coordinator, commit, commit_request, committed, coordinated,
    fetch_request,
};
use crate::harness::{BrokerProcess, Client, TestBroker, batch};

fn topic_id(client: &mut Client, topic: &str) -> Uuid {
    let topics = vec![MetadataRequestTopic { name: Some(topic.into()), ..MetadataRequestTopic::default() }];
    client.call(&MetadataRequest { topics: Some(topics), ..MetadataRequest::default() }, 12).topics[0].topic_id
}

#[test]
fn the_first_question_for_a_coordinator_makes_the_offsets_topic() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    for version in 0..=6 {
        let request = if version < 4 {
            FindCoordinatorRequest { key: "g".into(), ..FindCoordinatorRequest::default() }
        } else {
            FindCoordinatorRequest { coordinator_keys: vec!["g".into(), "h".into()], ..Default::default() }
        };
        let answer = client.call(&request, version);
        if version < 4 {
            assert_eq!((answer.error_code, answer.node_id), (0, 1), "version {version}");
            assert_eq!(answer.port, i32::from(broker.started.kafka_address.port()));
        } else {
            let found: Vec<_> = answer.coordinators.iter().map(|c| (&*c.key, c.error_code, c.node_id)).collect();
            assert_eq!(found, [("g", 0, 1), ("h", 0, 1)], "version {version}");
        }
    }
    let transactional = FindCoordinatorRequest { key: "t".into(), key_type: 1, ..FindCoordinatorRequest::default() };
    let answer = client.call(&transactional, 3);
    assert_eq!(
        ErrorCode::from_code(answer.error_code),
        ErrorCode::TransactionalIdAuthorizationFailed,
        "transactions are not offered"
    );
}

#[test]
fn every_acknowledged_commit_is_there_after_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = -1;
    for round in 0..4 {
        let broker = BrokerProcess::start(dir.path());
        let mut client = Client::connect(broker.kafka_address);
        client.create_topic("orders");
        await_coordinator(&mut client, "g");
        assert_eq!(committed(&mut client, "g", "orders").committed_offset, acknowledged, "round {round}");
        for _ in 0..50 {
            assert_eq!(commit(&mut client, "g", "orders", acknowledged + 1, "m"), ErrorCode::None);
            acknowledged += 1;
        }
        broker.kill();
    }
}

#[test]
fn commits_come_back_in_every_version_as_they_were_given_nuls_included() {
    let broker = TestBroker::start();
    let mut client = coordinated(&broker, "g");
    client.create_topic("orders");
    let id = topic_id(&mut client, "orders");
    for version in 2..=10 {
        let mut request = commit_request("g", "orders", 0, 100 + i64::from(version), "a\0b\0");
        if version >= 10 {
            request.topics[0].topic_id = id;
            request.topics[0].name = "".into();
        }
        assert_eq!(client.call(&request, version).topics[0].partitions[0].error_code, 0, "version {version}");
        let found = committed(&mut client, "g", "orders");
        assert_eq!(found.committed_offset, 100 + i64::from(version));
        assert_eq!(found.metadata.as_deref(), Some("a\0b\0"));
    }
    for version in 1..=7 {
        let found = client.call(&fetch_request("g", "orders", 0), version).topics.remove(0).partitions.remove(0);
        assert_eq!(found.committed_offset, 110, "version {version}");
    }
    for version in 8..=10 {
        let by_id = version >= 10;
        let topic = OffsetFetchRequestTopics {
            name: if by_id { "".into() } else { "orders".into() },
            topic_id: if by_id { id } else { Uuid::ZERO },
            partition_indexes: vec![0, 1],
        };
        for topics in [Some(vec![topic]), None] {
            let all = topics.is_none();
            let group = OffsetFetchRequestGroup { group_id: "g".into(), topics, ..OffsetFetchRequestGroup::default() };
            let request = OffsetFetchRequest { groups: vec![group], ..OffsetFetchRequest::default() };
            let found = client.call(&request, version).groups.remove(0).topics.remove(0);
            let offsets: Vec<_> = found.partitions.iter().map(|partition| partition.committed_offset).collect();
            assert_eq!(offsets, if all { vec![110] } else { vec![110, -1] }, "version {version}");
            assert_eq!(found.topic_id, if by_id { id } else { Uuid::ZERO });
        }
    }
}

#[test]
fn a_commit_that_cannot_be_is_refused_with_the_right_error() {
    let broker = TestBroker::start_with(&[AT_ONCE, "offset.metadata.max.bytes=4"]);
    let mut client = coordinated(&broker, "g");
    client.create_topic("orders");
    let code = |answer: forebay_broker_wire::messages::offset_commit::OffsetCommitResponse| {
        ErrorCode::from_code(answer.topics[0].partitions[0].error_code)
    };
    assert_eq!(commit(&mut client, "g", "nowhere", 1, ""), ErrorCode::UnknownTopicOrPartition);
    assert_eq!(code(client.call(&commit_request("g", "orders", 7, 1, ""), COMMIT)), ErrorCode::UnknownTopicOrPartition);
    let mut by_id = commit_request("g", "", 0, 1, "");
    by_id.topics[0].topic_id = Uuid([9; 16]);
    assert_eq!(code(client.call(&by_id, 10)), ErrorCode::UnknownTopicId);
    assert_eq!(commit(&mut client, "g", "orders", 1, "five!"), ErrorCode::OffsetMetadataTooLarge);
    let generation = OffsetCommitRequest {
        generation_id_or_member_epoch: 3,
        member_id: "m".into(),
        ..commit_request("g", "orders", 0, 1, "")
    };
    assert_eq!(code(client.call(&generation, 8)), ErrorCode::IllegalGeneration);
    assert_eq!(code(client.call(&generation, 9)), ErrorCode::GroupIdNotFound);
    assert_eq!(committed(&mut client, "g", "orders").committed_offset, -1);
    let mut member = Member::new(&broker, "g", None);
    member.settle();
    assert_eq!(commit(&mut client, "g", "orders", 1, ""), ErrorCode::UnknownMemberId, "the group has members");
    member.generation += 1;
    assert_eq!(member.commit(1), ErrorCode::IllegalGeneration);
}

#[test]
fn what_can_be_committed_is_while_the_rest_of_the_request_is_refused() {
    let broker = TestBroker::start();
    let mut client = coordinated(&broker, "g");
    client.create_topic("orders");
    let mut request = commit_request("g", "nowhere", 0, 1, "");
    request.topics.extend(commit_request("g", "orders", 9, 2, "").topics);
    request.topics.extend(commit_request("g", "orders", 0, 3, "").topics);
    let answer = client.call(&request, COMMIT);
    let codes: Vec<_> = answer.topics.iter().map(|t| ErrorCode::from_code(t.partitions[0].error_code)).collect();
    let unknown = ErrorCode::UnknownTopicOrPartition;
    assert_eq!(codes, [unknown, unknown, ErrorCode::None]);
    assert_eq!(committed(&mut client, "g", "orders").committed_offset, 3);
}

#[test]
fn offsets_of_a_deleted_topic_are_gone_and_a_namesake_starts_without() {
    let broker = TestBroker::start();
    let mut client = coordinated(&broker, "g");
    client.create_topic("orders");
    commit(&mut client, "g", "orders", 5, "");
    let request =
        DeleteTopicsRequest { topic_names: vec!["orders".into()], timeout_ms: 5_000, ..DeleteTopicsRequest::default() };
    assert_eq!(client.call(&request, 5).responses[0].error_code, 0);
    client.create_topic("orders");
    for _ in 0..100 {
        if committed(&mut client, "g", "orders").committed_offset == -1 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("the offset of the deleted topic is still there");
}

#[test]
fn deleted_groups_and_offsets_stay_deleted_after_a_restart() {
    let broker = TestBroker::start();
    let mut client = coordinated(&broker, "g");
    client.create_topic("orders");
    commit(&mut client, "g", "orders", 5, "");
    commit(&mut client, "h", "orders", 6, "");
    let partitions = vec![OffsetDeleteRequestPartition { partition_index: 0 }];
    let topics = vec![OffsetDeleteRequestTopic { name: "orders".into(), partitions }];
    let answer = client.call(&OffsetDeleteRequest { group_id: "g".into(), topics }, 0);
    assert_eq!((answer.error_code, answer.topics[0].partitions[0].error_code), (0, 0));
    let answer = client.call(&DeleteGroupsRequest { groups_names: vec!["h".into(), "none".into()] }, 3);
    let codes: Vec<_> = answer.results.iter().map(|result| ErrorCode::from_code(result.error_code)).collect();
    assert_eq!(codes, [ErrorCode::None, ErrorCode::GroupIdNotFound]);
    let broker = TestBroker::start_in(broker.stop(), &[]);
    for group in ["g", "h"] {
        let mut client = coordinated(&broker, group);
        assert_eq!(committed(&mut client, group, "orders").committed_offset, -1, "{group}");
    }
}

#[test]
fn lag_of_a_stopped_consumer_is_exact() {
    let broker = TestBroker::start();
    let mut client = coordinated(&broker, "slow");
    client.create_topic("orders");
    client.produce("orders", 0, batch(&["a", "b", "c", "d", "e"]), 1);
    commit(&mut client, "slow", "orders", 2, "");
    let metrics = broker.http_get("/metrics");
    let value = |name: &str, partition: i32| {
        let series = format!("{name}{{consumergroup=\"slow\",partition=\"{partition}\",topic=\"orders\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&series)?.parse::<f64>().ok())
    };
    assert_eq!(value("kafka_consumergroup_lag", 0), Some(3.0));
    assert_eq!(value("kafka_consumergroup_current_offset", 0), Some(2.0));
    assert!(value("forebay_consumergroup_lag_seconds", 0).unwrap() > 1_000.0, "the records are of 2023");
    assert_eq!(value("kafka_consumergroup_lag", 1), None, "nothing committed is not lag");
    assert_eq!(value("forebay_consumergroup_no_offset", 1), Some(1.0));
    assert!(metrics.contains("forebay_groups{state=\"Empty\"} 1"), "{metrics}");
    assert_eq!(client.call(&fetch_request("slow", "orders", 1), FETCH_OFFSETS).topics.len(), 1);
}
