//! `cargo xtask faults`: builds the broker as released, and runs real brokers under faults with what follows (`--help` for it).
//!
//! Needs root, since it makes namespaces and mounts, all of its own; installs the system's tools that are missing.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::run::{cargo, step, workspace_root};

/// Options of `cargo xtask faults`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where no namespaces can be made, say so and succeed.
    #[arg(long)]
    or_skip: bool,
    /// Only our own client: needs no Python.
    #[arg(long)]
    no_librdkafka: bool,
    /// Options of the run: `--brokers 3 --minutes 30 --seed S --fault-every-seconds 15`, ...
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

/// Programs and the packages that have them.
const NEEDS: [(&str, &str); 5] = [
    ("nft", "nftables"),
    ("ip", "iproute2"),
    ("mkfs.ext4", "e2fsprogs"),
    ("fsfreeze", "util-linux"),
    ("unshare", "util-linux"),
];

/// Builds and runs.
pub(crate) fn run(args: &Args) -> Result<()> {
    install()?;
    if let Err(why) = namespaces() {
        if args.or_skip {
            println!("════ SKIPPED: brokers under faults. {why} ════");
            return Ok(());
        }
        bail!("{why}");
    }
    let mut build = cargo(&["build", "--release", "--quiet", "--bin", "forebay-broker", "--bin", "forebay-e2e-faults"]);
    step("build", build.args(["--package", "forebay-broker-server", "--package", "forebay-e2e-faults"]))?;
    let released = |name| workspace_root().join("target/release").join(name);
    let mut faults = Command::new(released("forebay-e2e-faults"));
    faults.arg("--broker").arg(released("forebay-broker")).current_dir(workspace_root());
    if !args.no_librdkafka {
        let python =
            Command::new(workspace_root().join("e2e/compat/tools")).arg("python").stderr(Stdio::inherit()).output()?;
        if !python.status.success() {
            bail!("e2e/compat/tools python: {}", python.status);
        }
        faults.arg("--python").arg(String::from_utf8_lossy(&python.stdout).trim());
    }
    step("brokers under faults", faults.args(&args.options))
}

fn install() -> Result<()> {
    let is_there = |program: &str| {
        let folders = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
        folders.iter().any(|folder| Path::new(folder).join(program).exists())
    };
    let missing: Vec<&str> =
        NEEDS.iter().filter(|(program, _)| !is_there(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    step("update the list of packages", Command::new("apt-get").args(["update", "-q"]))?;
    step("install the system's tools", Command::new("apt-get").args(["install", "-qy"]).args(missing))
}

/// Whether this user on this machine can make the namespaces, a bridge and a packet filter in them.
fn namespaces() -> Result<(), String> {
    let probe = "ip link add probe type bridge && nft add table inet probe";
    let made = Command::new("unshare")
        .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"])
        .args(["sh", "-c", probe])
        .output();
    match made {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!(
            "no namespaces can be made here (root is needed): {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Err(format!("unshare can't be started: {error}")),
    }
}
