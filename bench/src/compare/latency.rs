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
const FLUSHED_P99: Metric = Metric { name: "acknowledged, 99 %", unit: "ms", wanted: Wanted::AtMost(0.2) };
const UNFLUSHED_P99: Metric = at_most_kafkas("acknowledged, 99 %");
const RATE: Metric = Metric { name: "produced", unit: "records/s", wanted: Wanted::Nothing };

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
    let numbers = [PARTITIONS.to_string(), rate.to_string(), RECORD_BYTES.to_string(), seconds.to_string()];
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

pub(super) async fn group_commit(bench: &mut Bench<'_>) -> Result<()> {
    let options = bench.options;
    let (steady, fast) = (client("latency")?, client("throughput")?);
    let sides = bench.sides(&[]).await?;
    let (seconds, records) = (bench.scaled(SECONDS).max(4), bench.scaled(500_000));
    let flushed: &[(&str, &str)] = &[("flush.messages", "1")];
    for round in bench.rounds() {
        for (case, settings) in [("flush.messages=1", flushed), ("default", &[])] {
            for side in sides.iter().filter(|_| options.wants(case)) {
                let topic = format!("commit-{round}-{}", settings.len());
                side.create_topic(&topic, PARTITIONS, settings).await?;
                let found = measure(&steady, side, &topic, FLUSHED_RATE, seconds)?;
                let cost = produce_tuned(&fast, side, &topic, records)?;
                side.delete_topic(&topic).await?;
                if round > 0 {
                    let p99 = if settings.is_empty() { UNFLUSHED_P99 } else { FLUSHED_P99 };
                    bench.samples.add(case, side.make, round, p99, found.ack_p99_ms)?;
                    bench.samples.add(case, side.make, round, RATE, cost.rate)?;
                }
            }
        }
    }
    Ok(())
}
