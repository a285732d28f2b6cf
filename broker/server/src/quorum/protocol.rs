//! What brokers say to each other on their controller listeners: JSON in Kafka's frames, under two API keys beyond Kafka's.
//!
//! A connection begins with a greeting, in which each side says which cluster, broker and disk it is; the other checks it. Nothing else
//! is taken before.

use forebay_broker_machines::metadata::{Command, Reply};
use forebay_broker_wire::types::BrokerId;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest, TransferLeaderResponse,
    VoteRequest, VoteResponse,
};
use serde::{Deserialize, Serialize};

use super::status::QuorumStatus;
use super::types::{Address, SnapshotMeta, Types, Vote, VoterId};
use crate::controller::{Heartbeat, HeartbeatAnswer};

/// Greetings and the quorum's own calls.
pub(super) const QUORUM_API_KEY: i16 = 20001;
/// What is asked of the controller.
pub(super) const CONTROLLER_API_KEY: i16 = 20002;
/// Changes when an older program would not understand.
pub(super) const PROTOCOL_VERSION: u16 = 1;

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Hello {
    pub(super) protocol: u16,
    pub(super) cluster_id: String,
    pub(super) from: VoterId,
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Welcome {
    pub(crate) cluster_id: String,
    pub(crate) voter: VoterId,
    /// It has never voted, and has no entry nor anything else: it knows of no cluster.
    pub(crate) pristine: bool,
    /// Whom it takes for the leader.
    pub(crate) leader: Option<Leader>,
}

/// The leader, and where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Leader {
    pub(crate) voter: VoterId,
    pub(crate) address: Address,
}

/// One call of the quorum. Bytes of a snapshot follow the JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum QuorumRequest {
    Hello(Hello),
    AppendEntries(AppendEntriesRequest<Types>),
    Vote(VoteRequest<Types>),
    PreVote(VoteRequest<Types>),
    TransferLeader(TransferLeaderRequest<Types>),
    /// A part of a snapshot, from this byte on; the first part begins at 0.
    SnapshotPart {
        at: usize,
    },
    /// The parts are the whole.
    InstallSnapshot {
        vote: Vote,
        meta: SnapshotMeta,
        bytes: usize,
    },
    /// Let this broker follow.
    Join {
        address: Address,
    },
}

/// The answer to a call of the quorum.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum QuorumAnswer {
    Welcome(Welcome),
    /// The greeting was not accepted.
    Refused {
        message: String,
    },
    AppendEntries(AppendEntriesResponse<Types>),
    Vote(VoteResponse<Types>),
    TransferLeader(TransferLeaderResponse<Types>),
    SnapshotPart,
    InstallSnapshot(SnapshotResponse<Types>),
    Joined,
    NotLeader {
        leader: Option<Leader>,
    },
    /// It could not be done.
    Failed {
        message: String,
    },
}

/// What can be asked of the controller, which is where the quorum's leader is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ControllerRequest {
    /// Decide a command.
    Submit { command: Command },
    /// Say who votes and how far each has come.
    DescribeQuorum,
    /// A broker is there.
    Heartbeat { heartbeat: Heartbeat },
}

/// The controller's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ControllerReply {
    /// What was decided, and the version of the image that has it.
    Submitted { reply: Reply, version: i64 },
    /// The quorum as it is.
    Quorum(QuorumStatus),
    /// What the controller makes of a heartbeat.
    Heartbeat { answer: HeartbeatAnswer },
    /// Somebody else is the controller, or nobody.
    NotController { controller: Option<i32> },
    /// It could not be done; whether it was done all the same is not known.
    Failed { message: String },
    /// Too much waits already.
    Busy,
}

/// Who leads, as this broker knows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Leadership {
    pub(crate) term: u64,
    pub(crate) leader: Option<BrokerId>,
    /// This broker leads, and its image has everything that was decided before.
    pub(crate) here: bool,
}
