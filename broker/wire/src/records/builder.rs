//! Makes a batch from records: for internal logs, compaction, clients and tests.

use bytes::{Bytes, BytesMut};

use super::header::{
    CONTROL_BIT, DELETE_HORIZON_BIT, LENGTH_PREFIX_BYTES, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, seal,
};
use super::{BatchHeader, BuildError, Compression, HEADER_BYTES, Record, TimestampType};
use crate::primitives::Encoder;
use crate::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

/// The most bytes a record's length can take.
const MAX_VARINT_BYTES: usize = 5;

/// A record to be put into a batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewRecord<'a> {
    /// Milliseconds since 1970.
    pub timestamp_ms: i64,
    /// What compaction and partitioning go by.
    pub key: Option<&'a [u8]>,
    /// None is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Names and values, in order.
    pub headers: &'a [(&'a [u8], Option<&'a [u8]>)],
}

/// Collects records, then gives the batch. Nothing is checked against a partition: offsets are deltas from the base offset.
#[derive(Debug)]
pub struct BatchBuilder {
    header: BatchHeader,
    compression: Compression,
    records: Encoder,
    /// Offset delta of the last record, -1 before the first.
    last_delta: i32,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self::new(Offset(0))
    }
}

impl BatchBuilder {
    /// A batch whose first record has this offset; 0 for what a producer sends.
    #[must_use]
    pub fn new(base_offset: Offset) -> Self {
        let header = BatchHeader {
            base_offset,
            batch_length: 0,
            partition_leader_epoch: LeaderEpoch::NONE,
            crc: 0,
            attributes: 0,
            last_offset_delta: 0,
            base_timestamp_ms: -1,
            max_timestamp_ms: -1,
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch::NONE,
            base_sequence: -1,
            record_count: 0,
        };
        Self { header, compression: Compression::None, records: Encoder::new(), last_delta: -1 }
    }

    /// A batch with the flags, producer, epoch and base of another, without its records: what compaction puts the remaining ones in.
    /// Base timestamp and last offset stay the other's, even if no record does.
    #[must_use]
    pub fn like(header: &BatchHeader) -> Self {
        let mut builder = Self::new(header.base_offset);
        builder.compression = header.compression();
        builder.header = BatchHeader { max_timestamp_ms: -1, record_count: 0, ..*header };
        builder
    }

    /// Compresses the records.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Makes it an idempotent producer's.
    #[must_use]
    pub fn producer(mut self, id: ProducerId, epoch: ProducerEpoch, base_sequence: i32) -> Self {
        self.header.producer_id = id;
        self.header.producer_epoch = epoch;
        self.header.base_sequence = base_sequence;
        self
    }

    /// The leader that appends it.
    #[must_use]
    pub fn leader_epoch(mut self, epoch: LeaderEpoch) -> Self {
        self.header.partition_leader_epoch = epoch;
        self
    }

    /// Puts it into the producer's transaction.
    #[must_use]
    pub fn transactional(self, on: bool) -> Self {
        self.flag(TRANSACTIONAL_BIT, on)
    }

    /// Makes it a marker for brokers and clients.
    #[must_use]
    pub fn control(self, on: bool) -> Self {
        self.flag(CONTROL_BIT, on)
    }

    /// Whose clock the timestamps are from.
    #[must_use]
    pub fn timestamp_type(self, kind: TimestampType) -> Self {
        self.flag(LOG_APPEND_TIME_BIT, kind == TimestampType::LogAppendTime)
    }

    /// The time after which compaction may drop the batch's tombstones. To be given before the first record.
    #[must_use]
    pub fn delete_horizon_ms(mut self, horizon_ms: i64) -> Self {
        self.header.base_timestamp_ms = horizon_ms;
        self.flag(DELETE_HORIZON_BIT, true)
    }

    fn flag(mut self, bit: i16, on: bool) -> Self {
        self.header.attributes = if on { self.header.attributes | bit } else { self.header.attributes & !bit };
        self
    }

    /// Records so far.
    #[must_use]
    pub fn record_count(&self) -> i32 {
        self.header.record_count
    }

    /// Bytes the batch would have uncompressed.
    #[must_use]
    pub fn uncompressed_bytes(&self) -> usize {
        HEADER_BYTES + self.records.len()
    }

    /// Adds a record at the next offset.
    pub fn push(&mut self, record: &NewRecord<'_>) -> Result<&mut Self, BuildError> {
        self.push_at(self.last_delta.saturating_add(1), record)
    }

