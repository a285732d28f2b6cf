//! Failover: a leader is taken away under a steady load with acks=all; the figure is the longest time without an acknowledgement.
//!
//! Three brokers with addresses of their own, a topic of one partition with three replicas (min.insync.replicas 2), 2,000 records a
//! second from the Java client and as many from librdkafka. Apache Kafka, where asked for, runs in the same run in the same way, one
//! cluster after the other. The leader is killed (kill -9), cut off the network without a word, or stopped (SIGTERM); or all brokers are
//! killed at the same moment and started again. Clients are as they are shipped but for a cut, which their time-outs decide: there those
//! are shorter, the same with both makes of brokers (`docs/guides/clients.md` says why), unless `--client-defaults` leaves them.

mod clients;
mod cluster;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use forebay_broker_client::admin::NewTopic;
use forebay_broker_client::types::BrokerId;
use forebay_broker_client::{Admin, Client, ClientConfig};
use forebay_e2e_faults::network::{self, Peer};
use tokio::time::{Instant, sleep};

use crate::Common;
use crate::report::Report;
use clients::{Clients, Kind, now_ms};
use cluster::{Cluster, Make};
pub(crate) use cluster::{JAVA, kafka_jars};

const TOPIC: &str = "failover";
const BROKERS: i32 = 3;
/// After the fault at least this long is looked at, and until acknowledgements have been steady for as long as `STEADY`.
const LOOK: Duration = Duration::from_secs(3);
const STEADY_MS: f64 = 1000.0;
const STEADY_GAP_MS: f64 = 300.0;
const RESUMES_WITHIN: Duration = Duration::from_secs(300);
/// Longer than it takes until a preferred leader takes over again.
const SETTLED: Duration = Duration::from_secs(6);
const HEALS_WITHIN: Duration = Duration::from_secs(120);
/// A process that dies may cost this part of what it costs Kafka, a silent cut this part.
const KILL_PART: f64 = 0.1;
const CUT_PART: f64 = 0.5;
const STOP_MS: f64 = 100.0;

/// How the leader goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum How {
    /// kill -9.
    Kill,
    /// Nothing it sends arrives, and nothing arrives at it.
    Cut,
    /// SIGTERM.
    Stop,
    /// kill -9 of all brokers, which are started again at once.
    Restart,
}

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Also measure Apache Kafka, in the same run.
    #[arg(long, value_enum)]
    peer: Option<Peers>,
    /// How often each way.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
    /// Ways to lose the leader.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["kill", "cut", "stop", "restart"])]
    how: Vec<How>,
    /// Records a second of each client.
    #[arg(long, default_value_t = 2000)]
    rate: u32,
    /// Leave the clients' time-outs as they are shipped where the leader is cut off: shows what they cost, judges nothing.
    #[arg(long)]
    client_defaults: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Peers {
    Kafka,
}

/// Longest gaps in milliseconds.
type Gaps = BTreeMap<(How, Make, Kind), Vec<f64>>;

pub(crate) async fn run(options: &Options) -> Result<bool> {
    network::up(BROKERS)?;
    let mut gaps = Gaps::new();
    let makes: Vec<Make> = options.peer.map(|Peers::Kafka| Make::Kafka).into_iter().chain([Make::Forebay]).collect();
    let mut report = Report::default();
    for make in makes {
        let mut cluster = Cluster::start(make, BROKERS, &options.common.broker)?;
        let outcome = measure(&mut cluster, options, &mut gaps).await;
        if outcome.is_err() {
            eprintln!("{}", cluster.log_tails());
        }
        outcome.with_context(|| format!("{make}"))?;
        cluster.end().await?;
    }
    report.table(table(&gaps));
    report.table(settings(options));
    if !options.client_defaults {
        judge(&gaps, &mut report);
    }
    report.finish("Failover", options.common.save.as_deref())
}

