//! The data folder: one `up` at a time holds it, by a lock that ends with the process.
//!
//! In it: `lock`, `state.json`, `broker-0/` (`broker.properties`, `broker.log`, a folder for each disk), `profiles/<name>/`.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// A data folder that this process holds.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    _lock: File,
}

/// Where the state of an `up` is.
pub(super) fn state_file(data: &Path) -> PathBuf {
    data.join("state.json")
}

fn lock_file(data: &Path) -> PathBuf {
    data.join("lock")
}

/// Whether some process holds the folder.
pub(super) fn is_locked(data: &Path) -> bool {
    File::open(lock_file(data)).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

impl DataDir {
    /// Takes the folder, making it if need be; refused while another `up` holds it.
    pub(crate) fn open(data: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(data).with_context(|| format!("can't create {}", data.display()))?;
        let path = data.canonicalize().with_context(|| format!("can't find {}", data.display()))?;
        if path.to_str().is_none_or(|path| path.contains(',')) {
            bail!("--data {}: a path with a comma can't be a log dir", path.display());
        }
        let file = lock_file(&path);
        let lock = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&file);
        let mut lock = lock.with_context(|| format!("can't write {}", file.display()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                lock.read_to_string(&mut pid)?;
                let holder = pid.trim();
                bail!(
                    "{} is in use by another `forebay up` (pid {holder}); stop it, or use another --data",
                    path.display()
                );
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("can't lock {}", file.display()));
            }
        }
        lock.set_len(0)?;
        lock.rewind()?;
        writeln!(lock, "{}", std::process::id())?;
        Ok(Self { path, _lock: lock })
    }

    /// The folder, as an absolute path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A broker's folder.
    pub(crate) fn broker(&self, id: i32) -> PathBuf {
        self.path.join(format!("broker-{id}"))
    }

    /// A profile's folder.
    pub(crate) fn profile(&self, name: &str) -> PathBuf {
        self.path.join("profiles").join(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_up_on_the_same_folder_is_refused_with_the_holder() {
        let folder = tempfile::tempdir().unwrap();
        let held = DataDir::open(folder.path()).unwrap();
        let error = DataDir::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("pid {}", std::process::id())), "{error}");
        drop(held);
        DataDir::open(folder.path()).unwrap();
    }
}
