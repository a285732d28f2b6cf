//! A sparse index file: fixed-size entries in ascending order, Kafka's `.index` and `.timeindex`.
//!
//! `.index`: 4 bytes offset relative to the segment's base, 4 bytes position of the batch that ends with it.
//! `.timeindex`: 8 bytes timestamp, 4 bytes relative offset: the largest timestamp up to there.
//! New entries wait in memory and go down 4 KiB or so at a time: an index is rebuilt from the log after a crash, so it need not be durable
//! before its log is. Nothing read from an index is trusted further than as a hint where to start scanning.

use std::{
    io::IoSlice,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;

use crate::disk::{Disk, DiskError, DiskFile};

/// Entries that wait in memory before they are written together.
const PENDING_ENTRIES_MAX: usize = 512;
/// Below so many entries the binary search reads all of them at once.
const ENTRIES_PER_READ: u64 = 512;

/// One entry: how it lies on disk and by what it is ordered.
pub(crate) trait IndexEntry: Copy + std::fmt::Debug {
    /// Bytes on disk.
    const BYTES: u64;
    /// The ordering key.
    fn key(&self) -> i64;
    /// Appends the entry's bytes.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads an entry from exactly [`IndexEntry::BYTES`] bytes.
    fn decode(bytes: &[u8]) -> Self;
}

/// `.index`: the batch that ends with the relative offset starts at the position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OffsetEntry {
    /// Last offset of the batch minus the segment's base offset.
    pub(crate) relative_offset: u32,
    /// Where the batch starts in the segment.
    pub(crate) position: u32,
}

/// `.timeindex`: no record up to the relative offset is newer than the timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeEntry {
    /// Largest timestamp so far, in milliseconds.
    pub(crate) timestamp_ms: i64,
    /// Last offset of the batch that has it minus the segment's base offset.
    pub(crate) relative_offset: u32,
}

fn be_u32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

impl IndexEntry for OffsetEntry {
    const BYTES: u64 = 8;

    fn key(&self) -> i64 {
        i64::from(self.relative_offset)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.relative_offset.to_be_bytes());
        out.extend(self.position.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Self {
        Self { relative_offset: be_u32(&bytes[..4]), position: be_u32(&bytes[4..8]) }
    }
}

impl IndexEntry for TimeEntry {
    const BYTES: u64 = 12;

