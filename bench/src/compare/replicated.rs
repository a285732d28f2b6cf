//! Three brokers, three replicas, acks=all: what records cost all brokers together and how many go through.
//!
//! The stock Java client for the figures that are wanted, a light client for the ladder beside it: batch size, then replica fetchers.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::Result;
use forebay_broker_client::admin::NewTopic;

use super::samples::{Metric, Wanted};
use super::throughput::parse;
use super::{Bench, client, output_of, pages};
use crate::cluster::Cluster;

const BROKERS: usize = 3;
const PARTITIONS: i32 = 6;
const RECORD_BYTES: u32 = 1024;
const JAVA_RECORDS: u64 = 500_000;
const LIGHT_RECORDS: u64 = 600_000;

const CPU: Metric = Metric { name: "CPU of all brokers per record", unit: "µs", wanted: Wanted::AtMost(0.25) };
const RATE: Metric = Metric { name: "produced", unit: "records/s", wanted: Wanted::AtLeast(1.5) };
const P99: Metric = Metric { name: "99 % acknowledged within", unit: "ms", wanted: Wanted::Nothing };
const PEAK: Metric = Metric { name: "peak memory of a broker", unit: "MiB", wanted: Wanted::AtMost(1.0 / 12.0) };

/// Of the light client: name, `batch.size`, and what the brokers are started with.
type Step = (&'static str, u32, &'static [(&'static str, &'static str)]);

const LADDER: [Step; 4] = [
    ("librdkafka, 16 KB", 16 << 10, &[]),
    ("librdkafka, 64 KB", 64 << 10, &[]),
    ("librdkafka, 512 KB", 512 << 10, &[]),
    ("librdkafka, 64 KB, num.replica.fetchers=4", 64 << 10, &[("num.replica.fetchers", "4")]),
];

pub(super) async fn replicated(bench: &mut Bench<'_>) -> Result<()> {
    let clusters = start(bench, &[]).await?;
    java(bench, &clusters).await?;
    let steps = LADDER.into_iter().filter(|(case, ..)| bench.options.wants(case)).collect::<Vec<_>>();
    for (case, batch_bytes, _) in steps.iter().filter(|(_, _, settings)| settings.is_empty()) {
        light(bench, &clusters, case, *batch_bytes).await?;
    }
    drop(clusters);
    for (case, batch_bytes, settings) in steps.iter().filter(|(_, _, settings)| !settings.is_empty()) {
        let clusters = start(bench, settings).await?;
        light(bench, &clusters, case, *batch_bytes).await?;
    }
    Ok(())
}

async fn start(bench: &Bench<'_>, settings: &[(&str, &str)]) -> Result<Vec<Cluster>> {
    let mut all = Vec::new();
    for make in bench.makes() {
        all.push(Cluster::start(make, BROKERS, &bench.options.common.broker, settings).await?);
    }
    Ok(all)
}

async fn java(bench: &mut Bench<'_>, clusters: &[Cluster]) -> Result<()> {
    let (case, records) = ("Java, 64 KB/10 ms", bench.scaled(JAVA_RECORDS));
    for round in bench.rounds().filter(|_| bench.options.wants(case)) {
        for cluster in clusters {
            let found = measured(cluster, records, |topic| {
                let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../e2e/compat/tools"));
                command.args(["run", "org.apache.kafka.tools.ProducerPerformance", "--topic", topic]);
                command.args(["--throughput", "-1", "--num-records", &records.to_string(), "--record-size"]);
                command.args([&RECORD_BYTES.to_string(), "--bootstrap-server", &cluster.bootstrap()]);
                command.args(["--command-property", "acks=all", "linger.ms=10", "batch.size=65536"]);
                command
            })
            .await?;
            if round > 0 {
                let (rate, p99_ms) = parse(&found.said)?;
                bench.samples.add(case, cluster.make, round, CPU, found.cpu_us)?;
                bench.samples.add(case, cluster.make, round, RATE, rate)?;
                bench.samples.add(case, cluster.make, round, P99, p99_ms)?;
                bench.samples.add(case, cluster.make, round, PEAK, found.peak_mib)?;
            }
        }
    }
    Ok(())
}

async fn light(bench: &mut Bench<'_>, clusters: &[Cluster], case: &str, batch_bytes: u32) -> Result<()> {
    let (program, records) = (client("throughput")?, bench.scaled(LIGHT_RECORDS));
    for round in bench.rounds() {
        for cluster in clusters {
            let found = measured(cluster, records, |topic| {
                let mut command = Command::new(&program);
                command.args(["-P", "-t", topic, "-s", &RECORD_BYTES.to_string(), "-c", &records.to_string(), "-u"]);
                command.args(["-b", &cluster.bootstrap(), "-X", "linger.ms=10", "-X", "request.required.acks=-1"]);
                command.args(["-X", &format!("batch.size={batch_bytes}")]);
                command
            })
            .await?;
            if round > 0 {
                bench.samples.add(case, cluster.make, round, CPU, found.cpu_us)?;
                bench.samples.add(case, cluster.make, round, RATE, found.rate)?;
                bench.samples.add(case, cluster.make, round, PEAK, found.peak_mib)?;
            }
        }
    }
    Ok(())
}

/// What one run of a client has cost.
struct Found {
    said: String,
    cpu_us: f64,
    rate: f64,
    peak_mib: f64,
}

async fn measured(cluster: &Cluster, records: u64, command: impl FnOnce(&str) -> Command) -> Result<Found> {
    let topic = "replicated";
    let configs = [("min.insync.replicas".to_owned(), "2".to_owned())].into();
    let (name, partitions) = (topic.to_owned(), PARTITIONS);
    cluster.create_topic(NewTopic { name, partitions, replication_factor: 3, configs, ..NewTopic::default() }).await?;
    pages::warm(records * u64::from(RECORD_BYTES) * BROKERS as u64)?;
    cluster.forget_peaks()?;
    let (before, began) = (cluster.cpu_seconds()?, Instant::now());
    let said = output_of(&mut command(topic))?;
    let took = began.elapsed().as_secs_f64();
    let usages = cluster.usages()?;
    cluster.delete_topic(topic).await?;
    let cpu_seconds = usages.iter().map(|usage| usage.cpu_seconds).sum::<f64>() - before;
    Ok(Found {
        said,
        cpu_us: 1e6 * cpu_seconds / records as f64,
        rate: records as f64 / took,
        peak_mib: usages.iter().map(|usage| usage.peak_mib).fold(0.0, f64::max),
    })
}
