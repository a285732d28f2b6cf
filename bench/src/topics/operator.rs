//! The operator as a process of this machine, looked at through /proc.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

pub(super) use crate::cluster::Usage;
use crate::cluster::usage_of;

#[derive(Debug)]
pub(super) struct Operator {
    child: Child,
    folder: TempDir,
}

impl Operator {
    pub(super) fn start(program: &Path, kubeconfig: &Path, bootstrap: &str) -> Result<Self> {
        let folder = tempfile::tempdir().context("no temporary folder")?;
        let log = std::fs::File::create(folder.path().join("log"))?;
        let http = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let mut command = Command::new(program);
        command.args(["--bootstrap", bootstrap, "--http-address", &http]).env("KUBECONFIG", kubeconfig);
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
        let child = child.with_context(|| format!("can't start {}", program.display()))?;
        Ok(Self { child, folder })
    }

    pub(super) fn usage(&self) -> Result<Usage> {
        usage_of(self.child.id()).with_context(|| format!("does the operator run?\n{}", self.log_tail()))
    }

    /// Stops it as Kubernetes would, and waits.
    pub(super) fn stop(&mut self) -> Result<()> {
        let told = Command::new("kill").arg(self.child.id().to_string()).status().context("can't run kill")?;
        let status = self.child.wait()?;
        ensure!(told.success() && status.success(), "the operator ended with {status}:\n{}", self.log_tail());
        Ok(())
    }

    /// The last lines of its log, for errors.
    pub(super) fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
