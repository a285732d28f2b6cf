//! How many instructions a broker needs for a batch, counted by valgrind: a change that makes the path longer is seen on the busiest machine.
//!
//! The released program, a client in lock-step, real sockets and files. What must hold: only what more requests cost counts (the difference
//! of two runs), so that starting and stopping do not; a baseline is compared only with counts of the same compiler and processor family.
//! The kernel's own instructions are not in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use clap::Args;
use forebay_broker_client::admin::NewTopic;
use forebay_broker_client::types::{Offset, PartitionIndex};
use forebay_broker_client::{
    Admin, Client, ClientConfig, Consumer, FetchConfig, NewRecord, Producer, ProducerConfig, TopicPartition,
};
use serde::{Deserialize, Serialize};

use crate::Common;
use crate::broker::{Broker, until_works};
use crate::report::Report;

const TOPIC: &str = "instructions";
const WITHIN: Duration = Duration::from_secs(120);
/// More than the baseline by this much fails.
const TOLERANCE_PERCENT: f64 = 10.0;
/// What every run does first, so that code is loaded and buffers are there.
const WARM_BATCHES: u64 = 200;
const BATCHES: u64 = 5_000;
/// How often these are read.
const READINGS: u64 = 50;
/// Threads that meet by chance need a few instructions more: the least of several rounds counts, and no more are done than it takes.
const ROUNDS_MAX: u32 = 4;
/// A fetch brings a few of the large batches.
const FETCH_BYTES: i32 = 64 * 1024;
const LARGE: Batch = Batch { records: 16, record_bytes: 1_000 };
const SMALL: Batch = Batch { records: 1, record_bytes: 100 };

/// Nothing that depends on how long a run takes or which thread comes first.
const SETTINGS: [&str; 3] = ["num.network.threads=1", "num.io.threads=1", "log.flush.interval.ms=1000000"];

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Keep what is counted now as the baseline.
    #[arg(long)]
    bless: bool,
}

#[derive(Debug, Clone, Copy)]
struct Batch {
    records: usize,
    record_bytes: usize,
}

/// What a run does after it is warm.
#[derive(Debug, Clone, Copy)]
enum Work {
    Nothing,
    Produce(Batch),
    /// Reads what every run has produced.
    Fetch,
}

/// What is committed.
#[derive(Debug, Serialize, Deserialize)]
struct Baseline {
    compiler: String,
    architecture: String,
    instructions: BTreeMap<String, u64>,
}

