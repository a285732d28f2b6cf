//! 50 partitions get a new replica each on a broker that had none, a third of them their leader, while producers go on: four brokers,
//! three replicas, acks=all, copying held back by Kafka's throttle. What is in the topic before is what has to be copied.
//!
//! What must hold: latencies are counted from when a record was due, so that a stall counts for all behind it; in the end every record
//! that was acknowledged is there once and in order.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use clap::Args;
use forebay_broker_client::admin::{ConfigChange, ConfigResource, NewTopic};
use forebay_broker_client::types::{BrokerId, Offset, PartitionIndex};
use forebay_broker_client::{
    Client, ClientConfig, Consumer, FetchConfig, NewRecord, Producer, ProducerConfig, TopicPartition,
};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use crate::Common;
use crate::cluster::{Cluster, in_sync};
use crate::compare::{Make, Peer};
use crate::report::Report;

const TOPIC: &str = "reassign";
const OLD_BROKERS: i32 = 3;
const NEW_BROKER: BrokerId = BrokerId(3);
const PARTITIONS: i32 = 50;
/// Each has a share of the partitions.
const PRODUCERS: i32 = 10;
const RECORD_BYTES: usize = 1_024;
const BATCH_RECORDS: u64 = 512;
const SETTLES: Duration = Duration::from_secs(5);
const MOVED_WITHIN: Duration = Duration::from_secs(300);
const READ_WITHIN: Duration = Duration::from_secs(120);
const P99_TIMES: f64 = 3.0;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Also measure Apache Kafka, in the same run.
    #[arg(long, value_enum)]
    peer: Option<Peer>,
    /// Records a second, over all partitions.
    #[arg(long, default_value_t = 2_000)]
    rate: u32,
    /// MiB in each partition before.
    #[arg(long, default_value_t = 8)]
    preload_mib: u64,
    /// MiB a second that a broker may copy.
    #[arg(long, default_value_t = 20)]
    throttle_mib: u64,
    /// How long producers run before anything moves.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
}

/// An acknowledgement: when it came, and how long after its record was due.
type Acknowledged = (Instant, Duration);

/// What one cluster has shown.
struct Moved {
    before_ms: [f64; 3],
    during_ms: [f64; 3],
    took: Duration,
    acknowledged: u64,
    read: u64,
}

pub(crate) async fn run(options: &Options) -> Result<bool> {
    let mut report = Report::default();
    let mut table = String::from(
        "| brokers | acknowledged within, ms | 50 % | 99 % | 99.9 % | records acknowledged | read again | moved in, s |\n|---|---|---|---|---|---|---|---|\n",
    );
    for make in options.peer.map(|Peer::Kafka| Make::Kafka).into_iter().chain([Make::Forebay]) {
        let cluster = Cluster::start(make, 4, &options.common.broker, &[]).await?;
        let moved = measure(&cluster, options).await;
        let moved = moved.with_context(|| format!("{make}\n{}", cluster.log_tails()))?;
        for (when, [p50, p99, p999]) in [("before", moved.before_ms), ("meanwhile", moved.during_ms)] {
            let Moved { took, acknowledged, read, .. } = &moved;
            let took = took.as_secs_f64();
            // Writing to a string can't fail.
            let _ = writeln!(
                table,
                "| {make} | {when} | {p50:.2} | {p99:.2} | {p999:.2} | {acknowledged} | {read} | {took:.1} |"
            );
        }
        if make == Make::Forebay {
            let times = moved.during_ms[1] / moved.before_ms[1];
            let what = format!("{PARTITIONS} partitions moved: 99 % of acknowledgements, meanwhile ÷ before");
            report.judge(&what, format!("{times:.2}"), &format!("< {P99_TIMES}"), times < P99_TIMES);
            let lost = moved.acknowledged.abs_diff(moved.read);
            report.judge("acknowledged records lost, or there twice", lost.to_string(), "0", lost == 0);
        }
    }
    report.table(table);
    report.finish("Reassign", options.common.save.as_deref())
}

