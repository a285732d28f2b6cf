//! A member of a group, and the requests around it, for the tests of groups.

use bytes::Bytes;
use forebay_broker_wire::messages::find_coordinator::FindCoordinatorRequest;
use forebay_broker_wire::messages::heartbeat::HeartbeatRequest;
use forebay_broker_wire::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};
use forebay_broker_wire::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use forebay_broker_wire::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponsePartition,
};
use forebay_broker_wire::messages::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment};
use forebay_broker_wire::types::{ErrorCode, Str};

use crate::harness::{Client, TestBroker};

/// Joins with it answer a missing id at once, so that tests take one round trip less.
pub(crate) const JOIN_WITHOUT_ID: i16 = 3;
pub(crate) const JOIN: i16 = 9;
pub(crate) const COMMIT: i16 = 9;
pub(crate) const FETCH_OFFSETS: i16 = 7;
/// No test waits for the first members of a group.
pub(crate) const AT_ONCE: &str = "group.initial.rebalance.delay.ms=0";

/// Asks for the coordinator until it is there and its groups are loaded.
pub(crate) fn await_coordinator(client: &mut Client, group: &str) {
    for _ in 0..200 {
        let found = client.call(&FindCoordinatorRequest { key: group.into(), ..FindCoordinatorRequest::default() }, 3);
        let fetched = fetch_request(group, "nowhere", 0);
        if found.error_code == 0 && client.call(&fetched, FETCH_OFFSETS).error_code == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("no coordinator for {group}");
}

pub(crate) fn coordinated(broker: &TestBroker, group: &str) -> Client {
    let mut client = broker.client();
    await_coordinator(&mut client, group);
    client
}

/// One member on its own connection.
pub(crate) struct Member {
    pub(crate) client: Client,
    pub(crate) group: &'static str,
    pub(crate) id: Str,
    pub(crate) instance: Option<Str>,
    pub(crate) generation: i32,
}

impl Member {
    pub(crate) fn new(broker: &TestBroker, group: &'static str, instance: Option<&str>) -> Self {
        let client = coordinated(broker, group);
        Self { client, group, id: Str::new(), instance: instance.map(Str::from), generation: -1 }
    }

    pub(crate) fn join_request(&self) -> JoinGroupRequest {
        JoinGroupRequest {
            group_id: self.group.into(),
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 10_000,
            member_id: self.id.clone(),
            group_instance_id: self.instance.clone(),
            protocol_type: "consumer".into(),
            protocols: vec![JoinGroupRequestProtocol {
                name: "range".into(),
                metadata: Bytes::from_static(b"\0\x01\0\0\0\x01\0\x06orders\xff\xff\xff\xff"),
            }],
            reason: None,
        }
    }

    /// Joins, twice if an id is given out first, and takes over what it is told.
    pub(crate) fn join(&mut self) -> JoinGroupResponse {
        let mut joined = self.client.call(&self.join_request(), JOIN);
        if joined.error_code == ErrorCode::MemberIdRequired.code() {
            self.id = joined.member_id;
            joined = self.client.call(&self.join_request(), JOIN);
        }
        if joined.error_code == 0 {
            self.id = joined.member_id.clone();
            self.generation = joined.generation_id;
        }
        joined
    }

    /// Syncs; a leader gives each member its own id as assignment.
    pub(crate) fn sync(&mut self, joined: &JoinGroupResponse) -> Result<Bytes, ErrorCode> {
        let assign = |id: &Str| SyncGroupRequestAssignment {
            member_id: id.clone(),
            assignment: Bytes::copy_from_slice(id.as_bytes()),
        };
        let request = SyncGroupRequest {
            group_id: self.group.into(),
            generation_id: self.generation,
            member_id: self.id.clone(),
            group_instance_id: self.instance.clone(),
            protocol_type: Some("consumer".into()),
            protocol_name: Some("range".into()),
            assignments: joined.members.iter().map(|member| assign(&member.member_id)).collect(),
        };
        let synced = self.client.call(&request, 5);
        match ErrorCode::from_code(synced.error_code) {
            ErrorCode::None => Ok(synced.assignment),
            error => Err(error),
        }
    }

    pub(crate) fn heartbeat(&mut self) -> ErrorCode {
        let request = HeartbeatRequest {
            group_id: self.group.into(),
            generation_id: self.generation,
            member_id: self.id.clone(),
            group_instance_id: self.instance.clone(),
        };
        ErrorCode::from_code(self.client.call(&request, 4).error_code)
    }

    /// Joins and syncs until it has its part: what a client does all day.
    pub(crate) fn settle(&mut self) -> Bytes {
        for _ in 0..100 {
            let joined = self.join();
            match ErrorCode::from_code(joined.error_code) {
                ErrorCode::None => {}
                ErrorCode::UnknownMemberId => self.id = Str::new(),
                ErrorCode::RebalanceInProgress => continue,
                other => panic!("{other:?}"),
            }
            match self.sync(&joined) {
                Ok(assignment) => return assignment,
                Err(ErrorCode::RebalanceInProgress | ErrorCode::IllegalGeneration | ErrorCode::UnknownMemberId) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
        panic!("{} never settled", self.id);
    }

    pub(crate) fn commit(&mut self, offset: i64) -> ErrorCode {
        let request = OffsetCommitRequest {
            generation_id_or_member_epoch: self.generation,
            member_id: self.id.clone(),
            group_instance_id: self.instance.clone(),
            ..commit_request(self.group, "orders", 0, offset, "")
        };
        let answer = self.client.call(&request, COMMIT);
        ErrorCode::from_code(answer.topics[0].partitions[0].error_code)
    }
}

/// The commit of somebody who is no member.
pub(crate) fn commit_request(
    group: &str,
    topic: &str,
    partition: i32,
    offset: i64,
    metadata: &str,
) -> OffsetCommitRequest {
    OffsetCommitRequest {
        group_id: group.into(),
        topics: vec![OffsetCommitRequestTopic {
            name: topic.into(),
            partitions: vec![OffsetCommitRequestPartition {
                partition_index: partition,
                committed_offset: offset,
                committed_metadata: Some(metadata.into()),
                ..OffsetCommitRequestPartition::default()
            }],
            ..OffsetCommitRequestTopic::default()
        }],
        ..OffsetCommitRequest::default()
    }
}

pub(crate) fn commit(client: &mut Client, group: &str, topic: &str, offset: i64, metadata: &str) -> ErrorCode {
    let answer = client.call(&commit_request(group, topic, 0, offset, metadata), COMMIT);
    ErrorCode::from_code(answer.topics[0].partitions[0].error_code)
}

pub(crate) fn fetch_request(group: &str, topic: &str, partition: i32) -> OffsetFetchRequest {
    OffsetFetchRequest {
        group_id: group.into(),
        topics: Some(vec![OffsetFetchRequestTopic { name: topic.into(), partition_indexes: vec![partition] }]),
        ..OffsetFetchRequest::default()
    }
}

pub(crate) fn committed(client: &mut Client, group: &str, topic: &str) -> OffsetFetchResponsePartition {
    let mut answer = client.call(&fetch_request(group, topic, 0), FETCH_OFFSETS);
    assert_eq!(answer.error_code, 0);
    answer.topics.remove(0).partitions.remove(0)
}
