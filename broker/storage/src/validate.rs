//! May these bytes be appended? A pure decision about record batches as they came, before anything is written.
//!
//! Everything a client sends is checked: form, checksum, sizes, counts, timestamps, keys on a compacted topic. What the broker itself or the
//! leader made is checked for form and checksum only.

use bytes::Bytes;
use forebay_broker_wire::records::{self, Batch, BatchError, BatchHeader, RecordError};

use crate::config::{LogConfig, TimestampType};

/// A batch's records are decompressed into at most so many bytes (or `max.message.bytes`, if that is more).
const DECOMPRESSED_BYTES_MAX: usize = 64 << 20;

/// Who made the batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A producer: offsets are assigned, everything is checked.
    Client,
    /// This broker (group offsets, metadata): offsets are assigned, trusted otherwise.
    Broker,
    /// The partition's leader: offsets and epochs stay as they are.
    Leader,
}

/// Why a batch is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBatch {
    /// No batch at all.
    #[error("no record batch, expected at least one")]
    Empty,
    /// Not a whole, undamaged batch.
    #[error("record batch at byte {at} is damaged: {source}")]
    Corrupt {
        /// Where it starts in the bytes that came.
        at: usize,
        /// What is wrong.
        source: BatchError,
    },
    /// An old format.
    #[error("record batch has magic {magic}, expected 2")]
    Magic {
        /// The magic found.
        magic: i8,
    },
    /// Its records cannot be read.
    #[error("records cannot be read: {0}")]
    Records(#[from] RecordError),
    /// Above `max.message.bytes`.
    #[error("record batch of {bytes} bytes is above max.message.bytes={max_bytes}")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        max_bytes: u32,
    },
    /// Above `segment.bytes`.
    #[error("record batches of {bytes} bytes do not fit into segment.bytes={segment_bytes}")]
    LargerThanSegment {
        /// Their size.
        bytes: u64,
        /// The limit.
        segment_bytes: u32,
    },
    /// Something no client may send.
    #[error("record batch is invalid: {reason}")]
    InvalidRecord {
        /// What is wrong.
        reason: &'static str,
    },
    /// Outside `message.timestamp.before.max.ms` or `message.timestamp.after.max.ms`.
    #[error("timestamp {timestamp_ms} is more than {setting}={limit_ms} away from the broker's time {now_ms}")]
    Timestamp {
        /// The batch's.
        timestamp_ms: i64,
        /// The broker's.
        now_ms: i64,
        /// Which setting.
        setting: &'static str,
        /// Its value.
        limit_ms: i64,
    },
}

/// Cuts the bytes into batches and checks each.
pub(crate) fn check_all(
    records: &Bytes,
    origin: Origin,
    config: &LogConfig,
    now_ms: i64,
) -> Result<Vec<Batch>, InvalidBatch> {
    let mut batches = Vec::with_capacity(1);
    let mut at = 0;
    for batch in records::batches(records) {
        let damaged = |source| match source {
            BatchError::UnsupportedMagic(magic) => InvalidBatch::Magic { magic },
            source => InvalidBatch::Corrupt { at, source },
        };
        let batch = batch.map_err(damaged)?;
        batch.check_crc().map_err(damaged)?;
        if origin == Origin::Client {
            check_client(&batch, config, now_ms)?;
        }
        at += batch.bytes.len();
        batches.push(batch);
    }
    if batches.is_empty() {
        return Err(InvalidBatch::Empty);
    }
    let bytes = records.len() as u64;
    if bytes > u64::from(config.segment_bytes) && origin != Origin::Leader {
        return Err(InvalidBatch::LargerThanSegment { bytes, segment_bytes: config.segment_bytes });
    }
    Ok(batches)
}

fn check_client(batch: &Batch, config: &LogConfig, now_ms: i64) -> Result<(), InvalidBatch> {
    let header = &batch.header;
    let invalid = |reason| Err(InvalidBatch::InvalidRecord { reason });
    let bytes = batch.bytes.len() as u64;
    if bytes > u64::from(config.max_message_bytes) {
        return Err(InvalidBatch::TooLarge { bytes, max_bytes: config.max_message_bytes });
    }
    if header.is_control() {
        return invalid("clients may not write control records");
    }
    if i64::from(header.record_count) != i64::from(header.last_offset_delta) + 1 {
        return invalid("the record count does not match the last offset delta");
    }
    if header.has_producer_id() && (header.base_sequence < 0 || header.producer_epoch.0 < 0) {
        return invalid("a batch with a producer id needs an epoch and a sequence");
    }
    if config.timestamp_type == TimestampType::CreateTime {
        check_timestamps(header, config, now_ms)?;
    }
    let limit_bytes = DECOMPRESSED_BYTES_MAX.max(config.max_message_bytes as usize);
    if !batch.count_fits(limit_bytes) {
        return invalid("it counts more records than can be in its bytes");
    }
    // Consumers would stumble over what is stored now; compressed records are left to them, since reading those costs more than all else.
    let all_have_keys = match batch.check_plain_records()? {
        Some(records) => records.all_have_keys,
        None => !config.compact || all_have_keys(batch, limit_bytes)?,
    };
    if config.compact && !all_have_keys {
        return invalid("a compacted topic needs a key in each record");
    }
    Ok(())
}

fn all_have_keys(batch: &Batch, limit_bytes: usize) -> Result<bool, RecordError> {
    for record in batch.records(limit_bytes)? {
        if record?.key.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn check_timestamps(header: &BatchHeader, config: &LogConfig, now_ms: i64) -> Result<(), InvalidBatch> {
    let far =
        |timestamp_ms, setting, limit_ms| Err(InvalidBatch::Timestamp { timestamp_ms, now_ms, setting, limit_ms });
    let (before_ms, after_ms) = (config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms);
    if header.max_timestamp_ms >= 0 && header.max_timestamp_ms.saturating_sub(now_ms) > after_ms {
        return far(header.max_timestamp_ms, "message.timestamp.after.max.ms", after_ms);
    }
    if header.base_timestamp_ms >= 0 && now_ms.saturating_sub(header.base_timestamp_ms) > before_ms {
        return far(header.base_timestamp_ms, "message.timestamp.before.max.ms", before_ms);
    }
    Ok(())
}
