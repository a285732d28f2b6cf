//! Real broker processes under faults: `cargo xtask faults --help`.
//!
//! Read it from [`run`]. `nemesis`, `ledger` and `check` decide and are pure; `network`, `disk` and `node` break things;
//! `load` produces and consumes; `report` tells.

mod brokers;
mod check;
mod disk;
mod faults;
mod guest;
mod ledger;
mod load;
mod nemesis;
mod node;
mod readback;
mod report;
mod run;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use nemesis::Kind;

#[derive(Clone, Debug, Parser)]
#[command(
    name = "cargo xtask faults",
    bin_name = "cargo xtask faults",
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
struct Args {
    #[command(subcommand)]
    other: Option<Other>,
    /// The broker program.
    #[arg(long, value_name = "FILE", required = true)]
    broker: Option<PathBuf>,
    /// A Python that has confluent-kafka; without it librdkafka takes no part.
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// Brokers.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
    brokers: u8,
    /// How long faults go on.
    #[arg(long, default_value_t = 3.0)]
    minutes: f64,
    /// The same seed gives the same faults. Default: a new one, printed.
    #[arg(long)]
    seed: Option<u64>,
    /// A fault begins so often.
    #[arg(long, default_value_t = 10.0)]
    fault_every_seconds: f64,
    /// Faults may overlap, so that now and then too few brokers are left to go on; nothing may be lost all the same.
    #[arg(long)]
    overlap: bool,
    /// Kinds of fault; default: all that this number of brokers must stand.
    #[arg(long, value_delimiter = ',')]
    faults: Vec<Kind>,
    /// Partitions of each of the two topics.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    partitions: u16,
    /// Records a second and partition.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// A broker setting; may be given many times.
    #[arg(long, value_name = "NAME=VALUE")]
    config: Vec<String>,
    /// Lose on purpose (acks=1, a volume wiped under a leader) and require that it is found.
    #[arg(long)]
    prove: bool,
    /// Where brokers have their disks and logs; emptied at the start.
    #[arg(long, value_name = "FOLDER", default_value = "target/faults")]
    data: PathBuf,
}

/// What else the program does.
#[derive(Clone, Debug, clap::Subcommand)]
enum Other {
    /// Load alone, on brokers that run elsewhere, until SIGTERM; then the account.
    Load(guest::Args),
}

fn main() -> ExitCode {
    let args = Args::parse();
    let ended = match &args.other {
        Some(Other::Load(args)) => elsewhere(args),
        None => inside(&args),
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("faults: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn inside(args: &Args) -> anyhow::Result<bool> {
    forebay_e2e_faults::namespaces::enter()?;
    block_on(run::run(args))
}

fn elsewhere(args: &guest::Args) -> anyhow::Result<bool> {
    block_on(guest::run(args))
}

fn block_on(all: impl Future<Output = anyhow::Result<bool>>) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(all);
    // Whatever still waits dies with this process.
    runtime.shutdown_background();
    outcome
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn every_option_can_be_given() {
        super::Args::command().debug_assert();
    }
}
