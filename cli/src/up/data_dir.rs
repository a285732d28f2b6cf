//! The data folder: one `up` at a time holds it, by a lock that ends with the process.
//!
//! In it: `lock`, `state.json`, `cluster-id` (of several brokers), `broker-0/` (`broker.properties`, `broker.log`, a folder for each disk), `profiles/<name>/`.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use forebay_broker_client::types::Uuid;
use forebay_broker_config::voter_count;

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

    /// The id of the cluster of several brokers in this folder, chosen once.
    pub(crate) fn cluster_id(&self) -> anyhow::Result<String> {
        let file = self.path.join("cluster-id");
        match std::fs::read_to_string(&file) {
            Ok(id) => Ok(id.trim().to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let id = Uuid(uuid::Uuid::new_v4().into_bytes()).to_string();
                std::fs::write(&file, format!("{id}\n")).with_context(|| format!("can't write {}", file.display()))?;
                Ok(id)
            }
            Err(error) => Err(error).with_context(|| format!("can't read {}", file.display())),
        }
    }

    /// Refuses another number of brokers than this folder's data was written by, unless it only adds brokers that don't vote:
    /// who votes is settled by the first start, and fewer brokers would lack records.
    pub(crate) fn must_suit(&self, replicas: i32) -> anyhow::Result<()> {
        let ran = (0..).take_while(|id| self.broker(*id).join("broker.properties").exists()).count();
        let ran = i32::try_from(ran).unwrap_or(i32::MAX);
        let adds_only = replicas >= ran && voter_count(replicas) == voter_count(ran) && ran > 1;
        if ran == 0 || replicas == ran || adds_only {
            return Ok(());
        }
        let data = self.path.display();
        bail!(
            "{data} holds a cluster of {ran} brokers, the manifests want {replicas}: use another --data, or {ran} replicas"
        )
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
    fn a_cluster_may_grow_by_brokers_that_do_not_vote_and_not_shrink() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::open(folder.path()).unwrap();
        assert!([1, 3, 9].iter().all(|replicas| data.must_suit(*replicas).is_ok()), "an empty folder suits all");
        for id in 0..3 {
            std::fs::create_dir_all(data.broker(id)).unwrap();
            std::fs::write(data.broker(id).join("broker.properties"), "").unwrap();
        }
        assert!(data.must_suit(3).is_ok() && data.must_suit(4).is_ok());
        let error = data.must_suit(1).unwrap_err().to_string();
        assert!(error.contains("holds a cluster of 3 brokers, the manifests want 1"), "{error}");
        assert!(data.must_suit(5).is_err(), "5 would vote");
        assert_eq!(data.cluster_id().unwrap(), data.cluster_id().unwrap());
    }

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
