//! The machine of one partition on one broker: which role it has, how long its log is, and how far that is safe.

use forebay_broker_wire::types::{BrokerId, LeaderEpoch, Offset};

use super::{CommitRule, Effects, Event, Follower, Leader, Mutation, Settings};
use crate::metadata::PartitionImage;

/// One partition on one broker.
#[derive(Debug, Clone)]
pub struct Replica {
    local: BrokerId,
    settings: Settings,
    log_end: Offset,
    flushed: Offset,
    high_watermark: Offset,
    role: Role,
}

#[derive(Debug, Clone)]
enum Role {
    Leader(Leader),
    Follower(Follower),
}

/// What a broker is for a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleKind {
    /// It takes appends and serves them.
    Leader,
    /// It copies its leader's log.
    Follower,
}

/// Older than any epoch of the metadata.
const NO_EPOCH: LeaderEpoch = LeaderEpoch(-1);

impl Replica {
    /// A replica that was just opened: its log ends at `log_end`, is flushed so far, and is known to be safe up to `high_watermark`. It
    /// follows nobody until it is told whom.
    pub fn new(local: BrokerId, settings: Settings, high_watermark: Offset, log_end: Offset) -> Self {
        let role = Role::Follower(Follower { leader: None, epoch: NO_EPOCH });
        Self { local, settings, log_end, flushed: log_end, high_watermark: high_watermark.min(log_end), role }
    }

    /// All records below are on every in-sync replica.
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// The next record's offset.
    pub fn log_end(&self) -> Offset {
        self.log_end
    }

    /// The epoch in which the partition is led, as far as this replica knows; -1 before it was told.
    pub fn epoch(&self) -> LeaderEpoch {
        match &self.role {
            Role::Leader(leader) => leader.epoch(),
            Role::Follower(follower) => follower.epoch,
        }
    }

    /// What this broker is for the partition.
    pub fn role(&self) -> RoleKind {
        match &self.role {
            Role::Leader(_) => RoleKind::Leader,
            Role::Follower(_) => RoleKind::Follower,
        }
    }

    /// The leader's knowledge, if this broker leads.
    pub fn leader(&self) -> Option<&Leader> {
        match &self.role {
            Role::Leader(leader) => Some(leader),
            Role::Follower(_) => None,
        }
    }

    /// The follower's knowledge, if this broker follows.
    pub fn follower(&self) -> Option<&Follower> {
        match &self.role {
            Role::Leader(_) => None,
            Role::Follower(follower) => Some(follower),
        }
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whom to fetch from, and in which epoch. `None` for a leader, without a leader, and while what was fetched has to be flushed first:
    /// asking for the next offset says that everything before is kept.
    pub fn may_fetch(&self) -> Option<(BrokerId, LeaderEpoch)> {
        let Role::Follower(Follower { leader: Some(leader), epoch }) = self.role else { return None };
        let kept = self.own_end() >= self.log_end || self.settings.mutation == Some(Mutation::FetchBeforeFlush);
        kept.then_some((leader, epoch))
    }

    /// True when an answer to what was asked in `epoch` at `asked_offset` says something about this log as it is now. An offset alone does
    /// not tell: the log may have been cut and have grown to the same length since, and then its last epoch is another.
    pub fn may_believe(&self, epoch: LeaderEpoch, asked_offset: Offset, same_last_epoch: bool) -> bool {
        let Role::Follower(follower) = &self.role else { return false };
        if self.settings.mutation == Some(Mutation::BelieveLateAnswers) {
            return true;
        }
        follower.leader.is_some() && follower.epoch == epoch && asked_offset == self.log_end && same_last_epoch
    }

    /// Whether a fetch says how the log ends, so that the leader can tell where it parts from its own.
    pub fn tells_last_epoch(&self) -> bool {
        self.settings.mutation != Some(Mutation::SkipTruncation)
    }

    /// Takes in an event.
    pub fn step(&mut self, event: &Event, now_ms: i64) -> Effects {
        let mut effects = Effects::default();
        match (event, &mut self.role) {
            (Event::Assigned(image), _) => effects.leadership_changed = self.assigned(image, now_ms),
            (Event::Configured(settings), _) => self.settings = *settings,
            (Event::Written { log_end }, _) => self.log_end = self.log_end.max(*log_end),
            (Event::Flushed { upto }, _) => self.flushed = self.flushed.max(*upto),
            (Event::Truncated { log_end }, _) => {
                // A log that begins anew behind its old end has nothing to flush.
                self.flushed = if *log_end > self.log_end { *log_end } else { self.flushed.min(*log_end) };
                self.log_end = *log_end;
                self.high_watermark = self.high_watermark.min(*log_end);
            }
            (Event::FollowerFetched { follower, broker_epoch, offset, starts_with_leader }, Role::Leader(leader)) => {
                let (fetch, ends) = ((*follower, *broker_epoch, *offset), (self.high_watermark, self.log_end));
                effects.proposal = leader.fetched(fetch, ends, *starts_with_leader, &self.settings, now_ms);
            }
            (Event::CheckFollowers, Role::Leader(leader)) => {
                effects.proposal = leader.check_followers(self.log_end, &self.settings, now_ms);
            }
            (Event::IsrAnswered { proposal, answer }, Role::Leader(leader)) => {
                effects.proposal = leader.answered(proposal, answer, now_ms);
            }
            (Event::LeaderAnswered { high_watermark }, Role::Follower(_)) => {
                effects.high_watermark = self.raise(*high_watermark);
            }
            (Event::Diverged { leader_epoch, leader_end, local_end }, Role::Follower(follower)) => {
                effects.truncate_to = follower.diverged(*leader_epoch, *leader_end, *local_end, self.log_end);
            }
            // Meant for the role it had before.
            _ => {}
        }
        if let Role::Leader(leader) = &self.role {
            effects.below_min_isr = leader.is_below_min(&self.settings);
            if !effects.below_min_isr {
                let reached = leader.reached(self.own_end(), &self.settings);
                effects.high_watermark = self.raise(reached);
            }
        }
        effects
    }

    /// Gives whether another leader, or another epoch, counts from now on.
    fn assigned(&mut self, image: &PartitionImage, now_ms: i64) -> bool {
        let known = self.epoch();
        if image.leader_epoch < known {
            return false;
        }
        let leads = matches!(self.role, Role::Leader(_));
        let reused =
            self.settings.mutation == Some(Mutation::ReuseEpoch) && leads != (image.leader == Some(self.local));
        let same_epoch = image.leader_epoch == known && !reused;
        match &mut self.role {
            Role::Leader(leader) if same_epoch => {
                if image.partition_epoch > leader.partition_epoch() {
                    leader.assigned(image, now_ms);
                }
                false
            }
            Role::Follower(_) if same_epoch => false,
            _ if image.leader == Some(self.local) => {
                self.role = Role::Leader(Leader::new(self.local, image, self.log_end, now_ms));
                true
            }
            _ => {
                self.role = Role::Follower(Follower { leader: image.leader, epoch: image.leader_epoch });
                true
            }
        }
    }

    /// What this replica may promise to keep.
    fn own_end(&self) -> Offset {
        match self.settings.rule {
            CommitRule::Written => self.log_end,
            CommitRule::Flushed => self.flushed.min(self.log_end),
        }
    }

    fn raise(&mut self, high_watermark: Offset) -> Option<Offset> {
        let reached = high_watermark.min(self.log_end);
        let rose = reached > self.high_watermark;
        self.high_watermark = self.high_watermark.max(reached);
        rose.then_some(self.high_watermark)
    }
}
