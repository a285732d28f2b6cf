//! Cutting a log's end: what a follower does to agree with its leader.
//!
//! IMPORTANT: the recovery point is lowered, durably, before anything is cut; otherwise a crash after new appends would leave records that
//! recovery trusts without having been flushed; so is the mark of what was flushed. Segments go from the newest to the oldest: a crash in between leaves the log's beginning,
//! never a later part of it, which would say that what comes before was deleted on purpose.

use std::sync::Arc;

use forebay_broker_wire::types::{LeaderEpoch, Offset};

use crate::{
    disk::DiskError,
    log::{LogError, PartitionLog},
    names::parse_segment_file,
    producer_state::{ProducerState, snapshot_name},
    scan::{LocatedBatch, Scanner},
    segment::Segment,
};

impl PartitionLog {
    /// Removes all batches that hold `offset` or come after it. Gives the new end, which is below `offset` when it was inside a batch, but
    /// never below the log's start.
    pub fn truncate_to(&mut self, offset: Offset, now_ms: i64) -> Result<Offset, LogError> {
        if offset >= self.end {
            self.log_dir.check_writable()?;
            return Ok(self.end);
        }
        let log_start = self.log_start();
        if offset <= log_start {
            return self.truncate_fully_and_start_at(offset, now_ms);
        }
        let end = self.write(|log| log.cut_end(offset, now_ms))?;
        if end < log_start { self.truncate_fully_and_start_at(log_start, now_ms) } else { Ok(end) }
    }

    /// Removes everything and begins anew at `offset`.
    pub fn truncate_fully_and_start_at(&mut self, offset: Offset, now_ms: i64) -> Result<Offset, LogError> {
        self.write(|log| {
            log.lower_mark(Offset(0))?;
            log.log_dir.set_recovery_point(&log.name, Offset(0));
            log.log_dir.write_checkpoints()?;
            let old = log.shared.view.lock().segments.clone();
            for segment in old.iter().rev() {
                log.discard(segment, now_ms)?;
            }
            log.remove_snapshots_after(Offset(-1))?;
            // Durably nothing there, then the start, then a log that begins there: it never ends before it begins.
            log.log_dir.disk().sync_dir(&log.dir)?;
            log.log_dir.set_log_start(&log.name, offset)?;
            let segment = Segment::create(log.log_dir.disk(), &log.dir, offset, None)?;
            log.producers = ProducerState::default();
            // No record is left that any epoch wrote.
            log.shared.epochs.lock().clear();
            log.save_epochs()?;
            log.ended_at(vec![segment], offset)?;
            log.flushed = offset;
            log.shared.view.lock().log_start = offset;
            Ok(offset)
        })
    }

    fn cut_end(&mut self, offset: Offset, now_ms: i64) -> Result<Offset, DiskError> {
        // The batch that holds the offset goes too; its segment's start is surely below.
        let base = {
            let view = self.shared.view.lock();
            view.segments[view.segment_at(offset)].base_offset
        };
        self.lower_mark(base.min(offset))?;
        self.lower_recovery_point(offset)?;
        let mut segments = self.shared.view.lock().segments.clone();
        let at = segments.partition_point(|segment| segment.base_offset <= offset).saturating_sub(1);
        for segment in segments.drain(at + 1..).rev() {
            self.discard(&segment, now_ms)?;
        }
        // Opened anew: a closed segment's handles were given up, and readers of the old one keep what they hold.
        let segment = Segment::open(self.log_dir.disk(), &self.dir, segments[at].base_offset)?;
        let (position, end) = cut_point(&segment, offset)?;
        segment.truncate(position, end)?;
        segments[at] = segment;
        self.reload_producers(&segments, end)?;
        self.ended_at(segments, end)?;
        Ok(end)
    }

    fn lower_mark(&mut self, offset: Offset) -> Result<(), DiskError> {
        self.mark.as_mut().map_or(Ok(()), |mark| mark.lower(offset))
    }

    fn lower_recovery_point(&self, offset: Offset) -> Result<(), DiskError> {
        if self.log_dir.recovery_point(&self.name) > offset {
            // The batch that holds the offset goes too; its segment's start is surely below.
            let view = self.shared.view.lock();
            let base = view.segments[view.segment_at(offset)].base_offset;
            drop(view);
            self.log_dir.set_recovery_point(&self.name, base.min(offset));
        }
        self.log_dir.write_checkpoints()
    }

    fn ended_at(&mut self, segments: Vec<Arc<Segment>>, end: Offset) -> Result<(), DiskError> {
        if self.shared.epochs.lock().truncate_end(end) {
            self.save_epochs()?;
        }
        if self.log_dir.clean_to(&self.name).is_some_and(|clean_to| clean_to > end) {
            self.log_dir.set_clean_to(&self.name, end)?;
        }
        self.log_dir.disk().sync_dir(&self.dir)?;
        self.shared.view.lock().reset(segments, end);
        self.end = end;
        self.flushed = self.flushed.min(end);
        self.unflushed_messages = 0;
        self.truncations += 1;
        Ok(())
    }

    /// What snapshots say of producers is wrong for a log that grows again.
    fn remove_snapshots_after(&self, end: Offset) -> Result<(), DiskError> {
        let disk = self.log_dir.disk();
        for entry in disk.list(&self.dir)? {
            if parse_segment_file(&entry.name, ".snapshot").is_some_and(|offset| offset > end) {
                disk.remove_file(&self.dir.join(&entry.name))?;
            }
        }
        Ok(())
    }

    /// Producer state as of `end`: the newest snapshot at or below it and the batches from there on. Newer snapshots are removed.
    fn reload_producers(&mut self, segments: &[Arc<Segment>], end: Offset) -> Result<(), DiskError> {
        let disk = self.log_dir.disk();
        let (mut producers, mut from) = (ProducerState::default(), segments[0].base_offset);
        for entry in disk.list(&self.dir)? {
            let Some(offset) = parse_segment_file(&entry.name, ".snapshot") else { continue };
            if offset > end {
                disk.remove_file(&self.dir.join(&entry.name))?;
            } else if let Some(state) =
                disk.read(&self.dir.join(snapshot_name(offset)))?.as_deref().and_then(ProducerState::decode_snapshot)
            {
                (producers, from) = (state, offset);
            }
        }
        for segment in segments {
            let Some(start) = segment.find(from, segment.size())? else { continue };
            let mut batches = Scanner::headers(&segment.log, start.position, segment.size());
            while let Some(LocatedBatch { header, .. }) = batches.next_batch()? {
                if header.has_producer_id() {
                    producers.update(&header);
                }
            }
        }
        self.producers = producers;
        Ok(())
    }

    /// The largest epoch not above `epoch` and where it ended here; `None` when it is not known.
    pub fn end_offset_for_epoch(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        self.shared.epochs.lock().end_offset_for(epoch, self.end)
    }
}

/// Where the batch that holds `offset` starts, and the offset after the last record before it.
fn cut_point(segment: &Segment, offset: Offset) -> Result<(u64, Offset), DiskError> {
    let limit = segment.find(offset, segment.size())?.map_or(segment.size(), |first| first.position);
    // Not the offset asked for, when that lies in a gap: a start would find that the log ends earlier.
    let hint = segment.offsets.last_where(|entry| u64::from(entry.position) < limit)?;
    let mut batches = Scanner::headers(&segment.log, hint.map_or(0, |entry| u64::from(entry.position)), limit);
    let mut end = segment.base_offset;
    while let Some(batch) = batches.next_batch()? {
        end = batch.header.next_offset();
    }
    Ok((limit, end))
}
