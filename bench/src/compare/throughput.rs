//! What records cost and how many go through: a light client over sizes, batches, codecs and acks; and the tuning ladder with the Java client.

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::samples::{Metric, Wanted};
use super::side::Side;
use super::{Bench, client, counting, output_of, pages};
use crate::broker::cpu_seconds_of_children;

const CPU_PRODUCED: Metric =
    Metric { name: "broker CPU per record produced", unit: "µs", wanted: Wanted::AtMost(0.35) };
const RATE_PRODUCED: Metric = Metric { name: "produced", unit: "records/s", wanted: Wanted::AtLeast(1.8) };
const RATE_OF_JAVA: Metric = Metric { name: "produced", unit: "records/s", wanted: Wanted::AtLeast(1.0) };
const CPU_CONSUMED: Metric =
    Metric { name: "broker CPU per record consumed", unit: "µs", wanted: Wanted::AtMost(0.6) };
const RATE_CONSUMED: Metric = Metric { name: "consumed", unit: "records/s", wanted: Wanted::AtLeast(1.3) };
const CPU_COUNTED: Metric =
    Metric { name: "broker CPU per record only counted", unit: "µs", wanted: Wanted::AtMost(0.6) };
const RATE_COUNTED: Metric = Metric { name: "only counted", unit: "records/s", wanted: Wanted::AtLeast(1.3) };
const CLIENT_PRODUCED: Metric =
    Metric { name: "the client's own CPU per record produced", unit: "µs", wanted: Wanted::Nothing };
const CLIENT_CONSUMED: Metric =
    Metric { name: "the client's own CPU per record consumed", unit: "µs", wanted: Wanted::Nothing };
const PEAK: Metric = Metric { name: "peak memory", unit: "MiB", wanted: Wanted::AtMost(1.0 / 12.0) };
const P99_ACKNOWLEDGED: Metric = Metric { name: "99 % acknowledged within", unit: "ms", wanted: Wanted::Nothing };

/// Name, batch.size and linger.ms: the Java client's defaults, and what tuning guides begin with.
const BATCHES: [(&str, u32, u32); 2] = [("16 KB/5 ms", 16_384, 5), ("64 KB/10 ms", 65_536, 10)];

/// A consumer that has read ahead 64 MB or a million records asks for nothing during up to a second: the faster the broker, the more of
/// that would be measured.
const NEVER_FULL: [&str; 2] = ["queued.min.messages=10000000", "queued.max.messages.kbytes=2097151"];

/// A clock of 10 ms counts the CPU: so often is read what was written, and so much by who only counts.
const CONSUMED_TIMES: u64 = 3;
const COUNTED_BYTES: u64 = 3 << 30;
const COUNTED_TIMES_MAX: u64 = 40;

struct Work {
    case: String,
    record_bytes: u32,
    records: u64,
    settings: Vec<String>,
}

fn work(name: &str, record_bytes: u32, records: u64, batch: (&str, u32, u32), codec: &str, acks: &str) -> Work {
    let settings = [
        ("batch.size", batch.1.to_string()),
        ("linger.ms", batch.2.to_string()),
        ("compression.codec", codec.to_owned()),
    ];
    let mut settings: Vec<_> = settings.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    settings.push(format!("request.required.acks={acks}"));
    let acks_shown = if acks == "-1" { "" } else { ", acks=1" };
    Work { case: format!("{name}, {}, {codec}{acks_shown}", batch.0), record_bytes, records, settings }
}

fn ladder(bench: &Bench<'_>) -> Vec<Work> {
    let mut all = Vec::new();
    for (name, bytes, records) in [("1 KB", 1024, 1_000_000), ("100 B", 100, 3_000_000)] {
        let records = bench.scaled(records);
        for batch in BATCHES {
            for codec in ["none", "lz4"] {
                all.push(work(name, bytes, records, batch, codec, "-1"));
            }
        }
        all.push(work(name, bytes, records, BATCHES[1], "zstd", "-1"));
        all.push(work(name, bytes, records, BATCHES[1], "none", "1"));
    }
    all.retain(|work| bench.options.wants(&work.case));
    all
}