async fn measure(cluster: &Cluster, options: &Options) -> Result<Moved> {
    let preload = options.preload_mib * 1_024;
    create_topic(cluster).await?;
    fill(cluster, preload).await?;
    let (stop, latencies) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let mut producers = JoinSet::new();
    for number in 0..PRODUCERS {
        let producer = producer(cluster).await?;
        let (stop, latencies) = (Arc::clone(&stop), Arc::clone(&latencies));
        let every = Duration::from_secs(1) * PRODUCERS.unsigned_abs() / options.rate;
        producers.spawn(produce(producer, number, preload, every, stop, latencies));
    }
    sleep(SETTLES).await;
    let began = Instant::now();
    sleep(Duration::from_secs(options.seconds)).await;
    throttle(cluster, Some(options.throttle_mib << 20)).await?;
    let moves = Instant::now();
    move_all(cluster).await?;
    let moved = Instant::now();
    throttle(cluster, None).await?;
    stop.store(true, Ordering::Relaxed);
    let mut next = BTreeMap::new();
    while let Some(ended) = producers.join_next().await {
        next.extend(ended??);
    }
    let read = read_all(cluster, &next).await?;
    let latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner);
    let within = |from, to| percentiles(latencies.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, ms)| *ms));
    Ok(Moved {
        before_ms: within(began, moves),
        during_ms: within(moves, moved),
        took: moved - moves,
        acknowledged: next.values().sum(),
        read,
    })
}

/// Its replicas, the leader first: they go round.
fn replicas(partition: i32) -> Vec<BrokerId> {
    (0..OLD_BROKERS).map(|n| BrokerId((partition + n) % OLD_BROKERS)).collect()
}

/// The new broker in the place of one of them: of the leader, the second or the third.
fn new_replicas(partition: i32) -> Vec<BrokerId> {
    let goes = usize::try_from(partition / OLD_BROKERS % OLD_BROKERS).unwrap_or_default();
    let mut replicas = replicas(partition);
    replicas[goes] = NEW_BROKER;
    replicas
}

async fn create_topic(cluster: &Cluster) -> Result<()> {
    let topic = NewTopic {
        name: TOPIC.to_owned(),
        partitions: -1,
        replication_factor: -1,
        assignment: (0..PARTITIONS).map(|partition| (partition, replicas(partition))).collect(),
        configs: [("min.insync.replicas".to_owned(), "2".to_owned())].into(),
    };
    cluster.create_topic(topic).await
}

