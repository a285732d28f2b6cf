//! A broker's disk: a small ext4 in a sparse file, so that it can be filled, frozen, slowed and wiped without touching the host's.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::task::JoinHandle;

use forebay_e2e_faults::command::sh;

/// Its size; the file takes only what is written.
const SIZE: &str = "6G";
/// What fills it.
const BALLAST: &str = "ballast";
/// Left free by a full disk: less than any reserve.
const LEFT_FREE_BYTES: u64 = 1 << 20;
/// A slow disk stands still for most of the time.
const SLOW_STANDS: Duration = Duration::from_millis(300);
const SLOW_MOVES: Duration = Duration::from_millis(60);

#[derive(Debug)]
pub(crate) struct Disk {
    mount: PathBuf,
    slow: Option<JoinHandle<()>>,
}

impl Disk {
    /// Makes the file system and mounts it.
    pub(crate) fn make(folder: &Path) -> Result<Self> {
        let (image, mount) = (folder.join("disk.ext4"), folder.join("disk"));
        std::fs::create_dir_all(&mount).with_context(|| format!("can't create {}", mount.display()))?;
        let (image, mount_text) = (image.display().to_string(), mount.display().to_string());
        sh("truncate", &["-s", SIZE, &image])?;
        sh("mkfs.ext4", &["-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1", &image])?;
        sh("mount", &["-o", "loop", &image, &mount_text])?;
        Ok(Self { mount, slow: None })
    }

    /// The log dirs on it, between which replicas can move.
    pub(crate) fn log_dirs(&self) -> [PathBuf; 2] {
        ["logs", "more-logs"].map(|name| self.mount.join(name))
    }

    /// Takes all free space but a little.
    pub(crate) fn fill(&self) -> Result<()> {
        let free = rustix::fs::statvfs(&self.mount).context("statvfs")?;
        let bytes = (free.f_bavail * free.f_frsize).saturating_sub(LEFT_FREE_BYTES);
        let file = self.mount.join(BALLAST).display().to_string();
        sh("fallocate", &["-l", &bytes.to_string(), &file]).map(|_| ())
    }

    /// Gives the space back.
    pub(crate) fn free(&self) -> Result<()> {
        std::fs::remove_file(self.mount.join(BALLAST)).context("can't remove the ballast")
    }

    /// From now on every write hangs.
    pub(crate) fn freeze(&self) -> Result<()> {
        freeze(&self.mount)
    }

    /// Writes go on.
    pub(crate) fn thaw(&self) -> Result<()> {
        thaw(&self.mount)
    }

    /// From now on writes hang most of the time.
    pub(crate) fn slow(&mut self) {
        let mount = self.mount.clone();
        self.slow = Some(tokio::spawn(async move {
            loop {
                // One that fails shows when the disk is made fast again.
                let _ = freeze(&mount);
                tokio::time::sleep(SLOW_STANDS).await;
                let _ = thaw(&mount);
                tokio::time::sleep(SLOW_MOVES).await;
            }
        }));
    }

    /// As fast as before.
    pub(crate) async fn fast(&mut self) {
        if let Some(slow) = self.slow.take() {
            slow.abort();
            let _ = slow.await;
            let _ = thaw(&self.mount); // it may not be frozen just now
        }
    }

    /// Everything on it is gone. Only while its broker does not run.
    pub(crate) fn wipe(&self) -> Result<()> {
        for entry in std::fs::read_dir(&self.mount)? {
            let path = entry?.path();
            if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) }
                .with_context(|| format!("can't remove {}", path.display()))?;
        }
        Ok(())
    }
}

fn freeze(mount: &Path) -> Result<()> {
    sh("fsfreeze", &["--freeze", &mount.display().to_string()]).map(|_| ())
}

fn thaw(mount: &Path) -> Result<()> {
    sh("fsfreeze", &["--unfreeze", &mount.display().to_string()]).map(|_| ())
}
