//! One partition that this broker leads.
//!
//! Three locks, never held the wrong way round: `writer` (the log; held during appends and upkeep, so possibly as long as a disk takes),
//! then `state` (high watermark and epoch; never during I/O), then the reader's own view. Readers take only the last two. A flush waits for
//! the disk with no lock held. Waiters are told after the locks are released.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use forebay_broker_machines::replication::{CommitRule, Leader};
use forebay_broker_storage::{
    AppendRequest, Appended, CompactionError, CompactionReport, FlushError, LogConfig, LogDir, LogError, LogName,
    LogReader, MaintenanceReport, OpenLogError, PartitionLog, RecoveryReport,
};
use forebay_broker_wire::types::{LeaderEpoch, Offset, Uuid};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    unacknowledged::Unacknowledged,
    waiters::{FetchWaiter, Waiters, WatchGuard},
};

/// What a partition is opened with.
#[derive(Debug, Clone)]
pub struct OpenPartition {
    /// Topic and index.
    pub name: LogName,
    /// The topic's id; a directory of an older topic of that name is refused.
    pub topic_id: Option<Uuid>,
    /// The epoch in which this broker leads.
    pub leader_epoch: LeaderEpoch,
    /// The log's settings.
    pub config: LogConfig,
}

/// The partition is closed on this broker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("partition {name} is closed on this broker")]
pub struct Closed {
    /// Topic and index.
    pub name: LogName,
}

/// Why a request was not appended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The partition is closed.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The log did not take it.
    #[error(transparent)]
    Log(#[from] forebay_broker_storage::AppendError),
}

/// Why a change of the partition failed.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    /// The partition is closed.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The log failed or refused.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// A partition's offsets at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionOffsets {
    /// First offset.
    pub log_start: Offset,
    /// All records below are safe.
    pub high_watermark: Offset,
    /// No open transaction below.
    pub last_stable: Offset,
    /// Next offset.
    pub log_end: Offset,
}

/// One partition.
#[derive(Debug)]
pub struct Partition {
    name: LogName,
    writer: Mutex<PartitionLog>,
    pub(crate) state: Mutex<State>,
    pub(crate) reader: LogReader,
    waiters: Arc<Waiters>,
    /// Held during a compaction; closing waits for it to stop.
    compaction: Mutex<()>,
    stopping: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) leader: Leader,
    unacknowledged: Unacknowledged,
    closed: bool,
}

impl State {
    /// Without transactions nothing below the high watermark is undecided.
    pub(crate) fn last_stable_offset(&self) -> Offset {
        self.leader.high_watermark()
    }

    pub(crate) fn check_open(&self, name: &LogName) -> Result<(), Closed> {
        if self.closed { Err(Closed { name: name.clone() }) } else { Ok(()) }
    }
}

fn rule(config: &LogConfig) -> CommitRule {
    if config.flush_messages == 1 { CommitRule::Flushed } else { CommitRule::Written }
}

impl Partition {
    /// Loads the partition's log, or starts an empty one, and leads it.
    pub fn open(log_dir: &Arc<LogDir>, open: OpenPartition) -> Result<(Self, RecoveryReport), OpenLogError> {
        let OpenPartition { name, topic_id, leader_epoch, config } = open;
        let rule = rule(&config);
        let (log, report) = PartitionLog::open(log_dir, &name, topic_id, config)?;
        // The only replica: all that recovery kept is flushed, and nobody else could know better.
        let leader = Leader::new(leader_epoch, rule, log.log_end(), log.log_end());
        let partition = Self {
            name,
            reader: log.reader(),
            writer: Mutex::new(log),
            state: Mutex::new(State { leader, unacknowledged: Unacknowledged::default(), closed: false }),
            waiters: Arc::default(),
            compaction: Mutex::new(()),
            stopping: AtomicBool::new(false),
        };
        Ok((partition, report))
    }

    /// Topic and index.
    pub fn name(&self) -> &LogName {
        &self.name
    }

    /// The directory its log lies in, with others.
    pub fn log_dir(&self) -> &Arc<LogDir> {
        self.reader.log_dir()
    }

