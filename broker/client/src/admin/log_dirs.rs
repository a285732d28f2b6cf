//! What lies on the brokers' disks.

use forebay_broker_wire::messages::describe_log_dirs::DescribeLogDirsRequest;
use forebay_broker_wire::types::BrokerId;
use serde::Serialize;

use super::{Admin, TopicPartition};
use crate::error::{Refused, RequestError};

/// A replica's size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReplicaSize {
    /// Which partition.
    #[serde(flatten)]
    pub partition: TopicPartition,
    /// Bytes of its log.
    pub bytes: i64,
    /// Records behind the leader.
    pub offset_lag: i64,
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
}
