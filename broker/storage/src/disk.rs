//! Every file access of the storage engine, and nothing else: the only file here that names `std::fs` or rustix.
//!
//! What must hold: a write is complete or an error (short writes are continued here), each error names the action and the path,
//! and every operation passes the optional [`Faults`] first, so that tests can refuse, shorten or lose it. It decides nothing about logs.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, IoSlice},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::UNIX_EPOCH,
};

use rustix::{
    fs::{CWD, FallocateFlags, FlockOperation, RenameFlags},
    io::Errno,
};

/// Linux takes at most this many buffers in one `pwritev`.
const BUFFERS_PER_WRITE_MAX: usize = 1024;

/// A failed file operation: what was tried, on which path, and why it failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct DiskError {
    /// What was tried, as a verb phrase ("write", "flush", ...).
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// What the operating system said.
    pub source: io::Error,
}

impl DiskError {
    /// True when the file system or the quota is full.
    pub fn is_disk_full(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// True when this process or the whole system has no more files to open.
    pub fn is_out_of_files(&self) -> bool {
        let errno = self.source.raw_os_error();
        [Errno::MFILE, Errno::NFILE].iter().any(|full| errno == Some(full.raw_os_error()))
    }

    /// True when something is used up that may be free again later, and nothing is known to be broken.
    pub fn is_shortage(&self) -> bool {
        self.is_disk_full() || self.is_out_of_files()
    }

    /// True when the file is not there.
    pub fn is_not_found(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

/// One operation as [`Faults`] see it.
#[derive(Debug, Clone, Copy)]
pub enum Operation<'a> {
    /// A file was opened with leave to create it.
    Create { path: &'a Path },
    /// Bytes are written.
    Write { path: &'a Path, file: &'a File, offset: u64, length: usize },
    /// The file's length is set.
    SetLen { path: &'a Path, file: &'a File, length: u64 },
    /// The file's content is made durable.
    Sync { path: &'a Path, file: &'a File },
    /// The directory's entries are made durable.
    SyncDir { path: &'a Path },
    /// A file or directory is renamed.
    Rename { from: &'a Path, to: &'a Path },
    /// A file is removed.
    Remove { path: &'a Path },
}

/// What [`Faults`] want to happen to an operation.
#[derive(Debug)]
pub enum Verdict {
    /// Do it.
    Proceed,
    /// Do not do it; report this.
    Fail(io::Error),
    /// Write only so many bytes in this call.
    Short(usize),
    /// Do not really flush, but go on as if it were done: no test waits for a disk.
    PretendFlush,
}

/// Sees every changing operation before and after it is done: the place where a faulty twin of the disk hooks in.
pub trait Faults: Send + Sync + fmt::Debug {
    /// Called before the operation.
    fn before(&self, operation: Operation<'_>) -> Verdict;
    /// Called after the operation succeeded.
    fn after(&self, operation: Operation<'_>);
    /// Free bytes to report instead of the file system's.
    fn free_bytes(&self) -> Option<u64> {
        None
    }
}

/// The file system, real or with [`Faults`] in front of it.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    faults: Option<Arc<dyn Faults>>,
}

/// Size and free space of the file system that holds a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes of the whole file system.
    pub total_bytes: u64,
    /// Bytes that an unprivileged process may still use.
    pub free_bytes: u64,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// Name without the directory.
    pub name: String,
    /// True for a directory.
    pub is_dir: bool,
    /// Length of a file in bytes.
    pub length: u64,
}

impl Disk {
    /// The file system as it is.
    pub fn real() -> Self {
        Self::default()
    }

    /// The file system behind `faults`.
    pub fn with_faults(faults: Arc<dyn Faults>) -> Self {
        Self { faults: Some(faults) }
    }

    fn run<T>(&self, operation: Operation<'_>, work: impl FnOnce(Option<usize>) -> io::Result<T>) -> io::Result<T> {
        let Some(faults) = &self.faults else { return work(None) };
        let limit = match faults.before(operation) {
            Verdict::Proceed => None,
            Verdict::Fail(error) => return Err(error),
            Verdict::Short(length) => Some(length),
            Verdict::PretendFlush => Some(0),
        };
        let result = work(limit)?;
        faults.after(operation);
        Ok(result)
    }

    /// Opens an existing file for reading.
    pub fn open_read(&self, path: &Path) -> Result<DiskFile, DiskError> {
        let file = OpenOptions::new().read(true).open(path).map_err(failed("open", path))?;
        Ok(DiskFile::new(self, path, file))
    }

    /// Opens a file for reading and writing and creates it when it is not there. Its directory still needs [`Disk::sync_dir`].
    pub fn open_write(&self, path: &Path) -> Result<DiskFile, DiskError> {
        let open = |_| OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = self.run(Operation::Create { path }, open).map_err(failed("open for writing", path))?;
        Ok(DiskFile::new(self, path, file))
    }

    /// Takes the exclusive lock of a file, which lasts as long as the handle; `None` when another process has it.
    pub fn lock(&self, path: &Path) -> Result<Option<DiskFile>, DiskError> {
        let file = self.open_write(path)?;
        match rustix::fs::flock(&*file.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(failed("lock", path)(error.into())),
        }
    }

    /// Creates a directory. The one that it lies in still needs [`Disk::sync_dir`].
    pub fn make_dir(&self, path: &Path) -> Result<(), DiskError> {
        std::fs::create_dir(path).map_err(failed("create directory", path))
    }

    /// Creates a directory and its parents; the new entry is made durable.
    pub fn create_dir(&self, path: &Path) -> Result<(), DiskError> {
        std::fs::create_dir_all(path).map_err(failed("create directory", path))?;
        match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => self.sync_dir(parent),
            None => Ok(()),
        }
    }

    /// Makes creations, renames and removals in a directory durable.
    pub fn sync_dir(&self, path: &Path) -> Result<(), DiskError> {
        let sync = |pretend: Option<usize>| if pretend.is_some() { Ok(()) } else { File::open(path)?.sync_all() };
        self.run(Operation::SyncDir { path }, sync).map_err(failed("flush directory", path))
    }

    /// Renames a file or directory.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.run(Operation::Rename { from, to }, |_| std::fs::rename(from, to)).map_err(failed("rename", from))
    }

    /// Removes a file; one that is not there is no error.
    pub fn remove_file(&self, path: &Path) -> Result<(), DiskError> {
        match self.run(Operation::Remove { path }, |_| std::fs::remove_file(path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result.map_err(failed("remove", path)),
        }
    }

    /// Removes a directory with all it holds; one that is not there is no error.
    pub fn remove_dir_all(&self, path: &Path) -> Result<(), DiskError> {
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result.map_err(failed("remove directory", path)),
        }
    }

    /// The entries of a directory, sorted by name; names that are not UTF-8 are left out, and what somebody takes away meanwhile.
    pub fn list(&self, path: &Path) -> Result<Vec<DirEntry>, DiskError> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(path).map_err(failed("list", path))? {
            let entry = entry.map_err(failed("list", path))?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let metadata = match entry.metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                metadata => metadata.map_err(failed("look at", &entry.path()))?,
            };
            entries.push(DirEntry { name, is_dir: metadata.is_dir(), length: metadata.len() });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// True when the path exists.
    pub fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    /// A file's length; `None` when it is not there.
    pub fn length(&self, path: &Path) -> Result<Option<u64>, DiskError> {
        match std::fs::metadata(path) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("look at", path)(error)),
        }
    }

    /// The whole content of a small file; `None` when it is not there.
    pub fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, DiskError> {
        match std::fs::read(path) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", path)(error)),
        }
    }

