//! forebay: runs the same manifests without Kubernetes, and scriptable commands.
//!
//! `args` says what can be asked; `up` runs brokers as child processes of this same program; `commands` ask a cluster, print and
//! end; `manifest` and `profiles` turn files into checked objects and solved profiles. Output goes to standard output, everything
//! else to standard error; the exit code is 0 when all was done, 1 when not, 2 for a wrong command line.

mod args;
mod broker;
mod commands;
mod http;
mod manifest;
mod output;
mod profiles;
mod up;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let command = match Cli::parse().command {
        Command::Broker { args } => return broker::run(args),
        command => command,
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.into()),
    };
    match runtime.block_on(run(command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("forebay: {error:#}");
    ExitCode::FAILURE
}

async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Up(args) => up::run(args).await,
        Command::Status(args) => commands::status::run(args).await,
        Command::Topic(args) => commands::topic::run(args).await,
        Command::Group(args) => commands::group::run(args).await,
        Command::Profile(args) => commands::profile::run(args),
        Command::Produce(args) => commands::produce::run(args).await,
        Command::Consume(args) => commands::consume::run(args).await,
        Command::Broker { .. } => Ok(()), // has its own runtime, see `main`
    }
}
