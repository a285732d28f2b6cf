//! One look at what lies on the disks of brokers, and the request that moves replicas from one disk of a broker to another.

use std::collections::BTreeMap;

use forebay_broker_client::admin::LogDirDescription;
use forebay_broker_client::types::BrokerId;
use forebay_broker_client::{Admin, TopicPartition};
use futures::future::join_all;

use super::moves::first_refusal;

/// A replica on a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReplicaSeen {
    pub(crate) topic: String,
    pub(crate) index: i32,
    pub(crate) bytes: u64,
    /// A copy that is to take the place of the one on another disk.
    pub(crate) is_future: bool,
}

/// A log dir that can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DirSeen {
    pub(crate) path: String,
    /// Bytes of the disk, and bytes free on it; none when the broker does not tell.
    pub(crate) room: Option<(u64, u64)>,
    pub(crate) replicas: Vec<ReplicaSeen>,
}

/// What each broker that was asked has on its disks, or why it did not say.
pub(crate) type DirsSeen = BTreeMap<i32, Result<Vec<DirSeen>, String>>;

/// A replica that is to be on another disk of its broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DirMove {
    pub(crate) broker: i32,
    pub(crate) topic: String,
    pub(crate) index: i32,
    /// The log dir.
    pub(crate) to: String,
}

/// Asks these brokers, all at once.
pub(crate) async fn look(admin: &Admin, brokers: &[i32]) -> DirsSeen {
    let ask = async |id: &i32| {
        let dirs = admin.describe_log_dirs(BrokerId(*id)).await.map_err(|error| error.to_string());
        // One that can't be read is missing, and whoever looks for it finds so.
        (*id, dirs.map(|dirs| dirs.into_iter().flatten().map(seen).collect()))
    };
    join_all(brokers.iter().map(ask)).await.into_iter().collect()
}

fn seen(dir: LogDirDescription) -> DirSeen {
    let bytes = |count: i64| u64::try_from(count).ok();
    let replicas = dir.replicas.into_iter().map(|replica| ReplicaSeen {
        topic: replica.partition.topic,
        index: replica.partition.partition,
        bytes: bytes(replica.bytes).unwrap_or_default(),
        is_future: replica.is_future,
    });
    DirSeen { path: dir.path, room: bytes(dir.total_bytes).zip(bytes(dir.usable_bytes)), replicas: replicas.collect() }
}

/// Has replicas moved; each broker is asked for its own.
pub(crate) async fn start(admin: &Admin, moves: &[DirMove]) -> Result<(), String> {
    let mut by_broker: BTreeMap<i32, Vec<(TopicPartition, String)>> = BTreeMap::new();
    for one in moves {
        let partition = TopicPartition::new(&one.topic, one.index);
        by_broker.entry(one.broker).or_default().push((partition, one.to.clone()));
    }
    let ask = async |(id, moves): (&i32, &Vec<(TopicPartition, String)>)| {
        let answers = admin.alter_replica_log_dirs(BrokerId(*id), moves).await;
        let done = answers.map_err(|error| error.to_string()).and_then(first_refusal);
        done.map_err(|why| format!("broker {id}: {why}"))
    };
    // One broker that refuses keeps no other from it.
    join_all(by_broker.iter().map(ask)).await.into_iter().collect()
}
