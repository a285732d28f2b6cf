//! The group coordinator as handlers see it: finds the shard of a group and asks it.
//!
//! There is a shard for each partition of `__consumer_offsets` that this broker leads, and for each epoch in which it does a new one. What
//! cannot be answered now is `Unavailable`, which clients retry; nothing here waits for a shard to load.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_broker_config::BrokerConfig;
use forebay_broker_machines::groups::{
    Command, CommitOffsets, CommittedOffset, DeleteOffsets, FetchOffsets, GroupConfig, GroupDescription, GroupError,
    GroupId, GroupListing, GroupSummary, Heartbeat, Join, JoinRefusal, Joined, Leave, MemberLeft, PerPartition, Reply,
    Sync, Synced, TopicName,
};
use forebay_broker_machines::metadata::{CONSUMER_OFFSETS_TOPIC, MetadataImage};
use forebay_broker_wire::types::{LeaderEpoch, Uuid};
use parking_lot::RwLock;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::log::CoordinatorLog;
use super::partition_for;
use super::shard::{Job, ListTopics, Phase, Shard};
use crate::broker::Broker;

/// Commands that may wait for one shard; more wait with their connections.
const WAITING_COMMANDS_MAX: usize = 1_024;
/// Room for the batch and record framing around a group's record.
const RECORD_OVERHEAD_BYTES: usize = 1_024;

/// Why a group cannot be asked about now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unavailable {
    #[error("the coordinator is still loading this group")]
    Loading,
    #[error("this broker does not coordinate the group")]
    NotCoordinator,
    #[error("the coordinator is not available, since its partition of __consumer_offsets cannot be written")]
    NotAvailable,
}

struct ShardHandle {
    topic_id: Uuid,
    epoch: LeaderEpoch,
    jobs: mpsc::Sender<Job>,
    phase: watch::Receiver<Phase>,
    stop: CancellationToken,
}

