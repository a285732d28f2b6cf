//! What lies on the brokers' disks, and moves from one disk of a broker to another.

use std::collections::BTreeMap;

use forebay_broker_wire::messages::alter_replica_log_dirs::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic, AlterReplicaLogDirsRequest,
};
use forebay_broker_wire::messages::describe_log_dirs::DescribeLogDirsRequest;
use forebay_broker_wire::types::{BrokerId, Str};
use serde::Serialize;

use super::{Admin, Each, TopicPartition, batches};
use crate::error::{Refused, RequestError};

/// Partitions asked for in one request.
const PARTITIONS_A_REQUEST: usize = 5_000;

/// A replica's size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReplicaSize {
    /// Which partition.
    #[serde(flatten)]
    pub partition: TopicPartition,
    /// Bytes of its log.
    pub bytes: i64,
    /// Records behind the leader; of a copy that is being made, records behind the replica that it is made of.
    pub offset_lag: i64,
    /// A copy that is to take the place of the replica in another log dir of the broker.
    pub is_future: bool,
}

/// One log dir of a broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogDirDescription {
    /// Its path on the broker.
    pub path: String,
    /// Bytes of the disk; -1 from brokers that don't tell.
    pub total_bytes: i64,
    /// Bytes free on the disk; -1 from brokers that don't tell.
    pub usable_bytes: i64,
    /// What it holds.
    pub replicas: Vec<ReplicaSize>,
}

impl Admin {
    /// The log dirs of a broker; a dir that failed is an error in its place.
    pub async fn describe_log_dirs(
        &self,
        broker: BrokerId,
    ) -> Result<Vec<Result<LogDirDescription, Refused>>, RequestError> {
        let send = async || {
            let request = DescribeLogDirsRequest { topics: None };
            let response = self.client.broker(broker).await?.send(&request).await?;
            let what = || format!("describe log dirs of broker {broker}");
            RequestError::check(response.error_code, None, what).map(|()| response.results)
        };
        let dirs = self.client.retry(send).await?.into_iter().map(|dir| {
            Refused::check(dir.error_code, None)?;
            let replicas = dir.topics.iter().flat_map(|topic| {
                topic.partitions.iter().map(|p| ReplicaSize {
                    partition: TopicPartition::new(&topic.name, p.partition_index),
                    bytes: p.partition_size,
                    offset_lag: p.offset_lag,
                    is_future: p.is_future_key,
                })
            });
            Ok(LogDirDescription {
                replicas: replicas.collect(),
                path: dir.log_dir.into(),
                total_bytes: dir.total_bytes,
                usable_bytes: dir.usable_bytes,
            })
        });
        Ok(dirs.collect())
    }

    /// Has replicas of a broker moved to other log dirs of it. That a move is taken does not say that it is done:
    /// [`Self::describe_log_dirs`] says what is on its way. A replica that is in that dir already stays there, and one on its way to another
    /// dir as well.
    pub async fn alter_replica_log_dirs(
        &self,
        broker: BrokerId,
        moves: &[(TopicPartition, String)],
    ) -> Result<Each<TopicPartition, ()>, RequestError> {
        let mut all = Each::new();
        for some in batches(moves, PARTITIONS_A_REQUEST) {
            let request = AlterReplicaLogDirsRequest { dirs: by_dir(some) };
            let send = async || Ok(self.client.broker(broker).await?.send(&request).await?.results);
            for topic in self.client.retry(send).await? {
                all.extend(topic.partitions.into_iter().map(|partition| {
                    let outcome = Refused::check(partition.error_code, None);
                    (TopicPartition::new(&topic.topic_name, partition.partition_index), outcome)
                }));
            }
        }
        Ok(all)
    }
}

fn by_dir(moves: &[(TopicPartition, String)]) -> Vec<AlterReplicaLogDir> {
    let mut dirs: BTreeMap<&str, BTreeMap<&str, Vec<i32>>> = BTreeMap::new();
    for (partition, dir) in moves {
        dirs.entry(dir).or_default().entry(&partition.topic).or_default().push(partition.partition);
    }
    let topic = |(name, partitions): (&str, Vec<i32>)| AlterReplicaLogDirTopic { name: Str::from(name), partitions };
    let dir = |(path, topics): (&str, BTreeMap<&str, Vec<i32>>)| AlterReplicaLogDir {
        path: Str::from(path),
        topics: topics.into_iter().map(topic).collect(),
    };
    dirs.into_iter().map(dir).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_are_sent_by_dir_and_topic() {
        let to = |topic: &str, partition, dir: &str| (TopicPartition::new(topic, partition), dir.to_owned());
        let dirs = by_dir(&[to("b", 0, "/two"), to("a", 1, "/one"), to("b", 3, "/two"), to("a", 0, "/two")]);
        let sent: Vec<_> = dirs
            .iter()
            .flat_map(|dir| dir.topics.iter().map(|topic| (&*dir.path, &*topic.name, topic.partitions.clone())))
            .collect();
        assert_eq!(sent, [("/one", "a", vec![1]), ("/two", "a", vec![0]), ("/two", "b", vec![0, 3])]);
    }
}