async fn producer(cluster: &Cluster) -> Result<Producer> {
    let client = Client::connect(&cluster.bootstrap(), ClientConfig::default()).await?;
    Ok(Producer::new(client, TOPIC, ProducerConfig { idempotent: true, ..ProducerConfig::default() }).await?)
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A record's value: which of its partition it is.
fn value(number: u64) -> Vec<u8> {
    let mut value = vec![b'.'; RECORD_BYTES];
    value[..8].copy_from_slice(&number.to_be_bytes());
    value
}

async fn fill(cluster: &Cluster, records: u64) -> Result<()> {
    let mut tasks = JoinSet::new();
    for number in 0..PRODUCERS {
        let mut producer = producer(cluster).await?;
        tasks.spawn(async move {
            for partition in (number..PARTITIONS).step_by(usize::try_from(PRODUCERS)?) {
                for first in (0..records).step_by(usize::try_from(BATCH_RECORDS)?) {
                    let values: Vec<_> = (first..records.min(first + BATCH_RECORDS)).map(value).collect();
                    let record =
                        |value| NewRecord { timestamp_ms: now_ms(), key: None, value: Some(value), headers: &[] };
                    let batch: Vec<_> = values.iter().map(|value| record(value.as_slice())).collect();
                    producer.send(PartitionIndex(partition), &batch).await?;
                }
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

/// One record after the other, round its partitions, each when it is due. Gives how many each partition has.
async fn produce(
    mut producer: Producer,
    number: i32,
    first: u64,
    every: Duration,
    stop: Arc<AtomicBool>,
    latencies: Arc<Mutex<Vec<Acknowledged>>>,
) -> Result<BTreeMap<i32, u64>> {
    let mut next: BTreeMap<i32, u64> =
        (number..PARTITIONS).step_by(usize::try_from(PRODUCERS)?).map(|partition| (partition, first)).collect();
    let mut due = Instant::now() + every * number.unsigned_abs() / PRODUCERS.unsigned_abs();
    loop {
        for (partition, count) in &mut next {
            sleep_until(due.into()).await;
            let value = value(*count);
            let record = NewRecord { timestamp_ms: now_ms(), key: None, value: Some(&value), headers: &[] };
            producer.send(PartitionIndex(*partition), &[record]).await?;
            *count += 1;
            let now = Instant::now();
            latencies.lock().unwrap_or_else(PoisonError::into_inner).push((now, now - due));
            due += every;
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(next);
        }
    }
}

/// Kafka's two throttles, on all replicas of the topic, at the same rate; `None` takes them away.
async fn throttle(cluster: &Cluster, bytes_a_second: Option<u64>) -> Result<()> {
    let change = |name: &str, value: Option<String>| match value {
        Some(value) => ConfigChange::Set { name: name.to_owned(), value },
        None => ConfigChange::Delete { name: name.to_owned() },
    };
    let both = |of: &str, value: Option<String>| {
        ["leader", "follower"].map(|side| change(&format!("{side}.replication.throttled.{of}"), value.clone())).to_vec()
    };
    let rate = bytes_a_second.map(|rate| rate.to_string());
    let mut changes: Vec<_> =
        (0..=OLD_BROKERS).map(|id| (ConfigResource::Broker(BrokerId(id)), both("rate", rate.clone()))).collect();
    changes.push((ConfigResource::Topic(TOPIC.to_owned()), both("replicas", rate.map(|_| "*".to_owned()))));
    for (what, changed) in cluster.admin().incremental_alter_configs(&changes, false).await? {
        changed.with_context(|| format!("throttle of {what}"))?;
    }
    Ok(())
}

async fn move_all(cluster: &Cluster) -> Result<()> {
    let admin = cluster.admin();
    let moves: Vec<_> = (0..PARTITIONS)
        .map(|partition| (TopicPartition::new(TOPIC, partition), Some(new_replicas(partition))))
        .collect();
    for (partition, taken) in admin.alter_partition_reassignments(&moves).await? {
        taken.with_context(|| partition.to_string())?;
    }
    let began = Instant::now();
    loop {
        sleep(Duration::from_millis(200)).await;
        let left = admin.list_partition_reassignments().await?.len();
        if left == 0 {
            break;
        }
        ensure!(began.elapsed() < MOVED_WITHIN, "{left} partitions have not moved within {MOVED_WITHIN:?}");
    }
    let where_wanted = |topic: &_| -> bool {
        let topic: &forebay_broker_client::admin::TopicDescription = topic;
        in_sync(topic) && topic.partitions.iter().all(|found| found.replicas == new_replicas(found.index))
    };
    cluster.wait_for(TOPIC, "not where it was to go", where_wanted).await
}

/// Reads everything; each partition must have its records once and in order. Gives how many there are.
async fn read_all(cluster: &Cluster, acknowledged: &BTreeMap<i32, u64>) -> Result<u64> {
    let client = Client::connect(&cluster.bootstrap(), ClientConfig::default()).await?;
    let mut consumer = Consumer::new(&client, FetchConfig::default());
    consumer.assign((0..PARTITIONS).map(|partition| (TopicPartition::new(TOPIC, partition), Offset(0))).collect());
    let mut found: BTreeMap<i32, u64> = (0..PARTITIONS).map(|partition| (partition, 0)).collect();
    let (began, wanted) = (Instant::now(), acknowledged.values().sum::<u64>());
    let mut total = 0;
    while total < wanted {
        ensure!(began.elapsed() < READ_WITHIN, "{total} of {wanted} records read within {READ_WITHIN:?}");
        for record in consumer.poll().await? {
            let next = found.entry(record.partition.partition).or_default();
            let number =
                record.value.as_deref().and_then(|value| value.first_chunk()).map(|it| u64::from_be_bytes(*it));
            ensure!(number == Some(*next), "{} has {number:?} where {next} was to come", record.partition);
            *next += 1;
            total += 1;
        }
    }
    ensure!(found == *acknowledged, "partitions have other records than were acknowledged");
    Ok(total)
}

fn percentiles(latencies: impl Iterator<Item = Duration>) -> [f64; 3] {
    let mut sorted: Vec<_> = latencies.collect();
    sorted.sort_unstable();
    [0.5, 0.99, 0.999].map(|part| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in the list")]
        let rank = (part * sorted.len() as f64) as usize;
        sorted.get(rank).or(sorted.last()).map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_partition_gets_one_new_replica_and_a_third_of_the_leaders_move() {
        let leaders = (0..PARTITIONS).filter(|partition| new_replicas(*partition)[0] == NEW_BROKER).count();
        assert!((15..=18).contains(&leaders), "{leaders}");
        for partition in 0..PARTITIONS {
            let (old, new) = (replicas(partition), new_replicas(partition));
            assert_eq!(new.iter().filter(|id| !old.contains(id)).collect::<Vec<_>>(), [&NEW_BROKER]);
        }
    }

    #[test]
    fn percentiles_are_of_all_that_came() {
        let found = percentiles((1..=1000).map(Duration::from_millis));
        assert!(found.iter().zip([501.0, 991.0, 1000.0]).all(|(found, wanted)| (found - wanted).abs() < 1e-6));
        assert!(percentiles(std::iter::empty())[1].is_nan());
    }
}
