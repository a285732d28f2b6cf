//! Reading a partition: how far a reader may see, and whether it talks to the right leader. Nothing here waits for the writer.

use forebay_broker_storage::{DiskError, FileSlice, FoundOffset, ReadSpec, TimestampSpec};
use forebay_broker_wire::types::{LeaderEpoch, Offset};

use crate::{
    errors::{Closed, NotLeader},
    partition::Partition,
};

/// How far a reader may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Consumers: below the high watermark.
    ReadUncommitted,
    /// Consumers: below the last stable offset.
    ReadCommitted,
    /// Followers and this broker itself: everything.
    LogEnd,
}

/// What a fetch wants of a partition.
#[derive(Debug, Clone, Copy)]
pub struct FetchSpec {
    /// From the batch that holds this offset.
    pub offset: Offset,
    /// At most so many bytes,
    pub max_bytes: u32,
    /// but the first batch whole.
    pub min_one_batch: bool,
    /// How far.
    pub isolation: Isolation,
    /// The epoch the reader believes in, if it says.
    pub current_leader_epoch: Option<LeaderEpoch>,
}

/// What a fetch gets.
#[derive(Debug, Clone)]
pub struct ReadResult {
    /// The bytes, `None` when there is nothing (yet) or the first batch does not fit.
    pub slice: Option<FileSlice>,
    /// All records below are safe.
    pub high_watermark: Offset,
    /// No open transaction below.
    pub last_stable_offset: Offset,
    /// First offset.
    pub log_start_offset: Offset,
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The reader's epoch is older than the leader's.
    #[error("leader epoch {found} is fenced, the partition is led in epoch {current}")]
    FencedLeaderEpoch {
        /// The reader's.
        found: LeaderEpoch,
        /// The leader's.
        current: LeaderEpoch,
    },
    /// The reader's epoch is newer than this broker knows.
    #[error("leader epoch {found} is not known yet, the partition is led in epoch {current}")]
    UnknownLeaderEpoch {
        /// The reader's.
        found: LeaderEpoch,
        /// The leader's.
        current: LeaderEpoch,
    },
    /// The offset is not in the log.
    #[error("offset {offset} is out of range: the log has {log_start} to {log_end}")]
    OutOfRange {
        /// The offset asked for.
        offset: Offset,
        /// First offset.
        log_start: Offset,
        /// Next offset.
        log_end: Offset,
    },
    /// The leader is new and does not know yet how far records are safe.
    #[error(
        "the new leader of epoch {epoch} does not know the high watermark yet: only that it is at least {high_watermark}"
    )]
    OffsetNotAvailable {
        /// Its epoch.
        epoch: LeaderEpoch,
        /// What it knows.
        high_watermark: Offset,
    },
    /// Another broker leads.
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
    /// The partition is closed here.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The file system failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl From<forebay_broker_storage::ReadError> for ReadError {
    fn from(error: forebay_broker_storage::ReadError) -> Self {
        match error {
            forebay_broker_storage::ReadError::OutOfRange { offset, log_start, end } => {
                Self::OutOfRange { offset, log_start, log_end: end }
            }
            forebay_broker_storage::ReadError::Disk(error) => Self::Disk(error),
        }
    }
}

impl Partition {
    /// Finds the bytes that answer a fetch.
    pub fn read(&self, spec: &FetchSpec) -> Result<ReadResult, ReadError> {
        let (high_watermark, last_stable_offset) = self.check_reader(spec.current_leader_epoch)?;
        let upto = self.bound(spec.isolation, high_watermark, last_stable_offset);
        let (slice, log_start_offset) = self.find_below(spec, upto)?;
        Ok(ReadResult { slice, high_watermark, last_stable_offset, log_start_offset })
    }

    fn find_below(&self, spec: &FetchSpec, upto: Offset) -> Result<(Option<FileSlice>, Offset), ReadError> {
        let read = ReadSpec { offset: spec.offset, max_bytes: spec.max_bytes, min_one_batch: spec.min_one_batch, upto };
        let slice = self.reader.load().read(&read)?;
        Ok((slice, self.reader.load().offsets().start))
    }

