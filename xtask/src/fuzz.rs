//! `cargo xtask fuzz`: damaged bytes, on the stable toolchain. Without more words, the wire's decoders for a given time; with `tcp`, a
//! running broker for a given number of requests. What is found is printed with the seed that repeats it.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::Subcommand;

use crate::run::{cargo, step, workspace_root};

/// Options of `cargo xtask fuzz`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// How long, in seconds: two thirds of it for messages, one for record batches.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The run's seed; another one each time unless given.
    #[arg(long, global = true)]
    seed: Option<u64>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Damaged requests to a running broker, while a client keeps producing and consuming.
    Tcp {
        /// Requests to send.
        #[arg(long, default_value_t = 100_000)]
        requests: u64,
    },
}

/// Fuzzes the decoders or a broker.
pub(crate) fn run(args: &Args) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seed = args.seed.unwrap_or(now).to_string();
    match args.what {
        None => codecs(args.seconds, &seed),
        Some(What::Tcp { requests }) => tcp(requests, &seed),
    }
}

fn codecs(seconds: u64, seed: &str) -> Result<()> {
    let records_seconds = seconds / 3;
    for (target, seconds) in [("messages", seconds - records_seconds), ("records", records_seconds)] {
        let seconds = seconds.to_string();
        let mut fuzzer =
            cargo(&["run", "--quiet", "--release", "--package", "forebay-broker-wire", "--example", "fuzz"]);
        fuzzer.args(["--features", "fuzzing", "--"]);
        fuzzer.args(["--target", target, "--seconds", &seconds, "--seed", seed]);
        step(&format!("fuzz {target} for {seconds} s, seed {seed}"), &mut fuzzer)?;
    }
    Ok(())
}

/// The broker is built for debugging, so that an overflow is a panic and is seen.
fn tcp(requests: u64, seed: &str) -> Result<()> {
    step("build the broker", &mut cargo(&["build", "--quiet", "--package", "forebay-broker-server"]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace_root().join("target"), Into::into);
    let mut fuzzer = cargo(&["run", "--quiet", "--package", "forebay-broker-client", "--example", "fuzz_tcp"]);
    fuzzer.args(["--features", "fuzzing", "--", "--broker"]).arg(target.join("debug/forebay-broker"));
    fuzzer.args(["--requests", &requests.to_string(), "--seed", seed]);
    step(&format!("send {requests} damaged requests, seed {seed}"), &mut fuzzer)
}
