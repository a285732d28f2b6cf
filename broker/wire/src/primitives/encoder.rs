//! Writes the wire's encodings. Records are not copied: they are remembered with their place and come out as parts of their own, so
//! that a range of a file can be sent without passing through memory.

use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

use super::Records;
use crate::types::Uuid;

/// Records in memory up to this many bytes are copied; one part less is worth more than the copy.
const COPY_AT_MOST_BYTES: usize = 4096;

/// Why a message can't be written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// A value that the version has no place for, and that may not be dropped silently.
    #[error("{field} is set, but version {version} has no such field")]
    UnsupportedField {
        /// The field, as `Struct.field`.
        field: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// Null where the version has no null.
    #[error("{field} is null, which version {version} does not allow")]
    Null {
        /// The field, as `Struct.field`.
        field: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// Longer than the length prefix can say.
    #[error("{field} has length {length}, the most is {most}")]
    TooLong {
        /// The field, as `Struct.field`.
        field: &'static str,
        /// Its length, in bytes or elements.
        length: usize,
        /// The most there can be.
        most: usize,
    },
    /// A version the message does not have.
    #[error("{message} version {version} is not one of {min}-{max}")]
    UnsupportedVersion {
        /// The message.
        message: &'static str,
        /// The version asked for.
        version: i16,
        /// Lowest version there is.
        min: i16,
        /// Highest version there is.
        max: i16,
    },
}

/// A piece of an encoded frame, in the order in which the pieces go out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Bytes in memory.
    Bytes(Bytes),
    /// `length` bytes that the writer puts in; see [`Records::Region`].
    Region {
        /// Names the region to the writer.
        token: u32,
        /// Bytes the region has.
        length: u32,
    },
}

impl Part {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Region { length, .. } => *length as usize,
        }
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Collects one message or frame.
#[derive(Debug, Default)]
pub struct Encoder {
    buffer: BytesMut,
    /// Parts that go between the buffer's bytes, each before the byte at its position; positions never fall.
    splices: Vec<(usize, Part)>,
    spliced_bytes: usize,
}

type Result<T> = std::result::Result<T, EncodeError>;

