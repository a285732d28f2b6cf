//! `cargo xtask instructions`: what a batch costs the released broker in instructions, beside the committed baseline (`bench/instructions.json`).
//!
//! Needs valgrind, and installs it where that is possible; where it is not, this is said and nothing fails.

use std::process::Command;

use anyhow::Result;

use crate::run::{cargo, step, workspace_root};

/// Options of `cargo xtask instructions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keep what is counted now as the baseline.
    #[arg(long)]
    bless: bool,
}

/// Builds, counts and compares.
pub(crate) fn run(args: &Args) -> Result<()> {
    if !is_there() {
        // Only for the message below: without root or network there is nothing to install.
        let install = "apt-get update -q && apt-get install -qy valgrind";
        let _ = Command::new("sh").args(["-c", install]).status();
    }
    if !is_there() {
        println!("════ SKIPPED: instructions a batch. valgrind is not here and could not be installed ════");
        return Ok(());
    }
    // The same command as the one of `faults`, so that neither throws away what the other has built.
    let mut build = cargo(&["build", "--release", "--quiet", "--bin", "forebay-broker", "--bin", "forebay-e2e-faults"]);
    step("build", build.args(["--package", "forebay-broker-server", "--package", "forebay-e2e-faults"]))?;
    // The client is not counted: a build without optimization does.
    let mut count = cargo(&["run", "--quiet", "--package", "forebay-bench", "--", "instructions", "--broker"]);
    count.arg(workspace_root().join("target/release/forebay-broker"));
    if args.bless {
        count.arg("--bless");
    }
    step("instructions a batch", &mut count)
}

fn is_there() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success())
}
