//! ListOffsets and OffsetForLeaderEpoch.

use forebay_broker_wire::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsTopic,
};
use forebay_broker_wire::messages::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use forebay_broker_wire::types::ErrorCode;

use crate::harness::{Client, TestBroker, batch};

fn list(client: &mut Client, timestamp: i64, version: i16) -> ListOffsetsPartitionResponse {
    let partition = ListOffsetsPartition { partition_index: 0, current_leader_epoch: -1, timestamp };
    let topics = vec![ListOffsetsTopic { name: "orders".into(), partitions: vec![partition] }];
    let request = ListOffsetsRequest { replica_id: -1, topics, ..ListOffsetsRequest::default() };
    client.call(&request, version).topics.remove(0).partitions.remove(0)
}

#[test]
fn both_ends_are_found_in_every_version() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    client.produce("orders", 0, batch(&["a", "b", "c"]), 1);
    for version in 1..=11 {
        assert_eq!(list(&mut client, -1, version).offset, 3, "version {version}");
        assert_eq!(list(&mut client, -2, version).offset, 0, "version {version}");
    }
}

#[test]
fn offsets_are_found_by_time() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    client.produce("orders", 0, batch(&["a"]), 1);
    assert_eq!(list(&mut client, 1_600_000_000_000, 7).offset, 0);
    assert_eq!(list(&mut client, 1_800_000_000_000, 7).offset, -1, "nothing is that new");
    assert_eq!(list(&mut client, -3, 7).timestamp, 1_700_000_000_000);
    assert_eq!(list(&mut client, -99, 7).error_code, ErrorCode::InvalidRequest.code());
}

#[test]
fn the_end_of_an_epoch_is_told() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    client.produce("orders", 0, batch(&["a", "b"]), 1);
    let mut ask = |leader_epoch, current_leader_epoch| {
        let partition = OffsetForLeaderPartition { partition: 0, current_leader_epoch, leader_epoch };
        let topics = vec![OffsetForLeaderTopic { topic: "orders".into(), partitions: vec![partition] }];
        let request = OffsetForLeaderEpochRequest { replica_id: -1, topics };
        client.call(&request, 4).topics.remove(0).partitions.remove(0)
    };
    let known = ask(0, 0);
    assert_eq!((known.error_code, known.leader_epoch, known.end_offset), (0, 0, 2));
    assert_eq!(ask(0, 7).error_code, ErrorCode::UnknownLeaderEpoch.code());
}
