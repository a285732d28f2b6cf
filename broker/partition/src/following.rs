//! What a follower does to its log: append what the leader sends, cut what the leader does not have, begin anew behind what it has deleted.
//!
//! Each answer of a leader is checked against the present role and log while the writer is held: a late one changes nothing.

use bytes::Bytes;
use forebay_broker_machines::replication::{EpochEnd, Event};
use forebay_broker_storage::{AppendError as LogAppendError, AppendRequest, LogError, Origin, PartitionLog};
use forebay_broker_wire::types::{BrokerId, LeaderEpoch, Offset};

use crate::{
    errors::Closed,
    partition::{Partition, State, Wakeups},
};

/// What a follower asks its leader for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchPosition {
    /// Whom.
    pub leader: BrokerId,
    /// In which epoch.
    pub leader_epoch: LeaderEpoch,
    /// From here on.
    pub offset: Offset,
    /// The epoch of the last record here; `None` when there is none.
    pub last_fetched_epoch: Option<LeaderEpoch>,
    /// First offset here.
    pub log_start: Offset,
}

/// A leader's answer to a fetch from a [`FetchPosition`].
#[derive(Debug, Clone)]
pub struct LeaderAnswer {
    /// What was asked.
    pub asked: FetchPosition,
    /// The records; the last batch may be cut off.
    pub records: Bytes,
    /// The leader's high watermark.
    pub high_watermark: Offset,
    /// The leader's first offset.
    pub log_start: Offset,
}

