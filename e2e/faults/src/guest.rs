//! Load on a cluster that somebody else runs and disturbs: numbered records with acks=all, and a group that reads them, until
//! SIGTERM; then the account of what was acknowledged, on standard output. A story on Kubernetes runs it in a pod
//! (`e2e/src/load.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use forebay_broker_client::Client;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use crate::check::check;
use crate::ledger::{Ledger, Partition};
use crate::load::{self, Load, Manner, OWN};
use crate::readback;

/// How often it says how far it is, and the longest time since then in which a partition acknowledged nothing.
const SAY_EVERY: Duration = Duration::from_secs(1);
/// A group has read everything within this.
const GROUP_ENDS_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the cluster is reached. Its topic `own` is written to, and must be empty.
    #[arg(long, value_name = "HOST:PORT")]
    bootstrap: String,
    /// The topic's partitions.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    partitions: u16,
    /// Records a second and partition.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
}

/// What became of the records; one line of JSON.
#[derive(Debug, Default, Serialize)]
struct Account {
    acknowledged: u64,
    lost: u64,
    duplicated: u64,
    out_of_order: u64,
    /// The longest time in which one partition acknowledged nothing.
    longest_gap_ms: u64,
    /// When it began, since the load began.
    longest_gap_at_ms: u64,
    problems: Vec<String>,
    /// What clients met, and how often: no problem in itself.
    errors: BTreeMap<String, u64>,
}

/// Runs until SIGTERM; whether all is well.
pub(crate) async fn run(args: &Args) -> Result<bool> {
    let mut ends = signal(SignalKind::terminate())?;
    let ledger = Arc::new(Ledger::new());
    let manner = Manner { partitions: args.partitions, rate: args.rate, safe: true };
    let mut load = Load::start(&args.bootstrap, manner, None, &ledger)?;
    let mut every = tokio::time::interval(SAY_EVERY);
    loop {
        tokio::select! {
            _ = ends.recv() => break,
            _ = every.tick() => {
                println!("{} acknowledged, gap {} ms", ledger.count(), ledger.gap_lately().as_millis());
            }
        }
    }
    ledger.ends();
    if let Err(error) = load.stop_producing().await {
        ledger.problem(format!("{error:#}"));
    }
    let client = load::client(&args.bootstrap);
    if let Err(error) = group_ends(&client, &ledger, args.partitions).await {
        ledger.problem(format!("{error:#}"));
    }
    load.stop().await;
    let account = account(&client, &ledger, args.partitions).await;
    println!("account {}", serde_json::to_string(&account)?);
    Ok(account.problems.is_empty())
}

async fn group_ends(client: &Client, ledger: &Ledger, partitions: u16) -> Result<()> {
    let ends = readback::ends(client, &[OWN], partitions).await?;
    let begin = Instant::now();
    loop {
        let next = ledger.next_to_read();
        let behind = ends.iter().find(|(tp, end)| next.get(tp).is_none_or(|next| next < *end));
        let Some((tp, end)) = behind else { return Ok(()) };
        anyhow::ensure!(begin.elapsed() < GROUP_ENDS_WITHIN, "the group is at {:?} of {end} in {tp}", next.get(tp));
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn account(client: &Client, ledger: &Ledger, partitions: u16) -> Account {
    let logs = async {
        let ends = readback::ends(client, &[OWN], partitions).await?;
        readback::from_leaders(client, &ends).await
    };
    let logs = logs.await.unwrap_or_else(|error| {
        ledger.problem(format!("the logs can't be read: {error:#}"));
        BTreeMap::new()
    });
    let (of, problems, errors) = ledger.take();
    let mut account = Account { problems, errors, ..Account::default() };
    for (tp, partition) in &of {
        account.acknowledged += u64::try_from(partition.acknowledged.len()).unwrap_or(u64::MAX);
        account.gap(partition);
        let Some(log) = logs.get(tp) else { continue };
        let verdict = check(partition, log);
        account.lost += verdict.lost;
        account.duplicated += verdict.duplicated;
        account.out_of_order += verdict.out_of_order;
        if !verdict.is_clean() {
            account.problems.push(format!("{tp}: {}", verdict.examples.join("; ")));
        }
    }
    account
}

impl Account {
    fn gap(&mut self, partition: &Partition) {
        let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        if milliseconds(partition.longest_gap) > self.longest_gap_ms {
            self.longest_gap_ms = milliseconds(partition.longest_gap);
            self.longest_gap_at_ms = milliseconds(partition.longest_gap_at);
        }
    }
}
