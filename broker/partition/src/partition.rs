//! One partition of which this broker has a replica: opening, appending as its leader, flushing, upkeep.
//!
//! Three locks, never held the wrong way round: `writer` (the log; held during appends and upkeep, so possibly as long as a disk takes),
//! then `state` (the replication machine; never during I/O), then the reader's own view. Readers take only the last two. A flush waits for
//! the disk with no lock held. Waiters are told after the locks are released.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use forebay_broker_machines::{
    metadata::PartitionImage,
    replication::{CommitRule, Effects, Event, IsrProposal, Replica, RoleKind, Settings},
};
use forebay_broker_storage::{
    AppendRequest, Appended, CompactionError, CompactionReport, FlushError, LogConfig, LogDir, LogError, LogName,
    LogReader, MaintenanceReport, OpenLogError, PartitionLog, RecoveryReport,
};
use forebay_broker_wire::types::{BrokerId, LeaderEpoch, Offset, PartitionIndex, Uuid};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    commits::CommitWaiters,
    errors::{AppendError, Closed, NotLeader, UpdateError},
    unacknowledged::Unacknowledged,
    waiters::{FetchWaiter, Waiters, WatchGuard},
};

type LogResult = Result<Appended, forebay_broker_storage::AppendError>;

/// So long after a leader has begun, batches that were sent to earlier leaders may still come in; whoever passes them on gives up earlier.
const SETTLES_MS: i64 = 3000;

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
    pub(crate) name: LogName,
    pub(crate) writer: Mutex<PartitionLog>,
    pub(crate) state: Mutex<State>,
    /// Of the log that `writer` has; another one's after a move to another directory.
    pub(crate) reader: ArcSwap<LogReader>,
    /// Those who wait for what consumers may see, and those who wait for any record.
    waiters: Arc<Waiters>,
    followers: Arc<Waiters>,
    /// Held during a compaction; closing waits for it to stop.
    pub(crate) compaction: Mutex<()>,
    stopping: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) replica: Replica,
    pub(crate) unacknowledged: Unacknowledged,
    pub(crate) commits: CommitWaiters,
    /// What the controller is to be asked, until somebody takes it.
    pub(crate) proposal: Option<IsrProposal>,
    pub(crate) closed: bool,
    /// When this broker began to lead what others may have led before.
    led_since_ms: Option<i64>,
}

/// What to do when no lock is held any more.
#[must_use]
#[derive(Debug, Default)]
pub(crate) struct Wakeups {
    /// So many bytes came below the high watermark.
    advanced: Option<u64>,
    /// So many bytes were appended.
    appended: u64,
    commits: Vec<crate::commits::Due>,
    leadership_changed: bool,
}

impl State {
    /// Without transactions nothing below the high watermark is undecided.
    pub(crate) fn last_stable_offset(&self) -> Offset {
        self.replica.high_watermark()
    }

    /// Lets the machine take in an event and notes what it wants done.
    pub(crate) fn step(&mut self, event: &Event, now_ms: i64, wakeups: &mut Wakeups) -> Effects {
        let effects = self.replica.step(event, now_ms);
        if effects.leadership_changed {
            self.proposal = None;
            wakeups.leadership_changed = true;
            self.led_since_ms = self.replica.leader().filter(|leader| !leader.followers().is_empty()).map(|_| now_ms);
            wakeups.commits.extend(self.commits.lost_leadership());
        }
        if let Some(high_watermark) = effects.high_watermark {
            *wakeups.advanced.get_or_insert_default() += self.unacknowledged.take_below(high_watermark);
            wakeups.commits.extend(self.commits.committed(high_watermark));
        }
        if effects.below_min_isr {
            wakeups.commits.extend(self.commits.below_min_isr());
        }
        if effects.proposal.is_some() {
            self.proposal.clone_from(&effects.proposal);
        }
        effects
    }

    /// Whether this broker leads so recently that batches may have overtaken each other. A clock that was set back settles it.
    fn is_settling(&self, now_ms: i64) -> bool {
        self.led_since_ms.is_some_and(|since| (0..SETTLES_MS).contains(&now_ms.saturating_sub(since)))
    }

    pub(crate) fn check_leader(&self, name: &LogName) -> Result<(), NotLeader> {
        match self.replica.role() {
            RoleKind::Leader => Ok(()),
            RoleKind::Follower => Err(NotLeader { name: name.clone(), epoch: self.replica.epoch() }),
        }
    }

    pub(crate) fn check_open(&self, name: &LogName) -> Result<(), Closed> {
        if self.closed { Err(Closed { name: name.clone() }) } else { Ok(()) }
    }
}

fn rule(config: &LogConfig) -> CommitRule {
    if config.flush_messages == 1 { CommitRule::Flushed } else { CommitRule::Written }
}

