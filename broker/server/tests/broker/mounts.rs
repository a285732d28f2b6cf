//! Small file systems of a test's own, to fill up and to break. Mounting needs root (CI has it); without it such tests are skipped, loudly.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system mounted on a directory until this is dropped.
pub(crate) struct Mount {
    point: PathBuf,
}

/// A file system that hangs until this is dropped.
pub(crate) struct Frozen<'a>(&'a Mount);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        if let Err(error) = run("fsfreeze", &["--unfreeze", text(&self.0.point)]) {
            eprintln!("{error}");
        }
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(format!("{program} {}: {said}", arguments.join(" "))) }
}

fn skipped<T>(result: Result<T, String>) -> Option<T> {
    // The environment says whether a machine must be able to: a skipped test would be no test there.
    assert!(result.is_ok() || std::env::var_os("FOREBAY_TEST_MUST_MOUNT").is_none(), "{:?}", result.err());
    result.map_err(|reason| eprintln!("SKIPPED, NOTHING TESTED: a file system can't be mounted here: {reason}")).ok()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

impl Mount {
    /// In memory: quick, and really full when it is full.
    pub(crate) fn tmpfs(point: &Path, mebibytes: u32) -> Option<Self> {
        std::fs::create_dir_all(point).unwrap();
        let size = format!("size={mebibytes}m");
        let mounted = run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", text(point)]);
        skipped(mounted.map(|()| Self { point: point.to_owned() }))
    }

    /// A disk that can be made to fail: ext4 on a file beside `point`.
    pub(crate) fn ext4(point: &Path, mebibytes: u64) -> Option<Self> {
        std::fs::create_dir_all(point).unwrap();
        let image = point.with_extension("ext4");
        std::fs::File::create(&image).unwrap().set_len(mebibytes << 20).unwrap();
        let made = run("mkfs.ext4", &["-q", "-F", "-m", "0", text(&image)]);
        let mounted = made.and_then(|()| run("mount", &["-o", "loop", text(&image), text(point)]));
        skipped(mounted.map(|()| Self { point: point.to_owned() }))
    }

    /// What the kernel does when it has met an error it cannot get past: nothing can be written any more.
    pub(crate) fn fail(&self) {
        run("mount", &["-o", "remount,abort", text(&self.point)]).unwrap();
    }

    /// What is written neither succeeds nor fails until the guard is dropped: before the brokers, which could not end.
    pub(crate) fn freeze(&self) -> Frozen<'_> {
        run("fsfreeze", &["--freeze", text(&self.point)]).unwrap();
        Frozen(self)
    }

    /// Another life of the same disk, after its cause of failure was found.
    pub(crate) fn repair(&self) {
        run("umount", &["--lazy", text(&self.point)]).unwrap();
        let image = self.point.with_extension("ext4");
        // It tells by its exit status that it has mended something.
        run("e2fsck", &["-f", "-y", text(&image)]).unwrap_or_default();
        run("mount", &["-o", "loop", text(&image), text(&self.point)]).unwrap();
    }

    /// Writes a file that leaves only so many bytes, as a program beside the broker may. Gives its path.
    pub(crate) fn fill_up_to(&self, free_bytes: u64) -> PathBuf {
        let filler = self.point.join("filler");
        let mut file = std::fs::File::create(&filler).unwrap();
        let mut left = self.free_bytes().saturating_sub(free_bytes);
        // The brokers write meanwhile: perhaps not all of it fits.
        while left > 0 && file.write_all(&vec![b'x'; usize::try_from(left.min(1 << 20)).unwrap()]).is_ok() {
            left = left.saturating_sub(1 << 20);
        }
        if free_bytes == 0 {
            for size in [4096, 1] {
                while file.write_all(&vec![b'x'; size]).is_ok() {}
            }
        }
        filler
    }

    /// Bytes that may still be written.
    pub(crate) fn free_bytes(&self) -> u64 {
        let stat = rustix::fs::statvfs(&self.point).unwrap();
        stat.f_bavail * stat.f_frsize
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = run("umount", &["--lazy", text(&self.point)]) {
            eprintln!("{error}");
        }
    }
}
