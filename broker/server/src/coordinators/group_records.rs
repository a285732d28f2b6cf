//! The group machine's records as Kafka's `__consumer_offsets` records and back.
//!
//! Key types and value versions are Kafka's, so that its tools read our partitions and ours could have been written by
//! it. Keys of other kinds (newer group types) are skipped, as are values that a version after ours wrote and that do
//! not decode: one record must not keep all groups from loading.

use std::sync::Arc;

use bytes::Bytes;
use forebay_broker_machines::groups::{CommittedOffset, GroupId, GroupMetadata, MemberMetadata, Record, TopicName};
use forebay_broker_wire::messages::Data;
use forebay_broker_wire::messages::data::group_metadata_key::GroupMetadataKey;
use forebay_broker_wire::messages::data::group_metadata_value::{self, GroupMetadataValue};
use forebay_broker_wire::messages::data::legacy_offset_commit_key::LegacyOffsetCommitKey;
use forebay_broker_wire::messages::data::offset_commit_key::OffsetCommitKey;
use forebay_broker_wire::messages::data::offset_commit_value::OffsetCommitValue;
use forebay_broker_wire::primitives::{DecodeError, Decoder, EncodeError};
use forebay_broker_wire::types::{LeaderEpoch, Offset, PartitionIndex, Str};

/// Carries the topic's id; the first version with tagged fields, which every Kafka since 3.5 reads.
const OFFSET_COMMIT_VERSION: i16 = 4;
/// The only version with an expiry of the client's choosing.
const OFFSET_COMMIT_EXPIRING_VERSION: i16 = 1;
const GROUP_METADATA_VERSION: i16 = 3;

/// Key and value; no value is a tombstone.
pub(super) type KeyValue = (Bytes, Option<Bytes>);

pub(super) fn encode(record: &Record) -> Result<KeyValue, EncodeError> {
    match record {
        Record::OffsetCommit { group, topic, partition, value } => {
            let key =
                OffsetCommitKey { group: text(group.as_str()), topic: text(topic.as_str()), partition: partition.0 };
            Ok((key.to_key_bytes()?, value.as_ref().map(encode_commit).transpose()?))
        }
        Record::GroupMetadata { group, value } => {
            let key = GroupMetadataKey { group: text(group.as_str()) };
            Ok((key.to_key_bytes()?, value.as_ref().map(encode_metadata).transpose()?))
        }
    }
}

fn encode_commit(committed: &CommittedOffset) -> Result<Bytes, EncodeError> {
    let value = OffsetCommitValue {
        offset: committed.offset.0,
        leader_epoch: committed.leader_epoch.0,
        metadata: text(&committed.metadata),
        commit_timestamp: committed.commit_timestamp_ms,
        expire_timestamp: committed.expire_timestamp_ms.unwrap_or(-1),
        topic_id: committed.topic_id,
    };
    let expires = committed.expire_timestamp_ms.is_some();
    value.to_prefixed_bytes(if expires { OFFSET_COMMIT_EXPIRING_VERSION } else { OFFSET_COMMIT_VERSION })
}

fn encode_metadata(metadata: &GroupMetadata) -> Result<Bytes, EncodeError> {
    let member = |member: &MemberMetadata| group_metadata_value::MemberMetadata {
        member_id: text(member.member_id.as_str()),
        group_instance_id: member.instance_id.as_ref().map(|instance| text(instance.as_str())),
        client_id: text(&member.client_id),
        client_host: text(&member.client_host),
        rebalance_timeout: member.rebalance_timeout_ms,
        session_timeout: member.session_timeout_ms,
        subscription: member.subscription.clone(),
        assignment: member.assignment.clone(),
    };
    let value = GroupMetadataValue {
        protocol_type: text(&metadata.protocol_type),
        generation: metadata.generation,
        protocol: metadata.protocol_name.as_deref().map(text),
        leader: metadata.leader.as_ref().map(|leader| text(leader.as_str())),
        current_state_timestamp: metadata.state_timestamp_ms,
        members: metadata.members.iter().map(member).collect(),
    };
    value.to_prefixed_bytes(GROUP_METADATA_VERSION)
}

/// `None` for records of other kinds.
pub(super) fn decode(key: Bytes, value: Option<Bytes>) -> Result<Option<Record>, DecodeError> {
    let mut key = Decoder::new(key);
    match key.i16("record type")? {
        0 => {
            let key = LegacyOffsetCommitKey::decode(&mut key, 0)?;
            offset_commit(&key.group, &key.topic, key.partition, value).map(Some)
        }
        1 => {
            let key = OffsetCommitKey::decode(&mut key, 0)?;
            offset_commit(&key.group, &key.topic, key.partition, value).map(Some)
        }
        2 => {
            let group = GroupId::from(GroupMetadataKey::decode(&mut key, 0)?.group.as_str());
            let value = value.map(GroupMetadataValue::from_prefixed_bytes).transpose()?;
            Ok(Some(Record::GroupMetadata { group, value: value.as_ref().map(metadata) }))
        }
        _ => Ok(None),
    }
}

