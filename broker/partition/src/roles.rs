//! Which role this broker has for a partition, and what a leader does about its followers.
//!
//! A role changes only while the writer is held, so no append falls between two roles.

use std::time::Duration;

use forebay_broker_machines::{
    metadata::PartitionImage,
    replication::{EpochEnd, Event, IsrAnswer, IsrProposal, RoleKind, Settings},
};
use forebay_broker_storage::PartitionLog;
use forebay_broker_wire::types::{BrokerId, LeaderEpoch, Offset};
use parking_lot::MutexGuard;

use crate::{
    partition::{Partition, Wakeups},
    reading::{FetchSpec, Isolation, ReadError, ReadResult},
};

/// A follower's fetch of one partition.
#[derive(Debug, Clone, Copy)]
pub struct ReplicaFetch {
    /// Who asks.
    pub follower: BrokerId,
    /// Its registration.
    pub broker_epoch: i64,
    /// It has everything below.
    pub offset: Offset,
    /// Where its log starts.
    pub log_start: Offset,
    /// The epoch of its last record; `None` when it has none, or does not say.
    pub last_fetched_epoch: Option<LeaderEpoch>,
    /// The epoch it follows.
    pub current_leader_epoch: LeaderEpoch,
    /// At most so many bytes,
    pub max_bytes: u32,
    /// but the first batch whole.
    pub min_one_batch: bool,
}

/// What a follower gets.
#[derive(Debug, Clone)]
pub enum ReplicaRead {
    /// Records, if there are any.
    Records(ReadResult),
    /// Its log is not ours: the last epoch that both may have, and where it ends here.
    Diverging(EpochEnd),
}

impl Partition {
    /// Leads the partition as the metadata says; an older state than the one known changes nothing.
    pub fn become_leader(&self, image: &PartitionImage, now_ms: i64) {
        debug_assert_eq!(image.leader, Some(self.local()), "led by another broker");
        self.assign(image, now_ms);
    }

    /// Follows the partition's leader as the metadata says, or nobody while it has none.
    pub fn become_follower(&self, image: &PartitionImage, now_ms: i64) {
        debug_assert_ne!(image.leader, Some(self.local()), "led by this broker");
        self.assign(image, now_ms);
    }

    /// Leads or follows as the metadata says, unless somebody writes for so long: false then, and nothing has changed.
    pub fn assign_within(&self, image: &PartitionImage, now_ms: i64, time_max: Duration) -> bool {
        let Some(log) = self.writer.try_lock_for(time_max) else { return false };
        self.assign_with(log, image, now_ms);
        true
    }

    fn assign(&self, image: &PartitionImage, now_ms: i64) {
        self.assign_with(self.writer.lock(), image, now_ms);
    }

    fn assign_with(&self, log: MutexGuard<'_, PartitionLog>, image: &PartitionImage, now_ms: i64) {
        let mut wakeups = Wakeups::default();
        self.state.lock().step(&Event::Assigned(image.clone()), now_ms, &mut wakeups);
        drop(log);
        self.wake(wakeups);
    }

    /// What this broker is for the partition.
    pub fn role(&self) -> RoleKind {
        self.state.lock().replica.role()
    }

    /// The ISR as the controller has it, if this broker leads.
    pub fn in_sync_replicas(&self) -> Option<Vec<BrokerId>> {
        self.state.lock().replica.leader().map(|leader| leader.in_sync().iter().copied().collect())
    }

    /// Changes what replication obeys; the commit rule stays the log's.
    pub fn update_replication(&self, settings: Settings) {
        let mut wakeups = Wakeups::default();
        let mut state = self.state.lock();
        let settings = Settings { rule: state.replica.settings().rule, ..settings };
        state.step(&Event::Configured(settings), 0, &mut wakeups);
        drop(state);
        self.wake(wakeups);
    }

    /// Leader: looks for followers that lag. To be called a few times within `replica.lag.time.max.ms`.
    pub fn check_followers(&self, now_ms: i64) {
        self.leader_event(&Event::CheckFollowers, now_ms);
    }

    /// Leader: what the controller is to be asked. Each proposal is given once, and wants [`Self::isr_answered`].
    pub fn take_isr_proposal(&self) -> Option<IsrProposal> {
        self.state.lock().proposal.take()
    }

    /// Leader: what the controller answered.
    pub fn isr_answered(&self, proposal: IsrProposal, answer: IsrAnswer, now_ms: i64) {
        self.leader_event(&Event::IsrAnswered { proposal, answer }, now_ms);
    }

    fn leader_event(&self, event: &Event, now_ms: i64) {
        let mut wakeups = Wakeups::default();
        self.state.lock().step(event, now_ms, &mut wakeups);
        self.wake(wakeups);
    }

    /// Leader: finds what answers a follower's fetch, and learns from it how far the follower is.
    pub fn read_for_replica(&self, fetch: &ReplicaFetch, now_ms: i64) -> Result<ReplicaRead, ReadError> {
        let current = Some(fetch.current_leader_epoch);
        if let Some(last) = fetch.last_fetched_epoch {
            match self.end_offset_for_epoch(last, current)? {
                Some((epoch, end)) if epoch < last || end < fetch.offset => {
                    return Ok(ReplicaRead::Diverging(EpochEnd { epoch, end }));
                }
                Some(_) => {}
                None => return Err(self.out_of_range(fetch.offset)),
            }
        }
        let spec = FetchSpec {
            offset: fetch.offset,
            max_bytes: fetch.max_bytes,
            min_one_batch: fetch.min_one_batch,
            isolation: Isolation::LogEnd,
            current_leader_epoch: current,
        };
        let mut result = self.read(&spec)?;
        let ReplicaFetch { follower, broker_epoch, offset, .. } = *fetch;
        let mut wakeups = Wakeups::default();
        let mut state = self.state.lock();
        // Led on in another epoch meanwhile: what the follower has may not be what this log has.
        if state.replica.epoch() == fetch.current_leader_epoch {
            let starts_with_leader = fetch.log_start >= result.log_start_offset;
            let event = Event::FollowerFetched { follower, broker_epoch, offset, starts_with_leader };
            state.step(&event, now_ms, &mut wakeups);
            result.high_watermark = state.replica.high_watermark();
        }
        drop(state);
        self.wake(wakeups);
        Ok(ReplicaRead::Records(result))
    }

    /// Leader: a follower that has everything a consumer at `offset` may read next, the one that is furthest among those that are `near`.
    pub fn follower_for(&self, offset: Offset, near: impl Fn(BrokerId) -> bool) -> Option<BrokerId> {
        let state = self.state.lock();
        let leader = state.replica.leader()?;
        let in_sync = leader.followers().iter().filter(|(id, _)| leader.in_sync().contains(id) && near(**id));
        let has_it =
            in_sync.filter_map(|(id, progress)| Some((progress.log_end?, *id))).filter(|(end, _)| *end >= offset);
        has_it.max_by_key(|(end, _)| *end).map(|(_, id)| id)
    }

    fn out_of_range(&self, offset: Offset) -> ReadError {
        let offsets = self.reader.load().offsets();
        ReadError::OutOfRange { offset, log_start: offsets.start, log_end: offsets.end }
    }
}