    /// As [`Self::read`], and a follower answers too, as far as it knows what is safe: consumers read from the replica next to them.
    pub fn read_here(&self, spec: &FetchSpec) -> Result<ReadResult, ReadError> {
        let (high_watermark, epoch) = {
            let state = self.state.lock();
            state.check_open(self.name())?;
            if state.check_leader(self.name()).is_ok() {
                drop(state);
                return self.read(spec);
            }
            check_epoch(spec.current_leader_epoch, state.replica.epoch())?;
            (state.replica.high_watermark(), state.replica.epoch())
        };
        // Behind its leader it must not say that what it lacks does not exist.
        if spec.offset > self.reader.load().offsets().end {
            return Err(ReadError::OffsetNotAvailable { epoch, high_watermark });
        }
        let (slice, log_start_offset) = self.find_below(spec, high_watermark)?;
        Ok(ReadResult { slice, high_watermark, last_stable_offset: high_watermark, log_start_offset })
    }

    /// Finds bytes of this broker's own log, whoever leads the partition: for checks, and for what this broker itself keeps in it.
    pub fn read_own(&self, read: &ReadSpec) -> Result<Option<FileSlice>, ReadError> {
        self.reader.load().read(read).map_err(ReadError::from)
    }

    /// Finds an offset by time, or the first or last one that the isolation lets see; `None` when no record fits.
    pub fn list_offset(
        &self,
        spec: TimestampSpec,
        isolation: Isolation,
        current_leader_epoch: Option<LeaderEpoch>,
    ) -> Result<Option<FoundOffset>, ReadError> {
        let (high_watermark, last_stable_offset) = self.check_reader(current_leader_epoch)?;
        if isolation != Isolation::LogEnd {
            self.check_high_watermark_known(spec, high_watermark)?;
        }
        let upto = self.bound(isolation, high_watermark, last_stable_offset);
        let found = self.reader.load().offset_for_timestamp(spec, upto)?;
        // Kafka answers the ends with the current epoch.
        Ok(found.map(|found| FoundOffset { leader_epoch: found.leader_epoch.or(Some(self.leader_epoch())), ..found }))
    }

    /// Consumers must not be told an end that lies before what earlier leaders have shown them. The log's start is known at once.
    fn check_high_watermark_known(&self, spec: TimestampSpec, high_watermark: Offset) -> Result<(), ReadError> {
        let state = self.state.lock();
        match state.replica.leader() {
            Some(leader) if spec != TimestampSpec::Earliest && high_watermark < leader.epoch_start() => {
                Err(ReadError::OffsetNotAvailable { epoch: leader.epoch(), high_watermark })
            }
            _ => Ok(()),
        }
    }

    /// The largest epoch not above `epoch` and where it ended; `None` when it is not known here.
    pub fn end_offset_for_epoch(
        &self,
        epoch: LeaderEpoch,
        current_leader_epoch: Option<LeaderEpoch>,
    ) -> Result<Option<(LeaderEpoch, Offset)>, ReadError> {
        self.check_reader(current_leader_epoch)?;
        let current = self.leader_epoch();
        let log_end = self.reader.load().offsets().end;
        // The present epoch begins where the log ended when it came, even before it has a record.
        match (self.reader.load().latest_epoch(), self.reader.load().end_offset_for_epoch(epoch)) {
            _ if epoch == current => Ok(Some((epoch, log_end))),
            (Some(latest), None) if epoch > latest && epoch < current => Ok(Some((latest, log_end))),
            (None, None) if epoch >= LeaderEpoch(0) && epoch < current => Ok(Some((epoch, log_end))),
            (_, found) => Ok(found),
        }
    }

    /// High watermark and last stable offset, for a reader that talks to the right leader.
    fn check_reader(&self, found: Option<LeaderEpoch>) -> Result<(Offset, Offset), ReadError> {
        let state = self.state.lock();
        state.check_open(self.name())?;
        check_epoch(found, state.replica.epoch())?;
        state.check_leader(self.name())?;
        Ok((state.replica.high_watermark(), state.last_stable_offset()))
    }

    fn bound(&self, isolation: Isolation, high_watermark: Offset, last_stable_offset: Offset) -> Offset {
        match isolation {
            Isolation::ReadUncommitted => high_watermark,
            Isolation::ReadCommitted => last_stable_offset,
            Isolation::LogEnd => self.reader.load().offsets().end,
        }
    }
}

fn check_epoch(found: Option<LeaderEpoch>, current: LeaderEpoch) -> Result<(), ReadError> {
    match found.filter(|found| *found >= LeaderEpoch(0)) {
        Some(found) if found < current => Err(ReadError::FencedLeaderEpoch { found, current }),
        Some(found) if found > current => Err(ReadError::UnknownLeaderEpoch { found, current }),
        _ => Ok(()),
    }
}
