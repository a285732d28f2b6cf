//! What the group coordinator is asked and what it answers, free of any protocol version.
//!
//! Each command names one group, but for those over a whole shard (`List`, `Summarize`, `ForgetTopics`, `KeepTopics`). A handler that
//! gets several groups in one request sends one command for each.

use bytes::Bytes;
use forebay_broker_wire::types::{LeaderEpoch, Offset, PartitionIndex, Uuid};
use std::sync::Arc;

use super::error::GroupError;
use super::group::GroupState;
use super::ids::{GroupId, InstanceId, MemberId, TopicName};

pub use super::ids::RequestToken;

/// A request to the coordinator.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each variant is the Kafka request of that name")]
pub enum Command {
    Join(Join),
    Sync(Sync),
    Heartbeat(Heartbeat),
    Leave(Leave),
    CommitOffsets(CommitOffsets),
    FetchOffsets(FetchOffsets),
    DeleteOffsets(DeleteOffsets),
    Describe {
        group: GroupId,
    },
    Delete {
        group: GroupId,
    },
    List,
    /// Committed offsets and states of all groups, for the metrics.
    Summarize,
    /// Topics were deleted: their offsets go too. The id tells a topic from a later one of the same name.
    ForgetTopics {
        topics: Vec<(TopicName, Uuid)>,
    },
    /// These are all topics there are; offsets of others go. Said after loading, for topics that were deleted meanwhile.
    KeepTopics {
        topics: Vec<(TopicName, Uuid)>,
    },
}

/// An assignment protocol that a member offers, with what the assignor wants to know of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// The assignor's name, such as `range`.
    pub name: Arc<str>,
    /// Opaque to the coordinator, but for the topics of a consumer's subscription.
    pub metadata: Bytes,
}

/// JoinGroup.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "fields are the protocol's")]
pub struct Join {
    pub group: GroupId,
    /// Empty when the member has no id yet.
    pub member_id: MemberId,
    /// A fresh id to give out if the member has none; the machine has no randomness of its own.
    pub new_member_id: MemberId,
    pub instance_id: Option<InstanceId>,
    pub client_id: Arc<str>,
    pub client_host: Arc<str>,
    pub session_timeout_ms: i32,
    pub rebalance_timeout_ms: i32,
    pub protocol_type: Arc<str>,
    pub protocols: Vec<Protocol>,
    /// Whether a dynamic member has to come back with the id it is given (JoinGroup v4 and later), so that a client that
    /// never saw the answer leaves no member behind.
    pub requires_known_member_id: bool,
    /// Whether a restarted static leader can be told that the assignment stands (JoinGroup v9 and later).
    pub supports_skip_assignment: bool,
}

/// Who calls: in each request of a member after its join.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are the protocol's")]
pub struct Caller {
    pub member_id: MemberId,
    pub instance_id: Option<InstanceId>,
    /// Negative for a consumer that only stores offsets and is no member.
    pub generation: i32,
}

/// SyncGroup.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "fields are the protocol's")]
pub struct Sync {
    pub group: GroupId,
    pub caller: Caller,
    /// Given from SyncGroup v5 on.
    pub protocol_type: Option<Arc<str>>,
    pub protocol_name: Option<Arc<str>>,
    /// Empty unless the caller leads.
    pub assignments: Vec<(MemberId, Bytes)>,
}

/// Heartbeat.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "fields are the protocol's")]
pub struct Heartbeat {
    pub group: GroupId,
    pub caller: Caller,
}

/// LeaveGroup; an administrator may remove a static member by its instance id alone.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "fields are the protocol's")]
pub struct Leave {
    pub group: GroupId,
    pub members: Vec<(MemberId, Option<InstanceId>)>,
}

/// OffsetCommit.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "fields are the protocol's")]
pub struct CommitOffsets {
    pub group: GroupId,
    pub caller: Caller,
    /// OffsetCommit v2-v4: how long to keep these offsets, instead of the broker's retention.
    pub retention_ms: Option<i64>,
    pub topics: Vec<TopicCommit>,
}

/// The commits to one topic.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "fields are the protocol's")]
pub struct TopicCommit {
    pub topic: TopicName,
    pub topic_id: Uuid,
    pub partitions: Vec<PartitionCommit>,
}

/// The commit to one partition.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "fields are the protocol's")]
pub struct PartitionCommit {
    pub partition: PartitionIndex,
    pub offset: Offset,
    pub leader_epoch: LeaderEpoch,
    pub metadata: Arc<str>,
}