    /// The epoch in which this broker leads it.
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.state.lock().leader.epoch()
    }

    /// Leads on in a newer epoch.
    pub fn set_leader_epoch(&self, epoch: LeaderEpoch) {
        self.state.lock().leader.set_epoch(epoch);
    }

    /// Bytes of its segments.
    pub fn size_bytes(&self) -> u64 {
        self.reader.size_bytes()
    }

    /// Its offsets now.
    pub fn offsets(&self) -> PartitionOffsets {
        // In this order, so that the high watermark is never above the end.
        let (high_watermark, last_stable) = {
            let state = self.state.lock();
            (state.leader.high_watermark(), state.last_stable_offset())
        };
        let log = self.reader.offsets();
        PartitionOffsets { log_start: log.start, high_watermark, last_stable, log_end: log.end }
    }

    /// Appends many requests in one write; each is answered on its own, in order. An answer that says `flush_required` must not be
    /// acknowledged before [`Self::flush`].
    pub fn append(&self, requests: &[AppendRequest], now_ms: i64) -> Vec<Result<Appended, AppendError>> {
        let mut log = self.writer.lock();
        let open = self.state.lock().check_open(&self.name);
        if let Err(closed) = open {
            return requests.iter().map(|_| Err(closed.clone().into())).collect();
        }
        let results = log.append(requests, self.leader_epoch(), now_ms);
        let bytes = results.iter().flatten().map(|appended| appended.bytes).sum();
        let (log_end, flushed) = (log.log_end(), log.flushed_to());
        let advanced = self.change(|state| {
            state.unacknowledged.push(log_end, bytes);
            state.leader.flushed(flushed).max(state.leader.written(log_end))
        });
        drop(log);
        self.tell(advanced);
        results.into_iter().map(|result| result.map_err(AppendError::Log)).collect()
    }

    /// Waits until all that was appended so far is on disk. Gives the offset below which everything is.
    pub fn flush(&self) -> Result<Offset, FlushError> {
        let pending = self.writer.lock().begin_flush();
        let Some(pending) = pending else { return self.writer.lock().flush() };
        let done = pending.run()?;
        let flushed = self.writer.lock().end_flush(&done);
        self.tell(self.change(|state| state.leader.flushed(flushed)));
        if done.moves_recovery_point() {
            self.log_dir().write_checkpoints().inspect_err(|error| drop(self.log_dir().poison(error)))?;
        }
        Ok(flushed)
    }

    /// True when something is not flushed.
    pub fn needs_flush(&self) -> bool {
        let log = self.writer.lock();
        log.flushed_to() < log.log_end()
    }

    /// Changes the state; gives the bytes that came below the high watermark, to [`Self::tell`] when no lock is held.
    fn change(&self, change: impl FnOnce(&mut State) -> Option<Offset>) -> Option<u64> {
        let mut state = self.state.lock();
        change(&mut state).map(|high_watermark| state.unacknowledged.take_below(high_watermark))
    }

    fn tell(&self, advanced: Option<u64>) {
        if let Some(bytes) = advanced {
            self.waiters.advanced(bytes);
        }
    }

    /// Registers a waiter until the guard is dropped. Register first, read next, then wait: nothing is missed.
    pub fn watch(&self, waiter: Arc<dyn FetchWaiter>) -> WatchGuard {
        self.waiters.watch(waiter)
    }

    /// Makes `offset` (or the high watermark) the first that may be read, durably. Gives the new start.
    pub fn delete_records(&self, before: Option<Offset>, now_ms: i64) -> Result<Offset, UpdateError> {
        let mut log = self.writer.lock();
        let high_watermark = {
            let state = self.state.lock();
            state.check_open(&self.name)?;
            state.leader.high_watermark()
        };
        let offset = before.unwrap_or(high_watermark);
        if offset > high_watermark {
            let (name, log_start) = (self.name.clone(), log.log_start());
            return Err(LogError::OutOfRange { name, offset, log_start, end: high_watermark }.into());
        }
        Ok(log.delete_records_before(offset, now_ms)?)
    }

    /// Puts changed settings into force.
    pub fn update_config(&self, config: LogConfig) {
        let rule = rule(&config);
        self.writer.lock().set_config(config);
        self.tell(self.change(|state| state.leader.set_rule(rule)));
    }

    /// The settings in force.
    pub fn config(&self) -> LogConfig {
        self.writer.lock().config().clone()
    }

    /// Regular upkeep: roll by age, retention below the high watermark, producers' expiry, removal of old files, recovery point.
    pub fn maintain(&self, now_ms: i64) -> Result<MaintenanceReport, UpdateError> {
        let mut log = self.writer.lock();
        let high_watermark = {
            let state = self.state.lock();
            state.check_open(&self.name)?;
            state.leader.high_watermark()
        };
        let report = log.maintain(high_watermark, now_ms)?;
        let flushed = log.flushed_to();
        drop(log);
        self.tell(self.change(|state| state.leader.flushed(flushed)));
        Ok(report)
    }

    /// Compacts the closed segments below the high watermark if that is wanted and worth it. It may take long, while appends, reads and
    /// flushes go on; closing the partition ends it.
    pub fn compact(&self, now_ms: i64) -> Result<Option<CompactionReport>, CompactionError> {
        let _one_at_a_time = self.compaction.lock();
        let high_watermark = {
            let state = self.state.lock();
            if state.closed {
                return Ok(None);
            }
            state.leader.high_watermark()
        };
        let Some(compaction) = self.writer.lock().begin_compaction(high_watermark, now_ms) else { return Ok(None) };
        let compacted = compaction.run(&self.stopping)?;
        Ok(Some(self.writer.lock().end_compaction(compacted, now_ms)?))
    }

    /// Takes no more appends and reads, wakes all waiters and makes everything durable, so that the next start need not read the log.
    pub fn close(&self) -> Result<(), UpdateError> {
        let _stopped = self.stop_compaction();
        let mut log = self.writer.lock();
        self.stop();
        Ok(log.close_clean()?)
    }

    /// Takes no more appends and reads, wakes all waiters and removes the log (its files after `file.delete.delay.ms`).
    /// Durable after [`LogDir::commit_deletions`].
    pub fn delete(&self, now_ms: i64) -> Result<(), UpdateError> {
        let _stopped = self.stop_compaction();
        let log = self.writer.lock();
        self.stop();
        Ok(log.delete(now_ms).map_err(LogError::from)?)
    }

    fn stop_compaction(&self) -> MutexGuard<'_, ()> {
        self.stopping.store(true, Relaxed);
        self.compaction.lock()
    }

    fn stop(&self) {
        self.state.lock().closed = true;
        self.waiters.closed();
    }
}
