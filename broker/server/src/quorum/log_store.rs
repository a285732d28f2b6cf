//! The quorum's log as openraft wants it: `__cluster_metadata-0` and the `quorum-state` file beside it.
//!
//! What must hold: an entry, a vote and a cut are on disk when openraft is told so; an entry's index is its offset; what is read back is
//! what was written, or an error. The disk blocks only threads that may be blocked. A write that finds no room waits for some: openraft
//! would take it for the end.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use forebay_broker_machines::metadata::CLUSTER_METADATA_TOPIC;
use forebay_broker_storage::{
    AppendError, AppendRequest, LogConfig, LogDir, LogError, LogName, LogReader, Origin, PartitionLog, ReadSpec, Work,
};
use forebay_broker_wire::records::{BatchError, batches};
use forebay_broker_wire::types::{LeaderEpoch, Offset, Uuid};
use openraft::storage::{IOFlushed, RaftLogReader, RaftLogStorage};
use openraft::{LogState, OptionalSend};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::ballast::Ballast;
use super::entry::{self, EntryError};
use super::quorum_state::{QuorumStateError, QuorumStateFile};
use super::types::{Entry, LogId, Types, Vote};
use crate::io::append::now_ms;

/// Bytes read at once.
const READ_BYTES: u32 = 1 << 20;
/// Between two tries to write where there was no room.
const ROOM_AGAIN: Duration = Duration::from_millis(200);

/// Why the log can't be opened or used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QuorumLogError {
    /// The log itself.
    #[error("metadata log {dir}: {message}")]
    Log { dir: String, message: String, shortage: bool },
    /// It is not there although it was.
    #[error(
        "metadata log {dir} is empty, but there are partitions such as {partition}: the cluster's metadata is lost; restore the log from a copy, \
         or make the topics anew on empty disks"
    )]
    Lost { dir: String, partition: LogName },
    /// One entry.
    #[error("metadata log at offset {offset}: {source}")]
    Entry { offset: Offset, source: EntryError },
    /// The file beside it.
    #[error(transparent)]
    State(#[from] QuorumStateError),
}

impl QuorumLogError {
    /// Whether there is no room on the disk, or no more file may be opened: it may pass.
    fn is_shortage(&self) -> bool {
        match self {
            Self::Log { shortage, .. } => *shortage,
            Self::State(QuorumStateError::Disk(error)) => error.is_shortage(),
            _ => false,
        }
    }
}

/// The log, for openraft and for whoever asks about its size. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct LogStore {
    files: Arc<Mutex<Files>>,
    /// Asked without waiting for the disk.
    reader: LogReader,
    pristine: Arc<AtomicBool>,
    directory: Uuid,
    log_dir: Arc<LogDir>,
    /// Why a write waits for room, while one does.
    no_room: Arc<watch::Sender<Option<String>>>,
    /// Whether writes wait for room.
    waits: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Files {
    log: PartitionLog,
    state: QuorumStateFile,
    ballast: Ballast,
}

impl LogStore {
    /// Opens the log in a log dir, or begins it; not where there is a partition already. Blocks.
    pub(crate) fn open(log_dir: &Arc<LogDir>, partition: Option<&LogName>) -> Result<Self, QuorumLogError> {
        let name = LogName::new(CLUSTER_METADATA_TOPIC, 0);
        let dir = log_dir.path().join(name.to_string());
        let failed = |message: String| QuorumLogError::Log { dir: dir.display().to_string(), message, shortage: false };
        let ballast = Ballast::new(log_dir.disk(), &dir);
        if log_dir.disk().exists(&dir) {
            ballast.adjust().map_err(|error| failed(error.to_string()))?;
        }
        let (log, _report) = PartitionLog::open_guarded(log_dir, &name, None, log_config())
            .map_err(|error| failed(error.to_string()))?;
        ballast.adjust().map_err(|error| failed(error.to_string()))?;
        let state = QuorumStateFile::open(log_dir.disk(), &dir)?;
        let mut files = Files { log, state, ballast };
        files.finish_purge()?;
        if let Some(partition) = partition.filter(|_| files.bounds() == (0, 0)) {
            return Err(QuorumLogError::Lost { dir: dir.display().to_string(), partition: partition.clone() });
        }
        let reader = files.log.reader();
        let pristine = Arc::new(AtomicBool::new(files.is_pristine()));
        let directory = files.state.directory();
        let log_dir = Arc::clone(log_dir);
        let (files, no_room, waits) = (Arc::new(Mutex::new(files)), Arc::default(), Arc::default());
        Ok(Self { files, reader, pristine, directory, log_dir, no_room, waits })
    }