pub(super) async fn producer_ladder(bench: &mut Bench<'_>) -> Result<()> {
    let program = client("throughput")?;
    let sides = bench.sides(&[]).await?;
    for round in bench.rounds() {
        for work in ladder(bench) {
            for side in &sides {
                let topic = format!("ladder-{round}");
                side.create_topic(&topic, 1, &[]).await?;
                pages::warm(work.records * u64::from(work.record_bytes))?;
                side.forget_peak()?;
                let produced = produce(&program, side, &topic, &work)?;
                let consumed = consume(&program, side, &topic, &work)?;
                let counted = count(side, &topic, &work)?;
                let peak_mib = side.usage()?.peak_mib;
                side.delete_topic(&topic).await?;
                if round > 0 {
                    let (case, make) = (&work.case, side.make);
                    bench.samples.add(case, make, round, CPU_PRODUCED, produced.cpu_us)?;
                    bench.samples.add(case, make, round, RATE_PRODUCED, produced.rate)?;
                    bench.samples.add(case, make, round, CLIENT_PRODUCED, produced.client_cpu_us)?;
                    bench.samples.add(case, make, round, CPU_CONSUMED, consumed.cpu_us)?;
                    bench.samples.add(case, make, round, RATE_CONSUMED, consumed.rate)?;
                    bench.samples.add(case, make, round, CLIENT_CONSUMED, consumed.client_cpu_us)?;
                    bench.samples.add(case, make, round, CPU_COUNTED, counted.cpu_us)?;
                    bench.samples.add(case, make, round, RATE_COUNTED, counted.rate)?;
                    bench.samples.add(case, make, round, PEAK, peak_mib)?;
                }
            }
        }
    }
    Ok(())
}

/// A run's figures for one record.
pub(super) struct Cost {
    cpu_us: f64,
    pub(super) rate: f64,
    client_cpu_us: f64,
}

/// What the client prints says how fast it was: how long it takes to come up and to end is not the broker's.
fn cost_of(side: &Side, records: u64, command: &mut Command, rate: fn(&str) -> Result<f64>) -> Result<(Cost, String)> {
    let (before, client_before) = (side.usage()?.cpu_seconds, clients_cpu_seconds()?);
    let said = output_of(command)?;
    let (after, client_after) = (side.usage()?.cpu_seconds, clients_cpu_seconds()?);
    let each_us = |seconds: f64| 1e6 * seconds / records as f64;
    let (cpu_us, client_cpu_us) = (each_us(after - before), each_us(client_after - client_before));
    Ok((Cost { cpu_us, rate: rate(&said)?, client_cpu_us }, said))
}

/// Of all clients so far, from their beginnings to their ends.
fn clients_cpu_seconds() -> Result<f64> {
    cpu_seconds_of_children(&std::fs::read_to_string("/proc/self/stat")?).context("can't read the CPU time of clients")
}

/// `% 100 messages produced (…) in 10ms: 10000 msgs/s and 1.00 MB/s, …`, and the like of a consumer.
fn rate_of_light(said: &str) -> Result<f64> {
    let text = said.lines().rev().find_map(|line| line.split_once(" msgs/s")).map(|(before, _)| before);
    let rate = text.and_then(|text| text.rsplit(' ').next()?.parse().ok());
    rate.with_context(|| format!("rdkafka_performance printed no rate: {said}"))
}

pub(super) fn light(program: &Path, side: &Side, topic: &str, records: u64) -> Command {
    let mut command = Command::new(program);
    command.args(["-t", topic, "-p", "0", "-c", &records.to_string(), "-b", side.address()]);
    command
}

fn produce(program: &Path, side: &Side, topic: &str, work: &Work) -> Result<Cost> {
    let mut command = light(program, side, topic, work.records);
    command.args(["-P", "-s", &work.record_bytes.to_string()]);
    command.args(work.settings.iter().flat_map(|setting| ["-X", setting]));
    Ok(cost_of(side, work.records, &mut command, rate_of_light)?.0)
}

fn consume(program: &Path, side: &Side, topic: &str, work: &Work) -> Result<Cost> {
    let mut all = Cost { cpu_us: 0.0, rate: 0.0, client_cpu_us: 0.0 };
    for _ in 0..CONSUMED_TIMES {
        let mut command = light(program, side, topic, work.records);
        command.args(["-C", "-o", "beginning"]).args(NEVER_FULL.iter().flat_map(|setting| ["-X", setting]));
        let (cost, _) = cost_of(side, work.records, &mut command, rate_of_light)?;
        all.cpu_us += cost.cpu_us / CONSUMED_TIMES as f64;
        all.rate += cost.rate / CONSUMED_TIMES as f64;
        all.client_cpu_us += cost.client_cpu_us / CONSUMED_TIMES as f64;
    }
    Ok(all)
}

/// As often as it takes for the clock of the CPU.
fn count(side: &Side, topic: &str, work: &Work) -> Result<Cost> {
    let times = (COUNTED_BYTES / (work.records * u64::from(work.record_bytes))).clamp(1, COUNTED_TIMES_MAX);
    let (before, mut took) = (side.usage()?.cpu_seconds, Duration::ZERO);
    for _ in 0..times {
        took += counting::read(side.address(), topic, work.records)?;
    }
    let (cpu_seconds, records) = (side.usage()?.cpu_seconds - before, (times * work.records) as f64);
    Ok(Cost { cpu_us: 1e6 * cpu_seconds / records, rate: records / took.as_secs_f64(), client_cpu_us: 0.0 })
}

/// 1 KB records in the batches of tuning guides, as many as go through.
pub(super) fn produce_tuned(program: &Path, side: &Side, topic: &str, records: u64) -> Result<Cost> {
    produce(program, side, topic, &work("1 KB", 1024, records, BATCHES[1], "none", "-1"))
}

