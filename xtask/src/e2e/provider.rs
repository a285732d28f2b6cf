//! Where a cluster comes from, and that it goes again.
//!
//! What must hold: a cluster that was brought up here is taken down when this program ends, whatever ends it. A guard
//! process holds the other end of a pipe: it closes with the last breath of this one.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use super::work_folder;
use crate::run::{step, workspace_root};

/// Where the cluster comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Provider {
    /// Kubernetes built from Go modules, on this machine: e2e/cluster. Needs root, Go and Debian's packages.
    Bare,
    /// The kind on this machine; needs docker and its node image.
    Kind,
    /// Whatever KUBECONFIG leads to. It stays.
    Current,
}

/// Nodes of a cluster that is made here.
const NODES: &str = "3";
/// The name of the kind cluster.
const KIND_NAME: &str = "forebay-e2e";

/// A cluster while the tests use it.
pub(super) struct Cluster {
    provider: Provider,
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
        let kubeconfig = match provider {
            Provider::Bare => script(&["kubeconfig"]).output().ok().filter(|output| output.status.success()),
            Provider::Kind | Provider::Current => None,
        };
        let is_kept = kubeconfig.is_some();
        if is_kept && !keep {
            step("take down the cluster of a run before", &mut script(&["down"]))?;
        }
        let guard = if keep || provider == Provider::Current { None } else { Some(guard(provider)?) };
        let kubeconfig = match provider {
            Provider::Bare if is_kept && keep => bare_kubeconfig()?,
            Provider::Bare => {
                step("build Kubernetes (minutes when its cache is cold)", &mut script(&["build"]))?;
                step("bring the cluster up", &mut script(&["up", NODES]))?;
                bare_kubeconfig()?
            }
            Provider::Kind => kind_up()?,
            Provider::Current => current_kubeconfig()?,
        };
        Ok(Self { provider, kubeconfig, guard, _lock: lock })
    }

    /// Makes the images known to every node.
    pub(super) fn load(&self, archives: &[PathBuf], command: Option<&str>) -> Result<()> {
        match self.provider {
            Provider::Bare => step("load images", script(&["load-image"]).args(archives)),
            Provider::Kind => archives.iter().try_for_each(|archive| {
                let mut load = Command::new("kind");
                load.args(["load", "image-archive", "--name", KIND_NAME]).arg(archive);
                step("load image", &mut load)
            }),
            Provider::Current => {
                let Some(command) = command else {
                    println!("── images: the cluster must have them already (see --load)");
                    return Ok(());
                };
                let mut words = command.split_whitespace();
                let mut load = Command::new(words.next().context("--load is empty")?);
                step("load images", load.args(words).args(archives))
            }
        }
    }

    /// kubectl against it.
    pub(super) fn kubectl(&self, arguments: &[&str]) -> Command {
        let mut command = match self.provider {
            Provider::Bare => script(&["kubectl"]),
            Provider::Kind | Provider::Current => Command::new("kubectl"),
        };
        command.args(arguments).env("KUBECONFIG", &self.kubeconfig);
        command
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

fn script(arguments: &[&str]) -> Command {
    let mut command = Command::new(workspace_root().join("e2e/cluster/cluster"));
    command.args(arguments);
    command
}

fn bare_kubeconfig() -> Result<PathBuf> {
    let output = script(&["kubeconfig"]).output().context("cannot ask for the kubeconfig")?;
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

fn current_kubeconfig() -> Result<PathBuf> {
    let path = std::env::var_os("KUBECONFIG").map(PathBuf::from);
    let path = path.or_else(|| std::env::home_dir().map(|home| home.join(".kube/config")));
    path.filter(|path| path.exists()).context("KUBECONFIG names no file: which cluster is the current one?")
}

fn kind_up() -> Result<PathBuf> {
    let folder = work_folder()?;
    let (config, kubeconfig) = (folder.join("kind.yaml"), folder.join("kind.kubeconfig"));
    let nodes = "nodes: [{role: control-plane}, {role: worker}, {role: worker}]";
    std::fs::write(&config, format!("kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\n{nodes}\n"))?;
    let mut create = Command::new("kind");
    create.args(["create", "cluster", "--name", KIND_NAME, "--wait", "180s", "--config"]).arg(&config);
    step("bring the kind cluster up", create.arg("--kubeconfig").arg(&kubeconfig))?;
    Ok(kubeconfig)
}

/// Ignores the signals that end a program in a terminal, so that Ctrl-C ends the tests and not what cleans up.
fn guard(provider: Provider) -> Result<Child> {
    let down = match provider {
        Provider::Kind => format!("kind delete cluster --name {KIND_NAME}"),
        Provider::Bare | Provider::Current => {
            format!("'{}' down", workspace_root().join("e2e/cluster/cluster").display())
        }
    };
    let mut command = Command::new("bash");
    command.args(["-c", &format!("trap '' INT TERM HUP; cat >/dev/null; exec {down}")]);
    command.stdin(Stdio::piped()).process_group(0);
    command.spawn().context("cannot start the cluster's guard")
}

fn lock(provider: Provider) -> Result<File> {
    let path = std::env::temp_dir().join(format!("forebay-e2e-{provider:?}.lock").to_lowercase());
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    if file.try_lock().is_err() {
        println!("── waiting: another run has the cluster");
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(file)
}
