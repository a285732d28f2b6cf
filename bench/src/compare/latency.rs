//! How long records take: at steady rates, and when every acknowledged record must be on disk.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::samples::{Metric, Wanted};
use super::side::Side;
use super::throughput::produce_tuned;
use super::{Bench, client, output_of};

const PARTITIONS: i32 = 4;
const RECORD_BYTES: u32 = 1024;
const RATES: [u64; 5] = [1_000, 2_000, 5_000, 10_000, 20_000];
const SECONDS: u64 = 12;
/// The rate at which flushing is compared.
const FLUSHED_RATE: u64 = 10_000;

const fn at_most_kafkas(name: &'static str) -> Metric {
    Metric { name, unit: "ms", wanted: Wanted::AtMost(1.0) }
}

const FIGURES: [Metric; 6] = [
    at_most_kafkas("end to end, 50 %"),
    at_most_kafkas("end to end, 99 %"),
    at_most_kafkas("end to end, 99.9 %"),
    at_most_kafkas("acknowledged, 50 %"),
    at_most_kafkas("acknowledged, 99 %"),
    at_most_kafkas("acknowledged, 99.9 %"),
];
const LOW_RATE: u64 = 20;
const LOW_RECORD_BYTES: u32 = 200;
const LOW_SECONDS: u64 = 8;
/// Name, fetch.min.bytes and fetch.max.wait.ms: as the profile for low traffic has them, and as those who tune for throughput do.
const LOW_FETCHES: [(&str, u32, u32); 2] =
    [("fetch.min.bytes=1, wait 10 ms", 1, 10), ("fetch.min.bytes=1 MiB, wait 1,000 ms", 1 << 20, 1_000)];
/// How long they wait is what they ask for.
const LOW_FIGURES: [Metric; 2] = [
    Metric { name: "end to end, 50 %", unit: "ms", wanted: Wanted::Nothing },
    Metric { name: "end to end, 99 %", unit: "ms", wanted: Wanted::Nothing },
];
const FLUSHED_P99: Metric = Metric { name: "acknowledged, 99 %", unit: "ms", wanted: Wanted::AtMost(0.2) };
const UNFLUSHED_P99: Metric = at_most_kafkas("acknowledged, 99 %");
const RATE: Metric = Metric { name: "produced", unit: "records/s", wanted: Wanted::Nothing };
const FLUSHED: &str = "flush.messages=1";
const UNFLUSHED: &str = "default";
const COMPARED: &str = "flush.messages=1 ÷ default";
const P99_COMPARED: Metric = Metric { name: "acknowledged, 99 %", unit: "×", wanted: Wanted::OwnAtMost(4.0) };
const RATE_COMPARED: Metric = Metric { name: "produced", unit: "×", wanted: Wanted::OwnAtLeast(0.5) };

/// What the client prints.
#[derive(Debug, Deserialize)]
pub(super) struct Latency {
    received: u64,
    failed: u64,
    e2e_p50_ms: f64,
    pub(super) e2e_p99_ms: f64,
    e2e_p999_ms: f64,
    ack_p50_ms: f64,
    pub(super) ack_p99_ms: f64,
    ack_p999_ms: f64,
}

pub(super) fn measure(program: &Path, side: &Side, topic: &str, rate: u64, seconds: u64) -> Result<Latency> {
    measure_with(program, side, topic, (rate, RECORD_BYTES, seconds), &[])
}

/// `fetching` is what the consumer asks for, if not as by default: fetch.min.bytes and fetch.max.wait.ms.
fn measure_with(
    program: &Path,
    side: &Side,
    topic: &str,
    (rate, record_bytes, seconds): (u64, u32, u64),
    fetching: &[u32],
) -> Result<Latency> {
    let numbers = [PARTITIONS.to_string(), rate.to_string(), record_bytes.to_string(), seconds.to_string()];
    let numbers = numbers.into_iter().chain(fetching.iter().map(u32::to_string));
    let said = output_of(Command::new(program).args([side.address(), topic]).args(numbers))?;
    let latency: Latency = serde_json::from_str(said.trim()).with_context(|| format!("not a result: {said}"))?;
    ensure!(latency.failed == 0 && latency.received == rate * seconds, "records are missing: {latency:?}");
    Ok(latency)
}