async fn measure(cluster: &mut Cluster, options: &Options, gaps: &mut Gaps) -> Result<()> {
    let config = ClientConfig { request_timeout: Duration::from_secs(5), ..ClientConfig::default() };
    let admin = Admin::new(Client::new(&cluster.bootstrap(), config));
    create_topic(&admin, cluster).await?;
    for how in &options.how {
        let impatient = *how == How::Cut && !options.client_defaults;
        let clients = Clients::start(&cluster.bootstrap(), TOPIC, options.rate, impatient)?;
        clients.steady(RESUMES_WITHIN).await.context("before the first fault")?;
        sleep(LOOK).await; // a JVM compiles its code first
        for time in 1..=options.times {
            let leader = settled(cluster).await?;
            let from = now_ms();
            take_away(cluster, *how, leader).await?;
            sleep(LOOK).await;
            clients.steady(RESUMES_WITHIN).await?;
            for (kind, gap) in clients.longest_gaps(from) {
                println!("{} {how:?} {time}: broker {leader}: {kind} {gap:.0} ms", cluster.make());
                gaps.entry((*how, cluster.make(), kind)).or_default().push(gap);
            }
            bring_back(cluster, *how, leader)?;
        }
        settled(cluster).await?;
        clients.end().await?;
    }
    Ok(())
}

async fn create_topic(admin: &Admin, cluster: &Cluster) -> Result<()> {
    let topic = NewTopic {
        name: TOPIC.to_owned(),
        partitions: -1,
        replication_factor: -1,
        assignment: BTreeMap::from([(0, cluster.ids().into_iter().map(BrokerId).collect())]),
        configs: BTreeMap::from([("min.insync.replicas".to_owned(), "2".to_owned())]),
    };
    crate::broker::until_works(HEALS_WITHIN, async || {
        for (_, created) in admin.create_topics(std::slice::from_ref(&topic), false).await? {
            created?;
        }
        anyhow::Ok(())
    })
    .await
}

/// Waits until every broker says for a while that all replicas are in sync, under the same leader: one that was cut off tells old
/// news, and a preferred leader takes over again soon after it is back. Gives the leader.
async fn settled(cluster: &Cluster) -> Result<i32> {
    let config = ClientConfig { request_timeout: Duration::from_secs(2), ..ClientConfig::default() };
    let of = |address: &str| Admin::new(Client::new(address, config.clone()));
    let admins: Vec<Admin> = cluster.bootstrap().split(',').map(of).collect();
    let (begin, mut since) = (Instant::now(), None::<(i32, Instant)>);
    loop {
        let mut leaders = Vec::new();
        for admin in &admins {
            leaders.push(leader_in_sync(admin).await);
        }
        let all =
            leaders.first().copied().flatten().filter(|first| leaders.iter().all(|leader| *leader == Some(*first)));
        match (all, since) {
            (Some(leader), Some((same, from))) if same == leader => {
                if from.elapsed() >= SETTLED {
                    return Ok(leader);
                }
            }
            (Some(leader), _) => since = Some((leader, Instant::now())),
            (None, _) => since = None,
        }
        anyhow::ensure!(
            begin.elapsed() < HEALS_WITHIN,
            "not all replicas are in sync after {HEALS_WITHIN:?}: {leaders:?}"
        );
        sleep(Duration::from_millis(200)).await;
    }
}

/// The leader as one broker knows it, if it also knows that all replicas are in sync.
async fn leader_in_sync(admin: &Admin) -> Option<i32> {
    let described = admin.describe_topics(&[TOPIC]).await.ok()?.remove(TOPIC)?.ok()?;
    let partition = described.partitions.first()?;
    partition.leader.filter(|_| partition.isr.len() == partition.replicas.len()).map(|leader| leader.0)
}

fn others(cluster: &Cluster, id: i32) -> Vec<Peer> {
    let brokers = cluster.ids().into_iter().filter(|other| *other != id).map(Peer::Broker);
    brokers.chain([Peer::Clients]).collect()
}

