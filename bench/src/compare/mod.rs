//! Measurements side by side: the same work on Forebay and, where asked for, on Apache Kafka in the same run, one after the other and
//! round after round (A B A B). Each file is one scenario; the clients are other people's (librdkafka, franz-go, Kafka's own Java tools).
//!
//! What must hold: both get the same rounds and a first one that does not count, since a JVM compiles what it runs; a figure is the median
//! with its extremes; what is saved says how it came about.

mod cold;
mod counting;
mod latency;
mod life;
mod many;
mod page;
mod pages;
mod replicated;
mod samples;
mod shares;
pub(crate) mod side;
mod throughput;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use self::samples::Samples;
pub(crate) use self::side::Make;
use self::side::Side;
use crate::Common;
use crate::limits::Limits;
use crate::report::{command_line, machine};

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Also measure Apache Kafka, in the same run.
    #[arg(long, value_enum)]
    peer: Option<Peer>,
    /// Rounds that count; one more goes before them.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// A factor on the number of records and on durations, for a quick look.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Only cases with this in their name.
    #[arg(long, default_value = "")]
    only: String,
}

impl Options {
    fn wants(&self, case: &str) -> bool {
        case.contains(&self.only)
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Peer {
    Kafka,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    ProducerLadder,
    JavaLadder,
    LatencyAtLoad,
    LowTraffic,
    GroupCommit,
    Life,
    ManyPartitions,
    ManyConnections,
    ColdReader,
    Replicated,
}

impl Scenario {
    pub(crate) const ALL: [Self; 10] = [
        Self::ProducerLadder,
        Self::JavaLadder,
        Self::LatencyAtLoad,
        Self::LowTraffic,
        Self::GroupCommit,
        Self::Life,
        Self::ManyPartitions,
        Self::ManyConnections,
        Self::ColdReader,
        Self::Replicated,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::ProducerLadder => "producer-ladder",
            Self::JavaLadder => "java-ladder",
            Self::LatencyAtLoad => "latency-at-load",
            Self::LowTraffic => "low-traffic",
            Self::GroupCommit => "group-commit",
            Self::Life => "life",
            Self::ManyPartitions => "many-partitions",
            Self::ManyConnections => "many-connections",
            Self::ColdReader => "cold-reader",
            Self::Replicated => "replicated",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Self::ProducerLadder => {
                "librdkafka's rdkafka_performance (a client that costs little), one partition, acks=all unless said otherwise: writes, \
                 then reads from the beginning three times, with a queue of its own that is never full. Rates are its own, from the first record to the last; its CPU is that of the whole process. What a reader that only counts is sent says what the broker can. Before each run as much page cache as it writes is used and given back, since this machine's host charges fresh memory to whoever needs it. Peak memory is the process's VmHWM."
            }
            Self::JavaLadder => {
                "kafka-producer-perf-test of Apache Kafka 4.4, 1 KB of JSON, 4 partitions. On few cores this client is the limit, not the broker."
            }
            Self::LatencyAtLoad => {
                "franz-go, 1 KB, 4 partitions, acks=all, no linger; counted from when each record was due, so that a stall counts for all behind it."
            }
            Self::LowTraffic => {
                "franz-go, 20 records/s of 200 B on 4 partitions, counted from when each record was due: what a consumer's fetch settings cost where little comes."
            }
            Self::GroupCommit => {
                "flush.messages=1 (every acknowledged record on disk) beside the default: latency with franz-go at a steady rate, throughput with rdkafka_performance."
            }
            Self::Life => {
                "From exec to the first acknowledged record: empty, after a clean stop and after kill -9 with data; idle between them."
            }
            Self::ManyPartitions => "Topics of 100 partitions, nobody uses them.",
            Self::ColdReader => {
                "franz-go at 2,000 records/s of 1 KB, with and without rdkafka_performance, or a reader that only counts, reading 8 GB of old data at niceness 19 (it stands for a client on another machine); the broker has 1.5 GB of memory, page cache included."
            }
            Self::ManyConnections => "Connections that have said who they are (ApiVersions) and then say nothing.",
            Self::Replicated => {
                "Three brokers, 6 partitions, 3 replicas, min.insync.replicas=2, acks=all, 1 KB records: kafka-producer-perf-test of Apache \
                 Kafka 4.4, then rdkafka_performance (a client that costs little) with other batches and fetchers. CPU is that of all \
                 brokers together, memory the largest VmHWM of one."
            }
        }
    }
}

/// What a scenario needs.
struct Bench<'a> {
    options: &'a Options,
    samples: Samples,
}

