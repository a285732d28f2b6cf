//! What the coordinator must not forget. The shell writes these as Kafka's `__consumer_offsets` records, appends them
//! and, after a restart, hands them back to `GroupMachine::replay` in log order.

use bytes::Bytes;
use forebay_broker_wire::types::PartitionIndex;
use std::sync::Arc;

use super::command::CommittedOffset;
use super::ids::{GroupId, InstanceId, MemberId, TopicName};

/// One durable fact; `value: None` is a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are those of Kafka's record schemas")]
pub enum Record {
    OffsetCommit { group: GroupId, topic: TopicName, partition: PartitionIndex, value: Option<CommittedOffset> },
    GroupMetadata { group: GroupId, value: Option<GroupMetadata> },
}

/// A group between two rebalances.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are those of Kafka's record schema")]
pub struct GroupMetadata {
    pub protocol_type: Arc<str>,
    pub generation: i32,
    pub protocol_name: Option<Arc<str>>,
    pub leader: Option<MemberId>,
    pub state_timestamp_ms: i64,
    pub members: Vec<MemberMetadata>,
}

/// A member of a stable group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are those of Kafka's record schema")]
pub struct MemberMetadata {
    pub member_id: MemberId,
    pub instance_id: Option<InstanceId>,
    pub client_id: Arc<str>,
    pub client_host: Arc<str>,
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
    pub subscription: Bytes,
    pub assignment: Bytes,
}

impl GroupMetadata {
    /// An upper bound of the record's size, so that a group too large to be stored is refused before anything is written.
    pub fn encoded_bytes_max(&self) -> usize {
        const FIXED_BYTES: usize = 64;
        let text = |text: &str| text.len() + 2;
        self.members
            .iter()
            .map(|member| {
                FIXED_BYTES
                    + text(member.member_id.as_str())
                    + member.instance_id.as_ref().map_or(2, |instance| text(instance.as_str()))
                    + text(&member.client_id)
                    + text(&member.client_host)
                    + member.subscription.len()
                    + member.assignment.len()
            })
            .sum::<usize>()
            + FIXED_BYTES
            + text(&self.protocol_type)
            + self.protocol_name.as_deref().map_or(2, text)
            + self.leader.as_ref().map_or(2, |leader| text(leader.as_str()))
    }
}