async fn take_away(cluster: &mut Cluster, how: How, leader: i32) -> Result<()> {
    match how {
        How::Kill => cluster.kill(leader).await,
        How::Stop => cluster.stop(leader).await,
        How::Restart => {
            for id in cluster.ids() {
                cluster.kill(id).await?;
            }
            cluster.ids().into_iter().try_for_each(|id| cluster.start_one(id))
        }
        How::Cut => {
            let me = Peer::Broker(leader);
            others(cluster, leader).into_iter().try_for_each(|other| {
                network::cut(me, other)?;
                network::cut(other, me)
            })
        }
    }
}

fn bring_back(cluster: &mut Cluster, how: How, leader: i32) -> Result<()> {
    match how {
        How::Kill | How::Stop => cluster.start_one(leader),
        How::Restart => Ok(()),
        How::Cut => {
            let me = Peer::Broker(leader);
            others(cluster, leader).into_iter().try_for_each(|other| {
                network::mend(me, other)?;
                network::mend(other, me)
            })
        }
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

fn table(gaps: &Gaps) -> String {
    let mut text = String::from(
        "Longest time without an acknowledgement, ms.\n\n| leader | brokers | client | median | min–max | times |\n|---|---|---|---|---|---|\n",
    );
    for ((how, make, kind), values) in gaps {
        let (least, most) = values.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), v| (low.min(*v), high.max(*v)));
        let how = match how {
            How::Kill => "kill -9",
            How::Cut => "silent cut",
            How::Stop => "SIGTERM",
            How::Restart => "kill -9 of all, started again",
        };
        // Writing to a string can't fail.
        let _ = writeln!(
            text,
            "| {how} | {make} | {kind} | {:.0} | {least:.0}–{most:.0} | {} |",
            median(values),
            values.len()
        );
    }
    text
}

/// What the clients were told, in words.
fn settings(options: &Options) -> String {
    let mut text = String::from(
        "Both clients, with either make of brokers: acks=all, idempotent, records may wait 300 s (`delivery.timeout.ms`, \
         `message.timeout.ms`), all else as shipped",
    );
    if options.how.contains(&How::Cut) && !options.client_defaults {
        for kind in [Kind::Java, Kind::Librdkafka] {
            let _ = write!(text, "; in the silent cut {kind} with `{}`", kind.impatient().join("`, `"));
        }
        text.push_str(
            ". Nothing else ends a client's wait for a leader that is silent, and Java's asks nobody who leads now while it \
             sets up a connection (docs/guides/clients.md)",
        );
    }
    text.push_str(".\n");
    text
}

fn judge(gaps: &Gaps, report: &mut Report) {
    for ((how, _, kind), values) in gaps.iter().filter(|((_, make, _), _)| *make == Make::Forebay) {
        let ours = median(values);
        if *how == How::Stop {
            let limit = format!("< {STOP_MS:.0} ms");
            report.judge(&format!("SIGTERM, {kind}"), format!("{ours:.0} ms"), &limit, ours < STOP_MS);
            continue;
        }
        if *how == How::Restart {
            continue;
        }
        let Some(theirs) = gaps.get(&(*how, Make::Kafka, *kind)).map(|values| median(values)) else { continue };
        let part = if *how == How::Kill { KILL_PART } else { CUT_PART };
        let what = format!("{}, {kind}: ÷ Kafka (medians)", if *how == How::Kill { "kill -9" } else { "silent cut" });
        report.judge(&what, format!("{:.3}", ours / theirs), &format!("≤ {part}"), ours / theirs <= part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_that_dies_may_cost_a_tenth_of_what_it_costs_kafka() {
        let of = |forebay: f64| {
            let mut report = Report::default();
            let gaps = Gaps::from([
                ((How::Kill, Make::Kafka, Kind::Java), vec![9000.0, 10_000.0, 12_000.0]),
                ((How::Kill, Make::Forebay, Kind::Java), vec![forebay]),
            ]);
            judge(&gaps, &mut report);
            assert!(table(&gaps).contains("| kill -9 | Kafka | Java | 10000 | 9000–12000 | 3 |"), "{}", table(&gaps));
            report.passes()
        };
        assert!(of(999.0) && !of(1001.0));
    }
}
