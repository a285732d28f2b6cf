//! The batches in a piece of a log or of a request, one after the other, without a copy.

use bytes::Bytes;

use super::record::RecordIter;
use super::{BatchError, BatchHeader, RecordError};

/// One whole batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Its header, checked except for the CRC.
    pub header: BatchHeader,
    /// All its bytes, header included.
    pub bytes: Bytes,
}

impl Batch {
    /// Reads the one batch that `bytes` are, and checks its CRC.
    pub fn validate(bytes: Bytes) -> Result<Self, BatchError> {
        Ok(Self { header: BatchHeader::validate(&bytes)?, bytes })
    }

    /// Compares the CRC with the bytes.
    pub fn check_crc(&self) -> Result<(), BatchError> {
        BatchHeader::validate(&self.bytes).map(|_| ())
    }

    /// Its records. Compressed ones are decompressed at once, into at most `limit_bytes`; uncompressed ones are slices of the batch.
    pub fn records(&self, limit_bytes: usize) -> Result<RecordIter, RecordError> {
        RecordIter::new(&self.header, &self.bytes, limit_bytes)
    }
}

/// Goes over the batches in `bytes`. After an error there is nothing more; bytes that end within a batch give
/// [`BatchError::Incomplete`].
#[must_use]
pub fn batches(bytes: &Bytes) -> Batches {
    Batches { rest: bytes.clone() }
}

/// See [`batches`].
#[derive(Clone, Debug)]
pub struct Batches {
    rest: Bytes,
}

impl Batches {
    /// Bytes not gone over yet.
    #[must_use]
    pub fn rest(&self) -> &Bytes {
        &self.rest
    }
}

impl Iterator for Batches {
    type Item = Result<Batch, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let batch = BatchHeader::parse(&self.rest).and_then(|header| {
            let (needed, present) = (header.total_bytes(), self.rest.len());
            if needed > present {
                return Err(BatchError::Incomplete { needed, present });
            }
            Ok(Batch { header, bytes: self.rest.split_to(needed) })
        });
        if batch.is_err() {
            self.rest.clear();
        }
        Some(batch)
    }
}
