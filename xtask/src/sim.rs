//! `cargo xtask sim`: simulated clusters under faults, one for each seed, in a build of their own (quick, with all assertions).
//! Ordinary tests run the first 200; a failing seed tells the whole story again with `--from SEED --seeds 1 --trace`.

use anyhow::Result;

use crate::run::{cargo, step};

/// Options of `cargo xtask sim`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many seeds.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Print the trace of each seed.
    #[arg(long)]
    trace: bool,
    /// Make a mistake on purpose, as named in `Mutation`, to see it found.
    #[arg(long)]
    mutation: Option<String>,
}

/// Runs the simulation.
pub(crate) fn run(args: &Args) -> Result<()> {
    let (seeds, from) = (args.seeds.to_string(), args.from.to_string());
    let mut sim = cargo(&["run", "--quiet", "--profile", "sim", "--package", "forebay-broker-sim", "--"]);
    sim.args(["--seeds", &seeds, "--from", &from]);
    if args.trace {
        sim.arg("--trace");
    }
    if let Some(mutation) = &args.mutation {
        sim.args(["--mutation", mutation]);
    }
    step(&format!("{seeds} simulated clusters from seed {from}"), &mut sim)
}
