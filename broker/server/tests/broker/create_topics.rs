//! CreateTopics and CreatePartitions: what is made is usable at once; what cannot be is refused with the reason.

use forebay_broker_wire::messages::create_partitions::{
    CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic, CreatePartitionsTopicResult,
};
use forebay_broker_wire::messages::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreatableTopicResult, CreateTopicsRequest,
};
use forebay_broker_wire::types::{ErrorCode, Uuid};

use crate::harness::{Client, TestBroker, batch};

pub(crate) fn topic(name: &str, partitions: i32, configs: &[(&str, Option<&str>)]) -> CreatableTopic {
    let config = |(name, value): &(&str, Option<&str>)| CreatableTopicConfig {
        name: (*name).into(),
        value: value.map(Into::into),
    };
    CreatableTopic {
        name: name.into(),
        num_partitions: partitions,
        replication_factor: -1,
        configs: configs.iter().map(config).collect(),
        ..CreatableTopic::default()
    }
}

pub(crate) fn create(client: &mut Client, topic: CreatableTopic) -> CreatableTopicResult {
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 1000, validate_only: false };
    client.call(&request, 7).topics.remove(0)
}

fn check_refused(client: &mut Client, topic: CreatableTopic, code: ErrorCode, message: &str) {
    let result = create(client, topic);
    assert_eq!(ErrorCode::from_code(result.error_code), code);
    assert_eq!(result.error_message.as_deref(), Some(message));
}

#[test]
fn a_topic_that_was_made_takes_records_at_once_and_says_what_is_in_force() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    let made = create(&mut client, topic("orders", 3, &[("retention.ms", Some("5000"))]));
    assert_eq!((made.error_code, made.num_partitions, made.replication_factor), (0, 3, 1));
    assert_ne!(made.topic_id, Uuid::ZERO);
    let configs = made.configs.unwrap();
    let of = |name: &str| {
        let config = configs.iter().find(|config| *config.name == *name).unwrap();
        (config.value.as_deref().unwrap(), config.config_source)
    };
    assert_eq!(of("retention.ms"), ("5000", 1));
    assert_eq!(of("cleanup.policy"), ("delete", 5));
    assert_eq!(client.produce("orders", 2, batch(&["at once"]), 1).error_code, 0);
}

#[test]
fn every_version_makes_a_topic() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    for version in 2..=7 {
        let topics = vec![topic(&format!("t{version}"), 1, &[])];
        let response = client.call(&CreateTopicsRequest { topics, ..CreateTopicsRequest::default() }, version);
        assert_eq!(response.topics[0].error_code, 0, "version {version}");
    }
}

#[test]
fn validate_only_makes_nothing() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    let request = CreateTopicsRequest { topics: vec![topic("t", 3, &[])], timeout_ms: 1000, validate_only: true };
    let result = client.call(&request, 7).topics.remove(0);
    assert_eq!((result.error_code, result.num_partitions, result.topic_id), (0, 3, Uuid::ZERO));
    assert_eq!(create(&mut client, topic("t", 1, &[])).error_code, 0, "it was not there yet");
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let broker = TestBroker::start();
    let client = &mut broker.client();
    create(client, topic("a.b", 1, &[]));
    check_refused(client, topic("a.b", 1, &[]), ErrorCode::TopicAlreadyExists, "topic 'a.b' already exists");
    let collides =
        "topic 'a_b' collides with existing topic 'a.b': '.' and '_' must not be all that tells two names apart";
    check_refused(client, topic("a_b", 1, &[]), ErrorCode::InvalidTopicException, collides);
    let name = "topic name 'a/b' must consist of letters, digits, '.', '_' and '-'";
    check_refused(client, topic("a/b", 1, &[]), ErrorCode::InvalidTopicException, name);
    let partitions = "partitions=0: must be at least 1, or -1 for the default";
    check_refused(client, topic("t", 0, &[]), ErrorCode::InvalidPartitions, partitions);
    let three = CreatableTopic { replication_factor: 3, ..topic("t", 1, &[]) };
    let factor = "replication factor 3: must be from 1 to 1, the number of brokers, or -1 for the default";
    check_refused(client, three, ErrorCode::InvalidReplicationFactor, factor);
    let unknown = "unknown topic setting 'retension.ms'; did you mean 'retention.ms'?";
    check_refused(client, topic("t", 1, &[("retension.ms", Some("1"))]), ErrorCode::InvalidConfig, unknown);
    let wrong = "segment.bytes=1: must be a 32-bit integer of at least 1048576";
    check_refused(client, topic("t", 1, &[("segment.bytes", Some("1"))]), ErrorCode::InvalidConfig, wrong);
    let null = "retention.ms: must have a value when a topic is created";
    check_refused(client, topic("t", 1, &[("retention.ms", None)]), ErrorCode::InvalidConfig, null);
}

