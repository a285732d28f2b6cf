//! `forebay produce`: lines of standard input, or records made up, to a topic.

use std::io::BufRead;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use forebay_broker_client::admin::ConfigResource;
use forebay_broker_client::types::PartitionIndex;
use forebay_broker_client::{Acks, Admin, Client, Compression, NewRecord, Producer, ProducerConfig, partition_for_key};
use serde::Serialize;

use super::config;
use crate::args::ProduceArgs;

/// A partition's batch is sent when it has so many bytes, or as many as the topic takes.
const BATCH_BYTES: usize = 256 << 10;
/// What a record takes beside its key and value, at most, if it has no headers; and a batch beside its records.
const RECORD_OVERHEAD_BYTES: usize = 32;
const OVERHEAD_BYTES: usize = 61 + RECORD_OVERHEAD_BYTES;

/// What was written.
#[derive(Serialize)]
struct Written {
    topic: String,
    records: u64,
}

pub(crate) async fn run(args: ProduceArgs) -> anyhow::Result<()> {
    let client = Client::connect(&args.remote.bootstrap, config()).await?;
    let limit = max_message_bytes(&client, &args.topic).await?;
    if args.count.is_some() {
        check_size(&args, limit)?;
    }
    let how = ProducerConfig { acks: Acks::All, compression: args.compression, idempotent: true };
    let producer = Producer::new(client, &args.topic, how).await?;
    let partitions = producer.partitions().len();
    if partitions == 0 {
        bail!("topic {} has no partition with a leader", args.topic);
    }
    let waiting = (0..partitions).map(|_| Batch::default()).collect();
    let mut batches = Batches { producer, waiting, turn: 0, bytes_max: BATCH_BYTES.min(limit) };
    let records = match args.count {
        Some(count) => made_up(&mut batches, &args, count).await?,
        None => lines(&mut batches, args.key_separator.as_deref()).await?,
    };
    batches.send_all().await?;
    let written = Written { topic: args.topic, records };
    args.remote.output.say(&written, |w| format!("{} records written to {}", w.records, w.topic))
}

/// What the topic takes, as far as the brokers tell.
async fn max_message_bytes(client: &Client, topic: &str) -> anyhow::Result<usize> {
    let resource = ConfigResource::Topic(topic.to_owned());
    let mut told = Admin::new(client.clone()).describe_configs(std::slice::from_ref(&resource)).await?;
    let entries = told.remove(&resource).and_then(Result::ok).unwrap_or_default();
    let limit = entries.into_iter().find(|entry| entry.name == "max.message.bytes").and_then(|entry| entry.value);
    Ok(limit.and_then(|value| value.parse().ok()).unwrap_or(usize::MAX))
}

/// Refuses records that the topic would refuse.
fn check_size(args: &ProduceArgs, limit: usize) -> anyhow::Result<()> {
    let bytes = usize::try_from(args.record_bytes)?;
    if args.compression == Compression::None && bytes.saturating_add(OVERHEAD_BYTES) > limit {
        bail!("--record-bytes {bytes}: topic {} takes no batch above max.message.bytes={limit}", args.topic);
    }
    Ok(())
}

async fn made_up(batches: &mut Batches, args: &ProduceArgs, count: u64) -> anyhow::Result<u64> {
    for n in 0..count {
        let key = args.key_prefix.as_ref().map(|prefix| format!("{prefix}{n}").into_bytes());
        let mut value = format!("record {n} ").into_bytes();
        value.resize(usize::try_from(args.record_bytes)?, b'.');
        batches.add(key, value).await?;
    }
    Ok(count)
}

async fn lines(batches: &mut Batches, separator: Option<&str>) -> anyhow::Result<u64> {
    let mut records = 0;
    // Blocking is right: nothing else is going on, and what is typed should be sent before more is read.
    for line in std::io::stdin().lock().lines() {
        let line = line.context("can't read standard input")?;
        let (key, value) = match separator {
            Some(separator) => {
                let (key, value) = line
                    .split_once(separator)
                    .with_context(|| format!("line {}: no {separator:?} between key and value", records + 1))?;
                (Some(key.as_bytes().to_vec()), value.as_bytes().to_vec())
            }
            None => (None, line.into_bytes()),
        };
        batches.add(key, value).await?;
        records += 1;
    }
    Ok(records)
}

/// Records that wait for their batch.
#[derive(Default)]
struct Batch {
    records: Vec<(Option<Vec<u8>>, Vec<u8>)>,
    bytes: usize,
}

/// One batch for each partition.
struct Batches {
    producer: Producer,
    waiting: Vec<Batch>,
    /// Where records without a key go; moves on with each batch.
    turn: usize,
    /// A batch of several records has no more.
    bytes_max: usize,
}

impl Batches {
    async fn add(&mut self, key: Option<Vec<u8>>, value: Vec<u8>) -> anyhow::Result<()> {
        let partition = match &key {
            Some(key) => partition_for_key(key, u32::try_from(self.waiting.len())?) as usize,
            None => self.turn,
        };
        let bytes = key.as_ref().map_or(0, Vec::len) + value.len() + RECORD_OVERHEAD_BYTES;
        if self.waiting.get(partition).is_some_and(|batch| OVERHEAD_BYTES + batch.bytes + bytes > self.bytes_max) {
            self.send(partition).await?;
        }
        let Some(batch) = self.waiting.get_mut(partition) else { bail!("no partition {partition}") };
        batch.bytes += bytes;
        batch.records.push((key, value));
        Ok(())
    }

    async fn send_all(&mut self) -> anyhow::Result<()> {
        for partition in 0..self.waiting.len() {
            self.send(partition).await?;
        }
        Ok(())
    }

    async fn send(&mut self, partition: usize) -> anyhow::Result<()> {
        let Some(batch) = self.waiting.get_mut(partition).map(std::mem::take).filter(|b| !b.records.is_empty()) else {
            return Ok(());
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        let timestamp_ms = i64::try_from(now)?;
        let records: Vec<NewRecord<'_>> = batch
            .records
            .iter()
            .map(|(key, value)| NewRecord { timestamp_ms, key: key.as_deref(), value: Some(value), headers: &[] })
            .collect();
        self.producer.send(PartitionIndex(i32::try_from(partition)?), &records).await?;
        self.turn = (partition + 1) % self.waiting.len();
        Ok(())
    }
}
