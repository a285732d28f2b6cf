//! `cargo xtask check`: formatting, lints, documentation, licences and duplicate dependencies.
//!
//! Warnings are errors here, so that none ever lands.

use std::process::Command;

use anyhow::Result;

use crate::run::{cache_dir, cargo, step};

/// The version of cargo-deny that checks licences, duplicates and advisories.
const CARGO_DENY_VERSION: &str = "0.20.2";

/// Options of `cargo xtask check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave out licences, duplicates and advisories (they need cargo-deny, built on first use).
    #[arg(long)]
    no_deny: bool,
}

/// Runs the checks, the quick ones first.
pub(crate) fn run(args: &Args) -> Result<()> {
    step("format", &mut cargo(&["fmt", "--all", "--check"]))?;
    step(
        "lints",
        &mut cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--features",
            "forebay-e2e/cluster",
            "--quiet",
            "--",
            "-D",
            "warnings",
        ]),
    )?;
    let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--quiet", "--document-private-items"]);
    step("documentation", doc.env("RUSTDOCFLAGS", "-D warnings"))?;
    if !args.no_deny { deny() } else { Ok(()) }
}

fn deny() -> Result<()> {
    let root = cache_dir().join(format!("cargo-deny-{CARGO_DENY_VERSION}"));
    let program = root.join("bin/cargo-deny");
    if !program.exists() {
        let mut install = cargo(&[
            "install",
            "cargo-deny",
            "--locked",
            "--quiet",
            "--no-default-features",
            "--version",
            CARGO_DENY_VERSION,
        ]);
        step("build cargo-deny (once)", install.arg("--root").arg(&root))?;
    }
    let deny = |checks: &[&str]| {
        let mut command = Command::new(&program);
        command.current_dir(crate::run::workspace_root()).args(["--log-level", "error", "check"]).args(checks);
        command
    };
    step("licences, duplicates, sources", &mut deny(&["bans", "licenses", "sources"]))?;
    // The advisories live in a Git repository on the internet: without it this is said, and the rest still counts.
    if let Err(error) = step("advisories", &mut deny(&["advisories"])) {
        if advisories_are_reachable() {
            return Err(error);
        }
        println!("── advisories: SKIPPED, the advisory database cannot be reached from here");
    }
    Ok(())
}

fn advisories_are_reachable() -> bool {
    let probe = Command::new("git")
        .args(["ls-remote", "--exit-code", "https://github.com/RustSec/advisory-db", "HEAD"])
        .env("GIT_TERMINAL_PROMPT", "0")
        .output();
    probe.is_ok_and(|output| output.status.success())
}
