//! Reads the wire's encodings from one frame. Always holds: no read goes past the frame's end, nothing is allocated for more than the
//! bytes that remain could fill, and every error names the field that was being read.

use bytes::Bytes;
use thiserror::Error;

use super::Records;
use crate::types::{Str, Uuid};

/// Elements for which room is made before the first is read; a longer array grows as its elements prove to be there.
const FIRST_CAPACITY_ELEMENTS: usize = 1024;

/// Why bytes are not the message they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{field}: {kind}")]
pub struct DecodeError {
    /// The field, as `Struct.field`.
    pub field: &'static str,
    /// What is wrong with it.
    pub kind: DecodeErrorKind,
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeErrorKind {
    /// The frame ends too early.
    #[error("needs {needed} bytes, {remaining} remain")]
    TooShort {
        /// Bytes the field asks for.
        needed: u64,
        /// Bytes the frame has left.
        remaining: usize,
    },
    /// A length or count that the encoding does not have.
    #[error("length {0} is not possible here")]
    InvalidLength(i64),
    /// Null where the version has no null.
    #[error("is null, which this version does not allow")]
    Null,
    /// More elements than the rest of the frame can hold.
    #[error("counts {count} elements, {remaining} remaining bytes can't hold them")]
    TooMany {
        /// Elements announced.
        count: u64,
        /// Bytes the frame has left.
        remaining: usize,
    },
    /// A varint longer than its type.
    #[error("varint is longer than {0} bytes")]
    VarintTooLong(u8),
    /// Text that is not text.
    #[error("is not valid utf-8")]
    NotUtf8,
    /// A tagged field with bytes left over.
    #[error("has {0} bytes after its value")]
    Trailing(usize),
    /// A version the message does not have.
    #[error("version {version} is not one of {min}-{max}")]
    UnsupportedVersion {
        /// The version asked for.
        version: i16,
        /// Lowest version there is.
        min: i16,
        /// Highest version there is.
        max: i16,
    },
    /// A byte that has only a few values, with another one.
    #[error("value {0} is not one of those allowed")]
    InvalidValue(i64),
}

/// Reads one frame from its start to its end.
#[derive(Clone, Debug)]
pub struct Decoder {
    bytes: Bytes,
    at: usize,
}

type Result<T> = std::result::Result<T, DecodeError>;

const fn error(field: &'static str, kind: DecodeErrorKind) -> DecodeError {
    DecodeError { field, kind }
}

macro_rules! fixed_width {
    ($($name:ident $type:ty;)*) => {
        $(
            #[doc = concat!("Reads a big-endian `", stringify!($type), "`.")]
            pub fn $name(&mut self, field: &'static str) -> Result<$type> {
                self.array_of_bytes(field).map(<$type>::from_be_bytes)
            }
        )*
    };
}

impl Decoder {
    /// A decoder at the first of these bytes.
    #[must_use]
    pub const fn new(bytes: Bytes) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes not read yet.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Takes all bytes not read yet.
    pub fn rest(&mut self) -> Bytes {
        let rest = self.bytes.slice(self.at..);
        self.at = self.bytes.len();
        rest
    }

    /// Fails if bytes are left; `what` names what should have ended.
    pub fn finish(&self, what: &'static str) -> Result<()> {
        match self.remaining() {
            0 => Ok(()),
            left => Err(error(what, DecodeErrorKind::Trailing(left))),
        }
    }

    fn take(&mut self, length: usize, field: &'static str) -> Result<Bytes> {
        let remaining = self.remaining();
        if length > remaining {
            return Err(error(field, DecodeErrorKind::TooShort { needed: length as u64, remaining }));
        }
        let taken = self.bytes.slice(self.at..self.at + length);
        self.at += length;
        Ok(taken)
    }

