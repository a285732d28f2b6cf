//! What much of something costs although nobody uses it: partitions, connections.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use forebay_broker_client::TopicPartition;
use forebay_broker_client::admin::OffsetSpec;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use tokio::time::sleep;

use super::Bench;
use super::samples::{Metric, Wanted};
use super::side::Side;
use crate::broker::until_works;

const PARTITIONS_A_TOPIC: i32 = 100;
const TOPICS: u64 = 100;
const CONNECTIONS: u64 = 5_000;
const SERVED_WITHIN: Duration = Duration::from_secs(120);
const SETTLES: Duration = Duration::from_secs(10);
/// As long as the rarest of what a broker does every minute, so that all of it counts.
const IDLE_SECONDS: u64 = 60;

const fn own(name: &'static str, unit: &'static str, most: f64) -> Metric {
    Metric { name, unit, wanted: Wanted::OwnAtMost(most) }
}

const MEMORY_OF_PARTITIONS: Metric = own("memory", "MiB", 250.0);
const MEMORY_OF_CONNECTIONS: Metric = own("memory", "MiB", 150.0);
const IDLE_CPU: Metric = own("idle CPU", "% of a core", 3.0);
const CREATION: Metric = Metric { name: "creation", unit: "s", wanted: Wanted::Nothing };
const START: Metric = own("start after a clean stop", "s", 3.0);

pub(super) async fn partitions(bench: &mut Bench<'_>) -> Result<()> {
    raise_nofile()?;
    let topics = bench.scaled(TOPICS);
    let case = format!("{} partitions", topics * u64::from(PARTITIONS_A_TOPIC.unsigned_abs()));
    for round in 1..=bench.options.rounds {
        for make in bench.makes() {
            let mut side = Side::prepare(make, &bench.options.common.broker, &[])?;
            side.up().await?;
            let began = Instant::now();
            for topic in 0..topics {
                side.create_topic(&format!("many-{topic}"), PARTITIONS_A_TOPIC, &[]).await?;
            }
            served(&side, topics).await?;
            bench.samples.add(&case, make, round, CREATION, began.elapsed().as_secs_f64())?;
            idle(bench, &side, &case, round, MEMORY_OF_PARTITIONS).await?;
            side.end(Signal::TERM)?;
            let began = Instant::now();
            side.up().await?;
            served(&side, topics).await?;
            bench.samples.add(&case, make, round, START, began.elapsed().as_secs_f64())?;
            side.end(Signal::TERM)?;
        }
    }
    Ok(())
}

/// Waits until every partition says how far it is: it is open then.
async fn served(side: &Side, topics: u64) -> Result<()> {
    let partitions = (0..topics).flat_map(|topic| (0..PARTITIONS_A_TOPIC).map(move |partition| (topic, partition)));
    let wanted: Vec<_> = partitions
        .map(|(topic, partition)| (TopicPartition::new(&format!("many-{topic}"), partition), OffsetSpec::Latest))
        .collect();
    let admin = side.admin().await?;
    until_works(SERVED_WITHIN, async || {
        let found = admin.list_offsets(&wanted).await?;
        let refused = found.into_iter().filter_map(|(partition, found)| Some((partition, found.err()?)));
        let refused: Vec<_> = refused.collect();
        ensure!(refused.is_empty(), "{} partitions are not served, such as {:?}", refused.len(), refused[0]);
        Ok(())
    })
    .await
}

async fn idle(bench: &mut Bench<'_>, side: &Side, case: &str, round: u32, memory: Metric) -> Result<()> {
    sleep(SETTLES).await;
    let (before, began) = (side.usage()?, Instant::now());
    sleep(Duration::from_secs(bench.scaled(IDLE_SECONDS))).await;
    let (after, took) = (side.usage()?, began.elapsed().as_secs_f64());
    bench.samples.add(case, side.make, round, memory, after.resident_mib)?;
    let percent = 100.0 * (after.cpu_seconds - before.cpu_seconds) / took;
    bench.samples.add(case, side.make, round, IDLE_CPU, percent)
}

/// ApiVersions version 0, from a client without a name.
const HELLO: [u8; 14] = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff];

pub(super) async fn connections(bench: &mut Bench<'_>) -> Result<()> {
    let count = bench.scaled(CONNECTIONS);
    raise_nofile()?;
    let case = format!("{count} connections");
    for round in 1..=bench.options.rounds {
        for make in bench.makes() {
            let mut side = Side::prepare(make, &bench.options.common.broker, &[])?;
            side.up().await?;
            let held = (0..count).map(|_| connect(side.address())).collect::<Result<Vec<_>>>()?;
            idle(bench, &side, &case, round, MEMORY_OF_CONNECTIONS).await?;
            drop(held);
            side.end(Signal::TERM)?;
        }
    }
    Ok(())
}

fn raise_nofile() -> Result<()> {
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard }).context("can't raise the limit of open files")
}

fn connect(address: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address).with_context(|| format!("can't connect to {address}"))?;
    stream.write_all(&HELLO)?;
    let mut size = [0; 4];
    stream.read_exact(&mut size)?;
    let mut answer = vec![0; usize::try_from(u32::from_be_bytes(size))?];
    stream.read_exact(&mut answer)?;
    Ok(stream)
}
