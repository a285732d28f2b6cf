//! The only way to brokers: one client per Cluster; what is asked and changed at the same time goes in one request.
//!
//! What must always hold: what a reconcile decides on was read after the last change that this operator made to that
//! topic; and requests are bounded, however many topics there are.

mod batch;
pub(crate) mod brokers;
mod changes;
pub(crate) mod log_dirs;
mod looks;
pub(crate) mod moves;
pub(crate) mod status;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_broker_client::admin::{ConfigEntry, ConfigSource};
use forebay_broker_client::{Admin, Client, ClientConfig};
use parking_lot::Mutex;

pub(crate) use changes::Changes;
pub(crate) use looks::Looks;

use crate::stores::ClusterKey;

/// A topic as brokers have it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TopicState {
    pub(crate) topic_id: String,
    pub(crate) partitions: i32,
    pub(crate) replication: Replication,
    /// Brokers that lead its partitions.
    pub(crate) leaders: Vec<i32>,
    /// What is set on the topic, and `max.message.bytes` wherever it comes from.
    pub(crate) configs: Vec<ConfigEntry>,
}

/// Replicas over all partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replication {
    /// What the partition with the fewest has, those that still copy not counted.
    pub(crate) now: i32,
    /// What the partition with the fewest will have when all moves are done.
    pub(crate) target_least: i32,
    /// What the partition with the most will have then.
    pub(crate) target_most: i32,
    /// Partitions on their way to other brokers.
    pub(crate) moving: i32,
}

impl Replication {
    /// Whether all partitions have or will have so many replicas.
    pub(crate) fn is_to_be(&self, factor: i32) -> bool {
        self.target_least == factor && self.target_most == factor
    }
}

/// What brokers say about a topic.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TopicSeen {
    Absent,
    Present(TopicState),
    /// They refused to describe it.
    Refused(String),
}

impl TopicSeen {
    /// Whether a Topic has nothing new to do: leaders come and go, and what is not set on the topic is not its own.
    fn is_as(&self, other: &Self) -> bool {
        let (Self::Present(a), Self::Present(b)) = (self, other) else { return self == other };
        let own = |state: &TopicState| {
            let set = state.configs.iter().filter(|entry| entry.source == ConfigSource::TopicConfig);
            set.map(|entry| (entry.name.clone(), entry.value.clone())).collect::<BTreeMap<_, _>>()
        };
        (&a.topic_id, a.partitions, a.replication) == (&b.topic_id, b.partitions, b.replication) && own(a) == own(b)
    }
}

/// A Cluster's brokers.
#[derive(Debug)]
pub(crate) struct KafkaCluster {
    pub(crate) admin: Admin,
    pub(crate) looks: Looks,
    pub(crate) changes: Changes,
    /// Replicas that are behind, and since when there are so many.
    behind: Mutex<Option<(usize, Instant)>>,
}

impl KafkaCluster {
    /// How long there have been so many replicas that are behind.
    pub(crate) fn unchanged_for(&self, behind: usize, now: Instant) -> Duration {
        let mut last = self.behind.lock();
        match *last {
            Some((count, since)) if count == behind => now.saturating_duration_since(since),
            _ => {
                *last = Some((behind, now));
                Duration::ZERO
            }
        }
    }
}

/// The clients, by Cluster. A Cluster that is gone is forgotten by `forget`.
#[derive(Debug, Default)]
pub(crate) struct KafkaClusters {
    clusters: Mutex<HashMap<ClusterKey, (String, Arc<KafkaCluster>)>>,
}

impl KafkaClusters {
    /// The client of a Cluster that is reached at `bootstrap`; nothing is dialled yet.
    pub(crate) fn get(&self, key: &ClusterKey, bootstrap: &str) -> Arc<KafkaCluster> {
        let mut clusters = self.clusters.lock();
        match clusters.get(key) {
            Some((at, cluster)) if at == bootstrap => Arc::clone(cluster),
            _ => {
                let admin = Admin::new(Client::new(bootstrap, client_config()));
                let cluster = Arc::new(KafkaCluster {
                    admin,
                    looks: Looks::default(),
                    changes: Changes::default(),
                    behind: Mutex::default(),
                });
                clusters.insert(key.clone(), (bootstrap.to_owned(), Arc::clone(&cluster)));
                cluster
            }
        }
    }

    /// Drops the client of a Cluster that is gone.
    pub(crate) fn forget(&self, key: &ClusterKey) {
        self.clusters.lock().remove(key);
    }
}

/// Short waits: a reconcile that can't reach brokers is tried again anyway.
fn client_config() -> ClientConfig {
    ClientConfig {
        client_id: "forebay-operator".to_owned(),
        connect_timeout: Duration::from_secs(2),
        request_timeout: Duration::from_secs(10),
        operation_timeout: Duration::from_secs(3),
        ..ClientConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_changes_starts_the_clock_anew() {
        let clusters = KafkaClusters::default();
        let key = ClusterKey { namespace: "n".into(), name: "c".into() };
        let (cluster, start) = (clusters.get(&key, "127.0.0.1:1"), Instant::now());
        let at = |behind, seconds| cluster.unchanged_for(behind, start + Duration::from_secs(seconds)).as_secs();
        assert_eq!([at(3, 0), at(3, 5), at(2, 6), at(2, 16), at(3, 17)], [0, 5, 0, 10, 0]);
    }
}
