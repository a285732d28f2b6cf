//! The image: everything the records say, at one moment. It never changes; the next one shares with it whatever stayed the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_broker_wire::types::{BrokerId, LeaderEpoch, PartitionIndex, Uuid};

use super::endpoints::{self, ADVERTISED_LISTENERS};
use super::records::{BrokerRecord, ConfigRecord, ConfigResource, PartitionRecord, Record, TopicRecord};
use super::{Endpoint, Settings};

/// The metadata at one moment. Cloning costs a few reference counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MetadataImage {
    version: i64,
    cluster_id: Option<Arc<str>>,
    brokers: Arc<BTreeMap<BrokerId, BrokerImage>>,
    topic_ids: Arc<BTreeMap<Arc<str>, Uuid>>,
    /// Each topic is here alone, so that the records of one decision change it in place.
    topics: Arc<BTreeMap<Uuid, Arc<TopicImage>>>,
    broker_configs: Arc<BTreeMap<BrokerId, Arc<Settings>>>,
    cluster_config: Arc<Settings>,
    next_producer_id: i64,
}

/// A broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerImage {
    /// `node.id`.
    pub id: BrokerId,
    /// Grows with each registration.
    pub epoch: i64,
    /// `broker.rack`.
    pub rack: Option<String>,
    /// Where it said that it is reached, by listener; without a host where it did not know. What counts is in [`BrokerImage::endpoint`].
    pub endpoints: Vec<Endpoint>,
    /// Addresses that were set since, stronger than its own.
    pub set_endpoints: Vec<Endpoint>,
    /// The ids of its log dirs.
    pub directories: Vec<Uuid>,
    /// One life of its process.
    pub incarnation: Uuid,
    /// Not to be relied on: it leads nothing.
    pub fenced: bool,
    /// About to stop: it is to lead nothing, and to be in no ISR.
    pub in_controlled_shutdown: bool,
}

/// A topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicImage {
    /// Never used again.
    pub id: Uuid,
    /// The name.
    pub name: Arc<str>,
    /// By index, without gaps.
    pub partitions: Vec<PartitionImage>,
    /// Settings of its own.
    pub config: Arc<Settings>,
}

/// A partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartitionImage {
    /// Its place in the topic.
    pub index: PartitionIndex,
    /// The preferred leader first.
    pub replicas: Vec<BrokerId>,
    /// Those in sync.
    pub in_sync_replicas: Vec<BrokerId>,
    /// None while there is none.
    pub leader: Option<BrokerId>,
    /// Grows with each leader.
    pub leader_epoch: LeaderEpoch,
    /// Grows with each change.
    pub partition_epoch: i32,
    /// Replicas that a reassignment adds; among `replicas` already.
    pub adding_replicas: Vec<BrokerId>,
    /// Replicas that a reassignment removes once the added ones are in sync; among `replicas` still.
    pub removing_replicas: Vec<BrokerId>,
    /// Not in sync, but with all that was acknowledged with `acks=all`: they left when too few were in sync for more of it (KIP-966). While
    /// there are any, the high watermark stands still.
    pub eligible_leader_replicas: Vec<BrokerId>,
    /// They left likewise, but by a crash or with one since, so that the end of their logs may be missing: they lead when nobody else is left
    /// that has all. While there are any, the high watermark stands still, too.
    pub crashed_replicas: Vec<BrokerId>,
    /// Their log was lost with its disk, and they have not been in sync since: the last that should lead.
    pub lost_replicas: Vec<BrokerId>,
}

/// A record that does not fit what went before: the log is not whole, and is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// A topic that does not exist.
    #[error("metadata record {record} names a topic that does not exist")]
    NoTopic {
        /// The record.
        record: String,
    },
    /// A topic that exists.
    #[error("metadata record {record} makes a topic whose name or id exists")]
    TopicExists {
        /// The record.
        record: String,
    },
    /// A partition out of turn.
    #[error("metadata record {record} comes when the topic has {partitions} partitions")]
    OutOfTurn {
        /// The record.
        record: String,
        /// Those before it.
        partitions: usize,
    },
    /// Another cluster.
    #[error("metadata record names cluster {given}, but the log belongs to cluster {own}")]
    OtherCluster {
        /// The record's.
        given: String,
        /// The log's.
        own: String,
    },
}

