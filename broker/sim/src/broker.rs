//! A broker's computer: its disk, its clock, its power. The process on it comes and goes; the disk stays.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use anyhow::Context;
use forebay_broker_storage::{
    Identity,
    disk::{Operation, Verdict},
    faulty_disk::FaultyDisk,
};
use forebay_broker_wire::types::{BrokerId, Uuid};
use tempfile::TempDir;

use crate::{
    controller::CLUSTER_ID,
    hosting::{Process, ProcessOptions},
    random::Random,
};

/// The number of the disk that a computer begins with.
pub(crate) const FIRST_DISK: u8 = 1;

/// What a broker's so-manieth disk calls itself.
pub(crate) fn directory_id(id: BrokerId, disk: u8) -> Uuid {
    let mut directory = [u8::try_from(id.0).unwrap_or(0); 16];
    directory[0] = disk;
    Uuid(directory)
}

/// A computer that runs one broker, or is to.
#[derive(Debug)]
pub(crate) struct Computer {
    pub(crate) id: BrokerId,
    dir: TempDir,
    disk: Arc<FaultyDisk>,
    pub(crate) process: Option<Process>,
    /// Counts the processes there were, over all computers.
    pub(crate) life: u64,
    /// Its clock goes so much before the true time.
    pub(crate) skew_ms: i64,
    /// The process stands still until then.
    pub(crate) paused_until_ms: i64,
    failing: Arc<AtomicBool>,
    full: bool,
    /// Counts the disks it has had.
    disks: u8,
}

impl Computer {
    pub(crate) fn new(id: BrokerId) -> anyhow::Result<Self> {
        let (dir, disk) = new_disk()?;
        let failing = Arc::default();
        let (process, life, skew_ms, paused_until_ms, full) = (None, 0, 0, 0, false);
        Ok(Self { id, dir, disk, process, life, skew_ms, paused_until_ms, failing, full, disks: FIRST_DISK })
    }

    pub(crate) fn directory_id(&self) -> Uuid {
        directory_id(self.id, self.disks)
    }

    /// Starts a process. An error is not one of the disk's faults.
    pub(crate) fn boot(&mut self, life: u64, options: &ProcessOptions, random: &mut Random) -> anyhow::Result<()> {
        self.life = life;
        let identity =
            Identity { cluster_id: CLUSTER_ID.to_owned(), node_id: self.id, directory_id: self.directory_id() };
        match Process::start(self.disk.disk(), self.dir.path(), &identity, life, options, random) {
            Ok(process) => self.process = Some(process),
            Err(_) if self.is_failing() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Lets the disk fail after so many more operations: a crash in the middle of something. The last write may be cut short.
    pub(crate) fn fail_after(&mut self, operations: u64, short_bytes: usize) {
        self.make_room();
        let (failing, mut left) = (Arc::clone(&self.failing), operations);
        self.disk.inject(move |operation| {
            if failing.load(SeqCst) {
                return Verdict::Fail(std::io::Error::from_raw_os_error(5));
            }
            if left > 0 {
                left -= 1;
                return Verdict::Proceed;
            }
            failing.store(true, SeqCst);
            match operation {
                Operation::Write { .. } if short_bytes > 0 => Verdict::Short(short_bytes),
                _ => Verdict::Fail(std::io::Error::from_raw_os_error(5)),
            }
        });
    }

    /// The disk takes nothing more after so many bytes of one write, perhaps no new files either; what is there is read.
    pub(crate) fn fill(&mut self, short_bytes: usize, no_files: bool) {
        if self.is_failing() {
            return;
        }
        self.full = true;
        self.disk.set_free_bytes(Some(0));
        let mut short_bytes = Some(short_bytes);
        let full = || Verdict::Fail(std::io::ErrorKind::StorageFull.into());
        self.disk.inject(move |operation| match operation {
            Operation::Write { length, .. } => match short_bytes.take().filter(|short| (1..*length).contains(short)) {
                Some(short) => Verdict::Short(short),
                None => full(),
            },
            Operation::Create { path } if no_files && !path.exists() => full(),
            _ => Verdict::Proceed,
        });
    }

    /// The disk takes nothing.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// The disk has room again.
    pub(crate) fn make_room(&mut self) {
        if std::mem::take(&mut self.full) {
            self.disk.set_free_bytes(None);
            self.disk.heal();
        }
    }

    /// The disk has begun to fail: the process is to end before it says anything more.
    pub(crate) fn is_failing(&self) -> bool {
        self.failing.load(SeqCst)
    }

    /// The disk fails no more.
    pub(crate) fn mend(&mut self) {
        self.make_room();
        self.disk.heal();
    }

    /// The process ends without a word. What it wrote stays.
    pub(crate) fn kill(&mut self) {
        self.process = None;
        self.mend();
        self.failing.store(false, SeqCst);
        self.paused_until_ms = 0;
    }

    /// The process ends, and its disk is replaced by an empty one.
    pub(crate) fn wipe(&mut self) -> anyhow::Result<()> {
        self.kill();
        (self.dir, self.disk) = new_disk()?;
        self.disks = self.disks.wrapping_add(1);
        Ok(())
    }

    /// The process ends, and what was not flushed is lost or torn.
    pub(crate) fn cut_power(&mut self, random: &mut Random) -> anyhow::Result<()> {
        self.kill();
        self.disk.cut_power(&mut |bound| random.below(bound))?;
        self.disk = FaultyDisk::new(self.dir.path())?;
        Ok(())
    }
}

fn new_disk() -> anyhow::Result<(TempDir, Arc<FaultyDisk>)> {
    // Memory rather than a disk, where there is some: what a power cut loses is the faulty disk's business.
    let memory = std::path::Path::new("/dev/shm");
    let dir = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
    let dir = dir.context("a directory for a simulated disk")?;
    let disk = FaultyDisk::new(dir.path())?;
    Ok((dir, disk))
}
