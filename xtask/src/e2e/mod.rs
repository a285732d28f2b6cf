//! `cargo xtask e2e`: the tests on a real Kubernetes cluster, from building the images to taking the cluster down.
//!
//! What must hold: the cluster goes however this ends (unless it is to be kept), and what takes long says that it goes on.

mod provider;
pub(crate) mod tools;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::chart::{chart, helm};
use crate::image::{self, What};
use crate::run::{cargo, step, workspace_root};
use provider::{Cluster, Provider};

/// The tag of the images that stories upgrade to.
const NEXT: &str = "e2e-next";

/// Options of `cargo xtask e2e`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the cluster comes from.
    #[arg(long, value_enum, env = "FOREBAY_E2E_PROVIDER", default_value = "bare")]
    provider: Provider,
    /// Leave the cluster as it is at the end; the next run uses it again.
    #[arg(long)]
    keep: bool,
    /// With `--provider current`: a command that makes the image archives known to the cluster; their paths are added.
    #[arg(long, env = "FOREBAY_E2E_LOAD")]
    load: Option<String>,
    /// Stories run at the same time.
    #[arg(long, default_value_t = 4)]
    jobs: u16,
    /// Take the images as they are in target/images, to look at a story again without building.
    #[arg(long)]
    no_build: bool,
    /// First check the cluster itself (e2e/cluster/smoke): two minutes more.
    #[arg(long)]
    smoke: bool,
    /// Draw the dashboards anew, into docs/dashboards, from five minutes of a cluster under load; no other story is told.
    #[arg(long)]
    pictures: bool,
    /// The stories too that nothing else may run beside (e2e/tests/alone: nodes drained, powered off and lost, the operator killed and
    /// upgraded). CI does not run them.
    #[arg(long)]
    all: bool,
    /// Only stories whose name contains this.
    filter: Option<String>,
}

/// Images, cluster, operator, stories; the first failure ends it.
pub(crate) fn run(args: &Args) -> Result<()> {
    tools::install_packages(&["kcat", "prometheus"])?;
    // What compiles, compiles before the cluster takes its share of the machine.
    let mut archives = if args.no_build { image::archives(What::All) } else { image::build(What::All)? };
    archives.push(tools::pack_kcat()?);
    if args.all {
        archives.push(tools::pack_load()?);
        archives.extend(image::again(What::All, NEXT, &work_folder()?)?);
    }
    let targets: &[&str] = match (args.pictures, args.all) {
        (true, _) => &["pictures"],
        (false, true) => &["stories", "alone", "release"],
        (false, false) => &["stories", "release"],
    };
    for target in targets {
        step(&format!("{target}: compile"), test(target, &["--no-run"]).arg("--quiet"))?;
    }
    let cluster = Cluster::up(args.provider, args.keep)?;
    cluster.load(&archives, args.load.as_deref())?;
    if args.smoke && args.provider == Provider::Bare {
        tools::install_packages(&["busybox"])?;
        step("the cluster's own checks", &mut Command::new(workspace_root().join("e2e/cluster/smoke")))?;
    }
    install(&cluster)?;
    tell(args, &cluster, targets)?;
    cluster.down()
}

/// Each target's stories; the release story comes last, because the operator goes with it.
fn tell(args: &Args, cluster: &Cluster, targets: &[&str]) -> Result<()> {
    let jobs = args.jobs.to_string();
    for target in targets {
        let jobs: &[&str] = match *target {
            "stories" => &["--test-threads", &jobs],
            "alone" => &["--test-threads", "1"],
            _ => &[],
        };
        let mut stories = test(target, &["--quiet", "--", "--nocapture"]);
        cluster.tell(&mut stories);
        step(target, stories.args(jobs).args(&args.filter))?;
    }
    Ok(())
}

/// The operator as a user installs it, waited for.
fn install(cluster: &Cluster) -> Result<()> {
    let mut command = helm();
    command.args(["upgrade", "--install", "forebay"]).arg(chart());
    command.args(["--namespace", "forebay-system", "--create-namespace", "--wait", "--timeout", "120s"]);
    command.args(["--set", "logLevel=info\\,forebay_operator=debug"]).env("KUBECONFIG", &cluster.kubeconfig);
    let installed = step("helm install", &mut command);
    if installed.is_err() {
        // The reason is in the operator's pod, which goes with the cluster.
        for what in [&["describe", "pods"][..], &["logs", "deployment/forebay-operator", "--tail=50"][..]] {
            let _shown = cluster.kubectl(&["--namespace", "forebay-system"]).args(what).status();
        }
    }
    installed
}

/// One test target of the crate, with these arguments.
fn test(target: &str, arguments: &[&str]) -> Command {
    let mut command = cargo(&["test", "--package", "forebay-e2e", "--features", "cluster", "--test", target]);
    command.args(arguments);
    command
}

/// The folder of what is made for the cluster and is not an image of ours.
fn work_folder() -> Result<PathBuf> {
    let folder = workspace_root().join("target/e2e");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}