    /// The directory id under which this log votes.
    pub(crate) fn directory(&self) -> Uuid {
        self.directory
    }

    /// Whether nothing was ever voted or written here.
    pub(crate) fn is_pristine(&self) -> bool {
        self.pristine.load(Ordering::Acquire)
    }

    /// Whether it lies in that directory.
    pub(crate) fn is_in(&self, log_dir: &Arc<LogDir>) -> bool {
        Arc::ptr_eq(&self.log_dir, log_dir)
    }

    /// Bytes on disk.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.reader.size_bytes()
    }

    /// Makes the next start short. Blocks.
    pub(crate) fn close(&self) -> Result<(), QuorumLogError> {
        let mut files = self.files.lock();
        files.log.close_clean().map_err(|error| files.failed(&error))
    }

    /// From now on writes wait for room, or no more: then those that wait fail.
    pub(crate) fn wait_for_room(&self, waits: bool) {
        self.waits.store(waits, Ordering::Release);
    }

    /// Why a write waits for room, if one does.
    pub(crate) fn no_room(&self) -> Option<String> {
        self.no_room.borrow().clone()
    }

    /// Hears when a write begins or ceases to wait for room.
    pub(crate) fn watch_room(&self) -> watch::Receiver<Option<String>> {
        self.no_room.subscribe()
    }

    async fn blocking<T: Send + 'static>(
        &self,
        mut work: impl FnMut(&mut Files) -> Result<T, QuorumLogError> + Send + 'static,
    ) -> io::Result<T> {
        let here = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            loop {
                let done = here.try_once(&mut work);
                match done {
                    Err(error) if error.is_shortage() && here.waits.load(Ordering::Acquire) => here.lacks_room(&error),
                    done => {
                        here.has_room();
                        return done;
                    }
                }
            }
        });
        done.await.map_err(io::Error::other)?.map_err(io::Error::other)
    }

    fn try_once<T>(&self, work: &mut impl FnMut(&mut Files) -> Result<T, QuorumLogError>) -> Result<T, QuorumLogError> {
        let _in_progress = self.log_dir.progress().begin(Work::Awaited);
        let mut files = self.files.lock();
        if let Err(error) = files.ballast.adjust() {
            tracing::warn!(%error, "no room is kept for the metadata log");
        }
        let done = work(&mut files);
        self.pristine.store(files.is_pristine(), Ordering::Release);
        done
    }

    fn lacks_room(&self, error: &QuorumLogError) {
        if self.no_room.send_if_modified(|told| told.replace(error.to_string()).is_none()) {
            tracing::error!(%error, "the metadata can't be changed before there is room again");
        }
        std::thread::sleep(ROOM_AGAIN);
    }

    fn has_room(&self) {
        if self.no_room.send_if_modified(|told| told.take().is_some()) {
            tracing::info!("there is room for the metadata again");
        }
    }
}

