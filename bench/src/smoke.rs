//! What a user notices first: how soon a broker takes a record, what it costs when nobody uses it, and that what goes in comes out.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use clap::Args;
use forebay_broker_client::admin::NewTopic;
use forebay_broker_client::types::{Offset, PartitionIndex};
use forebay_broker_client::{
    Admin, Client, ClientConfig, Consumer, FetchConfig, NewRecord, Producer, ProducerConfig, TopicPartition,
};

use crate::Common;
use crate::broker::{Broker, until_works};
use crate::report::Report;

const TOPIC: &str = "smoke";
const PARTITIONS: i32 = 4;
const RECORD_BYTES: usize = 1_000;
const RECORDS_A_BATCH: usize = 100;

/// Limits that a run must keep.
const MEMORY_MIB_BELOW: f64 = 40.0;
const CPU_PERCENT_BELOW: f64 = 0.5;
const START_MS_BELOW: u128 = 300;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// How long the idle broker is watched.
    #[arg(long, default_value_t = 30)]
    idle_seconds: u64,
    /// Records written and read back.
    #[arg(long, default_value_t = 200_000)]
    records: usize,
}

pub(crate) async fn run(options: &Options) -> Result<bool> {
    let mut report = Report::default();
    let mut broker = Broker::prepare(&options.common.broker)?;
    let size = std::fs::metadata(&options.common.broker).context("no broker program")?.len();
    report.tell("size of the broker program", format!("{:.1} MiB", size as f64 / 1_048_576.0));

    let fresh = first_record(&mut broker, true).await?;
    let within = format!("< {START_MS_BELOW} ms");
    report.judge("empty start to first acknowledged record", ms(fresh), &within, fresh.as_millis() < START_MS_BELOW);
    idle(&broker, options.idle_seconds, &mut report).await?;
    work(&broker, options.records, &mut report).await?;
    broker.stop()?;
    let again = first_record(&mut broker, false).await?;
    report.judge("restart to first acknowledged record", ms(again), &within, again.as_millis() < START_MS_BELOW);
    broker.stop()?;
    report.finish("Smoke", options.common.save.as_deref())
}

fn ms(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}

/// Records of long ago would fall to retention.
fn now_ms() -> Result<i64> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}

fn quick() -> ClientConfig {
    ClientConfig { operation_timeout: Duration::ZERO, ..ClientConfig::default() }
}

/// Starts the broker; the time until a record is acknowledged, with the topic made first if it is not there.
async fn first_record(broker: &mut Broker, create: bool) -> Result<Duration> {
    let begin = Instant::now();
    broker.start()?;
    let within = Duration::from_secs(30);
    let client = until_works(within, async || Client::connect(broker.address(), quick()).await).await?;
    if create {
        let topic =
            NewTopic { name: TOPIC.to_owned(), partitions: PARTITIONS, replication_factor: 1, ..NewTopic::default() };
        for (name, made) in Admin::new(client.clone()).create_topics(&[topic], false).await? {
            made.with_context(|| format!("topic {name} is not made; the broker's log:\n{}", broker.log_tail()))?;
        }
    }
    let record = NewRecord { timestamp_ms: now_ms()?, key: None, value: Some(b"first"), headers: &[] };
    until_works(within, async || {
        let mut producer = Producer::new(client.clone(), TOPIC, ProducerConfig::default()).await?;
        producer.send(PartitionIndex(0), &[record]).await.map_err(anyhow::Error::from)
    })
    .await?;
    Ok(begin.elapsed())
}

async fn idle(broker: &Broker, seconds: u64, report: &mut Report) -> Result<()> {
    // What starting has left to do is not idling.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (begin, before) = (Instant::now(), broker.usage()?);
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let after = broker.usage()?;
    let percent = 100.0 * (after.cpu_seconds - before.cpu_seconds) / begin.elapsed().as_secs_f64();
    let memory = format!("{:.1} MiB, {} threads", after.resident_mib, after.threads);
    report.judge("idle memory", memory, &format!("< {MEMORY_MIB_BELOW} MiB"), after.resident_mib < MEMORY_MIB_BELOW);
    let cpu = format!("{percent:.2} % of a core over {seconds} s");
    report.judge("idle CPU", cpu, &format!("< {CPU_PERCENT_BELOW} %"), percent < CPU_PERCENT_BELOW);
    Ok(())
}

/// Writes records, reads them back, and compares.
async fn work(broker: &Broker, records: usize, report: &mut Report) -> Result<()> {
    let client = Client::connect(broker.address(), ClientConfig::default()).await?;
    let before = broker.usage()?;
    let begin = Instant::now();
    let written = write(&client, records).await?;
    let wrote = begin.elapsed();
    let begin = Instant::now();
    let read = read(&client, written).await?;
    let took = begin.elapsed();
    let after = broker.usage()?;
    let rate = |n: usize, time: Duration| format!("{:.0} records/s ({RECORD_BYTES} B)", n as f64 / time.as_secs_f64());
    report.tell("one producer, one batch at a time, acks=all", rate(written, wrote));
    report.tell("one consumer", rate(read, took));
    report.judge("records read", read.to_string(), &format!("= {} written", written + 1), read == written + 1);
    let cpu = 1e6 * (after.cpu_seconds - before.cpu_seconds) / (written + read) as f64;
    report.tell("broker CPU a record, written or read", format!("{cpu:.2} µs"));
    report.tell("memory after it", format!("{:.1} MiB", after.resident_mib));
    Ok(())
}

async fn write(client: &Client, records: usize) -> Result<usize> {
    let mut producer = Producer::new(client.clone(), TOPIC, ProducerConfig::default()).await?;
    let value = vec![b'v'; RECORD_BYTES];
    let batch =
        vec![NewRecord { timestamp_ms: now_ms()?, key: None, value: Some(&value), headers: &[] }; RECORDS_A_BATCH];
    let partitions = producer.partitions();
    let batches = records / RECORDS_A_BATCH;
    for partition in partitions.iter().cycle().take(batches) {
        producer.send(*partition, &batch).await?;
    }
    Ok(batches * RECORDS_A_BATCH)
}

/// Reads until as much came as was written, or nothing more comes.
async fn read(client: &Client, written: usize) -> Result<usize> {
    let mut consumer = Consumer::new(client, FetchConfig::default());
    let partitions = (0..PARTITIONS).map(|p| (TopicPartition::new(TOPIC, p), Offset(0)));
    consumer.assign(partitions.collect::<BTreeMap<_, _>>());
    let (mut read, mut empty) = (0, 0);
    while read < written + 1 && empty < 3 {
        let records = consumer.poll().await?;
        empty = if records.is_empty() { empty + 1 } else { 0 };
        read += records.len();
    }
    Ok(read)
}
