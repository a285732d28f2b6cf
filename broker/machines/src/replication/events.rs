//! What can happen to a replica, and what it wants done about it.

use forebay_broker_wire::types::{BrokerId, LeaderEpoch, Offset};
use serde::{Deserialize, Serialize};

use super::Settings;
use crate::metadata::PartitionImage;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The metadata says this of the partition.
    Assigned(PartitionImage),
    /// The settings are these from now on.
    Configured(Settings),
    /// Records up to `log_end` are written here.
    Written {
        /// The next record's offset.
        log_end: Offset,
    },
    /// Records up to `upto` are flushed here.
    Flushed {
        /// The offset after them.
        upto: Offset,
    },
    /// The log was cut, and ends there.
    Truncated {
        /// The next record's offset.
        log_end: Offset,
    },
    /// Leader: a follower asks for records from `offset` on, and its log agrees with ours up to there.
    FollowerFetched {
        /// Who.
        follower: BrokerId,
        /// Its registration: an earlier life of it had a log of its own.
        broker_epoch: i64,
        /// It has everything below.
        offset: Offset,
        /// It has deleted what we have. What it still has before our start, nobody can compare.
        starts_with_leader: bool,
    },
    /// Leader: what came of a proposal.
    IsrAnswered {
        /// The proposal.
        proposal: IsrProposal,
        /// The controller's answer.
        answer: IsrAnswer,
    },
    /// Leader: time has passed; who lags?
    CheckFollowers,
    /// Follower: its leader answered a fetch; the records that came with it are appended.
    LeaderAnswered {
        /// The leader's.
        high_watermark: Offset,
    },
    /// Follower: its leader says that the logs part.
    Diverged {
        /// The epoch in which the leader said so.
        leader_epoch: LeaderEpoch,
        /// The last epoch both may have, and where it ends in the leader's log.
        leader_end: EpochEnd,
        /// The largest epoch here that is not above it, and where it ends here.
        local_end: Option<EpochEnd>,
    },
}

/// Where an epoch ends in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochEnd {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// The offset after its last record.
    pub end: Offset,
}

/// A change of the ISR that a leader wants the controller to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsrProposal {
    /// The leader that proposes.
    pub leader: BrokerId,
    /// Its epoch.
    pub leader_epoch: LeaderEpoch,
    /// The state of the partition that it was decided on: another change in between makes it void.
    pub partition_epoch: i32,
    /// The wanted ISR. With a broker epoch it is that life of the broker and no other; members of the old ISR need none.
    pub in_sync_replicas: Vec<(BrokerId, Option<i64>)>,
}

/// What the controller said to a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IsrAnswer {
    /// Done.
    Accepted {
        /// The partition's epoch now.
        partition_epoch: i32,
        /// The ISR now.
        in_sync_replicas: Vec<BrokerId>,
        /// Who else may be elected.
        may_lead_out_of_sync: Vec<BrokerId>,
    },
    /// Not done: a member may not be in the ISR.
    Refused,
    /// Not done: the partition has changed. The metadata will say how.
    Stale,
    /// Nobody knows: no answer came.
    Unknown,
}

/// What is to be done. Nothing, if default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effects {
    /// The high watermark rose to this.
    pub high_watermark: Option<Offset>,
    /// This is to be sent to the controller, and its answer given back.
    pub proposal: Option<IsrProposal>,
    /// This offset and all after it are to be removed, and [`Event::Truncated`] to follow.
    pub truncate_to: Option<Offset>,
    /// The partition has another leader, or is led in another epoch: who waits for the old one must be told.
    pub leadership_changed: bool,
    /// The ISR has fewer members than `min.insync.replicas`: who waits for an acknowledgement must be told.
    pub below_min_isr: bool,
}