impl Files {
    fn is_pristine(&self) -> bool {
        let state = self.state.state();
        state.vote.is_none() && state.purged.is_none() && self.log.log_end() == self.log.log_start()
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> QuorumLogError {
        self.not_written(error, false)
    }

    fn not_written(&self, error: &dyn std::fmt::Display, shortage: bool) -> QuorumLogError {
        let dir = self.log.log_dir().path().display().to_string();
        QuorumLogError::Log { dir, message: error.to_string(), shortage }
    }

    fn not_changed(&self, error: &LogError) -> QuorumLogError {
        self.not_written(error, matches!(error, LogError::Disk(error) if error.is_shortage()))
    }

    /// The first index that is there, and the one after the last.
    fn bounds(&self) -> (u64, u64) {
        let index = |offset: Offset| u64::try_from(offset.0).unwrap_or_default();
        let start = index(self.log.log_start()).max(self.state.state().purged.map_or(0, |purged| purged.index + 1));
        (start, index(self.log.log_end()).max(start))
    }

    /// A crash may have come after a purge was noted and before it was done.
    fn finish_purge(&mut self) -> Result<(), QuorumLogError> {
        let start = self.log.log_start();
        if let Some(purged) = self.state.state().purged {
            self.purge(purged.index)?;
        } else if start > Offset(0) && self.log.log_end() > start {
            return Err(self.failed(&format!("begins at offset {start}, but no quorum-state says what went before")));
        }
        Ok(())
    }

    fn append(&mut self, entries: &[Entry]) -> Result<(), QuorumLogError> {
        let Some(first) = entries.first() else { return Ok(()) };
        let now_ms = now_ms();
        let first = offset(first.log_id.index);
        if self.log.log_end() == self.log.log_start() && self.log.log_end() != first {
            self.log.truncate_fully_and_start_at(first, now_ms).map_err(|error| self.not_changed(&error))?;
        }
        if self.log.log_end() != first {
            return Err(self.failed(&format!("ends at offset {}, but the next entry is {first}", self.log.log_end())));
        }
        let mut records = BytesMut::new();
        for entry in entries {
            let at = offset(entry.log_id.index);
            let bytes = entry::encode(entry, now_ms).map_err(|source| QuorumLogError::Entry { offset: at, source })?;
            records.extend_from_slice(&bytes);
        }
        let request = AppendRequest { records: records.freeze(), origin: Origin::Leader };
        for result in self.log.append(&[request], LeaderEpoch(0), now_ms) {
            let shortage = matches!(result, Err(AppendError::DiskFull(_) | AppendError::OutOfFiles { .. }));
            result.map_err(|error| self.not_written(&error, shortage))?;
        }
        self.log.flush().map(drop).map_err(|error| self.failed(&error))
    }

    /// The entries of a range that are there, as far as `bytes_max` goes but at least one.
    fn read(&self, from: u64, to: u64, bytes_max: usize) -> Result<Vec<Entry>, QuorumLogError> {
        let (start, end) = self.bounds();
        let (mut next, to) = (from.max(start), to.min(end));
        let mut entries = Vec::new();
        let mut taken = 0;
        while next < to && (entries.is_empty() || taken < bytes_max) {
            let bytes = self.read_at(offset(next), offset(to))?;
            for batch in batches(&bytes) {
                let batch = match batch {
                    Ok(batch) => batch,
                    // The range ends within a batch; the next read starts with that one.
                    Err(BatchError::Incomplete { .. }) => break,
                    Err(error) => return Err(self.failed(&format!("batch at offset {next}: {error}"))),
                };
                let header = &batch.header;
                if header.base_offset < offset(next) {
                    continue;
                }
                if header.base_offset != offset(next) {
                    return Err(self.failed(&format!("offset {next} is missing: {} follows", header.base_offset)));
                }
                if next >= to || (!entries.is_empty() && taken >= bytes_max) {
                    return Ok(entries);
                }
                let failed = |source| QuorumLogError::Entry { offset: header.base_offset, source };
                entries.push(entry::decode(&batch).map_err(failed)?);
                taken += header.total_bytes();
                next += 1;
            }
            if entries.is_empty() {
                return Err(self.failed(&format!("nothing can be read at offset {next}")));
            }
        }
        Ok(entries)
    }

    fn read_at(&self, from: Offset, upto: Offset) -> Result<Bytes, QuorumLogError> {
        let spec = ReadSpec { offset: from, max_bytes: READ_BYTES, min_one_batch: true, upto };
        let slice = self.log.reader().read(&spec).map_err(|error| self.failed(&error))?;
        slice.map_or(Ok(Bytes::new()), |slice| slice.read().map_err(|error| self.failed(&error)))
    }

    fn last(&self) -> Result<Option<LogId>, QuorumLogError> {
        let (start, end) = self.bounds();
        if end == start {
            return Ok(self.state.state().purged);
        }
        Ok(self.read(end - 1, end, 0)?.first().map(|entry| entry.log_id))
    }

    fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), QuorumLogError> {
        let (start, _) = self.bounds();
        let next = last.map_or(start, |last| last.index + 1);
        self.log.truncate_to(offset(next), now_ms()).map(drop).map_err(|error| self.not_changed(&error))
    }

