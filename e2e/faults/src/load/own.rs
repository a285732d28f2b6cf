//! Load by our own client: an idempotent producer for each partition, and members of a group.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forebay_broker_client::types::{Offset, PartitionIndex};
use forebay_broker_client::{
    Acks, Client, Consumed, GroupConfig, GroupConsumer, NewRecord, Producer, ProducerConfig, TopicPartition,
};

use super::{Manner, OWN, group};
use crate::ledger::{Ledger, Read};

/// Records are sent in batches, so often.
const BATCH_EVERY: Duration = Duration::from_millis(50);
const VALUE_BYTES: usize = 100;
/// After an error, before the next try.
const PAUSE: Duration = Duration::from_millis(50);
const COMMIT_EVERY: Duration = Duration::from_secs(1);

/// Sends numbered records to one partition, batch after batch, each until it is acknowledged.
pub(super) async fn produce(
    client: Client,
    partition: i32,
    manner: Manner,
    stop: Arc<AtomicBool>,
    ledger: Arc<Ledger>,
) {
    let (tp, index) = (TopicPartition::new(OWN, partition), PartitionIndex(partition));
    let acks = if manner.safe { Acks::All } else { Acks::Leader };
    let config = ProducerConfig { acks, idempotent: manner.safe, ..ProducerConfig::default() };
    let mut producer = loop {
        match Producer::new(client.clone(), OWN, config).await {
            Ok(producer) => break producer,
            Err(error) => ledger.error(format!("producer: {error}")),
        }
        tokio::time::sleep(PAUSE).await;
    };
    let count = (u64::from(manner.rate) * u64::try_from(BATCH_EVERY.as_millis()).unwrap_or(1)).div_ceil(1000).max(1);
    let mut ticks = tokio::time::interval(BATCH_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (value, mut first) = (vec![b'v'; VALUE_BYTES], 0);
    while !stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        let keys: Vec<String> = (first..first + count).map(|number| number.to_string()).collect();
        let timestamp_ms = now_ms();
        let record = |key| NewRecord { timestamp_ms, key: Some(key), value: Some(&value[..]), headers: &[] };
        let records: Vec<NewRecord<'_>> = keys.iter().map(|key| record(key.as_bytes())).collect();
        // The same batch until it is acknowledged: with idempotence it keeps its sequence number.
        loop {
            match producer.send(index, &records).await {
                Ok(offset) => {
                    ledger.acknowledged(&tp, first, count, offset.0);
                    break;
                }
                Err(error) => ledger.error(format!("produce to {tp}: {error}")),
            }
            tokio::time::sleep(PAUSE).await;
        }
        first += count;
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(0)
}

/// Reads as a member of the group, writes down what came, commits; begins again after each error.
pub(super) async fn consume(client: Client, ledger: Arc<Ledger>) {
    loop {
        let mut config = GroupConfig::new(&group(OWN), &[OWN]);
        config.session_timeout = Duration::from_secs(10);
        config.rebalance_timeout = Duration::from_secs(15);
        config.heartbeat_interval = Duration::from_secs(1);
        let mut member = GroupConsumer::new(&client, config);
        if let Err(error) = read(&mut member, &ledger).await {
            ledger.error(format!("member of {}: {error:#}", group(OWN)));
        }
        if let Err(error) = member.leave().await {
            ledger.error(format!("leave {}: {error}", group(OWN)));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn read(member: &mut GroupConsumer, ledger: &Ledger) -> anyhow::Result<()> {
    let mut committed_at = tokio::time::Instant::now();
    loop {
        for record in member.poll().await? {
            match number(&record) {
                Some(number) => ledger.read(&record.partition, Read { offset: record.offset.0, number }),
                None => ledger.problem(format!("{} at {}: not a record of ours", record.partition, record.offset)),
            }
        }
        if committed_at.elapsed() >= COMMIT_EVERY {
            let positions: Vec<(TopicPartition, Offset)> =
                member.positions().iter().map(|(tp, offset)| (tp.clone(), *offset)).collect();
            member.commit().await?;
            positions.iter().for_each(|(tp, offset)| ledger.committed(tp, offset.0));
            committed_at = tokio::time::Instant::now();
        }
    }
}

/// The number that is a record's key.
pub(crate) fn number(record: &Consumed) -> Option<u64> {
    std::str::from_utf8(record.key.as_ref()?).ok()?.parse().ok()
}