/// Why a follower's log did not change as its leader wanted.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The answer was meant for an earlier role or position.
    #[error(
        "answer to a fetch at offset {asked} in leader epoch {asked_epoch} came too late: the log ends at {log_end}, epoch {epoch}"
    )]
    Late {
        /// The position then.
        asked: Offset,
        /// The epoch then.
        asked_epoch: LeaderEpoch,
        /// The position now.
        log_end: Offset,
        /// The epoch now.
        epoch: LeaderEpoch,
    },
    /// The partition is closed.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The log did not take the records.
    #[error(transparent)]
    Append(#[from] LogAppendError),
    /// The log failed.
    #[error(transparent)]
    Log(#[from] LogError),
}

impl Partition {
    /// What to ask the leader for next; `None` while this broker leads, knows no leader, or must flush first.
    pub fn fetch_position(&self) -> Option<FetchPosition> {
        let log = self.writer.lock();
        let state = self.state.lock();
        state.check_open(&self.name).ok()?;
        let (leader, leader_epoch) = state.replica.may_fetch()?;
        let last_fetched_epoch = if state.replica.tells_last_epoch() { log.latest_epoch() } else { None };
        Some(FetchPosition {
            leader,
            leader_epoch,
            offset: log.log_end(),
            last_fetched_epoch,
            log_start: log.log_start(),
        })
    }

    /// Appends what the leader sent and learns how far records are safe. Gives whether [`Self::flush`] is due: with `flush.messages=1` the
    /// next fetch says that all is kept, so there is no position to fetch from before.
    pub fn append_from_leader(&self, answer: &LeaderAnswer, now_ms: i64) -> Result<bool, FollowError> {
        let mut log = self.writer.lock();
        self.check_asked(&log, &answer.asked)?;
        let mut wakeups = Wakeups::default();
        // The start first: what lies before it may not be the leader's, and must not count as safe.
        let followed = self.follow_log_start(&mut log, answer.log_start, now_ms);
        let followed = followed.and_then(|()| self.append_whole_batches(&mut log, answer, now_ms, &mut wakeups));
        if followed.is_ok() {
            let event = Event::LeaderAnswered { high_watermark: answer.high_watermark };
            self.state.lock().step(&event, now_ms, &mut wakeups);
        }
        drop(log);
        self.wake(wakeups);
        followed
    }

    /// As [`Self::append_from_leader`], for a thread that must not wait, neither for who writes now nor for the disk. `None` when it would
    /// have to, and then nothing has changed.
    pub fn append_from_leader_hot(&self, answer: &LeaderAnswer, now_ms: i64) -> Option<Result<bool, FollowError>> {
        let mut log = self.writer.try_lock()?;
        if let Err(error) = self.check_asked(&log, &answer.asked) {
            return Some(Err(error));
        }
        if answer.log_start.min(log.log_end()) > log.log_start() {
            return None;
        }
        let mut wakeups = Wakeups::default();
        let records = whole_batches(&answer.records);
        let mut flush_required = false;
        if !records.is_empty() {
            let request = [AppendRequest { records, origin: Origin::Leader }];
            match log.append_hot(&request, answer.asked.leader_epoch, now_ms).pop()? {
                Ok(appended) => {
                    self.note_written(&log, appended.bytes, now_ms, &mut wakeups);
                    flush_required = appended.flush_required;
                }
                Err(LogAppendError::NotNext { .. }) => return None,
                Err(error) => return Some(Err(error.into())),
            }
        }
        let event = Event::LeaderAnswered { high_watermark: answer.high_watermark };
        self.state.lock().step(&event, now_ms, &mut wakeups);
        drop(log);
        self.wake(wakeups);
        Some(Ok(flush_required))
    }

    /// Gives whether a flush is due.
    fn append_whole_batches(
        &self,
        log: &mut PartitionLog,
        answer: &LeaderAnswer,
        now_ms: i64,
        wakeups: &mut Wakeups,
    ) -> Result<bool, FollowError> {
        let records = whole_batches(&answer.records);
        if records.is_empty() {
            return Ok(false);
        }
        let request = [AppendRequest { records, origin: Origin::Leader }];
        let mut result = log.append(&request, answer.asked.leader_epoch, now_ms).remove(0);
        if let Err(LogAppendError::NotNext { found, end }) = result
            && found < end
            && log.log_start() == end
        {
            // Records are deleted to any offset, also inside a batch: an empty log that begins there takes the batch whole.
            let high_watermark = self.state.lock().replica.high_watermark();
            self.cut(log, |log| log.truncate_fully_and_start_at(found, now_ms))?;
            result = log.append(&request, answer.asked.leader_epoch, now_ms).remove(0);
            self.note_written(log, 0, now_ms, wakeups);
            self.follow_log_start(log, answer.log_start.max(end), now_ms)?;
            // What was deleted had been safe, and is again what it was.
            self.state.lock().step(&Event::LeaderAnswered { high_watermark }, now_ms, wakeups);
        }
        let appended = result?;
        self.note_written(log, appended.bytes, now_ms, wakeups);
        Ok(appended.flush_required)
    }

    /// The leader has deleted its oldest records; what is not safe yet stays.
    fn follow_log_start(&self, log: &mut PartitionLog, log_start: Offset, now_ms: i64) -> Result<(), FollowError> {
        let log_start = log_start.min(log.log_end());
        if log_start > log.log_start() {
            log.delete_records_before(log_start, now_ms)?;
        }
        Ok(())
    }

    /// Cuts the log where the leader says that the two part. Gives the new end.
    pub fn truncate_diverging(
        &self,
        asked: &FetchPosition,
        leader_end: EpochEnd,
        now_ms: i64,
    ) -> Result<Offset, FollowError> {
        let mut log = self.writer.lock();
        self.check_asked(&log, asked)?;
        let local_end = log.end_offset_for_epoch(leader_end.epoch).map(|(epoch, end)| EpochEnd { epoch, end });
        let event = Event::Diverged { leader_epoch: asked.leader_epoch, leader_end, local_end };
        let effects = self.state.lock().step(&event, now_ms, &mut Wakeups::default());
        match effects.truncate_to {
            Some(offset) => self.cut(&mut log, |log| log.truncate_to(offset, now_ms)),
            None => Ok(log.log_end()),
        }
    }

    /// The leader says that it does not have what was asked for. Behind the leader's oldest record the log begins anew there; beyond its
    /// newest it is cut. Gives the new end.
    pub fn out_of_leaders_range(
        &self,
        asked: &FetchPosition,
        (log_start, log_end): (Offset, Offset),
        now_ms: i64,
    ) -> Result<Offset, FollowError> {
        let mut log = self.writer.lock();
        self.check_asked(&log, asked)?;
        if asked.offset < log_start {
            self.cut(&mut log, |log| log.truncate_fully_and_start_at(log_start, now_ms))
        } else {
            self.cut(&mut log, |log| log.truncate_to(log_end, now_ms))
        }
    }

    fn cut(
        &self,
        log: &mut PartitionLog,
        cut: impl FnOnce(&mut PartitionLog) -> Result<Offset, LogError>,
    ) -> Result<Offset, FollowError> {
        let log_end = cut(log)?;
        let mut state = self.state.lock();
        state.unacknowledged.truncate(log_end);
        state.step(&Event::Truncated { log_end }, 0, &mut Wakeups::default());
        Ok(log_end)
    }

    fn check_asked(&self, log: &PartitionLog, asked: &FetchPosition) -> Result<(), FollowError> {
        let state = self.state.lock();
        state.check_open(&self.name)?;
        let same_last_epoch = !state.replica.tells_last_epoch() || asked.last_fetched_epoch == log.latest_epoch();
        let believed = state.replica.may_believe(asked.leader_epoch, asked.offset, same_last_epoch);
        if believed { Ok(()) } else { Err(late(&state, asked)) }
    }
}

fn late(state: &State, asked: &FetchPosition) -> FollowError {
    let (log_end, epoch) = (state.replica.log_end(), state.replica.epoch());
    FollowError::Late { asked: asked.offset, asked_epoch: asked.leader_epoch, log_end, epoch }
}

/// The batches that are there whole. A fetch may end inside one.
fn whole_batches(records: &Bytes) -> Bytes {
    const LENGTH_AT: usize = 8;
    const PREFIX_BYTES: usize = 12;
    let mut end = 0;
    while let Some(length) = records.get(end + LENGTH_AT..end + PREFIX_BYTES) {
        let length: [u8; 4] = length.try_into().unwrap_or_default();
        let Ok(length) = usize::try_from(i32::from_be_bytes(length)) else { break };
        match end.checked_add(PREFIX_BYTES + length) {
            Some(next) if next <= records.len() => end = next,
            _ => break,
        }
    }
    records.slice(..end)
}