    /// Removes what lies before an index, and the index itself. The note that it may be missing is on disk already.
    fn purge(&mut self, upto: u64) -> Result<(), QuorumLogError> {
        let (next, now_ms) = (offset(upto + 1), now_ms());
        let (start, end) = (self.log.log_start(), self.log.log_end());
        let purged = if next > end {
            self.log.truncate_fully_and_start_at(next, now_ms).map(drop)
        } else if next > start {
            // Only whole segments go.
            let rolled = self.log.roll();
            rolled.and_then(|()| self.log.delete_records_before(next, now_ms)).map(drop)
        } else {
            return Ok(());
        };
        let tidied = purged.and_then(|()| self.log.maintain(next, now_ms));
        tidied.map(drop).map_err(|error| self.not_changed(&error))
    }
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> io::Result<Vec<Entry>> {
        let (from, to) = ends(&range);
        self.blocking(move |files| files.read(from, to, usize::MAX)).await
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        self.blocking(move |files| files.read(start, end, usize::try_from(READ_BYTES).unwrap_or(usize::MAX))).await
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        self.blocking(|files| Ok(files.state.state().vote)).await
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        self.blocking(|files| {
            Ok(LogState { last_purged_log_id: files.state.state().purged, last_log_id: files.last()? })
        })
        .await
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        let vote = *vote;
        self.blocking(move |files| Ok(files.state.change(|state| state.vote = Some(vote))?)).await
    }

    async fn append<I>(&mut self, entries: I, flushed: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        self.blocking(move |files| files.append(&entries)).await?;
        flushed.io_completed(Ok(()));
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        self.blocking(move |files| files.truncate_after(last)).await
    }

    async fn purge(&mut self, log_id: LogId) -> io::Result<()> {
        self.blocking(move |files| {
            // IMPORTANT: noted before it is done: a log that begins later than the note says is not taken for whole.
            if files.state.state().purged < Some(log_id) {
                files.state.change(|state| state.purged = Some(log_id))?;
            }
            files.purge(log_id.index)
        })
        .await
    }
}

fn offset(index: u64) -> Offset {
    Offset(i64::try_from(index).unwrap_or(i64::MAX))
}

fn ends(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let from = match range.start_bound() {
        Bound::Included(from) => *from,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let to = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(to) => *to,
        Bound::Unbounded => u64::MAX,
    };
    (from, to)
}

fn log_config() -> LogConfig {
    LogConfig {
        segment_bytes: i32::MAX.unsigned_abs(),
        segment_ms: i64::MAX,
        retention_ms: -1,
        retention_bytes: -1,
        max_message_bytes: i32::MAX.unsigned_abs(),
        message_timestamp_after_max_ms: i64::MAX,
        file_delete_delay_ms: 0,
        ..LogConfig::default()
    }
}
