//! One log directory: its lock, identity, checkpoints, free space and health, shared by all logs in it.
//!
//! What must hold: one process at a time (lock); the clean-shutdown marker is gone, durably, before any log is loaded, so that a crash while
//! loading is again unclean; after one failed write or flush the directory takes no more writes (poison), because what the page cache still
//! holds is no longer known; clients' appends stop before the disk is full (reserve), so that reads, retention and a restart still work.

use std::{
    collections::{BTreeSet, btree_map::Entry},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use forebay_broker_wire::types::Offset;
use parking_lot::Mutex;

use crate::{
    checkpoint::{self, CheckpointError, PartitionOffsets},
    disk::{Disk, DiskError, DiskFile, Space},
    identity::{Identity, IdentityError},
    names::{self, LogName},
    progress::Progress,
    repeats::Repeats,
};

const LOCK: &str = ".lock";
const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
const CLEAN_SHUTDOWN_CONTENT: &[u8] = br#"{"version":0,"brokerEpoch":-1}"#;
pub(crate) const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
const CLEANER_OFFSETS: &str = "cleaner-offset-checkpoint";
pub(crate) const LOG_STARTS: &str = "log-start-offset-checkpoint";
/// Free space is asked for again after so many appended bytes.
const SPACE_CHECK_BYTES: u64 = 16 << 20;
/// There is room again when the reserve and this part of it more are free.
const AMPLE_SHARE: u64 = 4;

/// Why a log directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenLogDirError {
    /// The file system failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Another process uses it.
    #[error("log directory {dir} is locked by another process: stop that one or give this broker another directory")]
    Locked {
        /// The directory.
        dir: String,
    },
    /// It is somebody else's.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The log start offsets cannot be read, so that deleted records would come back.
    #[error("{0}; remove the file to accept that deleted records may be seen again")]
    Checkpoint(#[from] CheckpointError),
}

/// The directory takes no more writes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("log directory {dir} takes no more writes since it failed: {reason}")]
pub struct Poisoned {
    /// The directory.
    pub dir: String,
    /// The first failure.
    pub reason: String,
}

/// The directory is too full for appends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "log directory {dir} has {free_bytes} bytes free, at least {reserve_bytes} must stay free: delete data or grow the disk"
)]
pub struct DiskFull {
    /// The directory.
    pub dir: String,
    /// Free bytes.
    pub free_bytes: u64,
    /// The reserve.
    pub reserve_bytes: u64,
}

/// What room there is, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Room {
    /// A write found none.
    None,
    /// Less than the reserve: clients' appends are refused.
    Reserve,
    /// Enough.
    Ample,
}

/// One log directory.
#[derive(Debug)]
pub struct LogDir {
    path: PathBuf,
    disk: Disk,
    identity: Identity,
    was_clean: bool,
    poison: Mutex<Option<String>>,
    recovery_points: Mutex<PartitionOffsets>,
    writing_recovery_points: Mutex<()>,
    log_starts: Mutex<PartitionOffsets>,
    /// Up to where each log is compacted.
    clean_to: Mutex<PartitionOffsets>,
    /// Logs that the checkpoints named at the start but that were not there.
    missing: Mutex<Vec<LogName>>,
    /// Logs that were refused, or lack records that no crash can have taken.
    inconsistent: Mutex<BTreeSet<LogName>>,
    /// Deleted logs' directories and when to remove them, in milliseconds.
    deleted: Mutex<Vec<(PathBuf, i64)>>,
    deletions_pending: AtomicBool,
    /// There are logs that the checkpoint does not name.
    pub(crate) has_new_logs: AtomicBool,
    reserve_bytes: AtomicU64,
    /// Clients' appends are refused, or were a moment ago.
    is_low: AtomicBool,
    /// A write found no room at all, and there is hardly more by now.
    is_exhausted: AtomicBool,
    failures_told: Repeats,
    free_bytes: AtomicU64,
    bytes_since_space_check: AtomicU64,
    recovered_bytes: AtomicU64,
    progress: Progress,
    _lock: DiskFile,
}

