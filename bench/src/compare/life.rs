//! A broker's life: started empty, idle, stopped and started with data, killed and started again.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use forebay_broker_client::types::PartitionIndex;
use forebay_broker_client::{Client, ClientConfig, NewRecord, Producer, ProducerConfig};
use rustix::process::Signal;
use tokio::time::sleep;

use super::samples::{Metric, Wanted};
use super::side::{Make, Side};
use super::throughput::produce_tuned;
use super::{Bench, client};
use crate::broker::until_works;

const TOPIC: &str = "life";
const WITHIN: Duration = Duration::from_secs(300);
const SETTLES: Duration = Duration::from_secs(8);
const IDLE_SECONDS: u64 = 15;
/// Of 1 KB.
const RECORDS: u64 = 1_000_000;

const fn milliseconds(name: &'static str, of_kafkas: f64) -> Metric {
    Metric { name, unit: "ms", wanted: Wanted::AtMost(of_kafkas) }
}

const START: Metric = milliseconds("empty start to first acknowledged record", 1.0 / 15.0);
const RESTART: Metric = milliseconds("clean restart to first acknowledged record", 1.0 / 15.0);
const RECOVERY: Metric = milliseconds("start after kill -9 to first acknowledged record", 0.1);
const STOP: Metric = Metric { name: "clean stop", unit: "ms", wanted: Wanted::Nothing };
const IDLE_CPU: Metric = Metric { name: "idle CPU", unit: "% of a core", wanted: Wanted::AtMost(1.0) };
const IDLE_MEMORY: Metric = Metric { name: "idle memory", unit: "MiB", wanted: Wanted::AtMost(0.05) };

pub(super) async fn life(bench: &mut Bench<'_>) -> Result<()> {
    for round in 1..=bench.options.rounds {
        for make in bench.makes() {
            one(bench, make, round).await?;
        }
    }
    Ok(())
}

async fn one(bench: &mut Bench<'_>, make: Make, round: u32) -> Result<()> {
    let program = client("throughput")?;
    let mut side = Side::prepare(make, &bench.options.common.broker, &[])?;
    let case = "one broker";
    bench.samples.add(case, make, round, START, first_record(&mut side, true).await?)?;
    sleep(SETTLES).await;
    let (before, began) = (side.usage()?, Instant::now());
    sleep(Duration::from_secs(bench.scaled(IDLE_SECONDS))).await;
    let (after, took) = (side.usage()?, began.elapsed().as_secs_f64());
    bench.samples.add(case, make, round, IDLE_CPU, 100.0 * (after.cpu_seconds - before.cpu_seconds) / took)?;
    bench.samples.add(case, make, round, IDLE_MEMORY, after.resident_mib)?;
    let records = bench.scaled(RECORDS);
    produce_tuned(&program, &side, TOPIC, records)?;
    let case = format!("one broker, {} MB of data", records / 1_000);
    let stop = side.end(Signal::TERM)?;
    bench.samples.add(&case, make, round, STOP, stop.as_secs_f64() * 1e3)?;
    bench.samples.add(&case, make, round, RESTART, first_record(&mut side, false).await?)?;
    produce_tuned(&program, &side, TOPIC, 2 * records)?;
    side.end(Signal::KILL)?;
    let case =
        format!("one broker, {} MB of data, {} of it since it started", 3 * records / 1_000, 2 * records / 1_000);
    bench.samples.add(&case, make, round, RECOVERY, first_record(&mut side, false).await?)?;
    side.end(Signal::TERM).map(drop)
}

/// Starts it; milliseconds until a record is acknowledged, with the topic made first if it is not there.
async fn first_record(side: &mut Side, create: bool) -> Result<f64> {
    let began = Instant::now();
    side.start()?;
    let quick = || ClientConfig { operation_timeout: Duration::ZERO, ..ClientConfig::default() };
    let client = until_works(WITHIN, async || Client::connect(side.address(), quick()).await).await?;
    if create {
        side.create_topic(TOPIC, 1, &[]).await?;
    }
    let timestamp_ms = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
    let record = NewRecord { timestamp_ms, key: None, value: Some(b"first"), headers: &[] };
    until_works(WITHIN, async || {
        let mut producer = Producer::new(client.clone(), TOPIC, ProducerConfig::default()).await?;
        producer.send(PartitionIndex(0), &[record]).await.map_err(anyhow::Error::from)
    })
    .await?;
    Ok(began.elapsed().as_secs_f64() * 1e3)
}
