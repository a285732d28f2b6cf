//! Where a cluster comes from, and that it goes again.
//!
//! What must hold: a cluster that was brought up here is taken down when this program ends, whatever ends it. A guard
//! process holds the other end of a pipe: it closes with the last breath of this one.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::run::{step, workspace_root};

/// Where the cluster comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Provider {
    /// Kubernetes built from Go modules, on this machine: e2e/cluster. Needs root, Go and Debian's packages.
    Bare,
    /// The real kind: e2e/cluster/kind. Needs Go, and Docker with a published node image, or else root and Debian's packages.
    Kind,
    /// Whatever KUBECONFIG leads to. It stays.
    Current,
}

/// Nodes for brokers of a cluster that is made here.
const NODES: &str = "3";

impl Provider {
    /// The program that brings clusters of this sort up and down; the same commands for all.
    fn script(self) -> Option<PathBuf> {
        let path = match self {
            Self::Bare => "e2e/cluster/cluster",
            Self::Kind => "e2e/cluster/kind/cluster",
            Self::Current => return None,
        };
        Some(workspace_root().join(path))
    }

    /// As on the command line.
    fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Kind => "kind",
            Self::Current => "current",
        }
    }
}

/// A cluster while the tests use it.
pub(super) struct Cluster {
    provider: Provider,
    script: Option<PathBuf>,
    pub(super) kubeconfig: PathBuf,
    /// Takes the cluster down when its standard input closes.
    guard: Option<Child>,
    /// One run at a time: another one waits here.
    _lock: File,
}

impl Cluster {
    /// Brings one up, or finds the one that is kept.
    pub(super) fn up(provider: Provider, keep: bool) -> Result<Self> {
        let lock = lock(provider)?;
        let Some(script) = provider.script() else {
            let kubeconfig = current_kubeconfig()?;
            return Ok(Self { provider, script: None, kubeconfig, guard: None, _lock: lock });
        };
        let kept = kubeconfig(&script).ok();
        if kept.is_some() && !keep {
            step("take down the cluster of a run before", Command::new(&script).arg("down"))?;
        }
        let guard = if keep { None } else { Some(guard(&script)?) };
        let kubeconfig = match kept {
            Some(kubeconfig) if keep => kubeconfig,
            _ => {
                if provider == Provider::Bare {
                    step("build Kubernetes (minutes when its cache is cold)", Command::new(&script).arg("build"))?;
                }
                step(&format!("bring the {} cluster up", provider.name()), Command::new(&script).args(["up", NODES]))?;
                kubeconfig(&script)?
            }
        };
        Ok(Self { provider, script: Some(script), kubeconfig, guard, _lock: lock })
    }

    /// Makes the images known to every node.
    pub(super) fn load(&self, archives: &[PathBuf], command: Option<&str>) -> Result<()> {
        if let Some(script) = &self.script {
            return step("load images", Command::new(script).arg("load-image").args(archives));
        }
        let Some(command) = command else {
            println!("── images: the cluster must have them already (see --load)");
            return Ok(());
        };
        let mut words = command.split_whitespace();
        let mut load = Command::new(words.next().context("--load is empty")?);
        step("load images", load.args(words).args(archives))
    }

    /// kubectl against it.
    pub(super) fn kubectl(&self, arguments: &[&str]) -> Command {
        let mut command = match &self.script {
            Some(script) => Command::new(script),
            None => Command::new("kubectl"),
        };
        command.args(self.script.as_ref().map(|_| "kubectl")).args(arguments).env("KUBECONFIG", &self.kubeconfig);
        command
    }

    /// Tells tests which cluster they run on, and with what a node of it is stopped and started.
    pub(super) fn tell(&self, command: &mut Command) {
        command.env("KUBECONFIG", &self.kubeconfig).env("FOREBAY_E2E_PROVIDER", self.provider.name());
        match &self.script {
            Some(script) => command.env("FOREBAY_E2E_CLUSTER", script),
            None => command.env_remove("FOREBAY_E2E_CLUSTER"),
        };
    }

    /// Takes it down and waits until it is gone.
    pub(super) fn down(mut self) -> Result<()> {
        let Some(mut guard) = self.guard.take() else { return Ok(()) };
        drop(guard.stdin.take());
        let status = guard.wait().context("the cluster's guard cannot be waited for")?;
        if !status.success() {
            bail!("the cluster was not taken down: {status}");
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(guard) = &mut self.guard {
            drop(guard.stdin.take());
            let _ended = guard.wait(); // nobody is left to tell
        }
    }
}

fn kubeconfig(script: &Path) -> Result<PathBuf> {
    let output = Command::new(script).arg("kubeconfig").output().context("cannot ask for the kubeconfig")?;
    if !output.status.success() {
        bail!("no cluster is up: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

fn current_kubeconfig() -> Result<PathBuf> {
    let path = std::env::var_os("KUBECONFIG").map(PathBuf::from);
    let path = path.or_else(|| std::env::home_dir().map(|home| home.join(".kube/config")));
    path.filter(|path| path.exists()).context("KUBECONFIG names no file: which cluster is the current one?")
}

/// Ignores the signals that end a program in a terminal, so that Ctrl-C ends the tests and not what cleans up.
fn guard(script: &Path) -> Result<Child> {
    let mut command = Command::new("bash");
    command.args(["-c", "trap '' INT TERM HUP; cat >/dev/null; exec \"$0\" down"]).arg(script);
    command.stdin(Stdio::piped()).process_group(0);
    command.spawn().context("cannot start the cluster's guard")
}

fn lock(provider: Provider) -> Result<File> {
    let path = std::env::temp_dir().join(format!("forebay-e2e-{}.lock", provider.name()));
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    if file.try_lock().is_err() {
        println!("── waiting: another run has the cluster");
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(file)
}