impl Baseline {
    fn path() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.json")
    }

    fn read() -> Result<Self> {
        let path = Self::path();
        let text = std::fs::read_to_string(&path).with_context(|| format!("{}: --bless makes it", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is no baseline", path.display()))
    }

    fn is_like(&self, other: &Self) -> bool {
        (&self.compiler, &self.architecture) == (&other.compiler, &other.architecture)
    }

    fn of(instructions: BTreeMap<String, u64>) -> Result<Self> {
        let said = Command::new("rustc").arg("-V").output().context("can't start rustc")?.stdout;
        let compiler = String::from_utf8_lossy(&said).trim().to_owned();
        Ok(Self { compiler, architecture: std::env::consts::ARCH.to_owned(), instructions })
    }
}

pub(crate) async fn run(options: &Options) -> Result<bool> {
    let baseline = if options.bless { None } else { Some(Baseline::read()?) };
    let mut found = Baseline::of(count(&options.common.broker).await?)?;
    for _ in 1..ROUNDS_MAX {
        if baseline.as_ref().is_some_and(|baseline| !found.is_like(baseline) || judge(baseline, &found).passes()) {
            break;
        }
        for (case, count) in count(&options.common.broker).await? {
            found.instructions.entry(case).and_modify(|least| *least = count.min(*least));
        }
    }
    if options.bless {
        std::fs::write(Baseline::path(), serde_json::to_string_pretty(&found)? + "\n")?;
    }
    let baseline = Baseline::read()?;
    let report = if found.is_like(&baseline) {
        judge(&baseline, &found)
    } else {
        println!(
            "════ SKIPPED: instructions compared with the baseline. It was made by {} on {}, this is {} on {}; --bless makes a new one ════",
            baseline.compiler, baseline.architecture, found.compiler, found.architecture
        );
        let mut report = Report::default();
        found.instructions.iter().for_each(|(case, count)| report.tell(case, count.to_string()));
        report
    };
    report.finish("Instructions a batch", options.common.save.as_deref())
}

/// Counts every case once, for a batch.
async fn count(program: &Path) -> Result<BTreeMap<String, u64>> {
    let nothing = counted(program, Work::Nothing).await?;
    let large = counted(program, Work::Produce(LARGE)).await?;
    let small = counted(program, Work::Produce(SMALL)).await?;
    let fetched = counted(program, Work::Fetch).await?;
    let each = |more: u64, less: u64, batches: u64| more.saturating_sub(less) / batches;
    Ok(BTreeMap::from([
        ("produce, 16 records of 1,000 B".to_owned(), each(large, nothing, BATCHES)),
        ("produce, 1 record of 100 B".to_owned(), each(small, nothing, BATCHES)),
        ("fetch, a batch of 16 records of 1,000 B".to_owned(), each(fetched, nothing, READINGS * WARM_BATCHES)),
    ]))
}

fn judge(baseline: &Baseline, found: &Baseline) -> Report {
    let mut report = Report::default();
    for (case, count) in &found.instructions {
        let Some(before) = baseline.instructions.get(case) else {
            report.judge(case, count.to_string(), "in the baseline (--bless)", false);
            continue;
        };
        let percent = 100.0 * (*count as f64 / *before as f64 - 1.0);
        let limit = format!("≤ {before} + {TOLERANCE_PERCENT} %");
        report.judge(case, format!("{count} ({percent:+.1} %)"), &limit, percent <= TOLERANCE_PERCENT);
    }
    report
}

/// Instructions of a broker's whole life.
async fn counted(program: &Path, work: Work) -> Result<u64> {
    let log = tempfile::NamedTempFile::new()?;
    let to_log = format!("--log-file={}", log.path().display());
    // Threads take turns strictly, or one that waits for the interpreter would look like one that waits for its disk.
    let valgrind =
        ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", "--fair-sched=yes"];
    let under = valgrind.into_iter().chain([to_log.as_str()]);
    let mut broker = Broker::prepare(program)?.with(&SETTINGS)?.under(under);
    broker.start()?;
    let done = drive(broker.address(), work).await;
    done.with_context(|| format!("the end of the broker's log:\n{}", broker.log_tail()))?;
    broker.stop()?;
    let said = std::fs::read_to_string(log.path())?;
    instructions_of(&said).with_context(|| format!("valgrind did not count:\n{said}"))
}

/// The number of the line `==1== I   refs:      123,456`.
fn instructions_of(said: &str) -> Option<u64> {
    let (_, number) = said.lines().find(|line| line.contains("refs:"))?.rsplit_once(':')?;
    number.trim().replace(',', "").parse().ok()
}

async fn drive(address: &str, work: Work) -> Result<()> {
    // A broker under valgrind is slow: nothing is sent twice for that.
    let config = ClientConfig { request_timeout: WITHIN, operation_timeout: WITHIN, ..ClientConfig::default() };
    let client = until_works(WITHIN, async || Client::connect(address, config.clone()).await).await?;
    let topic = NewTopic { name: TOPIC.to_owned(), partitions: 1, replication_factor: 1, ..NewTopic::default() };
    for (_, made) in Admin::new(client.clone()).create_topics(&[topic], false).await? {
        made?;
    }
    produce(&client, LARGE, WARM_BATCHES).await?;
    match work {
        Work::Nothing => Ok(()),
        Work::Produce(batch) => produce(&client, batch, BATCHES).await,
        Work::Fetch => {
            for _ in 0..READINGS {
                fetch(&client, usize::try_from(WARM_BATCHES)? * LARGE.records).await?;
            }
            Ok(())
        }
    }
}

async fn produce(client: &Client, batch: Batch, batches: u64) -> Result<()> {
    let timestamp_ms = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
    let value = vec![b'v'; batch.record_bytes];
    let records = vec![NewRecord { timestamp_ms, key: None, value: Some(&value), headers: &[] }; batch.records];
    let mut producer = Producer::new(client.clone(), TOPIC, ProducerConfig::default()).await?;
    for _ in 0..batches {
        producer.send(PartitionIndex(0), &records).await?;
    }
    Ok(())
}

async fn fetch(client: &Client, records: usize) -> Result<()> {
    let config = FetchConfig { max_partition_bytes: FETCH_BYTES, ..FetchConfig::default() };
    let mut consumer = Consumer::new(client, config);
    consumer.assign(BTreeMap::from([(TopicPartition::new(TOPIC, 0), Offset(0))]));
    let mut read = 0;
    while read < records {
        read += consumer.poll().await?.len();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valgrinds_count_is_read() {
        assert_eq!(instructions_of("==7== \n==7== I   refs:      1,234,567\n"), Some(1_234_567));
        assert_eq!(instructions_of("==7== killed"), None);
    }

    #[test]
    fn more_than_the_tolerance_fails_and_less_never_does() {
        let with = |count| Baseline {
            compiler: String::new(),
            architecture: String::new(),
            instructions: BTreeMap::from([("produce".to_owned(), count)]),
        };
        for (count, passes) in [(109, true), (111, false), (50, true)] {
            assert_eq!(judge(&with(100), &with(count)).passes(), passes, "{count}");
        }
    }
}
