//! What a cluster costs that nobody uses: three brokers with 1,000 partitions of three replicas, each followed by two brokers.

use std::fmt::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use forebay_broker_client::admin::NewTopic;
use tokio::time::sleep;

use crate::Common;
use crate::cluster::{Cluster, Usage};
use crate::compare::{Make, Peer};
use crate::report::Report;

const BROKERS: usize = 3;
const PARTITIONS_A_TOPIC: i32 = 100;
const SETTLES: Duration = Duration::from_secs(15);
/// Of each broker. Memory as the system counts it, in thousands of thousands of bytes.
const MEMORY_MB_BELOW: f64 = 120.0;
const CPU_PERCENT_BELOW: f64 = 2.0;
const MB_A_MIB: f64 = 1.048_576;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Also measure Apache Kafka, in the same run.
    #[arg(long, value_enum)]
    peer: Option<Peer>,
    /// Topics of 100 partitions.
    #[arg(long, default_value_t = 10)]
    topics: u32,
    /// How long they are watched.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
}

/// One broker, over the time it was watched.
struct Idle {
    memory_mb: f64,
    cpu_percent: f64,
    wakeups_a_second: f64,
}

pub(crate) async fn run(options: &Options) -> Result<bool> {
    let mut report = Report::default();
    let mut table = String::from(
        "| brokers | broker | memory, MB | CPU, % of a core | a thread woke, times a second |\n|---|---|---|---|---|\n",
    );
    let partitions = i64::from(options.topics) * i64::from(PARTITIONS_A_TOPIC);
    for make in options.peer.map(|Peer::Kafka| Make::Kafka).into_iter().chain([Make::Forebay]) {
        let brokers = watch(make, options).await.with_context(|| format!("{make}"))?;
        for (id, broker) in brokers.iter().enumerate() {
            let Idle { memory_mb, cpu_percent, wakeups_a_second } = broker;
            // Writing to a string can't fail.
            let _ = writeln!(table, "| {make} | {id} | {memory_mb:.0} | {cpu_percent:.2} | {wakeups_a_second:.0} |");
        }
        if make == Make::Forebay {
            let most = |of: fn(&Idle) -> f64| brokers.iter().map(of).fold(0.0, f64::max);
            let (memory, cpu) = (most(|broker| broker.memory_mb), most(|broker| broker.cpu_percent));
            let what = format!("{BROKERS} brokers, {partitions} partitions, 3 replicas: the most of one broker");
            let limit = format!("< {MEMORY_MB_BELOW} MB");
            report.judge(&format!("{what}, memory"), format!("{memory:.0} MB"), &limit, memory < MEMORY_MB_BELOW);
            let limit = format!("< {CPU_PERCENT_BELOW} % of a core");
            report.judge(&format!("{what}, CPU"), format!("{cpu:.2} %"), &limit, cpu < CPU_PERCENT_BELOW);
        }
    }
    report.table(table);
    report.finish("Idle", options.common.save.as_deref())
}

async fn watch(make: Make, options: &Options) -> Result<Vec<Idle>> {
    let cluster = Cluster::start(make, BROKERS, &options.common.broker, &[]).await?;
    for topic in 0..options.topics {
        let name = format!("idle-{topic}");
        let topic = NewTopic { name, partitions: PARTITIONS_A_TOPIC, replication_factor: 3, ..NewTopic::default() };
        cluster.create_topic(topic).await?;
    }
    sleep(SETTLES).await;
    let (before, began) = (cluster.usages()?, Instant::now());
    sleep(Duration::from_secs(options.seconds)).await;
    let (after, took) = (cluster.usages()?, began.elapsed().as_secs_f64());
    let of = |(before, after): (Usage, Usage)| Idle {
        memory_mb: after.resident_mib * MB_A_MIB,
        cpu_percent: 100.0 * (after.cpu_seconds - before.cpu_seconds) / took,
        wakeups_a_second: (after.wakeups - before.wakeups) / took,
    };
    Ok(before.into_iter().zip(after).map(of).collect())
}