impl Encoder {
    /// An encoder with nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An encoder with room for this many bytes.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self { buffer: BytesMut::with_capacity(bytes), ..Self::default() }
    }

    /// Bytes written so far, spliced ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer.len() + self.spliced_bytes
    }

    /// Whether nothing was written yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What was written, in order; no part is empty.
    #[must_use]
    pub fn finish(mut self) -> Vec<Part> {
        let mut parts = Vec::with_capacity(2 * self.splices.len() + 1);
        let mut taken = 0;
        for (position, splice) in self.splices {
            if position > taken {
                parts.push(Part::Bytes(self.buffer.split_to(position - taken).freeze()));
                taken = position;
            }
            parts.push(splice);
        }
        if !self.buffer.is_empty() {
            parts.push(Part::Bytes(self.buffer.freeze()));
        }
        parts
    }

    /// What was written as one piece, or `None` if a region is in it.
    #[must_use]
    pub fn into_bytes(self) -> Option<Bytes> {
        if self.splices.is_empty() {
            return Some(self.buffer.freeze());
        }
        let mut whole = BytesMut::with_capacity(self.len());
        for part in self.finish() {
            match part {
                Part::Bytes(bytes) => whole.extend_from_slice(&bytes),
                Part::Region { .. } => return None,
            }
        }
        Some(whole.freeze())
    }

    /// Overwrites the four bytes at `position`, which must have been written with [`Encoder::i32`] before anything was spliced.
    pub(crate) fn patch_i32(&mut self, position: usize, value: i32) {
        if let Some(place) = self.buffer.get_mut(position..).and_then(|rest| rest.first_chunk_mut::<4>()) {
            *place = value.to_be_bytes();
        }
    }

    /// Writes raw bytes without a length.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.buffer.put_slice(bytes);
    }

    /// Writes one byte.
    pub fn i8(&mut self, value: i8) {
        self.buffer.put_i8(value);
    }

    /// Writes two bytes.
    pub fn i16(&mut self, value: i16) {
        self.buffer.put_i16(value);
    }

    /// Writes two bytes.
    pub fn u16(&mut self, value: u16) {
        self.buffer.put_u16(value);
    }

    /// Writes four bytes.
    pub fn i32(&mut self, value: i32) {
        self.buffer.put_i32(value);
    }

    /// Writes four bytes.
    pub fn u32(&mut self, value: u32) {
        self.buffer.put_u32(value);
    }

    /// Writes eight bytes.
    pub fn i64(&mut self, value: i64) {
        self.buffer.put_i64(value);
    }

    /// Writes eight bytes.
    pub fn f64(&mut self, value: f64) {
        self.buffer.put_f64(value);
    }

    /// Writes one byte, 0 or 1.
    pub fn bool(&mut self, value: bool) {
        self.buffer.put_u8(u8::from(value));
    }

    /// Writes 16 bytes.
    pub fn uuid(&mut self, value: Uuid) {
        self.buffer.put_slice(&value.0);
    }

    /// Writes an unsigned varint, at most five bytes.
    pub fn uvarint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.buffer.put_u8(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.buffer.put_u8(value.to_le_bytes()[0]);
    }

    /// Writes a zigzag varint, at most five bytes.
    pub fn varint(&mut self, value: i32) {
        self.uvarint(((value << 1) ^ (value >> 31)).cast_unsigned());
    }

    /// Writes a zigzag varint, at most ten bytes.
    pub fn varlong(&mut self, value: i64) {
        let mut raw = ((value << 1) ^ (value >> 63)).cast_unsigned();
        while raw >= 0x80 {
            self.buffer.put_u8(raw.to_le_bytes()[0] | 0x80);
            raw >>= 7;
        }
        self.buffer.put_u8(raw.to_le_bytes()[0]);
    }

    fn length(&mut self, length: usize, narrow: bool, flexible: bool, field: &'static str) -> Result<()> {
        let most = if narrow { i16::MAX as usize } else { i32::MAX as usize };
        let too_long = || EncodeError::TooLong { field, length, most };
        if length > most {
            return Err(too_long());
        }
        if flexible {
            self.uvarint(u32::try_from(length).map_err(|_| too_long())? + 1);
        } else if narrow {
            self.i16(i16::try_from(length).map_err(|_| too_long())?);
        } else {
            self.i32(i32::try_from(length).map_err(|_| too_long())?);
        }
        Ok(())
    }

    fn null(&mut self, narrow: bool, flexible: bool) {
        match (flexible, narrow) {
            (true, _) => self.uvarint(0),
            (false, true) => self.i16(-1),
            (false, false) => self.i32(-1),
        }
    }

    /// Writes text, at most 32,767 bytes in either generation.
    pub fn string(&mut self, flexible: bool, field: &'static str, value: &str) -> Result<()> {
        self.length(value.len(), true, flexible, field)?;
        self.raw(value.as_bytes());
        Ok(())
    }

    /// Writes text or null.
    pub fn string_opt(&mut self, flexible: bool, field: &'static str, value: Option<&str>) -> Result<()> {
        match value {
            Some(text) => self.string(flexible, field, text),
            None => {
                self.null(true, flexible);
                Ok(())
            }
        }
    }

    /// Writes bytes.
    pub fn bytes(&mut self, flexible: bool, field: &'static str, value: &[u8]) -> Result<()> {
        self.length(value.len(), false, flexible, field)?;
        self.raw(value);
        Ok(())
    }

    /// Writes bytes or null.
    pub fn bytes_opt(&mut self, flexible: bool, field: &'static str, value: Option<&[u8]>) -> Result<()> {
        match value {
            Some(bytes) => self.bytes(flexible, field, bytes),
            None => {
                self.null(false, flexible);
                Ok(())
            }
        }
    }

    /// Writes the records' length, and the records as a part of their own unless they are short.
    pub fn records(&mut self, flexible: bool, field: &'static str, value: &Records) -> Result<()> {
        self.length(value.len(), false, flexible, field)?;
        let part = match value {
            Records::Bytes(bytes) if bytes.len() <= COPY_AT_MOST_BYTES => {
                self.raw(bytes);
                return Ok(());
            }
            Records::Bytes(bytes) => Part::Bytes(bytes.clone()),
            Records::Region { length: 0, .. } => return Ok(()),
            &Records::Region { token, length } => Part::Region { token, length },
        };
        self.spliced_bytes += part.len();
        self.splices.push((self.buffer.len(), part));
        Ok(())
    }

    /// Writes records or null.
    pub fn records_opt(&mut self, flexible: bool, field: &'static str, value: Option<&Records>) -> Result<()> {
        match value {
            Some(records) => self.records(flexible, field, records),
            None => {
                self.null(false, flexible);
                Ok(())
            }
        }
    }

    /// Writes an array.
    pub fn array<T>(
        &mut self,
        flexible: bool,
        field: &'static str,
        values: &[T],
        mut element: impl FnMut(&mut Self, &T) -> Result<()>,
    ) -> Result<()> {
        self.length(values.len(), false, flexible, field)?;
        values.iter().try_for_each(|value| element(self, value))
    }

    /// Writes an array or null.
    pub fn array_opt<T>(
        &mut self,
        flexible: bool,
        field: &'static str,
        values: Option<&[T]>,
        element: impl FnMut(&mut Self, &T) -> Result<()>,
    ) -> Result<()> {
        match values {
            Some(values) => self.array(flexible, field, values, element),
            None => {
                self.null(false, flexible);
                Ok(())
            }
        }
    }

    /// Writes a struct that may be null: a byte of -1 for null or 1 goes before it.
    pub fn struct_opt<T>(&mut self, value: Option<&T>, body: impl FnOnce(&mut Self, &T) -> Result<()>) -> Result<()> {
        match value {
            Some(value) => {
                self.i8(1);
                body(self, value)
            }
            None => {
                self.i8(-1);
                Ok(())
            }
        }
    }

    /// Writes a tagged field's struct that may be null: there a varint of 0 for null or 1 goes before it.
    pub fn tagged_struct_opt<T>(
        &mut self,
        value: Option<&T>,
        body: impl FnOnce(&mut Self, &T) -> Result<()>,
    ) -> Result<()> {
        self.uvarint(u32::from(value.is_some()));
        value.map_or(Ok(()), |value| body(self, value))
    }

    /// Writes one tagged field: tag, length, value. Values hold no records, so their bytes are all in the buffer.
    pub fn tagged(&mut self, tag: u32, value: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.uvarint(tag);
        let start = self.buffer.len();
        value(self)?;
        let value = self.buffer.split_off(start);
        self.length_of_tagged(value.len())?;
        self.raw(&value);
        Ok(())
    }

    fn length_of_tagged(&mut self, length: usize) -> Result<()> {
        let most = i32::MAX as usize;
        let length = u32::try_from(length).map_err(|_| EncodeError::TooLong { field: "tagged field", length, most })?;
        self.uvarint(length);
        Ok(())
    }

    /// Fails unless `absent` holds: a value that `version` can't carry must be the default.
    pub fn require_default(absent: bool, field: &'static str, version: i16) -> Result<()> {
        if absent { Ok(()) } else { Err(EncodeError::UnsupportedField { field, version }) }
    }

    /// The value, or the error that `version` has no null for it.
    pub fn require<'a, T>(value: &'a Option<T>, field: &'static str, version: i16) -> Result<&'a T> {
        value.as_ref().ok_or(EncodeError::Null { field, version })
    }

    /// Fails unless the message has this version.
    pub fn check_version(message: &'static str, version: i16, min: i16, max: i16) -> Result<()> {
        if (min..=max).contains(&version) {
            return Ok(());
        }
        Err(EncodeError::UnsupportedVersion { message, version, min, max })
    }
}
