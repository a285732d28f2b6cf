//! What every reconcile may use, in one place.

use std::sync::Arc;
use std::time::Duration;

use forebay_crds::Cluster;
use kube::{Client, ResourceExt};

use crate::args::Args;
use crate::backoff::Backoff;
use crate::kafka::{KafkaCluster, KafkaClusters};
use crate::kube::events::Events;
use crate::metrics::Metrics;
use crate::stores::{ClusterKey, Stores};
use crate::topic::Owners;

/// Shared by all reconciles of a running operator.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) args: Args,
    pub(crate) metrics: Metrics,
    pub(crate) events: Events,
    pub(crate) kafka: KafkaClusters,
    pub(crate) backoff: Backoff,
    pub(crate) stores: Stores,
    pub(crate) owners: Owners,
}

impl Context {
    /// A Cluster's brokers.
    pub(crate) fn kafka_of(&self, cluster: &Cluster) -> Arc<KafkaCluster> {
        let key = ClusterKey { namespace: cluster.namespace().unwrap_or_default(), name: cluster.name_any() };
        self.kafka.get(&key, &self.args.bootstrap_of(&key.namespace, &key.name))
    }

    /// When a converged object is looked at again.
    pub(crate) fn resync(&self) -> Duration {
        Duration::from_secs(self.args.resync_seconds)
    }

    /// When a converged Topic is reconciled again though nothing was seen to change: the sweep over all topics each
    /// resync is what finds changes.
    pub(crate) fn slow_resync(&self) -> Duration {
        self.resync() * 20
    }
}
