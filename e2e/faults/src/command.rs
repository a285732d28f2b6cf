//! Short commands of the system (ip, nft, mount, fsfreeze): run to their end, with what they said as the error.

use std::process::Command;

use anyhow::{Context, Result, bail};

/// Runs one, and gives what it printed.
///
/// # Errors
/// When it can't be started or ends with another status than 0.
pub fn sh(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("can't start {program}; is it installed?"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {}: {}: {}", arguments.join(" "), output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
