//! Runs other programs and says what runs and how long it took, so that long work shows progress.
//!
//! A step that fails ends the task with the command in the error; nothing goes on after a failure.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// The workspace's root folder: where the workspace's `Cargo.toml` is.
pub(crate) fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).to_path_buf()
}

/// Where downloads and builds that outlive a checkout are kept, each under a key made of its content.
pub(crate) fn cache_dir() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let base = base.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
    base.unwrap_or_else(std::env::temp_dir).join("forebay")
}

/// `cargo` with these arguments, in the workspace's root.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    command.args(arguments).current_dir(workspace_root());
    command
}

/// Runs one named step to its end.
///
/// # Errors
/// When the program cannot be started or ends with another status than 0.
pub(crate) fn step(name: &str, command: &mut Command) -> Result<()> {
    println!("── {name}");
    let begin = Instant::now();
    let status = command.status().with_context(|| format!("{name}: cannot start {command:?}"))?;
    let seconds = begin.elapsed().as_secs();
    if !status.success() {
        bail!("{name}: {command:?} ended with {status} after {seconds} s");
    }
    println!("── {name}: done in {seconds} s");
    Ok(())
}
