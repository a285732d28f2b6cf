//! Room that is kept for the quorum on its disk: a file that goes when the disk is full.
//!
//! What must hold: a broker starts, votes and decides on a disk that other programs have filled to the last byte. Without that it could
//! not even be asked to delete something.

use std::path::{Path, PathBuf};

use forebay_broker_storage::{Disk, DiskError};

const FILE_NAME: &str = "ballast";
/// Enough for some votes and many changes.
const BALLAST_BYTES: u64 = 1 << 20;
/// The file is made only where so much is free.
const MADE_ABOVE_BYTES: u64 = 8 << 20;

#[derive(Debug)]
pub(super) struct Ballast {
    disk: Disk,
    path: PathBuf,
}

impl Ballast {
    pub(super) fn new(disk: &Disk, dir: &Path) -> Self {
        Self { disk: disk.clone(), path: dir.join(FILE_NAME) }
    }

    /// Makes the file where there is room, and takes it away where there is none.
    pub(super) fn adjust(&self) -> Result<(), DiskError> {
        let dir = self.path.parent().unwrap_or(&self.path);
        let free_bytes = self.disk.space(dir)?.free_bytes;
        if free_bytes < BALLAST_BYTES && self.disk.exists(&self.path) {
            tracing::warn!(dir = %dir.display(), free_bytes, "the disk is full: the metadata log goes on with the room that was kept for it");
            return self.disk.remove_file(&self.path);
        }
        if free_bytes >= MADE_ABOVE_BYTES && !self.disk.exists(&self.path) {
            let file = self.disk.open_write(&self.path)?;
            let made = file.preallocate(BALLAST_BYTES).and_then(|()| file.set_len(BALLAST_BYTES));
            return made.inspect_err(|_error| self.disk.remove_file(&self.path).unwrap_or_default());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use forebay_broker_storage::disk::{Faults, Operation, Verdict};

    use super::*;

    #[derive(Debug)]
    struct Free(AtomicU64);

    impl Faults for Free {
        fn before(&self, _: Operation<'_>) -> Verdict {
            Verdict::Proceed
        }

        fn after(&self, _: Operation<'_>) {}

        fn free_bytes(&self) -> Option<u64> {
            Some(self.0.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn the_room_is_kept_while_there_is_enough_and_given_when_there_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let free = Arc::new(Free(AtomicU64::new(0)));
        let ballast = Ballast::new(&Disk::with_faults(Arc::clone(&free) as _), dir.path());
        let is_there = |free_bytes| {
            free.0.store(free_bytes, Ordering::Relaxed);
            ballast.adjust().unwrap();
            dir.path().join(FILE_NAME).exists()
        };
        assert!(!is_there(4 << 20), "not taken from a disk that has little");
        assert!(is_there(64 << 20));
        assert!(is_there(4 << 20), "kept");
        assert!(!is_there(4096), "given");
        assert!(is_there(64 << 20), "taken again");
    }
}
