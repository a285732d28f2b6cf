//! The program begins again inside namespaces of its own (processes, mounts, network), so nothing outlives it, however it ends: when it
//! dies the kernel ends every process, mount, loop device, address and link that it made.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context;

/// Set inside.
const INSIDE: &str = "FOREBAY_INSIDE_NAMESPACES";

/// Comes back inside. Outside it becomes the parent of the same program with the same arguments, and comes back only if that can't be.
///
/// # Errors
/// When there is no `unshare`.
pub fn enter() -> anyhow::Result<()> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    let program = std::env::current_exe().context("can't find this program")?;
    let error = Command::new("unshare")
        .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"])
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .exec();
    Err(error).context("can't start unshare (util-linux)")
}
