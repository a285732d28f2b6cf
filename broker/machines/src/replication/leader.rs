//! What a leader knows about its followers, and what follows: how far records are safe, and who should be in the ISR.

use std::collections::{BTreeMap, BTreeSet};

use forebay_broker_wire::types::{BrokerId, LeaderEpoch, Offset};

use super::{IsrAnswer, IsrProposal, Mutation, Settings};
use crate::metadata::PartitionImage;

/// A follower that the controller refused is not proposed again for so long: it refuses as long as the follower is fenced.
const REFUSED_PAUSE_MS: i64 = 500;

/// A follower as its leader sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// It has everything below this offset; `None` until its first fetch from this leader.
    pub log_end: Option<Offset>,
    /// Its registration when it last fetched.
    pub broker_epoch: Option<i64>,
    /// When it last had all there was.
    pub caught_up_ms: i64,
    last_fetch_ms: i64,
    /// When the controller last refused to have it in the ISR.
    refused_ms: Option<i64>,
    /// Where the leader's log ended at its last fetch.
    leader_end_at_last_fetch: Offset,
}

impl Progress {
    fn new(now_ms: i64) -> Self {
        let leader_end_at_last_fetch = Offset(i64::MAX);
        let (caught_up_ms, last_fetch_ms) = (now_ms, now_ms);
        Self {
            log_end: None,
            broker_epoch: None,
            caught_up_ms,
            last_fetch_ms,
            refused_ms: None,
            leader_end_at_last_fetch,
        }
    }

    fn fetched(&mut self, broker_epoch: i64, offset: Offset, leader_end: Offset, now_ms: i64) {
        if offset >= leader_end {
            self.caught_up_ms = self.caught_up_ms.max(now_ms);
        } else if self.broker_epoch == Some(broker_epoch) && offset >= self.leader_end_at_last_fetch {
            // It has all there was then; under load no follower is ever at the very end.
            self.caught_up_ms = self.caught_up_ms.max(self.last_fetch_ms);
        }
        *self = Self {
            log_end: Some(offset),
            broker_epoch: Some(broker_epoch),
            caught_up_ms: self.caught_up_ms,
            last_fetch_ms: now_ms,
            refused_ms: self.refused_ms,
            leader_end_at_last_fetch: leader_end,
        };
    }
}

/// A proposal without an answer yet.
#[derive(Debug, Clone)]
struct Pending {
    proposal: IsrProposal,
    /// Members of this and earlier proposals on the same state: one of these may have been accepted.
    possible: BTreeSet<BrokerId>,
    /// No earlier proposal on the same state is under way.
    sent_once: bool,
}

/// The leader of one partition.
#[derive(Debug, Clone)]
pub struct Leader {
    local: BrokerId,
    epoch: LeaderEpoch,
    /// Where the log ended when it began to lead: a follower below may have records that are not ours.
    epoch_start: Offset,
    partition_epoch: i32,
    replicas: usize,
    in_sync: BTreeSet<BrokerId>,
    /// Replicas out of sync may be elected as they are: what they lack must not become safe (KIP-966).
    stands_still: bool,
    followers: BTreeMap<BrokerId, Progress>,
    pending: Option<Pending>,
}

impl Leader {
    /// Begins to lead, with a log that ends at `log_end`.
    pub(super) fn new(local: BrokerId, image: &PartitionImage, log_end: Offset, now_ms: i64) -> Self {
        let mut leader = Self {
            local,
            epoch: image.leader_epoch,
            epoch_start: log_end,
            partition_epoch: i32::MIN,
            replicas: 0,
            in_sync: BTreeSet::new(),
            stands_still: false,
            followers: BTreeMap::new(),
            pending: None,
        };
        leader.assigned(image, now_ms);
        leader
    }

    /// Its epoch.
    pub fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// Where the log ended when it began to lead. Everything that earlier leaders called safe lies before.
    pub fn epoch_start(&self) -> Offset {
        self.epoch_start
    }

    /// The state of the partition it knows.
    pub fn partition_epoch(&self) -> i32 {
        self.partition_epoch
    }

    /// The ISR as the controller has it.
    pub fn in_sync(&self) -> &BTreeSet<BrokerId> {
        &self.in_sync
    }

    /// The followers.
    pub fn followers(&self) -> &BTreeMap<BrokerId, Progress> {
        &self.followers
    }

    /// True when too few replicas are in sync to promise anything.
    pub fn is_below_min(&self, settings: &Settings) -> bool {
        self.in_sync.len() < settings.min_insync_replicas.min(self.replicas)
    }

    /// Takes in a newer state of the partition in the same epoch.
    pub(super) fn assigned(&mut self, image: &PartitionImage, now_ms: i64) {
        self.replicas = image.replicas.len();
        let known = std::mem::take(&mut self.followers);
        let followers = image.replicas.iter().filter(|id| **id != self.local);
        let progress = |id| known.get(id).copied().unwrap_or_else(|| Progress::new(now_ms));
        self.followers = followers.map(|id| (*id, progress(id))).collect();
        self.commit(image.partition_epoch, &image.in_sync_replicas, &image.may_lead_out_of_sync());
    }

