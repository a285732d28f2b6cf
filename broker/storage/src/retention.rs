//! Removing the oldest records: by age, by size, and on request (DeleteRecords).
//!
//! Only whole segments go; the active one is rolled first when everything in it is too old. A removed segment is out of the readers' view at
//! once, its files are renamed to `.deleted` and removed after a delay, and whoever is still sending a range of it holds the file open.

use std::{path::PathBuf, sync::Arc};

use forebay_broker_wire::types::Offset;

use crate::{
    disk::DiskError,
    log::{LogError, PartitionLog},
    producer_state::snapshot_name,
    segment::{NO_TIMESTAMP, Segment},
};

/// What one round of upkeep did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MaintenanceReport {
    /// Segments removed.
    pub removed_segments: usize,
    /// Bytes in them.
    pub removed_bytes: u64,
    /// The active segment was closed because of its age.
    pub rolled: bool,
    /// Producers forgotten after a long silence.
    pub expired_producers: usize,
}

impl PartitionLog {
    /// Regular upkeep: rolls by age, applies retention below `upto` (the high watermark), forgets silent producers, removes files whose
    /// delay is over and moves the recovery point.
    pub fn maintain(&mut self, upto: Offset, now_ms: i64) -> Result<MaintenanceReport, LogError> {
        self.write(|log| {
            let rolled = log.roll_by_age(now_ms)?;
            let mut report = MaintenanceReport { rolled, ..log.retain(upto, now_ms)? };
            report.expired_producers = log.producers.expire(now_ms, log.config.producer_id_expiration_ms);
            log.remove_deleted_files(now_ms)?;
            log.advance_recovery_point(false)?;
            Ok(report)
        })
    }

    /// Applies `retention.ms` and `retention.bytes` to what lies below `upto` (the high watermark).
    pub fn apply_retention(&mut self, upto: Offset, now_ms: i64) -> Result<MaintenanceReport, LogError> {
        self.write(|log| log.retain(upto, now_ms))
    }

    /// Makes `offset` the first that may be read, durably, and removes the segments that lie before it.
    pub fn delete_records_before(&mut self, offset: Offset, now_ms: i64) -> Result<Offset, LogError> {
        let log_start = self.log_start();
        if offset > self.end || offset < Offset(0) {
            return Err(LogError::OutOfRange { name: self.name.clone(), offset, log_start, end: self.end });
        }
        if offset <= log_start {
            self.log_dir.check_writable()?;
            return Ok(log_start);
        }
        self.write(|log| {
            if offset > log.flushed {
                // A start must never find that a log ends before it begins.
                log.active().log.sync()?;
            }
            log.log_dir.set_log_start(&log.name, offset)?;
            log.shared.view.lock().log_start = offset;
            log.remove_segments_before_start(now_ms)?;
            Ok(offset)
        })
    }

    fn roll_by_age(&mut self, now_ms: i64) -> Result<bool, DiskError> {
        let first = self.active().first_timestamp_ms().filter(|first| *first >= 0);
        let too_old = first.is_some_and(|first| now_ms.saturating_sub(first) > self.config.segment_ms);
        if too_old {
            self.roll_now()?;
        }
        Ok(too_old)
    }

    fn retain(&mut self, upto: Offset, now_ms: i64) -> Result<MaintenanceReport, DiskError> {
        if !self.config.delete {
            return self.remove_segments_before_start(now_ms);
        }
        let count = self.expired_segments(upto, now_ms)?;
        if count == self.shared.view.lock().segments.len() {
            self.roll_now()?; // there is always an active segment
        }
        if count > 0 {
            let mut view = self.shared.view.lock();
            view.log_start = view.log_start.max(view.segments[count].base_offset);
        }
        self.remove_segments_before_start(now_ms)
    }

    /// How many of the oldest segments retention may remove.
    fn expired_segments(&self, upto: Offset, now_ms: i64) -> Result<usize, DiskError> {
        let (segments, mut surplus, end) = {
            let view = self.shared.view.lock();
            let limit = u64::try_from(self.config.retention_bytes).unwrap_or(u64::MAX);
            (view.segments.clone(), view.size().saturating_sub(limit), view.end)
        };
        let mut count = 0;
        for (at, segment) in segments.iter().enumerate() {
            let next = segments.get(at + 1).map_or(end, |next| next.base_offset);
            let empty_active = segment.size() == 0 && at + 1 == segments.len();
            if empty_active || next > upto {
                break;
            }
            let by_size = surplus >= segment.size();
            if !by_size && !self.is_too_old(segment, now_ms)? {
                break;
            }
            surplus = surplus.saturating_sub(segment.size());
            count += 1;
        }
        Ok(count)
    }

    fn is_too_old(&self, segment: &Segment, now_ms: i64) -> Result<bool, DiskError> {
        if self.config.retention_ms < 0 {
            return Ok(false);
        }
        let largest = segment.largest().timestamp_ms;
        let newest = if largest == NO_TIMESTAMP { segment.log.modified_ms()? } else { largest };
        Ok(now_ms.saturating_sub(newest) > self.config.retention_ms)
    }

    /// Removes the segments that end at or before the log's start.
    pub(crate) fn remove_segments_before_start(&mut self, now_ms: i64) -> Result<MaintenanceReport, DiskError> {
        let (removed, log_start) = {
            let mut view = self.shared.view.lock();
            let keep_from = view.segment_at(view.log_start);
            let removed: Vec<Arc<Segment>> = view.segments.drain(..keep_from).collect();
            (removed, view.log_start)
        };
        let mut report = MaintenanceReport { removed_segments: removed.len(), ..MaintenanceReport::default() };
        for segment in removed {
            report.removed_bytes += segment.size();
            self.log_dir.disk().remove_file(&self.dir.join(snapshot_name(segment.base_offset)))?;
            self.discard(&segment, now_ms)?;
        }
        let changed = self.shared.epochs.lock().truncate_start(log_start);
        if changed {
            self.save_epochs()?;
        }
        Ok(report)
    }

    /// Renames a segment's files out of the way, to be removed later.
    pub(crate) fn discard(&mut self, segment: &Segment, now_ms: i64) -> Result<(), DiskError> {
        for path in segment.mark_deleted(self.log_dir.disk())? {
            self.deleted_later(path, now_ms);
        }
        Ok(())
    }

    /// Lets a renamed file be removed when `file.delete.delay.ms` is over.
    pub(crate) fn deleted_later(&mut self, path: PathBuf, now_ms: i64) {
        let delay_ms = i64::try_from(self.config.file_delete_delay_ms).unwrap_or(i64::MAX);
        self.deleted_files.push((path, now_ms.saturating_add(delay_ms)));
    }

    /// Removes the files of removed segments whose delay is over.
    pub(crate) fn remove_deleted_files(&mut self, now_ms: i64) -> Result<(), DiskError> {
        let disk = self.log_dir.disk();
        self.deleted_files.extract_if(.., |(_, at)| *at <= now_ms).try_for_each(|(path, _)| disk.remove_file(&path))
    }
}
