//! `cargo xtask test`: the README's test command, and what `.ci/run` calls.
//!
//! From cheap to dear: what fails early costs little. Each part installs what it needs; what is dear to build is kept by content
//! under the user's cache folder.

use std::process::Command;

use anyhow::Result;

use crate::check;
use crate::run::{cargo, step, workspace_root};

/// Options of `cargo xtask test`.
#[derive(Debug, clap::Args)]
#[group(id = "test")]
pub(crate) struct Args {
    #[command(flatten)]
    check: check::Args,
    /// Stop before what needs root: other people's clients and the Kubernetes cluster.
    #[arg(long)]
    no_root: bool,
}

/// Runs everything; the first failure ends it.
pub(crate) fn run(args: &Args) -> Result<()> {
    check::run(&args.check)?;
    let mut tests = cargo(&["test", "--workspace", "--quiet"]);
    if !args.no_root {
        // What fills and breaks small file systems must not be skipped in silence.
        tests.env("FOREBAY_TEST_MUST_MOUNT", "1");
    }
    step("unit, golden, property and in-process tests", &mut tests)?;
    xtask("generated messages are fresh", &["generate", "messages", "--check"])?;
    xtask("golden bytes are fresh", &["generate", "golden", "--check"])?;
    xtask("decoders, fuzzed", &["fuzz", "--seconds", "10"])?;
    xtask("chart", &["chart"])?;
    if args.no_root {
        return Ok(());
    }
    let compat = |program: &str| Command::new(workspace_root().join("e2e/compat").join(program));
    step("other people's clients", compat("run").args(["--records", "20000"]))?;
    step("Apache Kafka's tools", &mut compat("kafka-tools"))?;
    step("kill -9 while producing", compat("crash").args(["--kills", "5"]))?;
    xtask("instructions a batch", &["instructions"])?;
    xtask("a loss is found", &["faults", "--or-skip", "--brokers", "1", "--prove"])?;
    xtask("three brokers under faults", &["faults", "--or-skip", "--brokers", "3", "--minutes", "3"])?;
    xtask("real Kubernetes", &["e2e"])
}

/// A task of this program, as a user would start it: through cargo, since building the tests replaces the program that runs.
fn xtask(name: &str, arguments: &[&str]) -> Result<()> {
    step(name, cargo(&["xtask"]).args(arguments))
}
