//! Runs seeds and says how many, how fast, and what was wrong.

use std::{process::ExitCode, time::Instant};

use anyhow::Result;
use clap::Parser;
use forebay_broker_sim::{Mutation, Options, run};

/// Simulated clusters, one for each seed.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many seeds.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Print the trace of each seed.
    #[arg(long)]
    trace: bool,
    /// Stop at the first seed that fails.
    #[arg(long)]
    first: bool,
    /// Make this mistake in each, as named in `Mutation`.
    #[arg(long)]
    mutation: Option<String>,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let named = |name: &String| Mutation::ALL.into_iter().find(|mutation| format!("{mutation:?}") == *name);
    let mutation =
        arguments.mutation.as_ref().map(|name| named(name).ok_or_else(|| anyhow::anyhow!("mutation {name}")));
    let mutation = mutation.transpose()?;
    let begun = Instant::now();
    let (mut events, mut acknowledged, mut faults, mut failed) = (0, 0, 0, 0);
    for seed in arguments.from..arguments.from + arguments.seeds {
        let report = run(&Options { seed, mutation, keep_trace: arguments.trace })?;
        report.trace.iter().for_each(|line| println!("{line}"));
        events += report.events;
        acknowledged += report.acknowledged;
        faults += report.faults.values().sum::<u64>();
        if let Some(violation) = report.violation {
            failed += 1;
            println!("seed {seed}: {violation}");
            if arguments.first {
                break;
            }
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{} seeds in {seconds:.1} s ({:.1} seeds/s): {failed} failed; {events} events, {faults} faults, {acknowledged} records acknowledged",
        arguments.seeds,
        arguments.seeds as f64 / seconds,
    );
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
