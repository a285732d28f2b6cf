//! Damaged requests over TCP against a running broker, while a client on another connection keeps producing and consuming.
//!
//! It fails when the broker ends, panics anywhere, takes more memory than allowed, or gives the client anything but its own records
//! in order. `cargo xtask fuzz tcp` builds the broker and runs this.

mod attacker;
mod broker;
mod witness;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use attacker::{Attack, Counts};
use broker::Broker;
use clap::Parser;

/// What to fuzz, and for how long.
#[derive(Debug, Parser)]
struct Args {
    /// The broker's program
    #[arg(long)]
    broker: PathBuf,
    #[arg(long)]
    requests: u64,
    #[arg(long)]
    seed: u64,
    /// Connections that send damage at the same time
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// What the broker's resident memory may reach
    #[arg(long, default_value_t = 512)]
    memory_mib: u64,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let mut broker = Broker::start(&args.broker)?;
    let outcome = fuzz(&args, &mut broker);
    if outcome.is_err() {
        println!("the broker's log and data are kept in {}", broker.keep().display());
    }
    outcome
}

fn fuzz(args: &Args, broker: &mut Broker) -> Result<()> {
    let begin = Instant::now();
    let attack = Attack::new(broker.address(), args.seed, args.requests)?;
    let done = AtomicBool::new(false);
    let (counts, witnessed) = std::thread::scope(|scope| {
        let witness = scope.spawn(|| witness::run(broker.address(), &done));
        let attackers: Vec<_> = (0..args.connections.max(1)).map(|_| scope.spawn(|| attack.run())).collect();
        let counts = attackers.into_iter().map(|attacker| attacker.join().unwrap_or_default());
        let counts = counts.fold(Counts::default(), Counts::add);
        // The client must still be served when the damage is over.
        std::thread::sleep(Duration::from_millis(500));
        done.store(true, Ordering::Relaxed);
        (counts, witness.join())
    });
    broker.require_alive()?;
    let peak_mib = broker.peak_resident_bytes()? >> 20;
    let records = witnessed.map_err(|_| anyhow::anyhow!("the client panicked"))??;
    println!(
        "{} requests in {} s: {} answered, {} not within {} ms, {} connections closed; a client's {records} records came back in \
         order; the broker's memory peaked at {peak_mib} MiB; seed {}",
        counts.sent,
        begin.elapsed().as_secs(),
        counts.answered,
        counts.unanswered,
        attacker::PATIENCE.as_millis(),
        counts.closed,
        args.seed
    );
    ensure!(counts.sent >= args.requests, "only {} of {} requests could be sent", counts.sent, args.requests);
    ensure!(records > 0, "the client got nothing through");
    ensure!(
        peak_mib <= args.memory_mib,
        "the broker's memory peaked at {peak_mib} MiB, allowed are {}",
        args.memory_mib
    );
    broker.require_stop()
}
