//! Why a group command is refused. The texts name the value and what would be right; the shell maps each variant to
//! its Kafka error code in one place.

use super::ids::{GroupId, InstanceId, MemberId, TopicName};

/// A refusal of a group command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the error text of each variant says what it means")]
pub enum GroupError {
    #[error("the group id is empty; a group needs a name")]
    InvalidGroupId,
    #[error("group {group} does not exist")]
    GroupNotFound { group: GroupId },
    #[error("group {group} has members; only an empty group can be deleted")]
    NonEmptyGroup { group: GroupId },
    #[error("member {member:?} is not in the group; join again without a member id")]
    UnknownMember { member: MemberId },
    #[error("a member id was given out; join again with it")]
    MemberIdRequired,
    #[error("instance {instance} is now another member than {member:?}; this one is fenced")]
    FencedInstance { instance: InstanceId, member: MemberId },
    #[error("generation {given} is not the group's current one, {current}")]
    IllegalGeneration { given: i32, current: i32 },
    #[error("the member offers no protocol that all other members of the group support")]
    InconsistentProtocol,
    #[error("session timeout of {given_ms} ms is outside {min_ms}..={max_ms} ms")]
    InvalidSessionTimeout { given_ms: i64, min_ms: i64, max_ms: i64 },
    #[error("the group is rebalancing; join again")]
    RebalanceInProgress,
    #[error("the group has its {max} members already (group.max.size)")]
    MaxSizeReached { max: usize },
    #[error("the group is subscribed to topic {topic}; its offsets are in use")]
    SubscribedToTopic { topic: TopicName },
    #[error("commit metadata of {bytes} bytes is over {max} bytes (offset.metadata.max.bytes)")]
    OffsetMetadataTooLarge { bytes: usize, max: usize },
    #[error("the group's assignment takes {bytes} bytes, over the {max} bytes that one record may have")]
    AssignmentTooLarge { bytes: usize, max: usize },
}
