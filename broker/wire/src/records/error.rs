//! What can be wrong with batches and records.

use thiserror::Error;

use super::Compression;

/// Why bytes are not a record batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BatchError {
    /// The bytes end before the batch does. At the end of a fetch response this is normal: the broker cuts at its limit.
    #[error("record batch needs {needed} bytes, there are {present}")]
    Incomplete {
        /// Bytes the batch, or its header, has.
        needed: usize,
        /// Bytes there are.
        present: usize,
    },
    /// A format from before Kafka 0.11, or from the future.
    #[error(
        "record batch has magic {0}, only 2 is supported: the client must use message format v2 (Kafka 0.11 or newer)"
    )]
    UnsupportedMagic(i8),
    /// A length that not even the header fits.
    #[error("record batch has length {0}, the least is 49")]
    InvalidLength(i32),
    /// Count, last offset and base offset contradict each other.
    #[error(
        "record batch at offset {base_offset} counts {record_count} records with a last offset delta of {last_offset_delta}"
    )]
    InvalidCount {
        /// Offset of the first record.
        base_offset: i64,
        /// Records counted.
        record_count: i32,
        /// Last offset minus first.
        last_offset_delta: i32,
    },
    /// The bytes are not what the producer sent.
    #[error("record batch has crc {stored:#010x}, its bytes have {computed:#010x}")]
    CrcMismatch {
        /// What the header says.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// An algorithm nobody knows.
    #[error("record batch has compression {0}, the known ones are 0-4")]
    UnknownCompression(i16),
}

/// Why a batch's records can't be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// The batch itself is wrong.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The records field by field.
    #[error("record {index}: {source}")]
    Field {
        /// Which record, from 0.
        index: i32,
        /// The field and what is wrong with it.
        source: crate::primitives::DecodeError,
    },
    /// Bytes that don't decompress.
    #[error("{compression} records can't be decompressed: {reason}")]
    Decompress {
        /// The algorithm.
        compression: Compression,
        /// What the decompressor says.
        reason: String,
    },
    /// More bytes than the caller takes.
    #[error("{compression} records are larger than {limit_bytes} bytes when decompressed")]
    TooLarge {
        /// The algorithm.
        compression: Compression,
        /// Bytes allowed.
        limit_bytes: usize,
    },
}

/// Why a batch can't be built.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BuildError {
    /// A key, value, header or the whole is larger than the format can say.
    #[error("{what} has {bytes} bytes, the most is {most}", most = i32::MAX)]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size.
        bytes: usize,
    },
    /// Offsets must rise within a batch.
    #[error("offset delta {delta} does not follow {last}")]
    OffsetNotRising {
        /// The delta given.
        delta: i32,
        /// The last one before it.
        last: i32,
    },
    /// The compressor failed.
    #[error("{compression} can't compress: {reason}")]
    Compress {
        /// The algorithm.
        compression: Compression,
        /// What the compressor says.
        reason: String,
    },
}