    fn key(&self) -> i64 {
        self.timestamp_ms
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.timestamp_ms.to_be_bytes());
        out.extend(self.relative_offset.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Self {
        let timestamp = bytes[..8].iter().fold(0, |value, byte| value << 8 | i64::from(*byte));
        Self { timestamp_ms: timestamp, relative_offset: be_u32(&bytes[8..12]) }
    }
}

/// A sparse index: readers search it while the one writer appends.
#[derive(Debug)]
pub(crate) struct SparseIndex<E> {
    path: PathBuf,
    disk: Disk,
    state: Mutex<State<E>>,
}

#[derive(Debug)]
struct State<E> {
    /// Kept open only while entries are appended; a closed segment's index is opened per search.
    file: Option<DiskFile>,
    on_disk: u64,
    pending: Vec<E>,
    last: Option<E>,
}

impl<E: IndexEntry> SparseIndex<E> {
    /// An index over what the file holds now; a last entry that is cut short is not counted.
    pub(crate) fn open(disk: &Disk, path: PathBuf) -> Result<Self, DiskError> {
        let index = Self {
            path,
            disk: disk.clone(),
            state: Mutex::new(State { file: None, on_disk: 0, pending: Vec::new(), last: None }),
        };
        match disk.open_read(&index.path) {
            Ok(file) => {
                let count = file.length()? / E::BYTES;
                let last = if count > 0 { read_entries(&file, count - 1, count)?.pop() } else { None };
                *index.state.lock() = State { file: None, on_disk: count, pending: Vec::new(), last };
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        Ok(index)
    }

    /// The number of entries, written or not.
    pub(crate) fn count(&self) -> u64 {
        let state = self.state.lock();
        state.on_disk + state.pending.len() as u64
    }

    /// The bytes it takes when all is written.
    pub(crate) fn bytes(&self) -> u64 {
        self.count() * E::BYTES
    }

    /// The last entry.
    pub(crate) fn last(&self) -> Option<E> {
        self.state.lock().last
    }

    /// Adds an entry when its key is above the last one's.
    pub(crate) fn push(&self, entry: E) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        if state.last.is_some_and(|last| last.key() >= entry.key()) {
            return Ok(());
        }
        state.pending.push(entry);
        state.last = Some(entry);
        let full = state.pending.len() >= PENDING_ENTRIES_MAX;
        drop(state);
        if !full {
            return Ok(());
        }
        match self.write_pending() {
            // No room: they stay in memory, where they are found as well. Making them durable will say so.
            Err(error) if error.is_shortage() => Ok(()),
            result => result,
        }
    }

    /// All entries as they are or will be in the file; nothing when that is another one by now, or has gone.
    pub(crate) fn content(&self) -> Result<Option<Vec<u8>>, DiskError> {
        let (on_disk, mut waiting) = {
            let state = self.state.lock();
            let mut waiting = Vec::new();
            state.pending.iter().for_each(|entry| entry.encode(&mut waiting));
            (state.on_disk * E::BYTES, waiting)
        };
        let mut content = self.disk.read(&self.path)?.unwrap_or_default();
        let on_disk = usize::try_from(on_disk).unwrap_or(usize::MAX);
        if content.len() < on_disk {
            return Ok(None);
        }
        content.truncate(on_disk);
        content.append(&mut waiting);
        Ok(Some(content))
    }

    /// Writes the entries that wait. Only the one writer calls it.
    pub(crate) fn write_pending(&self) -> Result<(), DiskError> {
        let (file, on_disk, count, bytes) = {
            let mut state = self.state.lock();
            if state.pending.is_empty() {
                // The file has to be there, but thousands of quiet logs must not hold a handle each.
                let is_there = state.file.is_some() || self.disk.exists(&self.path);
                return if is_there { Ok(()) } else { self.disk.open_write(&self.path).map(drop) };
            }
            let mut bytes = Vec::with_capacity(state.pending.len() * usize::try_from(E::BYTES).unwrap_or(16));
            state.pending.iter().for_each(|entry| entry.encode(&mut bytes));
            let file = match &state.file {
                Some(file) => file.clone(),
                None => state.file.insert(self.disk.open_write(&self.path)?).clone(),
            };
            (file, state.on_disk, state.pending.len(), bytes)
        };
        // IMPORTANT: the lock is not held while writing; a reader finds the entries in `pending` until they are counted as written.
        if !bytes.is_empty() {
            file.write_all_at(&mut [IoSlice::new(&bytes)], on_disk * E::BYTES)?;
        }
        let mut state = self.state.lock();
        state.on_disk += count as u64;
        state.pending.drain(..count);
        Ok(())
    }

    /// Writes what waits and makes it durable.
    pub(crate) fn sync(&self) -> Result<(), DiskError> {
        self.write_pending()?;
        self.sync_written()
    }

    /// Makes durable what is written; anybody may call it, and for a closed index it is done already.
    pub(crate) fn sync_written(&self) -> Result<(), DiskError> {
        let file = self.state.lock().file.clone();
        file.map_or(Ok(()), |file| file.sync())
    }

    /// Makes it durable and lets go of the handle: nothing will be added.
    pub(crate) fn close(&self) -> Result<(), DiskError> {
        self.sync()?;
        self.state.lock().file = None;
        Ok(())
    }

    /// Keeps the first entries for which `keep` holds (it must hold for a prefix) and cuts the rest off the file.
    pub(crate) fn truncate(&self, keep: impl Fn(&E) -> bool) -> Result<(), DiskError> {
        self.write_pending()?;
        let count = self.count();
        let file = self.disk.open_write(&self.path)?;
        let kept = partition_point(&file, count, &keep)?;
        let last = if kept > 0 { read_entries(&file, kept - 1, kept)?.pop() } else { None };
        file.set_len(kept * E::BYTES)?;
        let mut state = self.state.lock();
        state.on_disk = kept;
        state.last = last;
        Ok(())
    }

    /// The last entry for which `before` holds; it must hold for a prefix of the entries.
    pub(crate) fn last_where(&self, before: impl Fn(&E) -> bool) -> Result<Option<E>, DiskError> {
        let (file, on_disk) = {
            let state = self.state.lock();
            let in_memory = state.pending.partition_point(&before);
            if in_memory > 0 {
                return Ok(Some(state.pending[in_memory - 1]));
            }
            (state.file.clone(), state.on_disk)
        };
        if on_disk == 0 {
            return Ok(None);
        }
        let file = match file {
            Some(file) => file,
            None => self.disk.open_read(&self.path)?,
        };
        let point = partition_point(&file, on_disk, &before)?;
        Ok(if point > 0 { read_entries(&file, point - 1, point)?.pop() } else { None })
    }

    /// Where the file is now.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn partition_point<E: IndexEntry>(file: &DiskFile, count: u64, keep: &impl Fn(&E) -> bool) -> Result<u64, DiskError> {
    let (mut low, mut high) = (0, count);
    while high - low > ENTRIES_PER_READ {
        let middle = low + (high - low) / 2;
        match read_entries::<E>(file, middle, middle + 1)?.first() {
            Some(entry) if keep(entry) => low = middle + 1,
            _ => high = middle,
        }
    }
    let entries = read_entries::<E>(file, low, high)?;
    Ok(low + entries.partition_point(keep) as u64)
}

/// The entries of a range; fewer when the file has become shorter.
fn read_entries<E: IndexEntry>(file: &DiskFile, from: u64, to: u64) -> Result<Vec<E>, DiskError> {
    let entry_bytes = usize::try_from(E::BYTES).unwrap_or(usize::MAX);
    let mut bytes = vec![0; usize::try_from(to - from).unwrap_or(0) * entry_bytes];
    let length = file.read_at(&mut bytes, from * E::BYTES)?;
    Ok(bytes[..length].chunks_exact(entry_bytes).map(E::decode).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: u32) -> OffsetEntry {
        OffsetEntry { relative_offset: n * 10, position: n * 100 }
    }

    fn check(index: &SparseIndex<OffsetEntry>, count: u32) {
        for target in 0..count * 10 + 20 {
            let found = index.last_where(|e| e.relative_offset <= target).unwrap();
            assert_eq!(
                found,
                (target / 10).checked_sub(0).map(|n| entry(n.min(count - 1))),
                "target {target} of {count}"
            );
        }
    }

    #[test]
    fn finds_the_same_in_memory_on_disk_and_after_reopening() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.index");
        for count in [1_u32, 5, 511, 512, 513, 1400] {
            let _ = std::fs::remove_file(&path);
            let index = SparseIndex::<OffsetEntry>::open(&Disk::real(), path.clone()).unwrap();
            (0..count).for_each(|n| index.push(entry(n)).unwrap());
            check(&index, count);
            index.close().unwrap();
            check(&index, count);
            let index = SparseIndex::<OffsetEntry>::open(&Disk::real(), path.clone()).unwrap();
            check(&index, count);
            index.truncate(|e| e.relative_offset < count * 5).unwrap();
            assert_eq!(index.count(), (0..count).filter(|n| n * 10 < count * 5).count() as u64);
        }
    }

