//! `cargo xtask test`: the README's test command, and what `.ci/run` calls.
//!
//! From cheap to dear: what fails early costs little. Each part installs what it needs.

use anyhow::Result;

use crate::check;
use crate::run::{cargo, step};

/// Options of `cargo xtask test`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    check: check::Args,
}

/// Runs everything; the first failure ends it.
pub(crate) fn run(args: &Args) -> Result<()> {
    check::run(&args.check)?;
    step("unit, golden, property and in-process tests", &mut cargo(&["test", "--workspace", "--quiet"]))
}
