//! Appending: many requests' batches go down in one write, each request is answered on its own.
//!
//! A batch is written as it came but for base offset and leader epoch, which the checksum does not cover (and, with LogAppendTime, timestamp
//! and checksum). Only those bytes are copied. A request is never split: all its batches go into one segment or none is appended.

use std::{io::IoSlice, ops::Range};

use bytes::Bytes;
use forebay_broker_wire::{
    records::{Batch, BatchHeader, HEADER_BYTES},
    types::{LeaderEpoch, Offset, ProducerId},
};

use crate::{
    config::TimestampType,
    disk::DiskError,
    log::PartitionLog,
    log_dir::{DiskFull, Poisoned},
    producer_state::{Producer, ProducerBatch, SequenceError},
    scan::LocatedBatch,
    segment::NO_TIMESTAMP,
    validate::{self, InvalidBatch, Origin},
};

/// Batches up to this size are copied whole: cheaper than one more buffer in the write.
const COPIED_BYTES_MAX: usize = 1024;
const TIMESTAMP_TYPE_BIT: i16 = 0x08;
/// The checksum covers everything from the attributes on.
const CHECKSUM_FROM: usize = 21;

/// Batches to append together.
#[derive(Debug, Clone)]
pub struct AppendRequest {
    /// One or more whole record batches.
    pub records: Bytes,
    /// Who made them.
    pub origin: Origin,
}

/// Where a request's records are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the first record.
    pub base_offset: Offset,
    /// Offset of the last record.
    pub last_offset: Offset,
    /// The time given to the records, -1 when they carry their own.
    pub log_append_time_ms: i64,
    /// First offset of the log.
    pub log_start_offset: Offset,
    /// True when the records were there already: a repetition by an idempotent producer.
    pub duplicate: bool,
    /// True when `flush.messages` wants a flush before this is acknowledged.
    pub flush_required: bool,
    /// Records appended (0 for a repetition).
    pub records: u32,
    /// Bytes appended (0 for a repetition).
    pub bytes: u64,
}

