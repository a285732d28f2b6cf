//! How far a log was flushed, noted beside it: tells a torn end from damage.
//!
//! What must hold: the mark is written after the flush it speaks of and lowered, durably, before anything below it is cut. So whatever lies
//! below it was on disk, and what is wrong there is no write that a crash interrupted. It is not flushed itself: a killed process leaves it
//! exact, a power cut perhaps some seconds old, which only makes the judgement milder.

use std::{io::IoSlice, path::Path};

use forebay_broker_wire::types::Offset;

use crate::disk::{Disk, DiskError, DiskFile};

const FILE_NAME: &str = "flushed-offset";
const OFFSET_BYTES: usize = 8;
const MARK_BYTES: usize = OFFSET_BYTES + 4;

/// The mark of one log.
#[derive(Debug)]
pub(crate) struct FlushMark {
    file: DiskFile,
    upto: Offset,
}

impl FlushMark {
    /// Reads the mark, or starts one at nothing. One that cannot be understood says nothing.
    pub(crate) fn load(disk: &Disk, dir: &Path) -> Result<Self, DiskError> {
        let file = disk.open_write(&dir.join(FILE_NAME))?;
        let mut content = [0; MARK_BYTES];
        let length = file.read_at(&mut content, 0)?;
        let upto = decode(&content[..length]);
        if upto.is_none() && length > 0 {
            tracing::warn!(path = %file.path().display(), "the mark of what was flushed cannot be read and begins anew");
        }
        Ok(Self { file, upto: upto.unwrap_or(Offset(0)) })
    }

    /// Everything below was flushed.
    pub(crate) fn upto(&self) -> Offset {
        self.upto
    }

    /// Notes that everything below `upto` is flushed.
    pub(crate) fn raise(&mut self, upto: Offset) -> Result<(), DiskError> {
        if upto <= self.upto {
            return Ok(());
        }
        self.write(upto)
    }

    /// Takes back what is to be cut, durably.
    pub(crate) fn lower(&mut self, upto: Offset) -> Result<(), DiskError> {
        if upto >= self.upto {
            return Ok(());
        }
        self.write(upto)?;
        self.file.sync()
    }

    fn write(&mut self, upto: Offset) -> Result<(), DiskError> {
        self.file.write_all_at(&mut [IoSlice::new(&encode(upto))], 0)?;
        self.upto = upto;
        Ok(())
    }
}

fn encode(upto: Offset) -> [u8; MARK_BYTES] {
    let mut content = [0; MARK_BYTES];
    content[..OFFSET_BYTES].copy_from_slice(&upto.0.to_be_bytes());
    let checksum = crc32c::crc32c(&content[..OFFSET_BYTES]);
    content[OFFSET_BYTES..].copy_from_slice(&checksum.to_be_bytes());
    content
}

fn decode(content: &[u8]) -> Option<Offset> {
    let (offset, checksum) = content.split_at_checked(OFFSET_BYTES)?;
    let right = crc32c::crc32c(offset).to_be_bytes() == checksum;
    right.then_some(Offset(i64::from_be_bytes(offset.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_rises_and_falls_and_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let load = || FlushMark::load(&Disk::real(), dir.path()).unwrap();
        let mut mark = load();
        assert_eq!(mark.upto(), Offset(0));
        mark.raise(Offset(70)).unwrap();
        mark.raise(Offset(60)).unwrap();
        assert_eq!(load().upto(), Offset(70));
        mark.lower(Offset(30)).unwrap();
        assert_eq!(load().upto(), Offset(30));
    }

    #[test]
    fn a_mark_that_cannot_be_understood_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE_NAME);
        for content in [&b"abc"[..], &[1; MARK_BYTES]] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(FlushMark::load(&Disk::real(), dir.path()).unwrap().upto(), Offset(0));
        }
    }
}