impl Bench<'_> {
    fn makes(&self) -> Vec<Make> {
        let peer = self.options.peer.map(|Peer::Kafka| Make::Kafka);
        peer.into_iter().chain([Make::Forebay]).collect()
    }

    /// Round 0 does not count.
    fn rounds(&self) -> std::ops::RangeInclusive<u32> {
        0..=self.options.rounds
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of records")]
    fn scaled(&self, records: u64) -> u64 {
        ((records as f64 * self.options.scale) as u64).max(1)
    }

    /// Brokers of all makes, running.
    async fn sides(&self, settings: &[&str]) -> Result<Vec<Side>> {
        let mut sides = Vec::new();
        for make in self.makes() {
            let mut side = Side::prepare(make, &self.options.common.broker, settings)?;
            side.up().await?;
            sides.push(side);
        }
        Ok(sides)
    }
}

/// Runs them one after the other; true when all keep what is wanted of them.
pub(crate) async fn run(scenarios: &[Scenario], options: &Options) -> Result<bool> {
    let mut passes = true;
    for scenario in scenarios {
        let save = options.common.save.as_deref().map(|path| file_of(path, *scenario, scenarios.len() > 1));
        let lines = save.as_deref().map(|path| path.with_extension("jsonl"));
        let limits = Limits::measure()?;
        println!("{}", limits.text());
        let mut bench = Bench { options, samples: Samples::new(scenario.name(), lines.as_deref())? };
        match scenario {
            Scenario::ProducerLadder => throughput::producer_ladder(&mut bench).await,
            Scenario::JavaLadder => throughput::java_ladder(&mut bench).await,
            Scenario::LatencyAtLoad => latency::at_load(&mut bench).await,
            Scenario::LowTraffic => latency::low_traffic(&mut bench).await,
            Scenario::GroupCommit => latency::group_commit(&mut bench).await,
            Scenario::Life => life::life(&mut bench).await,
            Scenario::ManyPartitions => many::partitions(&mut bench).await,
            Scenario::ManyConnections => many::connections(&mut bench).await,
            Scenario::ColdReader => cold::reader(&mut bench).await,
            Scenario::Replicated => replicated::replicated(&mut bench).await,
        }
        .with_context(|| scenario.name())?;
        println!("{}\n{}", bench.samples.markdown(), shares::markdown(&bench.samples.rows(), &limits));
        if let Some(path) = save {
            write(&path, *scenario, options, &limits, &bench.samples)?;
        }
        passes &= bench.samples.passes();
    }
    Ok(passes)
}

/// Of several scenarios each has its file in the folder that was named.
fn file_of(path: &Path, scenario: Scenario, several: bool) -> PathBuf {
    if several { path.join(scenario.name()).with_extension("md") } else { path.to_path_buf() }
}

fn write(path: &Path, scenario: Scenario, options: &Options, limits: &Limits, samples: &Samples) -> Result<()> {
    let rounds =
        format!("{} rounds after one that does not count; medians with the least and the most.", options.rounds);
    let how = [
        format!("cargo xtask bench {}", command_line()),
        machine(),
        scenario.about().to_owned(),
        rounds,
        limits.text(),
    ];
    let markdown = format!(
        "# {}\n\n`{}`\n\n{}\n\n{}\n\n{} {}\n\n{}\n{}",
        scenario.name(),
        how[0],
        how[1],
        how[4],
        how[2],
        how[3],
        samples.markdown(),
        shares::markdown(&samples.rows(), limits)
    );
    std::fs::write(path, markdown).with_context(|| format!("can't write {}", path.display()))?;
    let page = page::page(scenario.name(), &how, &samples.rows());
    let html = path.with_extension("html");
    std::fs::write(&html, page).with_context(|| format!("can't write {}", html.display()))
}

/// Where `bench/clients/tools` has put one of its clients.
fn client(name: &str) -> Result<PathBuf> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/tools");
    let output = Command::new(tools).arg(name).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("bench/clients/tools {name}: {}", output.status);
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

/// What a client prints; one that fails is an error with the end of what it said.
fn output_of(command: &mut Command) -> Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("can't start {:?}", command.get_program()))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = error.lines().chain(said.lines()).collect();
        bail!("{:?}: {}\n{}", command.get_program(), output.status, lines[lines.len().saturating_sub(15)..].join("\n"));
    }
    Ok(said)
}
