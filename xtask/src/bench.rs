//! `cargo xtask bench`: builds the broker as released, the operator too where it is measured, and runs the bench program with what follows.

use std::process::Command;

use anyhow::Result;

use crate::run::{cargo, step, workspace_root};

/// Options of `cargo xtask bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to measure (`smoke`, `producer-ladder`, `all`, ...; `--help` names them), with its options.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    what: Vec<String>,
}

/// Builds and measures.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut build = cargo(&["build", "--release", "--quiet", "--bin", "forebay-broker", "--bin", "forebay-bench"]);
    build.args(["--package", "forebay-broker-server", "--package", "forebay-bench"]);
    let needs_operator = args.what.first().is_some_and(|what| what == "topics");
    if needs_operator {
        build.args(["--bin", "forebay-operator", "--package", "forebay-operator"]);
    }
    step("build", &mut build)?;
    let released = |name| workspace_root().join("target/release").join(name);
    let mut bench = Command::new(released("forebay-bench"));
    bench.args(&args.what).arg("--broker").arg(released("forebay-broker")).current_dir(workspace_root());
    if needs_operator {
        bench.arg("--operator").arg(released("forebay-operator"));
    }
    step("bench", &mut bench)
}