impl MetadataImage {
    /// Grows by one with each record.
    #[must_use]
    pub fn version(&self) -> i64 {
        self.version
    }

    /// None until the cluster has been named.
    #[must_use]
    pub fn cluster_id(&self) -> Option<&Arc<str>> {
        self.cluster_id.as_ref()
    }

    /// All brokers, by id.
    pub fn brokers(&self) -> impl ExactSizeIterator<Item = &BrokerImage> {
        self.brokers.values()
    }

    /// A broker.
    #[must_use]
    pub fn broker(&self, id: BrokerId) -> Option<&BrokerImage> {
        self.brokers.get(&id)
    }

    /// Brokers that can be relied on.
    pub fn live_brokers(&self) -> impl Iterator<Item = &BrokerImage> {
        self.brokers.values().filter(|broker| !broker.fenced)
    }

    /// Whether a broker may be made the leader of something, or a member of an ISR.
    #[must_use]
    pub fn may_lead(&self, id: BrokerId) -> bool {
        self.broker(id).is_some_and(BrokerImage::may_lead)
    }

    /// All topics, by name.
    pub fn topics(&self) -> impl ExactSizeIterator<Item = &Arc<TopicImage>> {
        self.topic_ids.values().map(|id| &self.topics[id])
    }

    /// The topics from a name on.
    pub fn topics_from<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Arc<TopicImage>> {
        let from = (std::ops::Bound::Included(name), std::ops::Bound::Unbounded);
        self.topic_ids.range::<str, _>(from).map(|(_, id)| &self.topics[id])
    }

    /// A topic by name.
    #[must_use]
    pub fn topic(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.topic_ids.get(name).and_then(|id| self.topics.get(id))
    }

    /// A topic by id.
    #[must_use]
    pub fn topic_by_id(&self, id: Uuid) -> Option<&Arc<TopicImage>> {
        self.topics.get(&id)
    }

    /// Settings made dynamically on one broker.
    #[must_use]
    pub fn broker_config(&self, id: BrokerId) -> Arc<Settings> {
        self.broker_configs.get(&id).cloned().unwrap_or_default()
    }

    /// Settings made dynamically for all brokers.
    #[must_use]
    pub fn cluster_config(&self) -> &Arc<Settings> {
        &self.cluster_config
    }

    /// The brokers that have settings of their own.
    pub fn configured_brokers(&self) -> impl Iterator<Item = BrokerId> {
        self.broker_configs.keys().copied()
    }

    /// The first producer id that has not been given out.
    #[must_use]
    pub fn next_producer_id(&self) -> i64 {
        self.next_producer_id
    }

    /// All partitions of all topics.
    #[must_use]
    pub fn partition_count(&self) -> usize {
        self.topics.values().map(|topic| topic.partitions.len()).sum()
    }

    /// Takes in one record.
    ///
    /// # Errors
    /// The record does not fit the image; the image is then of no use.
    pub fn apply(&mut self, record: &Record) -> Result<(), ReplayError> {
        match record {
            Record::Snapshot { image_version } => {
                *self = Self { version: *image_version, ..Self::default() };
                return Ok(());
            }
            Record::Cluster { cluster_id } => self.apply_cluster(cluster_id)?,
            Record::Broker(broker) => self.apply_broker(broker),
            Record::BrokerRemoved { broker_id } => {
                Arc::make_mut(&mut self.brokers).remove(&BrokerId(*broker_id));
            }
            Record::Topic(topic) => self.apply_topic(topic)?,
            Record::TopicRemoved { topic_id } => self.apply_topic_removed(*topic_id)?,
            Record::Partition(partition) => self.apply_partition(partition)?,
            Record::Config(config) => self.apply_config(config)?,
            Record::ProducerIds { next_producer_id } => self.next_producer_id = *next_producer_id,
        }
        self.version += 1;
        Ok(())
    }

    fn apply_cluster(&mut self, given: &str) -> Result<(), ReplayError> {
        match &self.cluster_id {
            Some(own) if &**own != given => {
                Err(ReplayError::OtherCluster { given: given.to_owned(), own: own.to_string() })
            }
            _ => {
                self.cluster_id = Some(given.into());
                Ok(())
            }
        }
    }