impl Partition {
    /// Loads the partition's log, or starts an empty one, and leads it as its only replica.
    pub fn open(log_dir: &Arc<LogDir>, open: OpenPartition) -> Result<(Self, RecoveryReport), OpenLogError> {
        let epoch = open.leader_epoch;
        let (partition, report) = Self::open_replica(log_dir, open, Settings::default())?;
        partition.set_leader_epoch(epoch);
        Ok((partition, report))
    }

    /// Loads the partition's log, or starts an empty one, as one replica of several. It follows nobody until it is assigned; the commit
    /// rule of `settings` is taken from the log's.
    pub fn open_replica(
        log_dir: &Arc<LogDir>,
        open: OpenPartition,
        settings: Settings,
    ) -> Result<(Self, RecoveryReport), OpenLogError> {
        let OpenPartition { name, topic_id, leader_epoch: _, config } = open;
        let settings = Settings { rule: rule(&config), ..settings };
        let (log, report) = PartitionLog::open(log_dir, &name, topic_id, config)?;
        // All that recovery kept is flushed. How much of it is safe the other replicas must tell.
        let replica = Replica::new(log_dir.identity().node_id, settings, log.log_start(), log.log_end());
        let mut unacknowledged = Unacknowledged::default();
        unacknowledged.push(log.log_end(), log.reader().size_bytes());
        let commits = CommitWaiters::default();
        let partition = Self {
            name,
            reader: ArcSwap::from_pointee(log.reader()),
            writer: Mutex::new(log),
            state: Mutex::new(State {
                replica,
                unacknowledged,
                commits,
                proposal: None,
                closed: false,
                led_since_ms: None,
            }),
            waiters: Arc::default(),
            followers: Arc::default(),
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
    pub fn log_dir(&self) -> Arc<LogDir> {
        Arc::clone(self.reader.load().log_dir())
    }

    /// The epoch in which it is led, as far as this broker knows.
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.state.lock().replica.epoch()
    }

    /// Leads in a newer epoch as the only replica; an older one changes nothing.
    pub fn set_leader_epoch(&self, epoch: LeaderEpoch) {
        let local = self.local();
        let alone = PartitionImage {
            index: PartitionIndex(self.name.partition),
            replicas: vec![local],
            in_sync_replicas: vec![local],
            leader: Some(local),
            leader_epoch: epoch,
            partition_epoch: epoch.0,
            ..PartitionImage::default()
        };
        self.become_leader(&alone, 0);
    }

    /// This broker.
    pub(crate) fn local(&self) -> BrokerId {
        self.log_dir().identity().node_id
    }

    /// Bytes of its segments.
    pub fn size_bytes(&self) -> u64 {
        self.reader.load().size_bytes()
    }

    /// Its offsets now.
    pub fn offsets(&self) -> PartitionOffsets {
        // In this order, so that the high watermark is never above the end.
        let (high_watermark, last_stable) = {
            let state = self.state.lock();
            (state.replica.high_watermark(), state.last_stable_offset())
        };
        let log = self.reader.load().offsets();
        PartitionOffsets { log_start: log.start, high_watermark, last_stable, log_end: log.end }
    }

    /// Appends many requests in one write; each is answered on its own, in order. An answer that says `flush_required` must not be
    /// acknowledged before [`Self::flush`], one for all in-sync replicas not before [`Self::when_committed`] says so.
    pub fn append(&self, requests: &[AppendRequest], now_ms: i64) -> Vec<Result<Appended, AppendError>> {
        self.append_with(self.writer.lock(), requests, now_ms, PartitionLog::append)
    }

    /// As [`Self::append`], for a thread that must not wait, neither for who writes now nor for the disk: it answers as many of the first
    /// requests as can be written at once, often all, sometimes none.
    pub fn append_hot(&self, requests: &[AppendRequest], now_ms: i64) -> Vec<Result<Appended, AppendError>> {
        match self.writer.try_lock() {
            Some(log) => self.append_with(log, requests, now_ms, PartitionLog::append_hot),
            None => Vec::new(),
        }
    }

    fn append_with(
        &self,
        mut log: MutexGuard<'_, PartitionLog>,
        requests: &[AppendRequest],
        now_ms: i64,
        append: impl FnOnce(&mut PartitionLog, &[AppendRequest], LeaderEpoch, i64) -> Vec<LogResult>,
    ) -> Vec<Result<Appended, AppendError>> {
        // The role does not change while the writer is held.
        let leads = {
            let state = self.state.lock();
            let leads = state.check_open(&self.name).map_err(AppendError::from);
            leads
                .and_then(|()| Ok(state.check_leader(&self.name)?))
                .map(|()| (state.replica.epoch(), state.is_settling(now_ms)))
        };
        let (epoch, settling) = match leads {
            Ok(leads) => leads,
            Err(error) => return requests.iter().map(|_| Err(error.clone())).collect(),
        };
        log.let_producers_begin_anywhere(!settling);
        let results = append(&mut log, requests, epoch, now_ms);
        let bytes = results.iter().flatten().map(|appended| appended.bytes).sum();
        let mut wakeups = Wakeups::default();
        self.note_written(&log, bytes, now_ms, &mut wakeups);
        drop(log);
        self.wake(wakeups);
        let refused = |error| AppendError::of_log(error, &self.name, settling);
        results.into_iter().map(|result| result.map_err(refused)).collect()
    }

    /// Tells the machine how far the log is written and flushed.
    pub(crate) fn note_written(&self, log: &PartitionLog, bytes: u64, now_ms: i64, wakeups: &mut Wakeups) {
        let (log_end, upto) = (log.log_end(), log.flushed_to());
        wakeups.appended += bytes;
        let mut state = self.state.lock();
        state.unacknowledged.push(log_end, bytes);
        state.step(&Event::Written { log_end }, now_ms, wakeups);
        state.step(&Event::Flushed { upto }, now_ms, wakeups);
    }

    /// Waits until all that was appended so far is on disk. Gives the offset below which everything is.
    pub fn flush(&self) -> Result<Offset, FlushError> {
        let pending = self.writer.lock().begin_flush();
        let Some(pending) = pending else { return self.writer.lock().flush() };
        let done = pending.run()?;
        let mut log = self.writer.lock();
        let upto = log.end_flush(&done);
        // Told before the log can be cut: an end that is flushed must still be there.
        let wakeups = self.tell(&Event::Flushed { upto });
        drop(log);
        self.wake(wakeups);
        if done.moves_recovery_point() {
            match self.log_dir().write_checkpoints() {
                // The records are safe; the file is written again from time to time.
                Err(error) if error.is_shortage() => {}
                result => result.inspect_err(|error| drop(self.log_dir().poison(error)))?,
            }
        }
        Ok(upto)
    }

    /// True when something is not flushed.
    pub fn needs_flush(&self) -> bool {
        let log = self.writer.lock();
        log.flushed_to() < log.log_end()
    }

    /// Tells the machine something that has nothing to do with time.
    pub(crate) fn tell(&self, event: &Event) -> Wakeups {
        let mut wakeups = Wakeups::default();
        self.state.lock().step(event, 0, &mut wakeups);
        wakeups
    }

    /// Tells whoever waits. No lock may be held.
    pub(crate) fn wake(&self, wakeups: Wakeups) {
        let Wakeups { advanced, appended, commits, leadership_changed } = wakeups;
        commits.into_iter().for_each(crate::commits::Due::tell);
        if let Some(bytes) = advanced {
            self.waiters.advanced(bytes);
        }
        if appended > 0 {
            self.followers.advanced(appended);
        }
        if leadership_changed {
            self.waiters.closed();
            self.followers.closed();
        }
    }

    /// Registers a waiter until the guard is dropped. Register first, read next, then wait: nothing is missed.
    pub fn watch(&self, waiter: Arc<dyn FetchWaiter>) -> WatchGuard {
        self.waiters.watch(waiter)
    }

    /// Registers a waiter for all that is appended, safe or not: a follower's fetch, which the high watermark waits for.
    pub fn watch_log_end(&self, waiter: Arc<dyn FetchWaiter>) -> WatchGuard {
        self.followers.watch(waiter)
    }

    /// Makes `offset` (or the high watermark) the first that may be read, durably. Gives the new start.
    pub fn delete_records(&self, before: Option<Offset>, now_ms: i64) -> Result<Offset, UpdateError> {
        let mut log = self.writer.lock();
        let high_watermark = {
            let state = self.state.lock();
            state.check_open(&self.name)?;
            state.check_leader(&self.name)?;
            state.replica.high_watermark()
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
        let log = self.writer.lock();
        self.update_config_with(log, config);
    }

    /// Puts changed settings into force, unless somebody writes for so long: false then, and nothing has changed.
    pub fn update_config_within(&self, config: LogConfig, time_max: Duration) -> bool {
        let Some(log) = self.writer.try_lock_for(time_max) else { return false };
        self.update_config_with(log, config);
        true
    }

    fn update_config_with(&self, mut log: MutexGuard<'_, PartitionLog>, config: LogConfig) {
        let rule = rule(&config);
        log.set_config(config);
        drop(log);
        let settings = Settings { rule, ..*self.state.lock().replica.settings() };
        let wakeups = self.tell(&Event::Configured(settings));
        self.wake(wakeups);
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
            state.replica.high_watermark()
        };
        let report = log.maintain(high_watermark, now_ms)?;
        let wakeups = self.tell(&Event::Flushed { upto: log.flushed_to() });
        drop(log);
        self.wake(wakeups);
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
            state.replica.high_watermark()
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
        let mut wakeups = Wakeups { leadership_changed: true, ..Wakeups::default() };
        let mut state = self.state.lock();
        state.closed = true;
        wakeups.commits.extend(state.commits.lost_leadership());
        drop(state);
        self.wake(wakeups);
    }
}