pub(super) async fn at_load(bench: &mut Bench<'_>) -> Result<()> {
    let options = bench.options;
    let program = client("latency")?;
    let sides = bench.sides(&[]).await?;
    let seconds = bench.scaled(SECONDS).max(4);
    for round in bench.rounds() {
        for rate in RATES {
            let case = format!("{rate} records/s");
            for side in sides.iter().filter(|_| options.wants(&case)) {
                let topic = format!("latency-{rate}-{round}");
                side.create_topic(&topic, PARTITIONS, &[]).await?;
                let found = measure(&program, side, &topic, rate, seconds)?;
                side.delete_topic(&topic).await?;
                let Latency { e2e_p50_ms, e2e_p99_ms, e2e_p999_ms, ack_p50_ms, ack_p99_ms, ack_p999_ms, .. } = found;
                let values = [e2e_p50_ms, e2e_p99_ms, e2e_p999_ms, ack_p50_ms, ack_p99_ms, ack_p999_ms];
                for (metric, value) in FIGURES.into_iter().zip(values).filter(|_| round > 0) {
                    bench.samples.add(&case, side.make, round, metric, value)?;
                }
            }
        }
    }
    Ok(())
}

/// Few small records, as many consumers have: who asks for much waits the whole time for little.
pub(super) async fn low_traffic(bench: &mut Bench<'_>) -> Result<()> {
    let options = bench.options;
    let program = client("latency")?;
    let sides = bench.sides(&[]).await?;
    let seconds = bench.scaled(LOW_SECONDS).max(4);
    for round in bench.rounds() {
        for (number, (case, min_bytes, wait_ms)) in LOW_FETCHES.into_iter().enumerate() {
            for side in sides.iter().filter(|_| options.wants(case)) {
                let topic = format!("low-{number}-{round}");
                side.create_topic(&topic, PARTITIONS, &[]).await?;
                let work = (LOW_RATE, LOW_RECORD_BYTES, seconds);
                let found = measure_with(&program, side, &topic, work, &[min_bytes, wait_ms])?;
                side.delete_topic(&topic).await?;
                for (metric, value) in LOW_FIGURES.into_iter().zip([found.e2e_p50_ms, found.e2e_p99_ms]) {
                    if round > 0 {
                        bench.samples.add(case, side.make, round, metric, value)?;
                    }
                }
            }
        }
    }
    Ok(())
}

pub(super) async fn group_commit(bench: &mut Bench<'_>) -> Result<()> {
    let sides = bench.sides(&[]).await?;
    for round in bench.rounds() {
        let flushed = commits(bench, &sides, round, FLUSHED, &[("flush.messages", "1")]).await?;
        let unflushed = commits(bench, &sides, round, UNFLUSHED, &[]).await?;
        for (side, (flushed, unflushed)) in sides.iter().zip(flushed.iter().zip(&unflushed)).filter(|_| round > 0) {
            let add =
                |bench: &mut Bench<'_>, metric, value| bench.samples.add(COMPARED, side.make, round, metric, value);
            add(bench, P99_COMPARED, flushed.0 / unflushed.0)?;
            add(bench, RATE_COMPARED, flushed.1 / unflushed.1)?;
        }
    }
    Ok(())
}

/// The 99th percentile of the acknowledgements and the throughput of each side with these settings.
async fn commits(
    bench: &mut Bench<'_>,
    sides: &[Side],
    round: u32,
    case: &str,
    settings: &[(&str, &str)],
) -> Result<Vec<(f64, f64)>> {
    let (steady, fast) = (client("latency")?, client("throughput")?);
    let (seconds, records) = (bench.scaled(SECONDS).max(4), bench.scaled(500_000));
    let mut found = Vec::new();
    for side in sides {
        let topic = format!("commit-{round}-{}", settings.len());
        side.create_topic(&topic, PARTITIONS, settings).await?;
        let p99_ms = measure(&steady, side, &topic, FLUSHED_RATE, seconds)?.ack_p99_ms;
        let rate = produce_tuned(&fast, side, &topic, records)?.rate;
        side.delete_topic(&topic).await?;
        if round > 0 {
            let metric = if settings.is_empty() { UNFLUSHED_P99 } else { FLUSHED_P99 };
            bench.samples.add(case, side.make, round, metric, p99_ms)?;
            bench.samples.add(case, side.make, round, RATE, rate)?;
        }
        found.push((p99_ms, rate));
    }
    Ok(found)
}