    fn apply_broker(&mut self, record: &BrokerRecord) {
        let broker = BrokerImage {
            id: BrokerId(record.broker_id),
            epoch: record.broker_epoch,
            rack: record.rack.clone(),
            endpoints: record.endpoints.clone(),
            set_endpoints: endpoints::set_in(self.broker_configs.get(&BrokerId(record.broker_id)).map(AsRef::as_ref)),
            directories: record.directories.clone(),
            incarnation: record.incarnation,
            fenced: record.fenced,
            in_controlled_shutdown: record.in_controlled_shutdown,
        };
        Arc::make_mut(&mut self.brokers).insert(broker.id, broker);
    }

    fn apply_topic(&mut self, record: &TopicRecord) -> Result<(), ReplayError> {
        if self.topic(&record.name).is_some() || self.topic_by_id(record.topic_id).is_some() {
            return Err(ReplayError::TopicExists { record: format!("{record:?}") });
        }
        let name: Arc<str> = record.name.as_str().into();
        let topic =
            TopicImage { id: record.topic_id, name: Arc::clone(&name), partitions: Vec::new(), config: Arc::default() };
        Arc::make_mut(&mut self.topic_ids).insert(name, topic.id);
        Arc::make_mut(&mut self.topics).insert(topic.id, Arc::new(topic));
        Ok(())
    }

    fn apply_topic_removed(&mut self, id: Uuid) -> Result<(), ReplayError> {
        let topic = Arc::make_mut(&mut self.topics)
            .remove(&id)
            .ok_or_else(|| ReplayError::NoTopic { record: format!("topicRemoved {id}") })?;
        Arc::make_mut(&mut self.topic_ids).remove(&topic.name);
        Ok(())
    }

    fn topic_mut(&mut self, id: Uuid) -> Option<&mut TopicImage> {
        Arc::make_mut(&mut self.topics).get_mut(&id).map(Arc::make_mut)
    }

    fn apply_partition(&mut self, record: &PartitionRecord) -> Result<(), ReplayError> {
        let no_topic = || ReplayError::NoTopic { record: format!("{record:?}") };
        let topic = self.topic_mut(record.topic_id).ok_or_else(no_topic)?;
        let partition = PartitionImage::from_record(record);
        match usize::try_from(record.partition) {
            Ok(index) if index < topic.partitions.len() => topic.partitions[index] = partition,
            Ok(index) if index == topic.partitions.len() => topic.partitions.push(partition),
            _ => {
                return Err(ReplayError::OutOfTurn {
                    record: format!("{record:?}"),
                    partitions: topic.partitions.len(),
                });
            }
        }
        Ok(())
    }

    fn apply_config(&mut self, record: &ConfigRecord) -> Result<(), ReplayError> {
        let change = |settings: &mut Arc<Settings>| {
            let settings = Arc::make_mut(settings);
            match &record.value {
                Some(value) => settings.insert(record.name.clone(), value.clone()),
                None => settings.remove(&record.name),
            };
        };
        match &record.resource {
            ConfigResource::Cluster => change(&mut self.cluster_config),
            ConfigResource::Broker(id) => {
                let id = BrokerId(*id);
                let configs = Arc::make_mut(&mut self.broker_configs);
                let settings = configs.entry(id).or_default();
                change(settings);
                if settings.is_empty() {
                    configs.remove(&id);
                }
                if record.name == ADVERTISED_LISTENERS
                    && let Some(broker) = Arc::make_mut(&mut self.brokers).get_mut(&id)
                {
                    broker.set_endpoints = endpoints::set_in(self.broker_configs.get(&id).map(AsRef::as_ref));
                }
            }
            ConfigResource::Topic(name) => {
                let id = self.topic_ids.get(name.as_str()).copied();
                let topic = id.and_then(|id| self.topic_mut(id));
                let no_topic = || ReplayError::NoTopic { record: format!("{record:?}") };
                change(&mut topic.ok_or_else(no_topic)?.config);
            }
        }
        Ok(())
    }

