//! `cargo xtask fuzz`: the wire's decoders fed with damage, on the stable toolchain, for a given time. What is found is printed with
//! the seed and the execution that repeat it.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;

use crate::run::{cargo, step};

/// Options of `cargo xtask fuzz`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long, in seconds: two thirds of it for messages, one for record batches.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The run's seed; another one each time unless given.
    #[arg(long)]
    seed: Option<u64>,
}

/// Fuzzes messages, then records.
pub(crate) fn run(args: &Args) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seed = args.seed.unwrap_or(now).to_string();
    let records_seconds = args.seconds / 3;
    for (target, seconds) in [("messages", args.seconds - records_seconds), ("records", records_seconds)] {
        let seconds = seconds.to_string();
        let mut fuzzer =
            cargo(&["run", "--quiet", "--release", "--package", "forebay-broker-wire", "--example", "fuzz"]);
        fuzzer.args(["--features", "every-message", "--"]);
        fuzzer.args(["--target", target, "--seconds", &seconds, "--seed", &seed]);
        step(&format!("fuzz {target} for {seconds} s, seed {seed}"), &mut fuzzer)?;
    }
    Ok(())
}