/// OffsetFetch of one group; `None` asks for all that it has committed.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "fields are the protocol's")]
pub struct FetchOffsets {
    pub group: GroupId,
    pub topics: Option<Vec<(TopicName, Vec<PartitionIndex>)>>,
}

/// OffsetDelete.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "fields are the protocol's")]
pub struct DeleteOffsets {
    pub group: GroupId,
    pub topics: Vec<(TopicName, Vec<PartitionIndex>)>,
}

/// What was committed for one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The next offset to consume.
    pub offset: Offset,
    /// Epoch of the last record consumed; negative when the client did not say.
    pub leader_epoch: LeaderEpoch,
    /// Returned byte by byte as it was given.
    pub metadata: Arc<str>,
    /// When it was committed.
    pub commit_timestamp_ms: i64,
    /// When it expires, if the client chose that itself.
    pub expire_timestamp_ms: Option<i64>,
    /// Zero in records written before topics had ids.
    pub topic_id: Uuid,
}

/// An answer. It may answer an earlier request than the command just handled: joins and syncs wait for others.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant answers the command of that name")]
pub enum Reply {
    Join(Result<Joined, JoinRefusal>),
    Sync(Result<Synced, GroupError>),
    Heartbeat(Result<(), GroupError>),
    Leave(Result<Vec<MemberLeft>, GroupError>),
    CommitOffsets(Result<PerPartition<Result<(), GroupError>>, GroupError>),
    FetchOffsets(PerPartition<Option<CommittedOffset>>),
    DeleteOffsets(Result<PerPartition<Result<(), GroupError>>, GroupError>),
    Describe(Result<GroupDescription, GroupError>),
    Delete(Result<(), GroupError>),
    List(Vec<GroupListing>),
    Summarize(Vec<GroupSummary>),
    ForgetTopics,
    KeepTopics,
}

/// Something for each partition, in the order of the request.
pub type PerPartition<T> = Vec<(TopicName, Vec<(PartitionIndex, T)>)>;

/// A refused join; the member id is the one to come back with when the refusal is `MemberIdRequired`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are the protocol's")]
pub struct JoinRefusal {
    pub error: GroupError,
    pub member_id: MemberId,
}

/// A completed join.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are the protocol's")]
pub struct Joined {
    pub generation: i32,
    pub protocol_type: Option<Arc<str>>,
    pub protocol_name: Option<Arc<str>>,
    pub leader: MemberId,
    pub member_id: MemberId,
    pub skip_assignment: bool,
    /// Empty unless this member leads.
    pub members: Vec<JoinedMember>,
}

/// One member as its leader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are the protocol's")]
pub struct JoinedMember {
    pub member_id: MemberId,
    pub instance_id: Option<InstanceId>,
    pub metadata: Bytes,
}

/// A completed sync.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are the protocol's")]
pub struct Synced {
    pub protocol_type: Option<Arc<str>>,
    pub protocol_name: Option<Arc<str>>,
    pub assignment: Bytes,
}

/// One member's part of a LeaveGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are the protocol's")]
pub struct MemberLeft {
    pub member_id: MemberId,
    pub instance_id: Option<InstanceId>,
    pub result: Result<(), GroupError>,
}

/// A group as tools see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are the protocol's")]
pub struct GroupDescription {
    pub state: GroupState,
    pub protocol_type: Arc<str>,
    /// Empty unless the group is stable.
    pub protocol_name: Arc<str>,
    pub members: Vec<MemberDescription>,
}

/// A member as tools see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are the protocol's")]
pub struct MemberDescription {
    pub member_id: MemberId,
    pub instance_id: Option<InstanceId>,
    pub client_id: Arc<str>,
    pub client_host: Arc<str>,
    /// Both empty unless the group is stable.
    pub metadata: Bytes,
    pub assignment: Bytes,
}

/// A line of ListGroups.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are the protocol's")]
pub struct GroupListing {
    pub group: GroupId,
    pub protocol_type: Arc<str>,
    pub state: GroupState,
}

/// A group for the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the types say what they are")]
pub struct GroupSummary {
    pub group: GroupId,
    pub state: GroupState,
    pub members: usize,
    /// Topics that the members subscribe to, where the coordinator can tell.
    pub subscribed_topics: Vec<TopicName>,
    pub offsets: Vec<OffsetSummary>,
}

/// One committed offset for the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the types say what they are")]
pub struct OffsetSummary {
    pub topic: TopicName,
    pub partition: PartitionIndex,
    pub offset: Offset,
    pub commit_timestamp_ms: i64,
}