/// Steps of the tuning ladder: each changes one thing.
const STEPS: [(&str, &[&str]); 4] = [
    ("1 acks=1, no linger", &["acks=1", "linger.ms=0"]),
    ("2 64 KB/10 ms, lz4", &["acks=1", "linger.ms=10", "batch.size=65536", "compression.type=lz4"]),
    ("3 acks=all", &["acks=all", "linger.ms=10", "batch.size=65536", "compression.type=lz4"]),
    ("4 zstd", &["acks=all", "linger.ms=10", "batch.size=65536", "compression.type=zstd"]),
];

pub(super) async fn java_ladder(bench: &mut Bench<'_>) -> Result<()> {
    let options = bench.options;
    let sides = bench.sides(&[]).await?;
    let records = bench.scaled(500_000);
    let payload = payload()?;
    for round in bench.rounds() {
        for (case, settings) in STEPS.into_iter().filter(|(case, _)| options.wants(case)) {
            for side in &sides {
                let topic = format!("java-ladder-{round}");
                side.create_topic(&topic, 4, &[]).await?;
                pages::warm(records * 1_024)?;
                side.forget_peak()?;
                let mut command = java_producer(side, &topic, records, payload.path(), settings);
                let (cost, said) = cost_of(side, records, &mut command, |said| Ok(parse(said)?.0))?;
                let peak_mib = side.usage()?.peak_mib;
                side.delete_topic(&topic).await?;
                let (_, p99_ms) = parse(&said)?;
                if round > 0 {
                    bench.samples.add(case, side.make, round, CPU_PRODUCED, cost.cpu_us)?;
                    bench.samples.add(case, side.make, round, RATE_OF_JAVA, cost.rate)?;
                    bench.samples.add(case, side.make, round, P99_ACKNOWLEDGED, p99_ms)?;
                    bench.samples.add(case, side.make, round, PEAK, peak_mib)?;
                }
            }
        }
    }
    Ok(())
}

fn java_producer(side: &Side, topic: &str, records: u64, payload: &Path, settings: &[&str]) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../e2e/compat/tools"));
    command.args(["run", "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--throughput", "-1"]);
    command.args(["--bootstrap-server", side.address(), "--num-records", &records.to_string(), "--payload-file"]);
    command.arg(payload).arg("--command-property").args(settings);
    command
}

/// Lines of 1 KB that compress as JSON does.
fn payload() -> Result<tempfile::NamedTempFile> {
    let words = [
        "order",
        "shipment",
        "invoice",
        "customer",
        "warehouse",
        "pending",
        "delivered",
        "express",
        "standard",
        "region",
    ];
    let mut seed = 7_u64;
    let mut random = |bound: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap_or(0) % bound
    };
    let mut file = tempfile::NamedTempFile::new()?;
    for number in 0..10_000 {
        let mut line = format!("{{\"id\":{number}");
        while line.len() < 1_000 {
            line +=
                &format!(",\"{}_{}\":\"{}-{}\"", words[random(10)], random(50), words[random(10)], random(1_000_000));
        }
        line.truncate(1_022);
        writeln!(file, "{line}\"}}")?;
    }
    file.flush()?;
    Ok(file)
}

/// Records a second and the 99th percentile of the last line.
pub(super) fn parse(said: &str) -> Result<(f64, f64)> {
    let line =
        said.lines().rev().find(|line| line.contains("99.9th")).context("the Java producer printed no summary")?;
    let before = |unit: &str| {
        let text = line.split_once(unit)?.0.trim_end();
        text.rsplit([' ', '(']).next()?.parse::<f64>().ok()
    };
    match (before("records/sec"), before("ms 99th")) {
        (Some(rate), Some(p99_ms)) => Ok((rate, p99_ms)),
        _ => bail!("not a summary: {line}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_light_clients_rate_is_read() {
        let produced = "% Sending messages of size 100 bytes\n% 100 messages produced (10000 bytes), 100 delivered (offset 99, 0 failed) \
                        in 10ms: 10000 msgs/s and 1.00 MB/s, 0 produce failures, 0 in queue, no compression\n";
        assert!((rate_of_light(produced).unwrap() - 10_000.0).abs() < 0.5);
        let consumed = "% 100 messages (10000 bytes) consumed in 20ms: 5000 msgs/s (1.00 MB/s)\n";
        assert!((rate_of_light(consumed).unwrap() - 5_000.0).abs() < 0.5);
        assert!(rate_of_light("").is_err());
    }

    #[test]
    fn the_java_producers_summary_is_read() {
        let said = "100 records sent, 1.0 records/sec\n500000 records sent, 66800.5 records/sec (65.23 MB/sec), 5.2 ms avg latency, \
                    300.0 ms max latency, 4 ms 50th, 9 ms 95th, 46 ms 99th, 80 ms 99.9th.\n";
        assert_eq!(parse(said).unwrap(), (66_800.5, 46.0));
        assert!(parse("nothing").is_err());
    }
}
