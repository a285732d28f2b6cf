//! A client that behaves: it produces numbered records and reads each back, in order and unharmed, until it is told to end.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use forebay_broker_client::admin::NewTopic;
use forebay_broker_client::{Admin, Client, ClientConfig, Connection};
use forebay_broker_wire::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use forebay_broker_wire::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use forebay_broker_wire::primitives::Records;
use forebay_broker_wire::records::{BatchBuilder, Compression, NewRecord, batches};
use forebay_broker_wire::types::{Offset, Uuid};

const TOPIC: &str = "the-witness-of-the-fuzzer";
const BATCH_RECORDS: i64 = 10;
const FETCH_MAX_BYTES: i32 = 1 << 20;

/// Returns how many records made the round trip.
pub(crate) fn run(address: SocketAddr, done: &AtomicBool) -> Result<i64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = Client::connect(&address.to_string(), ClientConfig::default()).await?;
        let topic_id = create_topic(&Admin::new(client.clone())).await?;
        let connection = client.any().await?;
        let mut next = 0;
        while !done.load(Ordering::Relaxed) {
            produce(&connection, topic_id, next).await.with_context(|| format!("produce at {next}"))?;
            consume(&connection, topic_id, next).await.with_context(|| format!("fetch at {next}"))?;
            next += BATCH_RECORDS;
        }
        Ok(next)
    })
}

async fn create_topic(admin: &Admin) -> Result<Uuid> {
    let topic = NewTopic {
        name: TOPIC.to_owned(),
        partitions: 1,
        replication_factor: 1,
        assignment: Default::default(),
        configs: Default::default(),
    };
    for (_, created) in admin.create_topics(&[topic], false).await? {
        created?;
    }
    let described = admin.describe_topics(&[TOPIC]).await?.into_iter().next();
    let (_, topic) = described.context("the topic is not there after it was created")?;
    Ok(topic?.topic_id)
}

fn value(number: i64) -> String {
    format!("record {number} {}", "x".repeat(usize::try_from(number % 200).unwrap_or(0)))
}

async fn produce(connection: &Connection, topic_id: Uuid, first: i64) -> Result<()> {
    let compression = Compression::ALL[usize::try_from(first / BATCH_RECORDS % 5)?];
    let mut builder = BatchBuilder::new(Offset(0)).compression(compression);
    for number in first..first + BATCH_RECORDS {
        let value = value(number);
        builder.push(&NewRecord {
            timestamp_ms: 1_700_000_000_000,
            value: Some(value.as_bytes()),
            ..Default::default()
        })?;
    }
    let data = PartitionProduceData { index: 0, records: Some(Records::Bytes(builder.build()?)) };
    let topic = TopicProduceData { name: TOPIC.into(), topic_id, partition_data: vec![data] };
    let request = ProduceRequest { acks: -1, timeout_ms: 10_000, topic_data: vec![topic], ..Default::default() };
    let response = connection.send(&request).await?;
    let answer = response.responses.first().and_then(|topic| topic.partition_responses.first());
    let answer = answer.context("no answer for the partition")?;
    ensure!(answer.error_code == 0, "refused with error {}: {:?}", answer.error_code, answer.error_message);
    ensure!(answer.base_offset == first, "written at {}", answer.base_offset);
    Ok(())
}

async fn consume(connection: &Connection, topic_id: Uuid, first: i64) -> Result<()> {
    let partition = FetchPartition {
        partition: 0,
        fetch_offset: first,
        partition_max_bytes: FETCH_MAX_BYTES,
        ..Default::default()
    };
    let topic = FetchTopic { topic: TOPIC.into(), topic_id, partitions: vec![partition] };
    let request = FetchRequest {
        max_wait_ms: 10_000,
        min_bytes: 1,
        max_bytes: FETCH_MAX_BYTES,
        topics: vec![topic],
        ..Default::default()
    };
    let response = connection.send_waiting(&request, std::time::Duration::from_secs(10)).await?;
    ensure!(response.error_code == 0, "refused with error {}", response.error_code);
    let answer = response.responses.into_iter().next().and_then(|topic| topic.partitions.into_iter().next());
    let answer = answer.context("no answer for the partition")?;
    ensure!(answer.error_code == 0, "refused with error {}", answer.error_code);
    let records = answer.records.unwrap_or_default().as_bytes().cloned().unwrap_or_default();
    check(&records, first)
}

fn check(records: &Bytes, first: i64) -> Result<()> {
    let mut expected = first;
    for batch in batches(records) {
        let batch = batch?;
        batch.check_crc()?;
        for record in batch.records(1 << 20)? {
            let record = record?;
            ensure!(record.offset == Offset(expected), "offset {} where {expected} should be", record.offset);
            let value = record.value.unwrap_or_default();
            ensure!(value == self::value(expected).as_bytes(), "the record at {expected} is another: {value:?}");
            expected += 1;
        }
    }
    ensure!(expected == first + BATCH_RECORDS, "{} records came", expected - first);
    Ok(())
}
