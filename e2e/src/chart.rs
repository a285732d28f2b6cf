//! The chart's objects as Helm renders them for the namespace that the operator is installed in.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::process::Command;

use crate::{OPERATOR_NAMESPACE, root};

/// The object of one template, with values set as `--set` takes them.
///
/// # Errors
/// When Helm refuses, or renders no YAML.
pub async fn rendered(template: &str, values: &str) -> Result<Value> {
    let output = Command::new(root().join("e2e/cluster/cluster"))
        .args(["helm", "template", "forebay"])
        .arg(root().join("charts/forebay"))
        .args(["--namespace", OPERATOR_NAMESPACE, "--kube-version", "1.34", "--set", values])
        .args(["--show-only", &format!("templates/{template}.yaml")])
        .output()
        .await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_yaml_ng::from_slice(&output.stdout).context("helm did not print YAML")
}