/// Why a request was not appended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The batches may not be appended.
    #[error(transparent)]
    Invalid(#[from] InvalidBatch),
    /// The producer's sequence or epoch is not right.
    #[error(transparent)]
    Sequence(#[from] SequenceError),
    /// The leader's batches do not continue this log.
    #[error("batch of the leader starts at offset {found}, but the log ends at {end}")]
    NotNext {
        /// Where it starts.
        found: Offset,
        /// Where the log ends.
        end: Offset,
    },
    /// The disk is (nearly) full; reads go on.
    #[error(transparent)]
    DiskFull(#[from] DiskFull),
    /// No more files may be opened, and the append needed one.
    #[error("{message}; raise the limit of open files (nofile) or have fewer connections and partitions")]
    OutOfFiles {
        /// What could not be opened.
        message: String,
    },
    /// The log directory takes no more writes, since this write or an earlier one failed.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
}

/// What waits for the next write.
#[derive(Debug, Default)]
pub(crate) struct WriteGroup {
    copied: Vec<u8>,
    pieces: Vec<Piece>,
    batches: Vec<LocatedBatch>,
    /// What was known of producers before, to be restored if nothing is written.
    producers_before: Vec<(ProducerId, Option<Producer>)>,
    /// Where the write starts and where the next batch would lie.
    start: u64,
    end: u64,
    start_offset: Offset,
    /// The first result that depends on this write.
    first_result: usize,
}

#[derive(Debug)]
enum Piece {
    Copied(Range<usize>),
    Body(Bytes),
}

/// What an append may do besides writing behind the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Haste {
    Patient,
    Hot,
}

/// Why a request is not staged.
enum Unstaged {
    Refused(AppendError),
    /// It needs more than a hot append may do.
    WouldWait,
}

impl From<AppendError> for Unstaged {
    fn from(error: AppendError) -> Self {
        Self::Refused(error)
    }
}

/// A request of which nothing is written yet.
struct Staged {
    base_offset: Offset,
    last_offset: Offset,
    duplicate: bool,
    records: u32,
    bytes: u64,
}

impl PartitionLog {
    /// Appends each request that may be appended; the answers have the requests' order. New batches get `leader_epoch`.
    pub fn append(
        &mut self,
        requests: &[AppendRequest],
        leader_epoch: LeaderEpoch,
        now_ms: i64,
    ) -> Vec<Result<Appended, AppendError>> {
        self.append_as(requests, leader_epoch, now_ms, Haste::Patient)
    }

    /// As [`Self::append`], for a thread that must not wait for the disk: it stops before the first request that wants more than a write
    /// behind the end of the active segment, such as a new segment. That request and those behind it have no answer.
    pub fn append_hot(
        &mut self,
        requests: &[AppendRequest],
        leader_epoch: LeaderEpoch,
        now_ms: i64,
    ) -> Vec<Result<Appended, AppendError>> {
        let known_epoch = self.shared.epochs.lock().latest() == Some(leader_epoch);
        if known_epoch { self.append_as(requests, leader_epoch, now_ms, Haste::Hot) } else { Vec::new() }
    }

    /// Whether a producer that is not known here may start with any sequence number (its records may be gone) or must start at 0: its first
    /// batches may be on their way.
    pub fn let_producers_begin_anywhere(&mut self, anywhere: bool) {
        self.begin_anywhere = anywhere;
    }

    fn append_as(
        &mut self,
        requests: &[AppendRequest],
        leader_epoch: LeaderEpoch,
        now_ms: i64,
        haste: Haste,
    ) -> Vec<Result<Appended, AppendError>> {
        let bytes = requests.iter().map(|request| request.records.len() as u64).sum();
        let client_space = self.log_dir.check_space(bytes);
        let mut results = Vec::with_capacity(requests.len());
        self.begin_group(0);
        for request in requests {
            let space = if request.origin == Origin::Client { client_space.clone() } else { Ok(()) };
            let staged = match space {
                Ok(()) => self.stage(request, leader_epoch, now_ms, haste, &mut results),
                Err(full) => Err(Unstaged::Refused(full.into())),
            };
            match staged {
                Ok(staged) => results.push(Ok(staged)),
                Err(Unstaged::Refused(error)) => results.push(Err(error)),
                Err(Unstaged::WouldWait) => break,
            }
        }
        self.write_group(&mut results);
        results.into_iter().map(|result| result.map(|staged| self.answer(&staged, now_ms))).collect()
    }

    fn answer(&self, staged: &Staged, now_ms: i64) -> Appended {
        let log_append_time = self.config.timestamp_type == TimestampType::LogAppendTime;
        Appended {
            base_offset: staged.base_offset,
            last_offset: staged.last_offset,
            log_append_time_ms: if log_append_time { now_ms } else { -1 },
            log_start_offset: self.log_start(),
            duplicate: staged.duplicate,
            flush_required: self.unflushed_messages >= self.config.flush_messages && staged.last_offset >= self.flushed,
            records: staged.records,
            bytes: staged.bytes,
        }
    }

    fn stage(
        &mut self,
        request: &AppendRequest,
        leader_epoch: LeaderEpoch,
        now_ms: i64,
        haste: Haste,
        results: &mut [Result<Staged, AppendError>],
    ) -> Result<Staged, Unstaged> {
        self.log_dir.check_writable().map_err(AppendError::from)?;
        let checked = validate::check_all(&request.records, request.origin, &self.config, now_ms);
        let batches = checked.map_err(AppendError::from)?;
        if request.origin == Origin::Leader {
            self.check_next(&batches)?;
        } else if let Some(duplicate) = self.check_sequences(&batches, haste)? {
            return Ok(duplicate);
        }
        if self.must_roll(&batches, request.records.len() as u64, now_ms) {
            if haste == Haste::Hot {
                return Err(Unstaged::WouldWait);
            }
            self.write_group(results);
            self.log_dir.check_writable().map_err(AppendError::from)?;
            if let Err(error) = self.roll_now() {
                return Err(self.refused(&error).into());
            }
            self.begin_group(results.len());
        }
        let base_offset = if request.origin == Origin::Leader { batches[0].header.base_offset } else { self.end };
        let mut records = 0;
        for batch in batches {
            records += u32::try_from(batch.header.record_count).unwrap_or(0);
            self.stage_batch(&batch, request.origin, leader_epoch, now_ms)?;
        }
        let last_offset = Offset(self.end.0 - 1);
        Ok(Staged { base_offset, last_offset, duplicate: false, records, bytes: request.records.len() as u64 })
    }

    /// The leader's offsets ascend and continue this log.
    fn check_next(&self, batches: &[Batch]) -> Result<(), AppendError> {
        let mut end = self.end;
        for Batch { header, .. } in batches {
            if header.base_offset < end {
                return Err(AppendError::NotNext { found: header.base_offset, end });
            }
            end = header.next_offset();
        }
        Ok(())
    }

    /// Checks all of a request's sequences before any is noted. A repetition is answered only for a request of one batch, as producers send.
    fn check_sequences(&mut self, batches: &[Batch], haste: Haste) -> Result<Option<Staged>, Unstaged> {
        for Batch { header, .. } in batches.iter().filter(|batch| batch.header.has_producer_id()) {
            if let Some(known) = self.check_sequence(header, haste)? {
                let (base_offset, last_offset) = (known.base_offset(), known.last_offset);
                return Ok(Some(Staged { base_offset, last_offset, duplicate: true, records: 0, bytes: 0 }));
            }
        }
        Ok(None)
    }

    fn check_sequence(&mut self, header: &BatchHeader, haste: Haste) -> Result<Option<ProducerBatch>, Unstaged> {
        if !self.begin_anywhere {
            self.producers.check_begin(header).map_err(AppendError::from)?;
        }
        let checked = self.producers.check(header);
        if !matches!(checked, Err(SequenceError::OutOfOrder { .. })) || !self.may_recall(header.producer_id) {
            return Ok(checked.map_err(AppendError::from)?);
        }
        if haste == Haste::Hot {
            return Err(Unstaged::WouldWait);
        }
        self.recall(header.producer_id).map_err(|error| self.refused(&error))?;
        Ok(self.producers.check(header).map_err(AppendError::from)?)
    }

    fn must_roll(&self, batches: &[Batch], bytes: u64, now_ms: i64) -> bool {
        let active = self.active();
        if self.group.end == 0 {
            return false;
        }
        let newest = if self.config.timestamp_type == TimestampType::LogAppendTime {
            now_ms
        } else {
            batches.iter().map(|batch| batch.header.max_timestamp_ms).max().unwrap_or(NO_TIMESTAMP)
        };
        let oldest =
            active.first_timestamp_ms().or(self.group.batches.first().map(|batch| batch.header.max_timestamp_ms));
        let too_old =
            oldest.is_some_and(|oldest| oldest >= 0 && newest.saturating_sub(oldest) > self.config.segment_ms);
        let index_bytes_max = u64::from(self.config.segment_index_bytes);
        let index_full = active.offsets.bytes() + 8 > index_bytes_max || active.times.bytes() + 12 > index_bytes_max;
        let records: i64 = batches.iter().map(|batch| i64::from(batch.header.last_offset_delta) + 1).sum();
        let last_offset = batches.last().map_or(0, |batch| batch.header.last_offset().0).max(self.end.0 + records);
        let offsets_full = last_offset - active.base_offset.0 > i64::from(i32::MAX);
        self.group.end + bytes > u64::from(self.config.segment_bytes) || too_old || index_full || offsets_full
    }

    fn stage_batch(
        &mut self,
        batch: &Batch,
        origin: Origin,
        leader_epoch: LeaderEpoch,
        now_ms: i64,
    ) -> Result<(), AppendError> {
        let mut header = batch.header;
        let body = batch.bytes.slice(HEADER_BYTES..);
        if origin != Origin::Leader {
            header.base_offset = self.end;
            header.partition_leader_epoch = leader_epoch;
            self.stamp(&mut header, now_ms);
            if header.attributes != batch.header.attributes || header.max_timestamp_ms != batch.header.max_timestamp_ms
            {
                let head = header.to_bytes();
                header.crc = crc32c::crc32c_append(crc32c::crc32c(&head[CHECKSUM_FROM..]), &body);
            }
        }
        if self.shared.epochs.lock().assign(header.partition_leader_epoch, header.base_offset) {
            self.save_epochs().map_err(|error| self.log_dir.poison(&error))?;
        }
        if header.has_producer_id() {
            let before = self.producers.update(&header);
            self.group.producers_before.push((header.producer_id, before));
        }
        self.group.push(header, body);
        self.end = header.next_offset();
        Ok(())
    }

    fn stamp(&self, header: &mut BatchHeader, now_ms: i64) {
        match self.config.timestamp_type {
            TimestampType::CreateTime => header.attributes &= !TIMESTAMP_TYPE_BIT,
            TimestampType::LogAppendTime => {
                header.attributes |= TIMESTAMP_TYPE_BIT;
                header.max_timestamp_ms = now_ms;
            }
        }
    }

    fn begin_group(&mut self, first_result: usize) {
        let start = self.active().size();
        self.group.clear(start, self.end, first_result);
    }

    /// Writes what is staged, or turns the results that depend on it into errors.
    fn write_group(&mut self, results: &mut [Result<Staged, AppendError>]) {
        if self.group.batches.is_empty() {
            return;
        }
        let written = self.log_dir.check_writable().map_err(AppendError::from).and_then(|()| self.write_staged());
        if let Err(error) = written {
            self.take_back();
            let dependent = results[self.group.first_result..].iter_mut().filter(|result| result.is_ok());
            dependent.for_each(|result| *result = Err(error.clone()));
        }
        self.begin_group(results.len());
    }

    fn write_staged(&mut self) -> Result<(), AppendError> {
        let active = self.active();
        let group = &self.group;
        if let Err(error) = active.log.write_all_at(&mut group.buffers(), group.start) {
            return Err(self.after_failed_write(&error));
        }
        let noted = group.batches.iter().try_for_each(|batch| active.note(batch, self.config.index_interval_bytes));
        noted.map_err(|error| self.log_dir.poison(&error))?;
        self.shared.view.lock().publish(&group.batches, self.end);
        self.unflushed_messages += u64::try_from(self.end.0 - group.start_offset.0).unwrap_or(0);
        self.bytes_since_recovery_point += group.end - group.start;
        Ok(())
    }

    /// A full disk is no reason to stop for good if what was half written can be taken back.
    fn after_failed_write(&self, error: &DiskError) -> AppendError {
        match self.active().log.set_len(self.group.start) {
            Ok(()) => self.refused(error),
            Err(_) => self.log_dir.poison(error).into(),
        }
    }

    /// The answer to a failure after which the log is as it was: a shortage may pass, all else is for good.
    fn refused(&self, error: &DiskError) -> AppendError {
        if error.is_disk_full() {
            self.log_dir.full(error).into()
        } else if error.is_out_of_files() {
            tracing::warn!(%error, "no file can be opened for appends");
            AppendError::OutOfFiles { message: error.to_string() }
        } else {
            self.log_dir.poison(error).into()
        }
    }

    fn take_back(&mut self) {
        for (producer_id, before) in self.group.producers_before.drain(..).rev() {
            self.producers.restore(producer_id, before);
        }
        self.end = self.group.start_offset;
        self.shared.epochs.lock().truncate_end(self.end);
    }
}

impl WriteGroup {
    fn clear(&mut self, start: u64, start_offset: Offset, first_result: usize) {
        self.copied.clear();
        self.pieces.clear();
        self.batches.clear();
        self.producers_before.clear();
        (self.start, self.end, self.start_offset, self.first_result) = (start, start, start_offset, first_result);
    }

    fn push(&mut self, header: BatchHeader, body: Bytes) {
        let head = header.to_bytes();
        self.batches.push(LocatedBatch { position: self.end, header });
        self.end += (head.len() + body.len()) as u64;
        let from = self.copied.len();
        self.copied.extend_from_slice(&head);
        let copy_body = head.len() + body.len() <= COPIED_BYTES_MAX;
        if copy_body {
            self.copied.extend_from_slice(&body);
        }
        match self.pieces.last_mut() {
            Some(Piece::Copied(range)) => range.end = self.copied.len(),
            _ => self.pieces.push(Piece::Copied(from..self.copied.len())),
        }
        if !copy_body {
            self.pieces.push(Piece::Body(body));
        }
    }

    fn buffers(&self) -> Vec<IoSlice<'_>> {
        let pieces = self.pieces.iter().map(|piece| match piece {
            Piece::Copied(range) => &self.copied[range.start..range.end],
            Piece::Body(body) => body,
        });
        pieces.map(IoSlice::new).collect()
    }
}
