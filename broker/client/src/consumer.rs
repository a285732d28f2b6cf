//! A thin consumer: reads assigned partitions from positions that it keeps, several brokers at once, each by long poll.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use forebay_broker_wire::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use forebay_broker_wire::records::{BatchError, RecordError, batches};
use forebay_broker_wire::types::{BrokerId, Offset, PartitionIndex, Str};
use thiserror::Error;
use tokio::time::Instant;

use crate::admin::TopicPartition;
use crate::client::Client;
use crate::error::RequestError;

/// Up to this version Fetch names topics; from the next one it gives ids.
const LAST_VERSION_WITH_NAMES: i16 = 12;

/// How a consumer fetches.
#[derive(Clone, Copy, Debug)]
pub struct FetchConfig {
    /// `fetch.min.bytes`.
    pub min_bytes: i32,
    /// `fetch.max.bytes`.
    pub max_bytes: i32,
    /// `max.partition.fetch.bytes`.
    pub max_partition_bytes: i32,
    /// `fetch.max.wait.ms`.
    pub max_wait: Duration,
    /// Whether records of transactions that are open or aborted are left out.
    pub read_committed: bool,
}

impl Default for FetchConfig {
    fn default() -> Self {
        Self {
            min_bytes: 1,
            max_bytes: 50 << 20,
            max_partition_bytes: 1 << 20,
            max_wait: Duration::from_millis(500),
            read_committed: false,
        }
    }
}

/// A record and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumed {
    /// Its partition.
    pub partition: TopicPartition,
    /// Its offset.
    pub offset: Offset,
    /// Milliseconds since 1970.
    pub timestamp_ms: i64,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its value; none is a tombstone.
    pub value: Option<Bytes>,
}

/// Why records can't be read.
#[derive(Debug, Error)]
pub enum ConsumeError {
    /// A broker did not answer, or refused.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// What the broker sent is no batch.
    #[error("batch of {partition} at {position}: {source}")]
    Batch {
        /// Which partition.
        partition: TopicPartition,
        /// The offset asked for.
        position: Offset,
        /// What is wrong.
        source: BatchError,
    },
    /// A batch's records can't be read.
    #[error("records of {partition} at {position}: {source}")]
    Record {
        /// Which partition.
        partition: TopicPartition,
        /// The offset asked for.
        position: Offset,
        /// What is wrong.
        source: RecordError,
    },
}

/// Reads assigned partitions.
#[derive(Debug)]
pub struct Consumer {
    client: Client,
    config: FetchConfig,
    positions: BTreeMap<TopicPartition, Offset>,
    leaders: BTreeMap<TopicPartition, BrokerId>,
    /// Since when no broker could be asked, or all that were asked failed.
    failing_since: Option<Instant>,
}

impl Consumer {
    /// A consumer without partitions, on connections of its own.
    #[must_use]
    pub fn new(client: &Client, config: FetchConfig) -> Self {
        let (positions, leaders) = (BTreeMap::new(), BTreeMap::new());
        Self { client: client.separate(), config, positions, leaders, failing_since: None }
    }

    /// Reads these partitions from these offsets, and no others.
    pub fn assign(&mut self, positions: BTreeMap<TopicPartition, Offset>) {
        self.leaders.retain(|tp, _| positions.contains_key(tp));
        self.positions = positions;
    }

    /// The next offset of each assigned partition.
    #[must_use]
    pub fn positions(&self) -> &BTreeMap<TopicPartition, Offset> {
        &self.positions
    }

    /// Waits for records, at most the configured wait, and moves the positions behind them. A broker that can't be asked is looked for
    /// anew at the next poll; that it fails is told when it has for the client's operation timeout. What was read is never lost with an
    /// error: the error comes with the next poll.
    pub async fn poll(&mut self) -> Result<Vec<Consumed>, ConsumeError> {
        if self.positions.is_empty() {
            tokio::time::sleep(self.config.max_wait).await;
            return Ok(Vec::new());
        }
        let mut records = Vec::new();
        let polled = self.poll_into(&mut records).await;
        match polled {
            Ok(()) => {
                self.failing_since = None;
                if records.is_empty() && self.leaders.len() < self.positions.len() {
                    tokio::time::sleep(self.client.config().retry_backoff).await; // some leader is being elected
                }
            }
            Err(_) if !records.is_empty() => self.failing_since = None,
            Err(ConsumeError::Request(error)) if error.is_transient() => {
                let since = *self.failing_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= self.client.config().operation_timeout {
                    return Err(error.into());
                }
                tracing::debug!(%error, "asking again at the next poll");
                tokio::time::sleep(self.client.config().retry_backoff).await;
            }
            Err(error) => return Err(error),
        }
        Ok(records)
    }

