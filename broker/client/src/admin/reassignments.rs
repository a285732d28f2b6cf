//! Moves of partitions to other brokers, and changes of how many replicas they have: asked for, listed, called off.

use std::collections::BTreeMap;

use forebay_broker_wire::messages::alter_partition_reassignments::{
    AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic,
};
use forebay_broker_wire::messages::list_partition_reassignments::{
    ListPartitionReassignmentsRequest, OngoingPartitionReassignment,
};
use forebay_broker_wire::types::{BrokerId, Str};
use serde::Serialize;

use super::{Admin, Each, TopicPartition, batches};
use crate::error::{Refused, RequestError};

/// Partitions asked for in one request.
const PARTITIONS_A_REQUEST: usize = 5_000;

/// A partition on its way to other brokers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OngoingReassignment {
    /// All brokers that have it now or are to have it, the preferred leader first.
    pub replicas: Vec<BrokerId>,
    /// Those that still have to copy it.
    pub adding: Vec<BrokerId>,
    /// Those that give it up at the end.
    pub removing: Vec<BrokerId>,
}

impl Admin {
    /// Lets partitions move to the named brokers, the preferred leader first; `None` calls a move off. That a move is
    /// taken does not say that it is done: `list_partition_reassignments` says what is on its way.
    pub async fn alter_partition_reassignments(
        &self,
        moves: &[(TopicPartition, Option<Vec<BrokerId>>)],
    ) -> Result<Each<TopicPartition, ()>, RequestError> {
        let mut all = Each::new();
        for some in batches(moves, PARTITIONS_A_REQUEST) {
            let request = AlterPartitionReassignmentsRequest {
                timeout_ms: self.change_timeout_ms(),
                topics: by_topic(some),
                ..Default::default()
            };
            let send = async || {
                let response = self.client.controller().await?.send_waiting(&request, self.change_timeout()).await?;
                let what = || "move partitions".to_owned();
                RequestError::check(response.error_code, response.error_message.as_ref(), what)?;
                Ok(response)
            };
            for topic in self.client.retry(send).await?.responses {
                all.extend(topic.partitions.into_iter().map(|partition| {
                    let outcome = Refused::check(partition.error_code, partition.error_message.as_ref());
                    (TopicPartition::new(&topic.name, partition.partition_index), outcome)
                }));
            }
        }
        Ok(all)
    }

    /// All partitions that are on their way to other brokers.
    pub async fn list_partition_reassignments(
        &self,
    ) -> Result<BTreeMap<TopicPartition, OngoingReassignment>, RequestError> {
        let request = ListPartitionReassignmentsRequest { timeout_ms: self.change_timeout_ms(), topics: None };
        let send = async || {
            let response = self.client.controller().await?.send(&request).await?;
            let what = || "list moves of partitions".to_owned();
            RequestError::check(response.error_code, response.error_message.as_ref(), what)?;
            Ok(response)
        };
        let mut all = BTreeMap::new();
        for topic in self.client.retry(send).await?.topics {
            all.extend(
                topic.partitions.into_iter().map(|p| (TopicPartition::new(&topic.name, p.partition_index), ongoing(p))),
            );
        }
        Ok(all)
    }
}

fn by_topic(moves: &[(TopicPartition, Option<Vec<BrokerId>>)]) -> Vec<ReassignableTopic> {
    let mut topics: BTreeMap<&str, Vec<ReassignablePartition>> = BTreeMap::new();
    for (partition, to) in moves {
        topics.entry(&partition.topic).or_default().push(ReassignablePartition {
            partition_index: partition.partition,
            replicas: to.as_ref().map(|ids| ids.iter().map(|id| id.0).collect()),
        });
    }
    topics.into_iter().map(|(name, partitions)| ReassignableTopic { name: Str::from(name), partitions }).collect()
}

fn ongoing(partition: OngoingPartitionReassignment) -> OngoingReassignment {
    let ids = |ids: Vec<i32>| ids.into_iter().map(BrokerId).collect();
    OngoingReassignment {
        replicas: ids(partition.replicas),
        adding: ids(partition.adding_replicas),
        removing: ids(partition.removing_replicas),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_are_sent_by_topic_and_one_without_brokers_is_called_off() {
        let moves = [
            (TopicPartition::new("b", 0), None),
            (TopicPartition::new("a", 1), Some(vec![BrokerId(2), BrokerId(0)])),
            (TopicPartition::new("b", 3), Some(vec![BrokerId(1)])),
        ];
        let topics = by_topic(&moves);
        let sent: Vec<_> = topics
            .iter()
            .flat_map(|topic| topic.partitions.iter().map(|p| (&*topic.name, p.partition_index, p.replicas.clone())))
            .collect();
        assert_eq!(sent, [("a", 1, Some(vec![2, 0])), ("b", 0, None), ("b", 3, Some(vec![1]))]);
    }
}
