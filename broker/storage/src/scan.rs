//! Walks the record batches of a segment file, from one header to the next.
//!
//! With checksums it reads all bytes and is what recovery trusts; without, it hops over the payloads and is what a read uses behind a sparse
//! index. It never trusts a length: a batch that would end beyond the bound is invalid, not read.

use forebay_broker_wire::{
    records::{BatchError, BatchHeader, HEADER_BYTES},
    types::Offset,
};

use crate::disk::{DiskError, DiskFile};

const HOP_READ_BYTES: usize = 4 << 10;
const CHECKSUM_READ_BYTES: usize = 1 << 20;

/// A batch and where it lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocatedBatch {
    pub(crate) position: u64,
    pub(crate) header: BatchHeader,
}

impl LocatedBatch {
    pub(crate) fn end(&self) -> u64 {
        self.position + self.header.total_bytes() as u64
    }
}

/// What stands at the scanner's position.
#[derive(Debug)]
pub(crate) enum Step {
    /// A batch; the position is now behind it.
    Batch(LocatedBatch),
    /// The bound; nothing more.
    End,
    /// Not a whole valid batch; the position stays before it.
    Invalid(String),
}

/// How far behind damage a whole batch is looked for.
const SEARCH_BYTES_MAX: u64 = 16 << 20;

/// The first whole and right batch that starts behind `position`, wherever it starts: nothing of what stands at `position` is believed.
pub(crate) fn next_whole_batch(file: &DiskFile, position: u64, end: u64) -> Result<Option<LocatedBatch>, DiskError> {
    let from = position + 1;
    let length = usize::try_from(end.saturating_sub(from).min(SEARCH_BYTES_MAX)).unwrap_or(0);
    let mut window = vec![0; length];
    let read = file.read_at(&mut window, from)?;
    window.truncate(read);
    for at in 0..window.len().saturating_sub(HEADER_BYTES) {
        let Ok(header) = BatchHeader::parse(&window[at..at + HEADER_BYTES]) else { continue };
        let whole = window.get(at..at + header.total_bytes());
        if header.base_offset >= Offset(0) && whole.is_some_and(|batch| BatchHeader::validate(batch).is_ok()) {
            return Ok(Some(LocatedBatch { position: from + at as u64, header }));
        }
    }
    Ok(None)
}

/// Walks batches from a position up to a bound.
#[derive(Debug)]
pub(crate) struct Scanner<'a> {
    file: &'a DiskFile,
    position: u64,
    end: u64,
    checksums: bool,
    window: Vec<u8>,
    window_position: u64,
}

impl<'a> Scanner<'a> {
    /// Hops from header to header.
    pub(crate) fn headers(file: &'a DiskFile, position: u64, end: u64) -> Self {
        Self { file, position, end, checksums: false, window: Vec::new(), window_position: 0 }
    }

    /// Reads and checks every byte.
    pub(crate) fn checked(file: &'a DiskFile, position: u64, end: u64) -> Self {
        Self { checksums: true, ..Self::headers(file, position, end) }
    }

    /// Where the next batch starts.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The next batch.
    pub(crate) fn step(&mut self) -> Result<Step, DiskError> {
        if self.position >= self.end {
            return Ok(Step::End);
        }
        let left = usize::try_from(self.end - self.position).unwrap_or(usize::MAX);
        let header = match BatchHeader::parse(self.bytes(HEADER_BYTES.min(left))?.unwrap_or_default()) {
            Ok(header) if header.base_offset >= Offset(0) => header,
            Ok(header) => return Ok(Step::Invalid(format!("base offset {} is negative", header.base_offset))),
            // Said to clients it would mean something else.
            Err(BatchError::UnsupportedMagic(magic)) => {
                return Ok(Step::Invalid(format!("no batch of format 2 stands here: its magic is {magic}")));
            }
            Err(error) => return Ok(Step::Invalid(error.to_string())),
        };
        let batch = LocatedBatch { position: self.position, header };
        if batch.end() > self.end {
            return Ok(Step::Invalid(format!("record batch needs {} bytes, there are {left}", header.total_bytes())));
        }
        if self.checksums
            && let Err(error) = BatchHeader::validate(self.bytes(header.total_bytes())?.unwrap_or_default())
        {
            return Ok(Step::Invalid(error.to_string()));
        }
        self.position = batch.end();
        Ok(Step::Batch(batch))
    }

    /// The next batch, taking anything invalid for the end.
    pub(crate) fn next_batch(&mut self) -> Result<Option<LocatedBatch>, DiskError> {
        match self.step()? {
            Step::Batch(batch) => Ok(Some(batch)),
            Step::End | Step::Invalid(_) => Ok(None),
        }
    }

    /// `length` bytes at the position, or `None` when the bound or the file ends before.
    fn bytes(&mut self, length: usize) -> Result<Option<&[u8]>, DiskError> {
        if self.position + length as u64 > self.end {
            return Ok(None);
        }
        let window_end = self.window_position + self.window.len() as u64;
        if self.position < self.window_position || self.position + length as u64 > window_end {
            let chunk = if self.checksums { CHECKSUM_READ_BYTES } else { HOP_READ_BYTES };
            let left = usize::try_from(self.end - self.position).unwrap_or(usize::MAX);
            self.window.resize(length.max(chunk).min(left), 0);
            let read = self.file.read_at(&mut self.window, self.position)?;
            self.window.truncate(read);
            self.window_position = self.position;
        }
        let from = usize::try_from(self.position - self.window_position).unwrap_or(usize::MAX);
        Ok(self.window.get(from..from + length))
    }
}
