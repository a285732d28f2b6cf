//! Administration: topics, configs, groups, offsets, log dirs, quorum, reassignments. Each file holds one subject. What
//! concerns many things is asked in one request, and each thing has its own result, so that one bad topic hides nothing
//! about the others.

mod cluster;
mod configs;
pub(crate) mod groups;
mod log_dirs;
pub(crate) mod offsets;
mod quorum;
mod reassignments;
mod topics;

use std::time::Duration;

pub use cluster::{BrokerEndpoint, ClusterDescription};
pub use configs::{ConfigChange, ConfigEntry, ConfigResource, ConfigSource};
pub use groups::{GroupDescription, GroupListing, GroupMember};
pub use log_dirs::{LogDirDescription, ReplicaSize};
pub use offsets::{CommittedOffset, ListedOffset, OffsetSpec};
pub use quorum::QuorumDescription;
pub use reassignments::OngoingReassignment;
pub use topics::{CreatedTopic, NewTopic, PartitionDescription, TopicDescription};

use crate::client::Client;
use crate::config::ClientConfig;
use crate::error::{Refused, RequestError};

/// One result for each thing asked about.
pub type Each<K, T> = std::collections::BTreeMap<K, Result<T, Refused>>;

/// A partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct TopicPartition {
    /// The topic's name.
    pub topic: String,
    /// The partition's index.
    pub partition: i32,
}

impl TopicPartition {
    /// `topic`-`partition`.
    #[must_use]
    pub fn new(topic: &str, partition: i32) -> Self {
        Self { topic: topic.to_owned(), partition }
    }
}

impl std::fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// Administers one cluster; cheap to clone.
#[derive(Clone, Debug)]
pub struct Admin {
    client: Client,
}

impl Admin {
    /// On the connections of a client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Connects to a comma-separated list of `host:port`.
    pub async fn connect(bootstrap: &str, config: ClientConfig) -> Result<Self, RequestError> {
        Ok(Self::new(Client::connect(bootstrap, config).await?))
    }

    /// The client below.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// How long the broker may take for a change, in the requests that say so.
    fn change_timeout_ms(&self) -> i32 {
        i32::try_from(self.change_timeout().as_millis()).unwrap_or(i32::MAX)
    }

    fn change_timeout(&self) -> Duration {
        self.client.config().request_timeout
    }
}

/// Splits what is asked into requests of bounded size.
fn batches<T>(all: &[T], most: usize) -> impl Iterator<Item = &[T]> {
    all.chunks(most.max(1))
}