    /// Asks every leader once; the first failure is told when all have answered.
    async fn poll_into(&mut self, records: &mut Vec<Consumed>) -> Result<(), ConsumeError> {
        self.find_leaders().await?;
        let mut by_leader = BTreeMap::<BrokerId, Vec<&TopicPartition>>::new();
        for (tp, leader) in &self.leaders {
            by_leader.entry(*leader).or_default().push(tp);
        }
        // Each broker in its own task: one that has nothing must not hold up the others.
        let mut fetches = tokio::task::JoinSet::new();
        for (leader, partitions) in by_leader {
            let request = self.request(&partitions);
            let (client, wait) = (self.client.clone(), self.config.max_wait);
            fetches.spawn(async move { fetch(&client, leader, request, wait).await });
        }
        let mut done = Ok(());
        while let Some(fetched) = fetches.join_next().await {
            let taken = match fetched {
                Ok(Ok(response)) => self.take(response, records),
                Ok(Err(error)) => {
                    self.leaders.clear();
                    Err(error.into())
                }
                Err(_) => {
                    self.leaders.clear(); // cancelled with the runtime
                    Ok(())
                }
            };
            done = done.and(taken);
        }
        done
    }

    async fn find_leaders(&mut self) -> Result<(), RequestError> {
        let unknown = self.positions.keys().filter(|tp| !self.leaders.contains_key(tp));
        let mut topics: Vec<String> = unknown.map(|tp| tp.topic.clone()).collect();
        topics.dedup();
        for topic in topics {
            let leaders = self.client.retry(async || self.client.leaders(&topic).await).await?;
            for tp in self.positions.keys().filter(|tp| tp.topic == topic) {
                if let Some(leader) = leaders.get(&PartitionIndex(tp.partition)) {
                    self.leaders.insert(tp.clone(), *leader);
                }
            }
        }
        Ok(())
    }

    fn request(&self, partitions: &[&TopicPartition]) -> FetchRequest {
        let mut topics = BTreeMap::<&str, Vec<FetchPartition>>::new();
        for tp in partitions {
            let fetch_offset = self.positions.get(*tp).map_or(0, |offset| offset.0);
            topics.entry(&tp.topic).or_default().push(FetchPartition {
                partition: tp.partition,
                current_leader_epoch: -1,
                fetch_offset,
                log_start_offset: -1,
                partition_max_bytes: self.config.max_partition_bytes,
                ..Default::default()
            });
        }
        let topics = topics.into_iter();
        FetchRequest {
            replica_id: -1,
            max_wait_ms: i32::try_from(self.config.max_wait.as_millis()).unwrap_or(i32::MAX),
            min_bytes: self.config.min_bytes,
            max_bytes: self.config.max_bytes,
            isolation_level: i8::from(self.config.read_committed),
            session_id: 0,
            session_epoch: -1, // no session: every request is whole
            topics: topics
                .map(|(topic, partitions)| FetchTopic { topic: Str::from(topic), partitions, ..Default::default() })
                .collect(),
            ..Default::default()
        }
    }

    fn take(&mut self, response: FetchResponse, records: &mut Vec<Consumed>) -> Result<(), ConsumeError> {
        RequestError::check(response.error_code, None, || "fetch".to_owned())?;
        for topic in response.responses {
            for data in topic.partitions {
                let partition = TopicPartition::new(&topic.topic, data.partition_index);
                let refused = RequestError::check(data.error_code, None, || format!("fetch of {partition}"));
                if let Err(error) = refused {
                    if error.is_transient() {
                        self.leaders.remove(&partition); // asked anew at the next poll
                        continue;
                    }
                    return Err(error.into());
                }
                if let Some(bytes) = data.records.as_ref().and_then(|r| r.as_bytes()) {
                    self.take_records(&partition, bytes, records)?;
                }
            }
        }
        Ok(())
    }

    fn take_records(
        &mut self,
        partition: &TopicPartition,
        bytes: &Bytes,
        records: &mut Vec<Consumed>,
    ) -> Result<(), ConsumeError> {
        let Some(position) = self.positions.get(partition).copied() else { return Ok(()) };
        let mut next = position;
        for batch in batches(bytes) {
            let batch = match batch {
                Ok(batch) => batch,
                // The last batch is cut where the limit was; it comes whole with the next fetch.
                Err(BatchError::Incomplete { .. }) => break,
                Err(source) => {
                    return Err(ConsumeError::Batch { partition: partition.clone(), position: next, source });
                }
            };
            batch.check_crc().map_err(|source| ConsumeError::Batch {
                partition: partition.clone(),
                position: next,
                source,
            })?;
            let failed = |source| ConsumeError::Record { partition: partition.clone(), position: next, source };
            if !batch.header.is_control() {
                for record in batch.records(self.client.config().max_frame_bytes).map_err(failed)? {
                    let record = record.map_err(failed)?;
                    if record.offset >= position {
                        records.push(Consumed {
                            partition: partition.clone(),
                            offset: record.offset,
                            timestamp_ms: record.timestamp_ms,
                            key: record.key,
                            value: record.value,
                        });
                    }
                }
            }
            next = batch.header.next_offset();
        }
        self.positions.insert(partition.clone(), next.max(position));
        Ok(())
    }
}

async fn fetch(
    client: &Client,
    leader: BrokerId,
    request: FetchRequest,
    wait: Duration,
) -> Result<FetchResponse, RequestError> {
    let connection = client.broker(leader).await?;
    let version = connection.version_of::<FetchRequest>()?.min(LAST_VERSION_WITH_NAMES);
    connection.send_in(&request, version, wait).await
}