    #[test]
    fn an_entry_that_does_not_ascend_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let index = SparseIndex::<TimeEntry>::open(&Disk::real(), dir.path().join("0.timeindex")).unwrap();
        for (timestamp_ms, relative_offset) in [(5, 1), (5, 2), (4, 3), (6, 4)] {
            index.push(TimeEntry { timestamp_ms, relative_offset }).unwrap();
        }
        assert_eq!(index.count(), 2);
        index.sync().unwrap();
        assert_eq!(
            std::fs::read(index.path()).unwrap(),
            [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 4]
        );
    }

    #[test]
    fn an_index_without_entries_has_a_file_and_no_handle() {
        let dir = tempfile::tempdir().unwrap();
        let index = SparseIndex::<OffsetEntry>::open(&Disk::real(), dir.path().join("0.index")).unwrap();
        index.truncate(|_| false).unwrap();
        index.sync().unwrap();
        assert!(index.path().exists() && index.state.lock().file.is_none());
        index.push(entry(1)).unwrap();
        index.sync().unwrap();
        assert!(index.state.lock().file.is_some(), "kept while there is something to make durable");
    }

    #[test]
    fn half_an_entry_at_the_end_is_not_an_entry() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.index");
        std::fs::write(&path, [0, 0, 0, 1, 0, 0, 0, 9, 0, 0]).unwrap();
        let index = SparseIndex::<OffsetEntry>::open(&Disk::real(), path).unwrap();
        assert_eq!((index.count(), index.last()), (1, Some(OffsetEntry { relative_offset: 1, position: 9 })));
    }
}
