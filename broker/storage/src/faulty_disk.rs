//! A faulty twin of the disk, for tests: it refuses or shortens operations on command and can cut the power.
//!
//! It watches real files and remembers what was made durable: a file's content at its last flush, a directory's entries at its last flush.
//! [`FaultyDisk::cut_power`] puts the directory tree back to that, and to any mixture of flushed and unflushed sectors for what was not flushed.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    fs::File,
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;

use crate::disk::{Disk, Faults, Operation, Verdict};

const SECTOR_BYTES: usize = 512;

/// A disk that never really flushes, and no other fault: what most tests want.
#[derive(Debug, Clone, Copy)]
pub struct NeverFlushes;

impl NeverFlushes {
    /// The disk with this in front of it.
    pub fn disk() -> Disk {
        Disk::with_faults(Arc::new(Self))
    }
}

impl Faults for NeverFlushes {
    fn before(&self, operation: Operation<'_>) -> Verdict {
        match operation {
            Operation::Sync { .. } | Operation::SyncDir { .. } => Verdict::PretendFlush,
            _ => Verdict::Proceed,
        }
    }

    fn after(&self, _: Operation<'_>) {}
}

type Inject = Box<dyn FnMut(&Operation<'_>) -> Verdict + Send>;

/// Watches all files below a root.
pub struct FaultyDisk {
    root: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    files: HashMap<u64, Tracked>,
    live: BTreeMap<PathBuf, u64>,
    durable: BTreeMap<PathBuf, u64>,
    inject: Option<Inject>,
    free_bytes: Option<u64>,
    flushes: u64,
}

struct Tracked {
    /// Kept open, so that the inode's number is not given to another file.
    handle: File,
    synced: Vec<u8>,
}

impl fmt::Debug for FaultyDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyDisk").field("root", &self.root).finish_non_exhaustive()
    }
}

impl FaultyDisk {
    /// Watches `root`; all that is there now counts as durable.
    pub fn new(root: &Path) -> io::Result<Arc<Self>> {
        let mut state = State::default();
        for path in files_below(root)? {
            let inode = state.track(&path)?;
            state.sync(inode)?;
            state.live.insert(path.clone(), inode);
            state.durable.insert(path, inode);
        }
        Ok(Arc::new(Self { root: root.to_owned(), state: Mutex::new(state) }))
    }

    /// The disk with this in front of it.
    pub fn disk(self: &Arc<Self>) -> Disk {
        Disk::with_faults(Arc::<Self>::clone(self))
    }

    /// Lets `inject` decide on each operation from now on.
    pub fn inject(&self, inject: impl FnMut(&Operation<'_>) -> Verdict + Send + 'static) {
        self.state.lock().inject = Some(Box::new(inject));
    }

    /// Lets all operations pass again.
    pub fn heal(&self) {
        self.state.lock().inject = None;
    }

    /// Reports so many free bytes.
    pub fn set_free_bytes(&self, free_bytes: Option<u64>) {
        self.state.lock().free_bytes = free_bytes;
    }

    /// How often file contents were made durable.
    pub fn flushes(&self) -> u64 {
        self.state.lock().flushes
    }

    /// Puts the files back to what is durable. `random` decides how much of what was not flushed got to the disk all the same.
    /// Whatever had files open must not be used any more.
    pub fn cut_power(&self, random: &mut dyn FnMut(u64) -> u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let mut contents = Vec::new();
        for (path, inode) in &state.durable {
            let Some(tracked) = state.files.get(inode) else { continue };
            contents.push((path.clone(), torn(&tracked.synced, &read_all(&tracked.handle)?, random)));
        }
        for path in files_below(&self.root)? {
            std::fs::remove_file(path)?;
        }
        for (path, content) in contents {
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            std::fs::write(path, content)?;
        }
        *state = State::default();
        Ok(())
    }
}

/// Any mixture of the flushed and the present content, sector by sector, of any length between theirs.
fn torn(synced: &[u8], live: &[u8], random: &mut dyn FnMut(u64) -> u64) -> Vec<u8> {
    let (short, long) = (synced.len().min(live.len()), synced.len().max(live.len()));
    let length = short + usize::try_from(random((long - short) as u64 + 1)).unwrap_or(0);
    let mut content = vec![0; length];
    for start in (0..length).step_by(SECTOR_BYTES) {
        let end = (start + SECTOR_BYTES).min(length);
        let from = if random(2) == 0 { synced } else { live };
        if let Some(sector) = from.get(start..from.len().min(end)) {
            content[start..start + sector.len()].copy_from_slice(sector);
        }
    }
    content
}

impl State {
    fn track(&mut self, path: &Path) -> io::Result<u64> {
        let handle = File::open(path)?;
        let inode = handle.metadata()?.ino();
        self.files.entry(inode).or_insert(Tracked { handle, synced: Vec::new() });
        Ok(inode)
    }

    fn sync(&mut self, inode: u64) -> io::Result<()> {
        if let Some(tracked) = self.files.get_mut(&inode) {
            tracked.synced = read_all(&tracked.handle)?;
        }
        Ok(())
    }

    fn done(&mut self, operation: Operation<'_>) -> io::Result<()> {
        match operation {
            Operation::Create { path } => {
                let inode = self.track(path)?;
                self.live.insert(path.to_owned(), inode);
            }
            Operation::Sync { file, .. } => {
                self.flushes += 1;
                self.sync(file.metadata()?.ino())?;
            }
            Operation::SyncDir { path } => {
                self.durable.retain(|file, _| file.parent() != Some(path));
                let here = self.live.iter().filter(|(file, _)| file.parent() == Some(path));
                self.durable.extend(here.map(|(file, inode)| (file.clone(), *inode)));
            }
            Operation::Rename { from, to } => {
                rename_below(&mut self.live, from, to);
                if to.is_dir() {
                    // Directories and their names are taken for durable at once: the model is about files.
                    rename_below(&mut self.durable, from, to);
                }
            }
            Operation::Remove { path } => {
                self.live.remove(path);
            }
            Operation::Write { .. } | Operation::SetLen { .. } => {}
        }
        Ok(())
    }
}

fn rename_below(names: &mut BTreeMap<PathBuf, u64>, from: &Path, to: &Path) {
    let moved: Vec<_> = names.extract_if(.., |path, _| path.starts_with(from)).collect();
    for (path, inode) in moved {
        match path.strip_prefix(from) {
            Ok(rest) if rest.as_os_str().is_empty() => names.insert(to.to_owned(), inode),
            Ok(rest) => names.insert(to.join(rest), inode),
            Err(_) => None,
        };
    }
}

fn read_all(file: &File) -> io::Result<Vec<u8>> {
    let mut content = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or(0)];
    file.read_exact_at(&mut content, 0)?;
    Ok(content)
}

fn files_below(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() { files.extend(files_below(&entry.path())?) } else { files.push(entry.path()) }
    }
    Ok(files)
}

impl Faults for FaultyDisk {
    fn before(&self, operation: Operation<'_>) -> Verdict {
        let verdict = self.state.lock().inject.as_mut().map_or(Verdict::Proceed, |inject| inject(&operation));
        match (verdict, operation) {
            (Verdict::Proceed, Operation::Sync { .. } | Operation::SyncDir { .. }) => Verdict::PretendFlush,
            (verdict, _) => verdict,
        }
    }

    fn after(&self, operation: Operation<'_>) {
        if let Err(error) = self.state.lock().done(operation) {
            tracing::error!(%error, ?operation, "the faulty disk lost track");
        }
    }

    fn free_bytes(&self) -> Option<u64> {
        self.state.lock().free_bytes
    }
}