impl Drop for ShardHandle {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl ShardHandle {
    fn door(&self) -> Door {
        Door { jobs: self.jobs.clone(), stop: self.stop.clone() }
    }
}

/// How to ask a shard.
struct Door {
    jobs: mpsc::Sender<Job>,
    stop: CancellationToken,
}

#[derive(Default)]
struct Shards {
    by_partition: BTreeMap<i32, ShardHandle>,
    /// Partitions of the topic, hosted here or not: what groups are spread over.
    partitions: usize,
    /// The image followed last, to see which topics were deleted since.
    image: Arc<MetadataImage>,
}

pub(crate) struct GroupCoordinator {
    config: GroupConfig,
    shards: RwLock<Shards>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl GroupCoordinator {
    pub(crate) fn new(config: &BrokerConfig) -> Self {
        Self {
            config: group_config(config),
            shards: RwLock::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Follows the metadata image: starts shards of partitions that are open here, forgets offsets of deleted topics. To be
    /// called after the partition table has followed, also at start.
    pub(crate) fn follow(&self, broker: &Arc<Broker>) {
        let image = broker.metadata.image();
        let mut shards = self.shards.write();
        if image.version() < shards.image.version() || self.stop.is_cancelled() {
            return;
        }
        let before = std::mem::replace(&mut shards.image, Arc::clone(&image));
        let deleted: Vec<_> = before
            .topics()
            .filter(|topic| image.topic_by_id(topic.id).is_none())
            .map(|topic| (TopicName::from(&*topic.name), topic.id))
            .collect();
        if !deleted.is_empty() {
            self.forget_topics(&shards, &deleted);
        }
        let Some(topic) = image.topic(CONSUMER_OFFSETS_TOPIC) else {
            shards.by_partition.clear();
            shards.partitions = 0;
            return;
        };
        shards.partitions = topic.partitions.len();
        shards.by_partition.retain(|_, shard| shard.topic_id == topic.id);
        for partition in &topic.partitions {
            let index = partition.index;
            let log = CoordinatorLog::open(broker, topic.id, index);
            let known = shards.by_partition.get(&index.0).map(|shard| shard.epoch);
            if known == log.as_ref().map(CoordinatorLog::epoch) {
                continue;
            }
            // Whoever asks the one that goes is sent to look for the coordinator again.
            shards.by_partition.remove(&index.0);
            if let Some(log) = log {
                shards.by_partition.insert(index.0, self.start_shard(broker, topic.id, log));
            }
        }
    }

    fn start_shard(&self, broker: &Arc<Broker>, topic_id: Uuid, log: CoordinatorLog) -> ShardHandle {
        let (jobs, queue) = mpsc::channel(WAITING_COMMANDS_MAX);
        let (phase, phases) = watch::channel(Phase::Loading);
        let broker = Arc::downgrade(broker);
        let topics: ListTopics = Arc::new(move || {
            let image = broker.upgrade().map(|broker| broker.metadata.image());
            let topics = image.iter().flat_map(|image| image.topics());
            topics.map(|topic| (TopicName::from(&*topic.name), topic.id)).collect()
        });
        let (epoch, stop) = (log.epoch(), self.stop.child_token());
        let shard = Shard { log, config: self.config.clone(), topics, phase, stop: stop.clone() };
        self.tasks.spawn(shard.run(queue));
        ShardHandle { topic_id, epoch, jobs, phase: phases, stop }
    }

    /// Nobody waits for this; a shard that is not serving looks at the topics itself when it has loaded.
    fn forget_topics(&self, shards: &Shards, deleted: &[(TopicName, Uuid)]) {
        for shard in shards.by_partition.values() {
            let jobs = shard.jobs.clone();
            let command = Command::ForgetTopics { topics: deleted.to_vec() };
            let (reply, _nobody) = oneshot::channel();
            self.tasks.spawn(async move {
                let _stopped = jobs.send(Job { command, reply }).await;
            });
        }
    }

    /// Ends all shards after the writes under way. Requests that still wait are told to find the coordinator again.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.shards.write().by_partition.clear();
        self.tasks.wait().await;
    }

    fn shard_of(&self, group: &str) -> Result<Door, Unavailable> {
        let shards = self.shards.read();
        let index = partition_for(group, shards.partitions).ok_or(Unavailable::NotCoordinator)?;
        let shard = shards.by_partition.get(&index).ok_or(Unavailable::NotCoordinator)?;
        match *shard.phase.borrow() {
            Phase::Serving => Ok(shard.door()),
            Phase::Loading => Err(Unavailable::Loading),
            Phase::Unavailable => Err(Unavailable::NotAvailable),
        }
    }

    async fn ask<T>(
        &self,
        group: &GroupId,
        command: Command,
        pick: impl FnOnce(Reply) -> Option<T>,
    ) -> Result<T, Unavailable> {
        let shard = self.shard_of(group.as_str())?;
        pick(ask_shard(&shard, command).await?).ok_or(Unavailable::NotAvailable)
    }

    pub(crate) async fn join(&self, request: Join) -> Result<Result<Joined, JoinRefusal>, Unavailable> {
        let group = request.group.clone();
        self.ask(&group, Command::Join(request), |reply| match reply {
            Reply::Join(result) => Some(result),
            _ => None,
        })
        .await
    }

    pub(crate) async fn sync(&self, request: Sync) -> Result<Result<Synced, GroupError>, Unavailable> {
        let group = request.group.clone();
        self.ask(&group, Command::Sync(request), |reply| match reply {
            Reply::Sync(result) => Some(result),
            _ => None,
        })
        .await
    }

    pub(crate) async fn heartbeat(&self, request: Heartbeat) -> Result<Result<(), GroupError>, Unavailable> {
        let group = request.group.clone();
        self.ask(&group, Command::Heartbeat(request), |reply| match reply {
            Reply::Heartbeat(result) => Some(result),
            _ => None,
        })
        .await
    }

    pub(crate) async fn leave(&self, request: Leave) -> Result<Result<Vec<MemberLeft>, GroupError>, Unavailable> {
        let group = request.group.clone();
        self.ask(&group, Command::Leave(request), |reply| match reply {
            Reply::Leave(result) => Some(result),
            _ => None,
        })
        .await
    }

    pub(crate) async fn commit_offsets(
        &self,
        request: CommitOffsets,
    ) -> Result<Result<PerPartition<Result<(), GroupError>>, GroupError>, Unavailable> {
        let group = request.group.clone();
        self.ask(&group, Command::CommitOffsets(request), |reply| match reply {
            Reply::CommitOffsets(result) => Some(result),
            _ => None,
        })
        .await
    }

    pub(crate) async fn fetch_offsets(
        &self,
        request: FetchOffsets,
    ) -> Result<PerPartition<Option<CommittedOffset>>, Unavailable> {
        let group = request.group.clone();
        self.ask(&group, Command::FetchOffsets(request), |reply| match reply {
            Reply::FetchOffsets(offsets) => Some(offsets),
            _ => None,
        })
        .await
    }

    pub(crate) async fn delete_offsets(
        &self,
        request: DeleteOffsets,
    ) -> Result<Result<PerPartition<Result<(), GroupError>>, GroupError>, Unavailable> {
        let group = request.group.clone();
        self.ask(&group, Command::DeleteOffsets(request), |reply| match reply {
            Reply::DeleteOffsets(result) => Some(result),
            _ => None,
        })
        .await
    }

    pub(crate) async fn describe(&self, group: GroupId) -> Result<Result<GroupDescription, GroupError>, Unavailable> {
        self.ask(&group.clone(), Command::Describe { group }, |reply| match reply {
            Reply::Describe(result) => Some(result),
            _ => None,
        })
        .await
    }

    pub(crate) async fn delete(&self, group: GroupId) -> Result<Result<(), GroupError>, Unavailable> {
        self.ask(&group.clone(), Command::Delete { group }, |reply| match reply {
            Reply::Delete(result) => Some(result),
            _ => None,
        })
        .await
    }

    /// All groups coordinated here; with the first shard that cannot answer the whole list is not to be had, since a
    /// list that lacks groups would be taken for complete.
    pub(crate) async fn list(&self) -> Result<Vec<GroupListing>, Unavailable> {
        let mut groups = Vec::new();
        for (phase, shard) in self.all_shards() {
            match phase {
                Phase::Serving => {}
                Phase::Loading => return Err(Unavailable::Loading),
                Phase::Unavailable => return Err(Unavailable::NotAvailable),
            }
            if let Reply::List(listed) = ask_shard(&shard, Command::List).await? {
                groups.extend(listed);
            }
        }
        Ok(groups)
    }

    /// What the metrics show: all groups of the shards that answer.
    pub(crate) async fn summaries(&self) -> Vec<GroupSummary> {
        let mut groups = Vec::new();
        for (phase, shard) in self.all_shards() {
            if phase == Phase::Serving
                && let Ok(Reply::Summarize(summaries)) = ask_shard(&shard, Command::Summarize).await
            {
                groups.extend(summaries);
            }
        }
        groups
    }

    fn all_shards(&self) -> Vec<(Phase, Door)> {
        let shards = self.shards.read();
        shards.by_partition.values().map(|shard| (*shard.phase.borrow(), shard.door())).collect()
    }
}

async fn ask_shard(shard: &Door, command: Command) -> Result<Reply, Unavailable> {
    let (reply, answer) = oneshot::channel();
    shard.jobs.send(Job { command, reply }).await.map_err(|_stopped| Unavailable::NotCoordinator)?;
    answer.await.map_err(|_dropped| {
        // One that goes for good belongs to another broker now.
        if shard.stop.is_cancelled() { Unavailable::NotCoordinator } else { Unavailable::NotAvailable }
    })
}

fn group_config(config: &BrokerConfig) -> GroupConfig {
    let (group, offsets) = (&config.group, &config.offsets);
    let defaults = GroupConfig::default();
    GroupConfig {
        initial_rebalance_delay_ms: i64::from(group.initial_rebalance_delay_ms),
        min_session_timeout_ms: i64::from(group.min_session_timeout_ms),
        max_session_timeout_ms: i64::from(group.max_session_timeout_ms),
        max_size: group.max_size,
        offset_metadata_max_bytes: offsets.metadata_max_bytes,
        offsets_retention_ms: offsets.retention_minutes.saturating_mul(60_000),
        offsets_retention_check_interval_ms: i64::try_from(offsets.retention_check_interval_ms).unwrap_or(i64::MAX),
        max_record_bytes: defaults.max_record_bytes - RECORD_OVERHEAD_BYTES,
    }
}