    /// The fewest records that give this image; what a log that has grown long is replaced by.
    #[must_use]
    pub fn snapshot(&self) -> Vec<Record> {
        let mut body = Vec::new();
        body.extend(self.cluster_id.iter().map(|id| Record::Cluster { cluster_id: id.to_string() }));
        body.extend(self.brokers.values().map(|broker| Record::Broker(broker.to_record())));
        body.extend(config_records(&ConfigResource::Cluster, &self.cluster_config));
        for (id, settings) in self.broker_configs.iter() {
            body.extend(config_records(&ConfigResource::Broker(id.0), settings));
        }
        for topic in self.topics() {
            body.push(Record::Topic(TopicRecord { topic_id: topic.id, name: topic.name.to_string() }));
            body.extend(topic.partitions.iter().map(|partition| Record::Partition(partition.to_record(topic.id))));
            body.extend(config_records(&ConfigResource::Topic(topic.name.to_string()), &topic.config));
        }
        body.push(Record::ProducerIds { next_producer_id: self.next_producer_id });
        let image_version = self.version - i64::try_from(body.len()).unwrap_or(i64::MAX);
        let mut records = vec![Record::Snapshot { image_version }];
        records.append(&mut body);
        records
    }
}

fn config_records<'a>(resource: &'a ConfigResource, settings: &'a Settings) -> impl Iterator<Item = Record> + 'a {
    settings.iter().map(|(name, value)| {
        Record::Config(ConfigRecord { resource: resource.clone(), name: name.clone(), value: Some(value.clone()) })
    })
}

impl TopicImage {
    /// A partition by index.
    #[must_use]
    pub fn partition(&self, index: PartitionIndex) -> Option<&PartitionImage> {
        usize::try_from(index.0).ok().and_then(|index| self.partitions.get(index))
    }
}

impl BrokerImage {
    /// Whether it may be made the leader of something, or a member of an ISR.
    #[must_use]
    pub fn may_lead(&self) -> bool {
        !self.fenced && !self.in_controlled_shutdown
    }

    /// The record that makes it so.
    #[must_use]
    pub fn to_record(&self) -> BrokerRecord {
        BrokerRecord {
            broker_id: self.id.0,
            broker_epoch: self.epoch,
            rack: self.rack.clone(),
            endpoints: self.endpoints.clone(),
            directories: self.directories.clone(),
            incarnation: self.incarnation,
            fenced: self.fenced,
            in_controlled_shutdown: self.in_controlled_shutdown,
        }
    }
}

impl PartitionImage {
    fn from_record(record: &PartitionRecord) -> Self {
        Self {
            index: PartitionIndex(record.partition),
            replicas: ids(&record.replicas),
            in_sync_replicas: ids(&record.in_sync_replicas),
            leader: (record.leader >= 0).then_some(BrokerId(record.leader)),
            leader_epoch: LeaderEpoch(record.leader_epoch),
            partition_epoch: record.partition_epoch,
            adding_replicas: ids(&record.adding_replicas),
            removing_replicas: ids(&record.removing_replicas),
            eligible_leader_replicas: ids(&record.eligible_leader_replicas),
            crashed_replicas: ids(&record.crashed_replicas),
            lost_replicas: ids(&record.lost_replicas),
        }
    }

    /// Who is not in sync and may lead nevertheless, with no record lost that was acknowledged: while there is anybody, the high watermark
    /// stands still.
    #[must_use]
    pub fn may_lead_out_of_sync(&self) -> Vec<BrokerId> {
        self.eligible_leader_replicas.iter().chain(&self.crashed_replicas).copied().collect()
    }

    /// The record that makes it so.
    #[must_use]
    pub fn to_record(&self, topic_id: Uuid) -> PartitionRecord {
        PartitionRecord {
            topic_id,
            partition: self.index.0,
            replicas: numbers(&self.replicas),
            in_sync_replicas: numbers(&self.in_sync_replicas),
            leader: self.leader.map_or(-1, |id| id.0),
            leader_epoch: self.leader_epoch.0,
            partition_epoch: self.partition_epoch,
            adding_replicas: numbers(&self.adding_replicas),
            removing_replicas: numbers(&self.removing_replicas),
            eligible_leader_replicas: numbers(&self.eligible_leader_replicas),
            crashed_replicas: numbers(&self.crashed_replicas),
            lost_replicas: numbers(&self.lost_replicas),
        }
    }
}

fn ids(numbers: &[i32]) -> Vec<BrokerId> {
    numbers.iter().copied().map(BrokerId).collect()
}

fn numbers(ids: &[BrokerId]) -> Vec<i32> {
    ids.iter().map(|id| id.0).collect()
}
