//! A thin producer: one batch a call to one partition of one topic, tried again while that can help. With idempotence a batch keeps
//! its sequence number over all tries, so that the broker stores it once however often it comes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use forebay_broker_wire::messages::init_producer_id::InitProducerIdRequest;
use forebay_broker_wire::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use forebay_broker_wire::records::{BatchBuilder, BuildError, Compression, NewRecord};
use forebay_broker_wire::types::{BrokerId, ErrorCode, Offset, PartitionIndex, ProducerEpoch, ProducerId, Str};
use thiserror::Error;

use crate::admin::TopicPartition;
use crate::client::Client;
use crate::error::RequestError;

/// Up to this version Produce names topics; from the next one it gives ids.
const LAST_VERSION_WITH_NAMES: i16 = 12;

/// Whose acknowledgement a batch needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acks {
    /// Nobody's: lost batches go unnoticed.
    None,
    /// The leader's.
    Leader,
    /// All in-sync replicas'.
    #[default]
    All,
}

impl Acks {
    fn to_wire(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Leader => 1,
            Self::All => -1,
        }
    }
}

/// How a producer works.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProducerConfig {
    /// Whose acknowledgement a batch needs; idempotence needs all.
    pub acks: Acks,
    /// How batches are compressed.
    pub compression: Compression,
    /// Whether the broker drops repeated batches.
    pub idempotent: bool,
}

/// Why a batch was not acknowledged.
#[derive(Debug, Error)]
pub enum ProduceError {
    /// No broker took it.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The records don't make a batch.
    #[error("records for {partition} make no batch: {source}")]
    Build {
        /// Where they were to go.
        partition: TopicPartition,
        /// Why not.
        source: BuildError,
    },
}

/// Writes to one topic.
#[derive(Debug)]
pub struct Producer {
    client: Client,
    topic: String,
    config: ProducerConfig,
    leaders: Mutex<BTreeMap<PartitionIndex, BrokerId>>,
    identity: Option<Identity>,
}

/// What makes a producer's batches recognisable.
#[derive(Debug)]
struct Identity {
    id: ProducerId,
    epoch: ProducerEpoch,
    next_sequence: BTreeMap<PartitionIndex, i32>,
}

impl Producer {
    /// A producer for a topic that exists.
    pub async fn new(client: Client, topic: &str, config: ProducerConfig) -> Result<Self, RequestError> {
        let leaders = Mutex::new(client.retry(async || client.leaders(topic).await).await?);
        let identity = if config.idempotent { Some(Identity::obtain(&client).await?) } else { None };
        Ok(Self { client, topic: topic.to_owned(), config, leaders, identity })
    }

    /// The topic's partitions.
    pub fn partitions(&self) -> Vec<PartitionIndex> {
        self.leaders().keys().copied().collect()
    }

