//! Measurements: `cargo xtask bench --help`. Each file is one of them; all print figures with the limits they must keep, and fail when
//! one is not kept. `broker` starts and looks at the process under test; `report` prints and saves.

mod broker;
mod cluster;
mod compare;
mod consumer_lab;
mod failover;
mod idle;
mod instructions;
mod limits;
mod reassign;
mod report;
mod smoke;
mod topics;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::compare::Scenario;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// What a broker costs when idle, how fast it starts, and that it works.
    Smoke(smoke::Options),
    /// How long producers wait when a leader is killed, cut off or stopped (root: makes network namespaces).
    Failover(failover::Options),
    /// Instructions a batch under valgrind, beside the committed baseline (`cargo xtask instructions`).
    Instructions(instructions::Options),
    /// The consumer tuning lab: fetch settings A to D with the Java client.
    ConsumerLab(consumer_lab::Options),
    /// CPU per record, throughput and memory over sizes, batches, codecs and acks, with a light client.
    ProducerLadder(compare::Options),
    /// The tuning ladder with the Java client.
    JavaLadder(compare::Options),
    /// Latency at five rates.
    LatencyAtLoad(compare::Options),
    /// How long few records take, by what the consumer asks for.
    LowTraffic(compare::Options),
    /// What it costs to have every acknowledged record on disk.
    GroupCommit(compare::Options),
    /// Start, idling, restart and recovery.
    Life(compare::Options),
    /// 10,000 partitions that nobody uses.
    ManyPartitions(compare::Options),
    /// 5,000 connections that say nothing.
    ManyConnections(compare::Options),
    /// Three brokers, three replicas: throughput, CPU of all brokers per record, memory.
    Replicated(compare::Options),
    /// What three brokers cost that have 1,000 partitions with three replicas, and nobody uses them.
    Idle(idle::Options),
    /// How long producers wait while 50 partitions move to other brokers, and whether all records are there.
    Reassign(reassign::Options),
    /// 5,000 Topics on a real API server: until all are Ready, what quiet costs, what was changed by hand (builds Kubernetes on first use).
    Topics(topics::Options),
    /// How much later the newest records come while somebody reads 8 GB of old ones (root: limits the broker's memory).
    ColdReader(compare::Options),
    /// All that compare with the peer, one after the other; --save names a folder.
    All(compare::Options),
}

/// What all measurements take.
#[derive(Debug, Args)]
struct Common {
    /// The broker program to measure.
    #[arg(long, value_name = "FILE", default_value = "target/release/forebay-broker")]
    broker: PathBuf,
    /// Keep the figures in this file, with the command and the machine.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

fn main() -> ExitCode {
    match measure(&Cli::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure(command: &Command) -> anyhow::Result<bool> {
    if let Command::Failover(_) = command {
        forebay_e2e_faults::namespaces::enter()?; // before there are threads: the program begins again
    }
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        match command {
            Command::Smoke(options) => smoke::run(options).await,
            Command::Instructions(options) => instructions::run(options).await,
            Command::ConsumerLab(options) => consumer_lab::run(options).await,
            Command::Failover(options) => failover::run(options).await,
            Command::ProducerLadder(options) => compare::run(&[Scenario::ProducerLadder], options).await,
            Command::JavaLadder(options) => compare::run(&[Scenario::JavaLadder], options).await,
            Command::LatencyAtLoad(options) => compare::run(&[Scenario::LatencyAtLoad], options).await,
            Command::LowTraffic(options) => compare::run(&[Scenario::LowTraffic], options).await,
            Command::GroupCommit(options) => compare::run(&[Scenario::GroupCommit], options).await,
            Command::Life(options) => compare::run(&[Scenario::Life], options).await,
            Command::ManyPartitions(options) => compare::run(&[Scenario::ManyPartitions], options).await,
            Command::ManyConnections(options) => compare::run(&[Scenario::ManyConnections], options).await,
            Command::Replicated(options) => compare::run(&[Scenario::Replicated], options).await,
            Command::Idle(options) => idle::run(options).await,
            Command::Reassign(options) => reassign::run(options).await,
            Command::Topics(options) => topics::run(options).await,
            Command::ColdReader(options) => compare::run(&[Scenario::ColdReader], options).await,
            Command::All(options) => compare::run(&Scenario::ALL, options).await,
        }
    })
}