    fn array_of_bytes<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N]> {
        let remaining = self.remaining();
        match self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>()) {
            Some(chunk) => {
                let chunk = *chunk;
                self.at += N;
                Ok(chunk)
            }
            None => Err(error(field, DecodeErrorKind::TooShort { needed: N as u64, remaining })),
        }
    }

    fixed_width! { i8 i8; u8 u8; i16 i16; u16 u16; i32 i32; u32 u32; i64 i64; f64 f64; }

    /// Reads one byte; anything but 0 is true.
    pub fn bool(&mut self, field: &'static str) -> Result<bool> {
        self.u8(field).map(|byte| byte != 0)
    }

    /// Reads 16 bytes of id.
    pub fn uuid(&mut self, field: &'static str) -> Result<Uuid> {
        self.array_of_bytes(field).map(Uuid)
    }

    /// Reads an unsigned varint of at most five bytes.
    pub fn uvarint(&mut self, field: &'static str) -> Result<u32> {
        let mut value = 0u32;
        for shift in [0u32, 7, 14, 21, 28] {
            let byte = self.u8(field)?;
            if shift == 28 && byte > 0x0f {
                break;
            }
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(error(field, DecodeErrorKind::VarintTooLong(5)))
    }

    /// Reads a zigzag varint of at most five bytes.
    pub fn varint(&mut self, field: &'static str) -> Result<i32> {
        let raw = self.uvarint(field)?;
        Ok((raw >> 1).cast_signed() ^ -((raw & 1).cast_signed()))
    }

    /// Reads a zigzag varint of at most ten bytes.
    pub fn varlong(&mut self, field: &'static str) -> Result<i64> {
        let mut raw = 0u64;
        for index in 0u32..10 {
            let byte = self.u8(field)?;
            if index == 9 && byte > 0x01 {
                break;
            }
            raw |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                return Ok((raw >> 1).cast_signed() ^ -((raw & 1).cast_signed()));
            }
        }
        Err(error(field, DecodeErrorKind::VarintTooLong(10)))
    }

    /// Reads `length` bytes.
    pub fn slice(&mut self, length: i32, field: &'static str) -> Result<Bytes> {
        match usize::try_from(length) {
            Ok(length) => self.take(length, field),
            Err(_) => Err(error(field, DecodeErrorKind::InvalidLength(i64::from(length)))),
        }
    }

    /// Reads bytes as records have them: a zigzag varint of the length, -1 for null.
    pub fn varint_bytes(&mut self, field: &'static str) -> Result<Option<Bytes>> {
        match self.varint(field)? {
            -1 => Ok(None),
            length => self.slice(length, field).map(Some),
        }
    }

    /// Reads the length of something that may be null: -1 is null in both generations.
    fn length(&mut self, narrow: bool, flexible: bool, field: &'static str) -> Result<Option<usize>> {
        let length = match (flexible, narrow) {
            (true, _) => i64::from(self.uvarint(field)?) - 1,
            (false, true) => i64::from(self.i16(field)?),
            (false, false) => i64::from(self.i32(field)?),
        };
        // Text never has more than the older generation's prefix can say, in the newer one too.
        let most = if narrow { i64::from(i16::MAX) } else { i64::from(i32::MAX) };
        match usize::try_from(length) {
            Ok(usable) if length <= most => Ok(Some(usable)),
            _ if length == -1 => Ok(None),
            _ => Err(error(field, DecodeErrorKind::InvalidLength(length))),
        }
    }

    /// Reads text that may be null.
    pub fn string_opt(&mut self, flexible: bool, field: &'static str) -> Result<Option<Str>> {
        let Some(length) = self.length(true, flexible, field)? else { return Ok(None) };
        let bytes = self.take(length, field)?;
        Str::try_from(bytes).map(Some).map_err(|_| error(field, DecodeErrorKind::NotUtf8))
    }

    /// Reads text.
    pub fn string(&mut self, flexible: bool, field: &'static str) -> Result<Str> {
        self.string_opt(flexible, field)?.ok_or(error(field, DecodeErrorKind::Null))
    }

    /// Reads bytes that may be null.
    pub fn bytes_opt(&mut self, flexible: bool, field: &'static str) -> Result<Option<Bytes>> {
        let Some(length) = self.length(false, flexible, field)? else { return Ok(None) };
        self.take(length, field).map(Some)
    }

    /// Reads bytes.
    pub fn bytes(&mut self, flexible: bool, field: &'static str) -> Result<Bytes> {
        self.bytes_opt(flexible, field)?.ok_or(error(field, DecodeErrorKind::Null))
    }

    /// Reads records that may be null.
    pub fn records_opt(&mut self, flexible: bool, field: &'static str) -> Result<Option<Records>> {
        Ok(self.bytes_opt(flexible, field)?.map(Records::Bytes))
    }

    /// Reads records.
    pub fn records(&mut self, flexible: bool, field: &'static str) -> Result<Records> {
        self.bytes(flexible, field).map(Records::Bytes)
    }

    /// Reads an array that may be null. `least` is the fewest bytes an element can take, never 0: a count that the remaining bytes
    /// can't hold is refused before anything is allocated.
    pub fn array_opt<T>(
        &mut self,
        flexible: bool,
        field: &'static str,
        least: usize,
        mut element: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Option<Vec<T>>> {
        let Some(count) = self.length(false, flexible, field)? else { return Ok(None) };
        let remaining = self.remaining();
        if count > remaining / least.max(1) {
            return Err(error(field, DecodeErrorKind::TooMany { count: count as u64, remaining }));
        }
        let mut elements = Vec::with_capacity(count.min(FIRST_CAPACITY_ELEMENTS));
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(Some(elements))
    }

    /// Reads an array; see [`Decoder::array_opt`].
    pub fn array<T>(
        &mut self,
        flexible: bool,
        field: &'static str,
        least: usize,
        element: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.array_opt(flexible, field, least, element)?.ok_or(error(field, DecodeErrorKind::Null))
    }

    /// Reads a struct that may be null: a byte of -1 for null or 1 goes before it.
    pub fn struct_opt<T>(
        &mut self,
        field: &'static str,
        body: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<Option<T>> {
        match self.i8(field)? {
            ..0 => Ok(None),
            _ => body(self).map(Some),
        }
    }

    /// Reads a tagged field's struct that may be null: there a varint of 0 for null or 1 goes before it.
    pub fn tagged_struct_opt<T>(
        &mut self,
        field: &'static str,
        body: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<Option<T>> {
        match self.uvarint(field)? {
            0 => Ok(None),
            _ => body(self).map(Some),
        }
    }

    /// Reads the tagged fields at a struct's end. `known` reads the field with the tag it is given, or says `false` to have it skipped.
    pub fn tagged(&mut self, field: &'static str, mut known: impl FnMut(u32, &mut Self) -> Result<bool>) -> Result<()> {
        for _ in 0..self.uvarint(field)? {
            let tag = self.uvarint(field)?;
            let length = self.uvarint(field)? as usize;
            let mut value = Self::new(self.take(length, field)?);
            if known(tag, &mut value)? {
                value.finish(field)?;
            }
        }
        Ok(())
    }

    /// Skips the tagged fields of a struct that knows none.
    pub fn skip_tagged(&mut self, field: &'static str) -> Result<()> {
        self.tagged(field, |_, _| Ok(false))
    }

    /// Fails unless the message `name` has this version.
    pub fn check_version(name: &'static str, version: i16, min: i16, max: i16) -> Result<()> {
        if (min..=max).contains(&version) {
            return Ok(());
        }
        Err(error(name, DecodeErrorKind::UnsupportedVersion { version, min, max }))
    }
}