    fn leaders(&self) -> std::sync::MutexGuard<'_, BTreeMap<PartitionIndex, BrokerId>> {
        self.leaders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes one batch and waits for its acknowledgement; gives the offset of its first record (-1 without acknowledgements).
    pub async fn send(&mut self, partition: PartitionIndex, records: &[NewRecord<'_>]) -> Result<Offset, ProduceError> {
        let sequence = self.identity.as_ref().map_or(-1, |i| i.next_sequence.get(&partition).copied().unwrap_or(0));
        let batch = self.batch(partition, records, sequence)?;
        let offset = self.client.retry(async || self.send_once(partition, batch.clone()).await).await?;
        if let Some(identity) = &mut self.identity {
            let count = i32::try_from(records.len()).unwrap_or(i32::MAX);
            identity.next_sequence.insert(partition, sequence.wrapping_add(count) & i32::MAX);
        }
        Ok(offset)
    }

    fn batch(
        &self,
        partition: PartitionIndex,
        records: &[NewRecord<'_>],
        sequence: i32,
    ) -> Result<Bytes, ProduceError> {
        let failed = |source| ProduceError::Build { partition: TopicPartition::new(&self.topic, partition.0), source };
        let mut builder = BatchBuilder::new(Offset(0)).compression(self.config.compression);
        if let Some(identity) = &self.identity {
            builder = builder.producer(identity.id, identity.epoch, sequence);
        }
        for record in records {
            builder.push(record).map_err(failed)?;
        }
        builder.build().map_err(failed)
    }

    async fn send_once(&self, partition: PartitionIndex, batch: Bytes) -> Result<Offset, RequestError> {
        let result = self.send_to_leader(partition, batch).await;
        if let Err(error) = &result {
            // Whatever it was, the next try should know the leader of now. That may fail too; the next try says so.
            tracing::debug!(%error, "looking for the leader again");
            if let Ok(leaders) = self.client.leaders(&self.topic).await {
                *self.leaders() = leaders;
            }
        }
        result
    }

    async fn send_to_leader(&self, partition: PartitionIndex, batch: Bytes) -> Result<Offset, RequestError> {
        let what = || format!("leader of {}-{partition}", self.topic);
        let leader = self.leaders().get(&partition).copied();
        let leader = leader.ok_or_else(|| RequestError::NoBroker { what: what() })?;
        let connection = self.client.broker(leader).await?;
        let wait = self.client.config().request_timeout;
        let data = PartitionProduceData { index: partition.0, records: Some(batch.into()) };
        let topic = TopicProduceData { name: Str::from(&self.topic), partition_data: vec![data], ..Default::default() };
        let request = ProduceRequest {
            acks: self.config.acks.to_wire(),
            timeout_ms: i32::try_from(wait.as_millis()).unwrap_or(i32::MAX),
            topic_data: vec![topic],
            ..Default::default()
        };
        let version = connection.version_of::<ProduceRequest>()?.min(LAST_VERSION_WITH_NAMES);
        if self.config.acks == Acks::None {
            connection.send_unanswered_in(&request, version).await?;
            return Ok(Offset(-1));
        }
        let response = connection.send_in(&request, version, Duration::ZERO).await?;
        let answer = response.responses.first().and_then(|topic| topic.partition_responses.first());
        let answer = answer.ok_or_else(|| RequestError::NoBroker { what: what() })?;
        match ErrorCode::from_code(answer.error_code) {
            // An earlier try was stored, its answer lost, and so much came after it that its offset is forgotten.
            ErrorCode::DuplicateSequenceNumber => Ok(Offset(answer.base_offset)),
            _ => {
                let what = || format!("produce to {}-{partition}", self.topic);
                RequestError::check(answer.error_code, answer.error_message.as_ref(), what)?;
                Ok(Offset(answer.base_offset))
            }
        }
    }
}

impl Identity {
    async fn obtain(client: &Client) -> Result<Self, RequestError> {
        let request =
            InitProducerIdRequest { transactional_id: None, producer_id: -1, producer_epoch: -1, ..Default::default() };
        let ask = async || {
            let response = client.any().await?.send(&request).await?;
            RequestError::check(response.error_code, None, || "producer id".to_owned())?;
            Ok(response)
        };
        let response = client.retry(ask).await?;
        Ok(Self {
            id: ProducerId(response.producer_id),
            epoch: ProducerEpoch(response.producer_epoch),
            next_sequence: BTreeMap::new(),
        })
    }
}

/// The partition that Java's and most other clients choose for a key: murmur2, positive, modulo.
#[must_use]
pub fn partition_for_key(key: &[u8], partitions: u32) -> u32 {
    (murmur2(key) & 0x7fff_ffff) % partitions.max(1)
}

/// The 32-bit hash by Austin Appleby, with the seed that Kafka's clients share.
fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let mut h = 0x9747_b28c ^ length;
    let (words, rest) = data.as_chunks::<4>();
    for word in words {
        let k = u32::from_le_bytes(*word).wrapping_mul(M);
        h = h.wrapping_mul(M) ^ (k ^ (k >> 24)).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let tail = rest.iter().enumerate().fold(0, |tail, (n, byte)| tail | u32::from(*byte) << (8 * n));
        h = (h ^ tail).wrapping_mul(M);
    }
    h = (h ^ (h >> 13)).wrapping_mul(M);
    h ^ (h >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_go_where_the_java_client_sends_them() {
        // Values of org.apache.kafka.common.utils.Utils.murmur2.
        let known: [(&[u8], i32); 5] = [
            (b"21", -973_932_308),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (b"abc", 479_470_107),
        ];
        for (key, hash) in known {
            assert_eq!(murmur2(key).cast_signed(), hash, "{}", String::from_utf8_lossy(key));
        }
        assert!(partition_for_key(b"foobar", 4) < 4);
    }
}