impl LogDir {
    /// Takes the directory, creating it when needed. `wanted` says who is asking; its directory id is used only for a new directory.
    pub fn open(disk: Disk, path: &Path, wanted: &Identity, reserve_bytes: u64) -> Result<Arc<Self>, OpenLogDirError> {
        disk.create_dir(path)?;
        let locked = || OpenLogDirError::Locked { dir: path.display().to_string() };
        let lock = disk.lock(&path.join(LOCK))?.ok_or_else(locked)?;
        let entries = disk.list(path)?;
        let holds_partitions = entries.iter().any(|entry| entry.is_dir && LogName::parse(&entry.name).is_some());
        let identity = Identity::claim(&disk, path, wanted, holds_partitions)?;
        let was_clean = disk.exists(&path.join(CLEAN_SHUTDOWN));
        if was_clean {
            disk.remove_file(&path.join(CLEAN_SHUTDOWN))?;
            disk.sync_dir(path)?;
        }
        // A copy that is not done says nothing: what it was made of is there.
        let goes = |name: &str| names::is_deleted(name) || names::is_future(name);
        for entry in entries.iter().filter(|entry| entry.is_dir && goes(&entry.name)) {
            disk.remove_dir_all(&path.join(&entry.name))?;
        }
        let recovery_points = read_or_begin_anew(&disk, &path.join(RECOVERY_POINTS));
        let clean_to = read_or_begin_anew(&disk, &path.join(CLEANER_OFFSETS));
        let log_starts = checkpoint::read_partition_offsets(&disk, &path.join(LOG_STARTS))?;
        let log_dir = Self {
            path: path.to_owned(),
            identity,
            was_clean,
            poison: Mutex::new(None),
            recovery_points: Mutex::new(recovery_points),
            writing_recovery_points: Mutex::new(()),
            log_starts: Mutex::new(log_starts),
            clean_to: Mutex::new(clean_to),
            missing: Mutex::default(),
            inconsistent: Mutex::new(BTreeSet::new()),
            deleted: Mutex::new(Vec::new()),
            deletions_pending: AtomicBool::new(false),
            has_new_logs: AtomicBool::new(false),
            reserve_bytes: AtomicU64::new(reserve_bytes),
            is_low: AtomicBool::new(false),
            is_exhausted: AtomicBool::new(false),
            failures_told: Repeats::default(),
            free_bytes: AtomicU64::new(u64::MAX),
            bytes_since_space_check: AtomicU64::new(0),
            recovered_bytes: AtomicU64::new(0),
            progress: Progress::default(),
            _lock: lock,
            disk,
        };
        log_dir.refresh_space()?;
        *log_dir.missing.lock() = log_dir.forget_missing()?;
        Ok(Arc::new(log_dir))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The disk under it.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// What is being written just now. Whoever writes or flushes for others notes it here.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Whose it is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// True when the last process that had it closed all its logs.
    pub fn was_clean(&self) -> bool {
        self.was_clean
    }

    /// The logs in it.
    pub fn logs(&self) -> Result<Vec<LogName>, DiskError> {
        let entries = self.disk.list(&self.path)?;
        Ok(entries.iter().filter(|entry| entry.is_dir).filter_map(|entry| LogName::parse(&entry.name)).collect())
    }

    /// Logs that its checkpoints named when it was opened but that were not there: deleted just before a crash, or lost.
    pub fn missing_logs(&self) -> Vec<LogName> {
        self.missing.lock().clone()
    }

    /// Some of them are in another directory: they were moved there just before a crash.
    pub fn found_elsewhere(&self, is_there: impl Fn(&LogName) -> bool) {
        self.missing.lock().retain(|log| !is_there(log));
    }

    /// Logs that were refused when they were loaded, or lack records that no crash can have taken.
    pub fn inconsistent_logs(&self) -> Vec<LogName> {
        self.inconsistent.lock().iter().cloned().collect()
    }

    pub(crate) fn note_inconsistent(&self, name: &LogName, inconsistent: bool) {
        let mut logs = self.inconsistent.lock();
        if inconsistent {
            logs.insert(name.clone());
        } else {
            logs.remove(name);
        }
    }

    /// Bytes read and checked while loading logs, so far: progress for people who wait.
    pub fn recovered_bytes(&self) -> u64 {
        self.recovered_bytes.load(Relaxed)
    }

    pub(crate) fn add_recovered_bytes(&self, bytes: u64) {
        self.recovered_bytes.fetch_add(bytes, Relaxed);
    }

    /// Why it takes no more writes, if it does not.
    pub fn poisoned(&self) -> Option<Poisoned> {
        let reason = self.poison.lock().clone()?;
        Some(Poisoned { dir: self.path.display().to_string(), reason })
    }

    /// Stops all writes for good. The first reason stays.
    pub fn poison(&self, reason: &dyn std::fmt::Display) -> Poisoned {
        let mut poison = self.poison.lock();
        let reason = poison.get_or_insert_with(|| {
            tracing::error!(dir = %self.path.display(), %reason, "log directory takes no more writes");
            reason.to_string()
        });
        Poisoned { dir: self.path.display().to_string(), reason: reason.clone() }
    }

    pub(crate) fn check_writable(&self) -> Result<(), Poisoned> {
        self.poisoned().map_or(Ok(()), Err)
    }

    /// Asks the file system for the free space again; called from time to time, since others use the disk too.
    pub fn refresh_space(&self) -> Result<Space, DiskError> {
        let space = self.disk.space(&self.path)?;
        let (free_bytes, reserve_bytes) = (space.free_bytes, self.reserve_bytes.load(Relaxed));
        self.free_bytes.store(free_bytes, Relaxed);
        self.bytes_since_space_check.store(0, Relaxed);
        // Amply, so that it is not told by turns with the opposite.
        let more = SPACE_CHECK_BYTES.max(reserve_bytes / AMPLE_SHARE);
        if free_bytes < reserve_bytes {
            self.note_low(free_bytes);
        } else if free_bytes >= reserve_bytes.saturating_add(more) && self.is_low.swap(false, Relaxed) {
            tracing::info!(dir = %self.path.display(), free_bytes, "there is room again: clients' appends are taken");
        }
        if free_bytes >= SPACE_CHECK_BYTES {
            self.is_exhausted.store(false, Relaxed);
        }
        Ok(space)
    }

    fn note_low(&self, free_bytes: u64) {
        if !self.is_low.swap(true, Relaxed) {
            let (dir, reserve_bytes) = (self.path.display(), self.reserve_bytes.load(Relaxed));
            tracing::warn!(%dir, free_bytes, reserve_bytes, "the disk is nearly full: clients' appends are refused");
        }
    }

    /// What room there is, as far as appends and [`Self::refresh_space`] know; asks nobody.
    pub fn room(&self) -> Room {
        match (self.is_exhausted.load(Relaxed), self.is_low.load(Relaxed)) {
            (true, _) => Room::None,
            (false, true) => Room::Reserve,
            (false, false) => Room::Ample,
        }
    }

    /// Sets how much must stay free.
    pub fn set_reserve_bytes(&self, reserve_bytes: u64) {
        self.reserve_bytes.store(reserve_bytes, Relaxed);
    }

    /// Whether new logs have room: not when the disk is nearly full. Asks the file system, since others may have filled it meanwhile.
    pub fn check_room(&self) -> Result<(), DiskFull> {
        self.check_space_now(0)
    }

    /// Refuses `bytes` more when they would eat into the reserve. Near the reserve it asks the file system each time.
    pub(crate) fn check_space(&self, bytes: u64) -> Result<(), DiskFull> {
        let reserve_bytes = self.reserve_bytes.load(Relaxed);
        let appended = self.bytes_since_space_check.fetch_add(bytes, Relaxed) + bytes;
        let expected_free = self.free_bytes.load(Relaxed).saturating_sub(appended);
        if appended < SPACE_CHECK_BYTES && expected_free >= reserve_bytes.saturating_add(SPACE_CHECK_BYTES) {
            return Ok(());
        }
        self.check_space_now(bytes)
    }

    fn check_space_now(&self, bytes: u64) -> Result<(), DiskFull> {
        // A file system that cannot be asked will say so at the write itself.
        let Ok(Space { free_bytes, .. }) = self.refresh_space() else { return Ok(()) };
        let reserve_bytes = self.reserve_bytes.load(Relaxed);
        if free_bytes.saturating_sub(bytes) >= reserve_bytes {
            return Ok(());
        }
        self.note_low(free_bytes);
        Err(DiskFull { dir: self.path.display().to_string(), free_bytes, reserve_bytes })
    }

    /// The error for appends after an operation that found no room.
    pub(crate) fn full(&self, error: &DiskError) -> DiskFull {
        let free_bytes = self.refresh_space().map_or(0, |space| space.free_bytes);
        self.is_exhausted.store(true, Relaxed);
        if let Some(times) = self.failures_told.happened(Instant::now()) {
            tracing::warn!(%error, free_bytes, times, "no room for appends");
        }
        DiskFull { dir: self.path.display().to_string(), free_bytes, reserve_bytes: self.reserve_bytes.load(Relaxed) }
    }

    pub(crate) fn recovery_point(&self, name: &LogName) -> Offset {
        self.recovery_points.lock().get(&name.key()).copied().unwrap_or(Offset(0))
    }

    /// Whether there is such a log, as far as is noted.
    pub(crate) fn knows(&self, name: &LogName) -> bool {
        self.recovery_points.lock().contains_key(&name.key())
    }

    /// Notes that there is such a log, so that it is missed when its directory is gone.
    pub(crate) fn note_log(&self, name: &LogName) {
        if let Entry::Vacant(new) = self.recovery_points.lock().entry(name.key()) {
            new.insert(Offset(0));
            self.has_new_logs.store(true, Relaxed);
        }
    }

    /// Notes a recovery point; [`Self::write_checkpoints`] makes it durable.
    pub(crate) fn set_recovery_point(&self, name: &LogName, offset: Offset) {
        self.recovery_points.lock().insert(name.key(), offset);
    }

    pub(crate) fn log_start(&self, name: &LogName) -> Option<Offset> {
        self.log_starts.lock().get(&name.key()).copied()
    }

    /// Sets a log start offset, durably.
    pub(crate) fn set_log_start(&self, name: &LogName, offset: Offset) -> Result<(), DiskError> {
        let mut log_starts = self.log_starts.lock();
        let mut changed = log_starts.clone();
        changed.insert(name.key(), offset);
        checkpoint::write_partition_offsets(&self.disk, &self.path.join(LOG_STARTS), &changed)?;
        *log_starts = changed;
        Ok(())
    }

    pub(crate) fn clean_to(&self, name: &LogName) -> Option<Offset> {
        self.clean_to.lock().get(&name.key()).copied()
    }

    /// Notes up to where a log is compacted.
    pub(crate) fn set_clean_to(&self, name: &LogName, offset: Offset) -> Result<(), DiskError> {
        let mut clean_to = self.clean_to.lock();
        clean_to.insert(name.key(), offset);
        checkpoint::write_partition_offsets(&self.disk, &self.path.join(CLEANER_OFFSETS), &clean_to)
    }

    /// Makes the recovery points durable; called from time to time: what is lost costs only recovery time.
    pub fn write_checkpoints(&self) -> Result<(), DiskError> {
        let _one_at_a_time = self.writing_recovery_points.lock();
        // Copied, so that nobody who sets one waits for the disk.
        let recovery_points = self.recovery_points.lock().clone();
        checkpoint::write_partition_offsets(&self.disk, &self.path.join(RECOVERY_POINTS), &recovery_points)?;
        let log_starts = self.log_starts.lock();
        // There early, so that records can be deleted when the disk is full.
        if self.disk.exists(&self.path.join(LOG_STARTS)) {
            return Ok(());
        }
        checkpoint::write_partition_offsets(&self.disk, &self.path.join(LOG_STARTS), &log_starts)
    }

    /// Takes a log that is not open out of service: its directory is renamed at once and removed at `remove_at_ms` (see
    /// [`Self::remove_deleted`]). A crash may undo it until [`Self::commit_deletions`], which serves any number of logs.
    pub fn delete_log(&self, name: &LogName, now_ms: i64, remove_at_ms: i64) -> Result<(), DiskError> {
        let mut free = (now_ms..).map(|unique| self.path.join(names::deleted_dir(name, unique)));
        let to = free.find(|path| !self.disk.exists(path)).unwrap_or_default();
        self.take_away(name, &to)?;
        self.deleted.lock().push((to, remove_at_ms));
        Ok(())
    }

    /// As [`Self::delete_log`], but its directory stays under another name, of which there is one. False if that is taken.
    pub fn set_aside(&self, name: &LogName, suffix: &str) -> Result<bool, DiskError> {
        let to = self.path.join(format!("{name}.{suffix}"));
        let free = !self.disk.exists(&to);
        if free {
            self.take_away(name, &to)?;
        }
        Ok(free)
    }

    fn take_away(&self, name: &LogName, to: &Path) -> Result<(), DiskError> {
        self.disk.rename(&self.path.join(name.to_string()), to)?;
        self.log_starts.lock().remove(&name.key());
        self.recovery_points.lock().remove(&name.key());
        self.clean_to.lock().remove(&name.key());
        self.note_inconsistent(name, false);
        self.deletions_pending.store(true, Relaxed);
        Ok(())
    }

    /// Makes deletions durable, with what the checkpoints said of those logs: a new log of the same name must not inherit it.
    pub fn commit_deletions(&self) -> Result<(), DiskError> {
        if !self.deletions_pending.swap(false, Relaxed) {
            return Ok(());
        }
        let committed = self.disk.sync_dir(&self.path).and_then(|()| self.write_all_checkpoints());
        self.deletions_pending.fetch_or(committed.is_err(), Relaxed);
        committed
    }

    fn write_all_checkpoints(&self) -> Result<(), DiskError> {
        self.write_checkpoints()?;
        let log_starts = self.log_starts.lock();
        checkpoint::write_partition_offsets(&self.disk, &self.path.join(LOG_STARTS), &log_starts)?;
        drop(log_starts);
        let clean_to = self.clean_to.lock();
        checkpoint::write_partition_offsets(&self.disk, &self.path.join(CLEANER_OFFSETS), &clean_to)
    }

    /// Forgets what the checkpoints say of logs that are not there, and gives their names. Mostly a crash came between their deletion and its
    /// commit.
    fn forget_missing(&self) -> Result<Vec<LogName>, DiskError> {
        let there: BTreeSet<_> = self.logs()?.iter().map(LogName::key).collect();
        let mut missing = BTreeSet::new();
        for offsets in [&self.recovery_points, &self.log_starts, &self.clean_to] {
            let mut offsets = offsets.lock();
            missing.extend(offsets.extract_if(.., |log, _| !there.contains(log)).map(|(log, _)| log));
        }
        // On a full disk it fails, which must not keep it from starting; nothing can be created there in the meantime.
        self.deletions_pending.store(!missing.is_empty(), Relaxed);
        if let Err(error) = self.commit_deletions() {
            tracing::warn!(%error, "checkpoints still name deleted logs");
        }
        Ok(missing.into_iter().map(|(topic, partition)| LogName { topic, partition }).collect())
    }

    /// Removes the directories of deleted logs whose time has come. Gives how many.
    pub fn remove_deleted(&self, now_ms: i64) -> Result<usize, DiskError> {
        let mut deleted = self.deleted.lock();
        let due: Vec<_> = deleted.extract_if(.., |(_, at)| *at <= now_ms).collect();
        drop(deleted);
        due.iter().try_for_each(|(path, _)| self.disk.remove_dir_all(path))?;
        Ok(due.len())
    }

    /// Says that all logs are closed: the next start need not distrust them. A poisoned directory never says so.
    pub fn close_clean(&self) -> Result<(), DiskError> {
        if self.poisoned().is_some() {
            return Ok(());
        }
        self.write_checkpoints()?;
        self.disk.replace(&self.path.join(CLEAN_SHUTDOWN), CLEAN_SHUTDOWN_CONTENT)
    }
}

/// Reads offsets whose loss costs only work: without a recovery point everything is checked, without a cleaner's offset everything compacted.
fn read_or_begin_anew(disk: &Disk, path: &Path) -> PartitionOffsets {
    checkpoint::read_partition_offsets(disk, path).unwrap_or_else(|error| {
        tracing::warn!(%error, "the checkpoint cannot be read and begins anew");
        PartitionOffsets::new()
    })
}