    /// Replaces a small file so that a crash leaves the old or the new content, never a mixture; durable on return.
    pub fn replace(&self, path: &Path, content: &[u8]) -> Result<(), DiskError> {
        self.put(path, content)?;
        path.parent().map_or(Ok(()), |parent| self.sync_dir(parent))
    }

    /// As [`Self::replace`], but which content is there after a crash is certain only after [`Disk::sync_dir`].
    pub fn put(&self, path: &Path, content: &[u8]) -> Result<(), DiskError> {
        let temporary = beside(path, ".tmp");
        let file = self.open_write(&temporary)?;
        file.set_len(0)?;
        file.write_all_at(&mut [IoSlice::new(content)], 0)?;
        file.sync()?;
        self.rename(&temporary, path)
    }

    /// As [`Self::replace`], for small files that must be replaceable on a full disk too: the content before stays as `NAME.spare`, and its
    /// blocks take the next one.
    pub fn replace_by_turns(&self, path: &Path, content: &[u8]) -> Result<(), DiskError> {
        let is_new = !self.exists(path);
        if is_new {
            self.replace(path, content)?;
        }
        match self.replace_from_spare(path, content) {
            Err(error) if is_new && error.is_shortage() => Ok(()),
            result => result,
        }
    }

    fn replace_from_spare(&self, path: &Path, content: &[u8]) -> Result<(), DiskError> {
        let spare = beside(path, ".spare");
        let file = self.open_write(&spare)?;
        file.write_all_at(&mut [IoSlice::new(content)], 0)?;
        file.set_len(content.len() as u64)?;
        file.sync()?;
        self.run(Operation::Rename { from: &spare, to: path }, |_| exchange(&spare, path))
            .map_err(failed("rename", &spare))?;
        path.parent().map_or(Ok(()), |parent| self.sync_dir(parent))
    }

