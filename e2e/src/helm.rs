//! Helm, as a user of the chart runs it.

use anyhow::{Result, ensure};
use tokio::process::Command;

use crate::{OPERATOR_NAMESPACE, root};

/// Runs helm in the operator's namespace.
///
/// # Errors
/// With what helm says.
pub async fn helm(arguments: &[&str]) -> Result<()> {
    let output = Command::new(root().join("e2e/cluster/cluster"))
        .arg("helm")
        .args(arguments)
        .args(["--namespace", OPERATOR_NAMESPACE, "--timeout", "90s"])
        .current_dir(root())
        .output()
        .await?;
    ensure!(output.status.success(), "helm {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