fn offset_commit(group: &str, topic: &str, partition: i32, value: Option<Bytes>) -> Result<Record, DecodeError> {
    let value = value.map(OffsetCommitValue::from_prefixed_bytes).transpose()?;
    let committed = |value: OffsetCommitValue| CommittedOffset {
        offset: Offset(value.offset),
        leader_epoch: LeaderEpoch(value.leader_epoch),
        metadata: Arc::from(value.metadata.as_str()),
        commit_timestamp_ms: value.commit_timestamp,
        expire_timestamp_ms: Some(value.expire_timestamp).filter(|timestamp_ms| *timestamp_ms >= 0),
        topic_id: value.topic_id,
    };
    Ok(Record::OffsetCommit {
        group: group.into(),
        topic: TopicName::from(topic),
        partition: PartitionIndex(partition),
        value: value.map(committed),
    })
}

fn metadata(value: &GroupMetadataValue) -> GroupMetadata {
    // Copied, since a slice of the log's bytes would keep a whole read alive.
    let member = |member: &group_metadata_value::MemberMetadata| MemberMetadata {
        member_id: member.member_id.as_str().into(),
        instance_id: member.group_instance_id.as_ref().map(|instance| instance.as_str().into()),
        client_id: Arc::from(member.client_id.as_str()),
        client_host: Arc::from(member.client_host.as_str()),
        // Version 0 had one timeout for both.
        rebalance_timeout_ms: Some(member.rebalance_timeout).filter(|ms| *ms >= 0).unwrap_or(member.session_timeout),
        session_timeout_ms: member.session_timeout,
        subscription: Bytes::copy_from_slice(&member.subscription),
        assignment: Bytes::copy_from_slice(&member.assignment),
    };
    GroupMetadata {
        protocol_type: Arc::from(value.protocol_type.as_str()),
        generation: value.generation,
        protocol_name: value.protocol.as_ref().map(|name| Arc::from(name.as_str())),
        leader: value.leader.as_ref().map(|leader| leader.as_str().into()),
        state_timestamp_ms: value.current_state_timestamp,
        members: value.members.iter().map(member).collect(),
    }
}

fn text(text: &str) -> Str {
    Str::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_broker_wire::types::Uuid;

    fn committed(expire_timestamp_ms: Option<i64>) -> CommittedOffset {
        CommittedOffset {
            offset: Offset(42),
            leader_epoch: LeaderEpoch(if expire_timestamp_ms.is_some() { -1 } else { 5 }),
            metadata: "a\0b".into(),
            commit_timestamp_ms: 1_700_000_000_000,
            expire_timestamp_ms,
            topic_id: if expire_timestamp_ms.is_some() { Uuid::ZERO } else { Uuid([7; 16]) },
        }
    }

    fn commit(value: Option<CommittedOffset>) -> Record {
        Record::OffsetCommit { group: "g".into(), topic: "t".into(), partition: PartitionIndex(3), value }
    }

    fn group(value: Option<GroupMetadata>) -> Record {
        Record::GroupMetadata { group: "g".into(), value }
    }

    fn stable_group() -> GroupMetadata {
        GroupMetadata {
            protocol_type: "consumer".into(),
            generation: 9,
            protocol_name: Some("range".into()),
            leader: Some("m".into()),
            state_timestamp_ms: 1_700_000_000_001,
            members: vec![MemberMetadata {
                member_id: "m".into(),
                instance_id: Some("one".into()),
                client_id: "client".into(),
                client_host: "/10.0.0.1".into(),
                rebalance_timeout_ms: 300_000,
                session_timeout_ms: 45_000,
                subscription: Bytes::from_static(b"sub"),
                assignment: Bytes::from_static(b"ass"),
            }],
        }
    }

    #[test]
    fn every_record_comes_back_as_it_was() {
        let empty = GroupMetadata { protocol_name: None, leader: None, members: vec![], ..stable_group() };
        for record in [
            commit(Some(committed(None))),
            commit(Some(committed(Some(1_700_000_001_000)))),
            commit(None),
            group(Some(stable_group())),
            group(Some(empty)),
            group(None),
        ] {
            let (key, value) = encode(&record).unwrap();
            assert_eq!(decode(key, value).unwrap(), Some(record));
        }
    }

    #[test]
    fn keys_and_values_begin_with_kafkas_own_numbers() {
        let (key, value) = encode(&commit(Some(committed(None)))).unwrap();
        assert_eq!(&key[..], b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x03");
        assert_eq!(&value.unwrap()[..2], [0, 4]);
        let (key, value) = encode(&group(Some(stable_group()))).unwrap();
        assert_eq!(&key[..], b"\x00\x02\x00\x01g");
        assert_eq!(&value.unwrap()[..2], [0, 3]);
    }

    #[test]
    fn a_record_estimate_is_never_below_what_is_written() {
        let metadata = stable_group();
        let (key, value) = encode(&group(Some(metadata.clone()))).unwrap();
        assert!(metadata.encoded_bytes_max() >= key.len() + value.unwrap().len());
    }

    #[test]
    fn records_of_newer_kinds_of_groups_are_skipped() {
        assert_eq!(decode(Bytes::from_static(b"\x00\x05rest"), None).unwrap(), None);
    }

    #[test]
    fn cut_records_are_errors() {
        let (key, value) = encode(&group(Some(stable_group()))).unwrap();
        let value = value.unwrap();
        assert!(decode(key.slice(..3), None).is_err());
        assert!(decode(key, Some(value.slice(..value.len() - 1))).is_err());
    }
}