#[test]
fn replicas_may_be_chosen_for_partitions_without_gaps() {
    let broker = TestBroker::start();
    let client = &mut broker.client();
    let assigned = |indexes: &[i32], broker: i32| {
        let assignment = |index: &i32| CreatableReplicaAssignment { partition_index: *index, broker_ids: vec![broker] };
        CreatableTopic { assignments: indexes.iter().map(assignment).collect(), ..topic("t", -1, &[]) }
    };
    let gap = "assignments of topic 't' name partition 2 where 1 is due: must be 0, 1, 2, … without gaps";
    check_refused(client, assigned(&[0, 2], 1), ErrorCode::InvalidReplicaAssignment, gap);
    let absent = "assignment 0 names broker 5, which is not registered";
    check_refused(client, assigned(&[0], 5), ErrorCode::InvalidReplicaAssignment, absent);
    assert_eq!(create(client, assigned(&[1, 0], 1)).num_partitions, 2);
}

#[test]
fn a_name_that_comes_twice_is_refused_once() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    let topics = vec![topic("t", 1, &[]), topic("t", 2, &[]), topic("other", 1, &[])];
    let response = client.call(&CreateTopicsRequest { topics, ..CreateTopicsRequest::default() }, 7);
    let codes: Vec<(&str, i16)> = response.topics.iter().map(|topic| (&*topic.name, topic.error_code)).collect();
    assert_eq!(codes, [("t", ErrorCode::InvalidRequest.code()), ("other", 0)]);
}

fn grow(client: &mut Client, count: i32, assignments: Option<Vec<i32>>) -> CreatePartitionsTopicResult {
    let assignment = |id: i32| CreatePartitionsAssignment { broker_ids: vec![id] };
    let assignments = assignments.map(|ids| ids.into_iter().map(assignment).collect());
    let topics = vec![CreatePartitionsTopic { name: "t".into(), count, assignments }];
    client.call(&CreatePartitionsRequest { topics, timeout_ms: 1000, validate_only: false }, 3).results.remove(0)
}

#[test]
fn partitions_are_added_and_usable_at_once_but_never_taken_away() {
    let broker = TestBroker::start();
    let client = &mut broker.client();
    assert_eq!(grow(client, 2, None).error_code, ErrorCode::UnknownTopicOrPartition.code());
    create(client, topic("t", 2, &[]));
    assert_eq!(grow(client, 4, None).error_code, 0);
    assert_eq!(client.produce("t", 3, batch(&["x"]), 1).error_code, 0);
    let fewer = grow(client, 3, None);
    assert_eq!(fewer.error_code, ErrorCode::InvalidPartitions.code());
    assert_eq!(fewer.error_message.as_deref(), Some("topic 't' has 4 partitions: must ask for more than that, not 3"));
    assert_eq!(grow(client, 6, Some(vec![1])).error_code, ErrorCode::InvalidReplicaAssignment.code());
    assert_eq!(grow(client, 5, Some(vec![1])).error_code, 0);
}