    /// Size and free space of the file system that holds `path`.
    pub fn space(&self, path: &Path) -> Result<Space, DiskError> {
        let stat =
            rustix::fs::statvfs(path).map_err(|error| failed("look at the free space of", path)(error.into()))?;
        let mut space = Space { total_bytes: stat.f_blocks * stat.f_frsize, free_bytes: stat.f_bavail * stat.f_frsize };
        if let Some(free_bytes) = self.faults.as_ref().and_then(|faults| faults.free_bytes()) {
            space.free_bytes = free_bytes;
        }
        Ok(space)
    }
}

/// An open file. Clones share the handle.
#[derive(Debug, Clone)]
pub struct DiskFile {
    file: Arc<File>,
    path: Arc<Path>,
    disk: Disk,
}

impl DiskFile {
    fn new(disk: &Disk, path: &Path, file: File) -> Self {
        Self { file: Arc::new(file), path: path.into(), disk: disk.clone() }
    }

    /// The handle, for readers that send a range of it.
    pub fn handle(&self) -> &Arc<File> {
        &self.file
    }

    /// The path under which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Current length in bytes.
    pub fn length(&self) -> Result<u64, DiskError> {
        Ok(self.file.metadata().map_err(failed("look at", &self.path))?.len())
    }

    /// When its content last changed, in milliseconds since 1970.
    pub fn modified_ms(&self) -> Result<i64, DiskError> {
        let metadata = self.file.metadata().map_err(failed("look at", &self.path))?;
        let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Ok(modified.map_or(0, |age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The bytes it really occupies, which preallocation makes more than its length.
    pub fn allocated_bytes(&self) -> Result<u64, DiskError> {
        Ok(self.file.metadata().map_err(failed("look at", &self.path))?.blocks() * 512)
    }

    /// Reads at `offset` until the buffer is full or the file ends; gives the bytes read.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        let mut done = 0;
        while done < buffer.len() {
            match self.file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(length) => done += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed("read", &self.path)(error)),
            }
        }
        Ok(done)
    }

    /// Writes all buffers one after the other at `offset`, in as few calls as the system allows. On an error any part may be written.
    pub fn write_all_at(&self, mut buffers: &mut [IoSlice<'_>], mut offset: u64) -> Result<(), DiskError> {
        IoSlice::advance_slices(&mut buffers, 0); // leading empty buffers
        while !buffers.is_empty() {
            let call = &buffers[..buffers.len().min(BUFFERS_PER_WRITE_MAX)];
            let length = call.iter().map(|buffer| buffer.len()).sum();
            let operation = Operation::Write { path: &self.path, file: &self.file, offset, length };
            let write = |limit| write_some(&self.file, call, offset, limit);
            match self.disk.run(operation, write) {
                Ok(0) => return Err(failed("write", &self.path)(io::ErrorKind::WriteZero.into())),
                Ok(written) => {
                    IoSlice::advance_slices(&mut buffers, written);
                    offset += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed("write", &self.path)(error)),
            }
        }
        Ok(())
    }

    /// Cuts or extends the file.
    pub fn set_len(&self, length: u64) -> Result<(), DiskError> {
        let operation = Operation::SetLen { path: &self.path, file: &self.file, length };
        self.disk.run(operation, |_| self.file.set_len(length)).map_err(failed("set the length of", &self.path))
    }

    /// Makes the content durable (`fdatasync`).
    pub fn sync(&self) -> Result<(), DiskError> {
        let operation = Operation::Sync { path: &self.path, file: &self.file };
        let sync = |pretend: Option<usize>| if pretend.is_some() { Ok(()) } else { self.file.sync_data() };
        self.disk.run(operation, sync).map_err(failed("flush", &self.path))
    }

    /// Reserves space without changing the length. File systems that cannot do it do without.
    pub fn preallocate(&self, length: u64) -> Result<(), DiskError> {
        match rustix::fs::fallocate(&*self.file, FallocateFlags::KEEP_SIZE, 0, length) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
            Err(error) => Err(failed("reserve space for", &self.path)(error.into())),
        }
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// File systems that cannot exchange two files rename the first.
fn exchange(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => std::fs::rename(from, to),
        result => Ok(result?),
    }
}

fn write_some(file: &File, buffers: &[IoSlice<'_>], offset: u64, limit: Option<usize>) -> io::Result<usize> {
    match (limit, buffers.first()) {
        (Some(limit), Some(first)) => Ok(rustix::io::pwrite(file, &first[..first.len().min(limit)], offset)?),
        _ => Ok(rustix::io::pwritev(file, buffers, offset)?),
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DiskError {
    let path = path.to_owned();
    move |source| DiskError { action, path, source }
}
