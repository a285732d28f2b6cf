//! The records inside a batch. Every length is checked against the record it is in, and every record against the batch.

use bytes::Bytes;

use super::header::HEADER_BYTES;
use super::{BatchHeader, RecordError, TimestampType};
use crate::primitives::{DecodeError, DecodeErrorKind, Decoder};
use crate::types::Offset;

/// A header takes a varint for its key and one for its value at least.
const LEAST_HEADER_BYTES: usize = 2;

/// One record. Its bytes are slices of the batch, or of what the batch was decompressed into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where it is in the partition.
    pub offset: Offset,
    /// Milliseconds since 1970; of the append for [`TimestampType::LogAppendTime`].
    pub timestamp_ms: i64,
    /// What compaction and partitioning go by.
    pub key: Option<Bytes>,
    /// None is a tombstone.
    pub value: Option<Bytes>,
    /// In the producer's order; keys may repeat.
    pub headers: Vec<RecordHeader>,
}

/// One header of a record. The key should be UTF-8, but nobody checks it on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Its name.
    pub key: Bytes,
    /// Its value.
    pub value: Option<Bytes>,
}

/// Goes over a batch's records. After an error there is nothing more.
#[derive(Clone, Debug)]
pub struct RecordIter {
    decoder: Decoder,
    header: BatchHeader,
    index: i32,
}

impl RecordIter {
    pub(super) fn new(header: &BatchHeader, batch: &Bytes, limit_bytes: usize) -> Result<Self, RecordError> {
        let stored = batch.slice(HEADER_BYTES.min(batch.len())..);
        let plain = header.compression().decompress(stored, limit_bytes)?;
        Ok(Self { decoder: Decoder::new(plain), header: *header, index: 0 })
    }

    fn read(&mut self) -> Result<Record, DecodeError> {
        let length = self.decoder.varint("length")?;
        let body = self.decoder.slice(length, "length")?;
        let mut decoder = Decoder::new(body);
        decoder.i8("attributes")?;
        let timestamp_delta = decoder.varlong("timestamp_delta")?;
        let offset_delta = decoder.varint("offset_delta")?;
        if !(0..=self.header.last_offset_delta).contains(&offset_delta) {
            let kind = DecodeErrorKind::InvalidValue(i64::from(offset_delta));
            return Err(DecodeError { field: "offset_delta", kind });
        }
        let record = Record {
            offset: Offset(self.header.base_offset.0 + i64::from(offset_delta)),
            timestamp_ms: match self.header.timestamp_type() {
                TimestampType::CreateTime => self.header.base_timestamp_ms.wrapping_add(timestamp_delta),
                TimestampType::LogAppendTime => self.header.max_timestamp_ms,
            },
            key: decoder.varint_bytes("key")?,
            value: decoder.varint_bytes("value")?,
            headers: read_headers(&mut decoder)?,
        };
        decoder.finish("record")?;
        Ok(record)
    }
}

fn read_headers(decoder: &mut Decoder) -> Result<Vec<RecordHeader>, DecodeError> {
    let field = "headers";
    let announced = decoder.varint(field)?;
    let count = usize::try_from(announced)
        .map_err(|_| DecodeError { field, kind: DecodeErrorKind::InvalidLength(i64::from(announced)) })?;
    let remaining = decoder.remaining();
    if count > remaining / LEAST_HEADER_BYTES {
        return Err(DecodeError { field, kind: DecodeErrorKind::TooMany { count: count as u64, remaining } });
    }
    (0..count)
        .map(|_| {
            let key = decoder.varint_bytes("headers.key")?;
            let key = key.ok_or(DecodeError { field: "headers.key", kind: DecodeErrorKind::Null })?;
            Ok(RecordHeader { key, value: decoder.varint_bytes("headers.value")? })
        })
        .collect()
}

impl Iterator for RecordIter {
    type Item = Result<Record, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.index >= self.header.record_count {
            return None;
        }
        let index = self.index;
        let mut record = self.read();
        self.index += 1;
        if self.index == self.header.record_count {
            record = record.and_then(|record| self.decoder.finish("records").map(|()| record));
        }
        if record.is_err() {
            self.index = self.header.record_count;
        }
        Some(record.map_err(|source| RecordError::Field { index, source }))
    }
}