    /// Adds a record at a given distance from the base offset, which must be above the last one's.
    pub fn push_at(&mut self, offset_delta: i32, record: &NewRecord<'_>) -> Result<&mut Self, BuildError> {
        if offset_delta <= self.last_delta {
            return Err(BuildError::OffsetNotRising { delta: offset_delta, last: self.last_delta });
        }
        let fresh = self.header.record_count == 0 && self.header.base_timestamp_ms == -1;
        let base_timestamp_ms = if fresh { record.timestamp_ms } else { self.header.base_timestamp_ms };
        let timestamp_delta = record.timestamp_ms.wrapping_sub(base_timestamp_ms);
        let length = body_bytes(timestamp_delta, offset_delta, record);
        size("record batch", self.uncompressed_bytes() + length + MAX_VARINT_BYTES)?;
        // Whatever fails does so before the first byte is written: a record is in the batch whole or not at all.
        let (length, header_count) = (size("record", length)?, size("record headers", record.headers.len())?);
        let out = &mut self.records;
        out.varint(length);
        out.i8(0);
        out.varlong(timestamp_delta);
        out.varint(offset_delta);
        put_bytes(out, record.key)?;
        put_bytes(out, record.value)?;
        out.varint(header_count);
        for (name, value) in record.headers {
            put_bytes(out, Some(name))?;
            put_bytes(out, *value)?;
        }
        self.header.base_timestamp_ms = base_timestamp_ms;
        self.header.max_timestamp_ms = self.header.max_timestamp_ms.max(record.timestamp_ms);
        self.header.record_count += 1;
        self.last_delta = offset_delta;
        Ok(self)
    }

    /// Adds a record that was read from a batch with the same base offset.
    pub fn push_record(&mut self, record: &Record) -> Result<&mut Self, BuildError> {
        let delta = record.offset.0.wrapping_sub(self.header.base_offset.0);
        let delta =
            i32::try_from(delta).map_err(|_| BuildError::OffsetNotRising { delta: i32::MAX, last: self.last_delta })?;
        let headers: Vec<_> = record.headers.iter().map(|header| (&header.key[..], header.value.as_deref())).collect();
        let new = NewRecord {
            timestamp_ms: record.timestamp_ms,
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: &headers,
        };
        self.push_at(delta, &new)
    }

    /// The whole batch, with its CRC. Without records it is the empty batch that compaction leaves behind.
    pub fn build(self) -> Result<Bytes, BuildError> {
        self.build_mut().map(BytesMut::freeze)
    }

    /// Like [`BatchBuilder::build`], for those who patch it next.
    pub fn build_mut(self) -> Result<BytesMut, BuildError> {
        let Self { mut header, compression, records, last_delta } = self;
        header.last_offset_delta = header.last_offset_delta.max(last_delta);
        header.attributes = (header.attributes & !super::header::COMPRESSION_BITS) | compression.id();
        let plain = records.into_bytes().unwrap_or_default();
        let mut batch = Vec::with_capacity(HEADER_BYTES + plain.len());
        batch.extend_from_slice(&header.to_bytes());
        compression.compress(&plain, &mut batch)?;
        header.batch_length = size("record batch", batch.len())? - size("length prefix", LENGTH_PREFIX_BYTES)?;
        if let Some(place) = batch.first_chunk_mut::<HEADER_BYTES>() {
            *place = header.to_bytes();
        }
        seal(&mut batch);
        Ok(Bytes::from(batch).into())
    }
}

fn size(what: &'static str, bytes: usize) -> Result<i32, BuildError> {
    i32::try_from(bytes).map_err(|_| BuildError::TooLarge { what, bytes })
}

/// Bytes that a record takes after its length.
fn body_bytes(timestamp_delta: i64, offset_delta: i32, record: &NewRecord<'_>) -> usize {
    let bytes = |value: Option<&[u8]>| value.map_or(1, |value| varint_bytes(value.len() as i64) + value.len());
    let headers = record.headers.iter().map(|(name, value)| bytes(Some(name)) + bytes(*value)).sum::<usize>();
    1 + varint_bytes(timestamp_delta)
        + varint_bytes(i64::from(offset_delta))
        + bytes(record.key)
        + bytes(record.value)
        + varint_bytes(record.headers.len() as i64)
        + headers
}

/// Bytes of a zigzag varint: seven bits in each.
fn varint_bytes(value: i64) -> usize {
    let bits = 64 - ((value << 1) ^ (value >> 63)).leading_zeros();
    bits.div_ceil(7).max(1) as usize
}

fn put_bytes(encoder: &mut Encoder, value: Option<&[u8]>) -> Result<(), BuildError> {
    match value {
        Some(bytes) => {
            encoder.varint(size("key, value or header", bytes.len())?);
            encoder.raw(bytes);
        }
        None => encoder.varint(-1),
    }
    Ok(())
}
