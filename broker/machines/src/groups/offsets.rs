//! Committed offsets: commit, fetch, delete, and the end of those that nobody wants any more.

use forebay_broker_wire::types::{PartitionIndex, Uuid};
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::command::{
    Caller, CommitOffsets, CommittedOffset, DeleteOffsets, FetchOffsets, PartitionCommit, PerPartition,
};
use super::config::GroupConfig;
use super::error::GroupError;
use super::group::{Group, GroupState, Step};
use super::ids::TopicName;
use super::record::Record;

/// Offsets by topic and partition.
#[derive(Debug, Default)]
pub(super) struct Offsets {
    topics: HashMap<TopicName, BTreeMap<PartitionIndex, CommittedOffset>>,
}

impl Offsets {
    pub(super) fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    pub(super) fn get(&self, topic: &TopicName, partition: PartitionIndex) -> Option<&CommittedOffset> {
        self.topics.get(topic)?.get(&partition)
    }

    pub(super) fn set(&mut self, topic: TopicName, partition: PartitionIndex, value: Option<CommittedOffset>) {
        match value {
            Some(value) => {
                self.topics.entry(topic).or_default().insert(partition, value);
            }
            None => {
                if let Some(partitions) = self.topics.get_mut(&topic) {
                    partitions.remove(&partition);
                    if partitions.is_empty() {
                        self.topics.remove(&topic);
                    }
                }
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&TopicName, PartitionIndex, &CommittedOffset)> {
        self.topics.iter().flat_map(|(topic, partitions)| {
            partitions.iter().map(move |(partition, committed)| (topic, *partition, committed))
        })
    }
}

impl Group {
    pub(super) fn commit(
        &mut self,
        request: CommitOffsets,
        step: &mut Step<'_>,
    ) -> Result<PerPartition<Result<(), GroupError>>, GroupError> {
        self.check_commit(&request.caller)?;
        self.refresh_session(&request.caller.member_id, step);
        let expire_timestamp_ms =
            request.retention_ms.map(|retention_ms| step.now.wall_ms.saturating_add(retention_ms));
        let mut results = Vec::with_capacity(request.topics.len());
        for topic in request.topics {
            let commit_one = |commit: PartitionCommit| {
                let partition = commit.partition;
                let result = check_metadata(&commit, step.config).map(|()| {
                    let value = CommittedOffset {
                        offset: commit.offset,
                        leader_epoch: commit.leader_epoch,
                        metadata: commit.metadata,
                        commit_timestamp_ms: step.now.wall_ms,
                        expire_timestamp_ms,
                        topic_id: topic.topic_id,
                    };
                    self.set_offset(&topic.topic, partition, Some(value), step);
                });
                (partition, result)
            };
            let partitions = topic.partitions.into_iter().map(commit_one).collect();
            results.push((topic.topic, partitions));
        }
        Ok(results)
    }

    fn check_commit(&self, caller: &Caller) -> Result<(), GroupError> {
        let claims_membership = caller.generation >= 0 || !caller.member_id.is_empty() || caller.instance_id.is_some();
        if caller.generation < 0 && self.state == GroupState::Empty {
            return Ok(()); // a consumer that only stores offsets, or an administrator
        }
        if !claims_membership {
            // Offsets of a group with members belong to them.
            return Err(GroupError::UnknownMember { member: caller.member_id.clone() });
        }
        self.check_caller(caller)?;
        match self.state {
            // The assignment isn't known yet, so whose partition it is neither.
            GroupState::CompletingRebalance => Err(GroupError::RebalanceInProgress),
            // While members are asked to join again they commit what they did in the generation that ends.
            _ => Ok(()),
        }
    }

    fn set_offset(
        &mut self,
        topic: &TopicName,
        partition: PartitionIndex,
        value: Option<CommittedOffset>,
        step: &mut Step<'_>,
    ) {
        step.record(Record::OffsetCommit {
            group: self.id.clone(),
            topic: topic.clone(),
            partition,
            value: value.clone(),
        });
        self.offsets.set(topic.clone(), partition, value);
    }

    pub(super) fn fetch_offsets(&self, request: &FetchOffsets) -> PerPartition<Option<CommittedOffset>> {
        let Some(topics) = &request.topics else {
            let mut all: BTreeMap<TopicName, Vec<_>> = BTreeMap::new();
            for (topic, partition, committed) in self.offsets.iter() {
                all.entry(topic.clone()).or_default().push((partition, Some(committed.clone())));
            }
            return all.into_iter().collect();
        };
        let look_up = |(topic, partitions): &(TopicName, Vec<PartitionIndex>)| {
            let found = |partition: &PartitionIndex| (*partition, self.offsets.get(topic, *partition).cloned());
            (topic.clone(), partitions.iter().map(found).collect())
        };
        topics.iter().map(look_up).collect()
    }

    pub(super) fn delete_offsets(
        &mut self,
        request: &DeleteOffsets,
        step: &mut Step<'_>,
    ) -> Result<PerPartition<Result<(), GroupError>>, GroupError> {
        let subscribed = match (self.state, self.subscribed_topics()) {
            (GroupState::Empty, _) => BTreeSet::new(),
            (_, Some(topics)) => topics,
            (_, None) => return Err(GroupError::NonEmptyGroup { group: self.id.clone() }),
        };
        let mut results = Vec::with_capacity(request.topics.len());
        for (topic, partitions) in &request.topics {
            let mut delete_one = |partition: &PartitionIndex| {
                if subscribed.contains(topic) {
                    return (*partition, Err(GroupError::SubscribedToTopic { topic: topic.clone() }));
                }
                if self.offsets.get(topic, *partition).is_some() {
                    self.set_offset(topic, *partition, None, step);
                }
                (*partition, Ok(()))
            };
            results.push((topic.clone(), partitions.iter().map(&mut delete_one).collect()));
        }
        Ok(results)
    }

    /// The end of an empty group, by request or because nothing is left of it.
    pub(super) fn delete(&mut self, step: &mut Step<'_>) -> Result<(), GroupError> {
        if self.state != GroupState::Empty {
            return Err(GroupError::NonEmptyGroup { group: self.id.clone() });
        }
        self.drop_offsets(|_, _| true, step);
        step.record(Record::GroupMetadata { group: self.id.clone(), value: None });
        Ok(())
    }

    /// Offsets of deleted topics. A commit to a later topic of the same name carries another id and stays.
    pub(super) fn forget_topics(&mut self, topics: &HashMap<TopicName, Uuid>, step: &mut Step<'_>) {
        let deleted = |topic: &TopicName, committed: &CommittedOffset| {
            let id = topics.get(topic);
            id.is_some_and(|id| committed.topic_id == Uuid::ZERO || committed.topic_id == *id)
        };
        self.drop_offsets(deleted, step);
    }

    /// Offsets of topics that are not, or no longer, among these.
    pub(super) fn keep_topics(&mut self, topics: &HashMap<TopicName, Uuid>, step: &mut Step<'_>) {
        let gone = |topic: &TopicName, committed: &CommittedOffset| match topics.get(topic) {
            Some(id) => committed.topic_id != Uuid::ZERO && committed.topic_id != *id,
            None => true,
        };
        self.drop_offsets(gone, step);
    }

    /// Drops offsets that have outlived their use: of an empty group, counted from when it became empty; of a simple
    /// consumer, from the commit; of topics that a stable group no longer reads, from the commit. Groups of other kinds
    /// with members keep theirs, since what they read is unknown.
    pub(super) fn expire_offsets(&mut self, step: &mut Step<'_>) {
        let (now_ms, retention_ms) = (step.now.wall_ms, step.config.offsets_retention_ms);
        let empty_since_ms = match (self.state, &self.protocol_type) {
            (GroupState::Empty, Some(_)) => self.state_timestamp_ms,
            _ => None,
        };
        let subscribed = match self.state {
            GroupState::Empty => Some(BTreeSet::new()),
            GroupState::Stable => self.subscribed_topics(),
            _ => None,
        };
        let Some(subscribed) = subscribed else { return };
        let expired = |topic: &TopicName, committed: &CommittedOffset| {
            let since_ms = committed.commit_timestamp_ms.max(empty_since_ms.unwrap_or(i64::MIN));
            let expires_ms = committed.expire_timestamp_ms.unwrap_or_else(|| since_ms.saturating_add(retention_ms));
            !subscribed.contains(topic) && now_ms >= expires_ms
        };
        self.drop_offsets(expired, step);
    }

    fn drop_offsets(&mut self, unwanted: impl Fn(&TopicName, &CommittedOffset) -> bool, step: &mut Step<'_>) {
        let found: Vec<(TopicName, PartitionIndex)> = self
            .offsets
            .iter()
            .filter(|(topic, _, committed)| unwanted(topic, committed))
            .map(|(topic, partition, _)| (topic.clone(), partition))
            .collect();
        for (topic, partition) in found {
            self.set_offset(&topic, partition, None, step);
        }
    }
}

fn check_metadata(commit: &PartitionCommit, config: &GroupConfig) -> Result<(), GroupError> {
    let (bytes, max) = (commit.metadata.len(), config.offset_metadata_max_bytes);
    if bytes > max { Err(GroupError::OffsetMetadataTooLarge { bytes, max }) } else { Ok(()) }
}
