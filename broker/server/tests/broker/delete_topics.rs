//! DeleteTopics and DeleteRecords: what is gone is gone for everybody, and stays gone.

use forebay_broker_wire::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsPartitionResult, DeleteRecordsRequest, DeleteRecordsTopic,
};
use forebay_broker_wire::messages::delete_topics::{DeletableTopicResult, DeleteTopicState, DeleteTopicsRequest};
use forebay_broker_wire::types::{ErrorCode, Uuid};

use crate::create_topics::{create, topic};
use crate::harness::{Client, TestBroker, batch};

fn delete(client: &mut Client, name: Option<&str>, topic_id: Uuid) -> DeletableTopicResult {
    let topics = vec![DeleteTopicState { name: name.map(Into::into), topic_id }];
    client.call(&DeleteTopicsRequest { topics, ..DeleteTopicsRequest::default() }, 6).responses.remove(0)
}

#[test]
fn a_topic_that_is_made_again_is_empty_and_has_another_id() {
    let broker = TestBroker::start();
    let client = &mut broker.client();
    let first = create(client, topic("t", 1, &[])).topic_id;
    assert_eq!(client.produce("t", 0, batch(&["old"]), 1).error_code, 0);
    assert_eq!(delete(client, Some("t"), Uuid::ZERO).error_code, 0);
    assert_eq!(client.produce("t", 0, batch(&["x"]), 1).error_code, ErrorCode::UnknownTopicOrPartition.code());
    let second = create(client, topic("t", 1, &[])).topic_id;
    assert_ne!(first, second);
    assert!(client.read_all("t", 0).is_empty());
    let by_old_id = delete(client, None, first);
    assert_eq!(by_old_id.error_code, ErrorCode::UnknownTopicId.code());
    let by_id = delete(client, None, second);
    assert_eq!((by_id.error_code, by_id.name.as_deref()), (0, Some("t")));
}

#[test]
fn a_deleted_topic_stays_deleted_after_a_restart() {
    let broker = TestBroker::start();
    create(&mut broker.client(), topic("t", 2, &[]));
    create(&mut broker.client(), topic("kept", 1, &[]));
    delete(&mut broker.client(), Some("t"), Uuid::ZERO);
    let broker = TestBroker::start_in(broker.stop(), &[]);
    let client = &mut broker.client();
    assert_eq!(delete(client, Some("t"), Uuid::ZERO).error_code, ErrorCode::UnknownTopicOrPartition.code());
    assert_eq!(delete(client, Some("kept"), Uuid::ZERO).error_code, 0);
}

#[test]
fn a_topic_must_be_named_in_one_way() {
    let broker = TestBroker::start();
    let client = &mut broker.client();
    assert_eq!(delete(client, Some("t"), Uuid([1; 16])).error_code, ErrorCode::InvalidRequest.code());
    assert_eq!(delete(client, None, Uuid::ZERO).error_code, ErrorCode::InvalidRequest.code());
}

#[test]
fn older_versions_delete_by_name_and_a_broker_may_forbid_it() {
    let broker = TestBroker::start();
    let client = &mut broker.client();
    let request = |name: &str| DeleteTopicsRequest { topic_names: vec![name.into()], ..DeleteTopicsRequest::default() };
    for version in 1..=5 {
        create(client, topic("t", 1, &[]));
        assert_eq!(client.call(&request("t"), version).responses[0].error_code, 0, "version {version}");
    }
    let strict = TestBroker::start_with(&["delete.topic.enable=false"]);
    let client = &mut strict.client();
    create(client, topic("t", 1, &[]));
    assert_eq!(client.call(&request("t"), 1).responses[0].error_code, ErrorCode::InvalidRequest.code());
    assert_eq!(client.call(&request("t"), 5).responses[0].error_code, ErrorCode::TopicDeletionDisabled.code());
}

pub(crate) fn delete_records(
    client: &mut Client,
    topic: &str,
    partition: i32,
    offset: i64,
) -> DeleteRecordsPartitionResult {
    let partitions = vec![DeleteRecordsPartition { partition_index: partition, offset }];
    let topics = vec![DeleteRecordsTopic { name: topic.into(), partitions }];
    let request = DeleteRecordsRequest { topics, timeout_ms: 1000 };
    client.call(&request, 2).topics.remove(0).partitions.remove(0)
}

#[test]
fn records_before_an_offset_go_and_do_not_come_back() {
    let broker = TestBroker::start();
    let client = &mut broker.client();
    create(client, topic("t", 1, &[]));
    for value in ["a", "b", "c", "d"] {
        client.produce("t", 0, batch(&[value]), 1);
    }
    let result = delete_records(client, "t", 0, 2);
    assert_eq!((result.error_code, result.low_watermark), (0, 2));
    assert_eq!(client.fetch("t", 0, 1).error_code, ErrorCode::OffsetOutOfRange.code());
    assert_eq!(client.fetch("t", 0, 2).log_start_offset, 2);
    let broker = TestBroker::start_in(broker.stop(), &[]);
    let client = &mut broker.client();
    assert_eq!(client.fetch("t", 0, 2).log_start_offset, 2);
    let all = delete_records(client, "t", 0, -1);
    assert_eq!((all.error_code, all.low_watermark), (0, 4));
    assert_eq!(client.produce("t", 0, batch(&["e"]), 1).base_offset, 4);
}

#[test]
fn records_that_are_not_there_or_may_not_go_are_refused() {
    let broker = TestBroker::start();
    let client = &mut broker.client();
    create(client, topic("t", 1, &[]));
    create(client, topic("compacted", 1, &[("cleanup.policy", Some("compact"))]));
    let code = |result: DeleteRecordsPartitionResult| (ErrorCode::from_code(result.error_code), result.low_watermark);
    assert_eq!(code(delete_records(client, "t", 0, 1)), (ErrorCode::OffsetOutOfRange, -1));
    assert_eq!(code(delete_records(client, "t", 0, -7)), (ErrorCode::OffsetOutOfRange, -1));
    assert_eq!(code(delete_records(client, "t", 9, 0)), (ErrorCode::UnknownTopicOrPartition, -1));
    assert_eq!(code(delete_records(client, "none", 0, 0)), (ErrorCode::UnknownTopicOrPartition, -1));
    assert_eq!(code(delete_records(client, "compacted", 0, 0)), (ErrorCode::PolicyViolation, -1));
}

#[test]
fn a_log_that_a_crash_has_kept_from_being_removed_goes_at_the_next_start() {
    let broker = TestBroker::start();
    create(&mut broker.client(), topic("t", 1, &[]));
    create(&mut broker.client(), topic("kept", 1, &[]));
    let dir = broker.stop();
    let (log, copy) = (dir.path().join("data/t-0"), dir.path().join("copy"));
    std::fs::create_dir(&copy).unwrap();
    for entry in std::fs::read_dir(&log).unwrap().map(Result::unwrap) {
        std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    let broker = TestBroker::start_in(dir, &[]);
    delete(&mut broker.client(), Some("t"), Uuid::ZERO);
    let dir = broker.stop();
    assert!(!log.exists());
    // As after a crash between the record of the deletion and the removal of the directory.
    std::fs::rename(&copy, &log).unwrap();
    let broker = TestBroker::start_in(dir, &[]);
    assert!(!log.exists());
    assert!(broker.path().join("data/kept-0").exists());
    assert_eq!(create(&mut broker.client(), topic("t", 1, &[])).error_code, 0);
    assert!(broker.client().read_all("t", 0).is_empty());
}