    fn commit(&mut self, partition_epoch: i32, in_sync: &[BrokerId], others: &[BrokerId]) {
        if partition_epoch > self.partition_epoch {
            (self.partition_epoch, self.pending) = (partition_epoch, None);
            self.in_sync = in_sync.iter().copied().collect();
            self.stands_still = !others.is_empty();
        }
    }

    /// How far records are safe when this replica has them up to `own`: every other member of the ISR, and whoever may have become one,
    /// has them too, and nobody else may be elected.
    pub(super) fn reached(&self, own: Offset, settings: &Settings) -> Offset {
        let log_end = |id: &BrokerId| self.followers.get(id).and_then(|follower| follower.log_end).unwrap_or(Offset(0));
        let least = |members: &BTreeSet<BrokerId>, of: Offset| {
            members.iter().filter(|id| **id != self.local).map(log_end).fold(of, Offset::min)
        };
        match (&self.pending, settings.mutation) {
            (_, Some(Mutation::CommitWithoutFollowers)) => own,
            _ if self.stands_still => Offset(0),
            (None, _) | (_, Some(Mutation::IgnoreProposedMembers)) => least(&self.in_sync, own),
            (Some(pending), _) => least(&pending.possible, least(&self.in_sync, own)),
        }
    }

    /// A follower fetched. Gives a proposal if it should enter the ISR.
    pub(super) fn fetched(
        &mut self,
        (follower, broker_epoch, offset): (BrokerId, i64, Offset),
        (high_watermark, log_end): (Offset, Offset),
        starts_with_leader: bool,
        settings: &Settings,
        now_ms: i64,
    ) -> Option<IsrProposal> {
        let progress = self.followers.get_mut(&follower)?;
        if progress.broker_epoch.is_some_and(|known| known > broker_epoch) {
            return None; // under way since an earlier life, whose log may have been longer
        }
        progress.fetched(broker_epoch, offset.min(log_end), log_end, now_ms);
        let caught_up = (starts_with_leader && offset >= high_watermark.max(self.epoch_start))
            || settings.mutation == Some(Mutation::ExpandBeforeCaughtUp);
        let refused = progress.refused_ms.is_some_and(|at| (0..REFUSED_PAUSE_MS).contains(&(now_ms - at)));
        if self.in_sync.contains(&follower) || self.pending.is_some() || refused || !caught_up {
            return None;
        }
        let mut members: Vec<_> = self.in_sync.iter().map(|id| (*id, None)).collect();
        members.push((follower, Some(broker_epoch)));
        Some(self.propose(members))
    }

    /// Gives a proposal if members of the ISR lag.
    pub(super) fn check_followers(&mut self, log_end: Offset, settings: &Settings, now_ms: i64) -> Option<IsrProposal> {
        if self.pending.is_some() {
            return None;
        }
        for follower in self.followers.values_mut() {
            follower.caught_up_ms = follower.caught_up_ms.min(now_ms); // the clock may have gone back
        }
        let lags = |id: &BrokerId| {
            self.followers.get(id).is_some_and(|follower| {
                follower.log_end != Some(log_end)
                    && now_ms.saturating_sub(follower.caught_up_ms) > settings.lag_time_max_ms
            })
        };
        let stay: Vec<_> = self.in_sync.iter().filter(|id| !lags(id)).map(|id| (*id, None)).collect();
        (stay.len() < self.in_sync.len()).then(|| self.propose(stay))
    }

    fn propose(&mut self, in_sync_replicas: Vec<(BrokerId, Option<i64>)>) -> IsrProposal {
        let proposal = IsrProposal {
            leader: self.local,
            leader_epoch: self.epoch,
            partition_epoch: self.partition_epoch,
            in_sync_replicas,
        };
        let mut possible: BTreeSet<_> = proposal.in_sync_replicas.iter().map(|(id, _)| *id).collect();
        let sent_once = self.pending.is_none();
        possible.extend(self.pending.take().into_iter().flat_map(|pending| pending.possible));
        self.pending = Some(Pending { proposal: proposal.clone(), possible, sent_once });
        proposal
    }

    /// Takes in an answer. Gives a proposal if one has to be sent (again).
    pub(super) fn answered(&mut self, proposal: &IsrProposal, answer: &IsrAnswer, now_ms: i64) -> Option<IsrProposal> {
        if *answer == IsrAnswer::Refused {
            for (id, _) in proposal.in_sync_replicas.iter().filter(|(_, broker_epoch)| broker_epoch.is_some()) {
                self.followers.entry(*id).and_modify(|follower| follower.refused_ms = Some(now_ms));
            }
        }
        let pending = self.pending.as_mut().filter(|pending| pending.proposal == *proposal)?;
        match answer {
            IsrAnswer::Accepted { partition_epoch, in_sync_replicas, may_lead_out_of_sync } => {
                self.commit(*partition_epoch, in_sync_replicas, may_lead_out_of_sync);
                None
            }
            IsrAnswer::Refused if pending.sent_once => {
                self.pending = None;
                None
            }
            // An earlier copy may still be accepted. The ISR as it is competes with it: only one change can follow this state.
            IsrAnswer::Refused => {
                let unchanged = self.in_sync.iter().map(|id| (*id, None)).collect();
                Some(self.propose(unchanged))
            }
            IsrAnswer::Stale => None,
            IsrAnswer::Unknown => {
                pending.sent_once = false;
                Some(pending.proposal.clone())
            }
        }
    }
}
