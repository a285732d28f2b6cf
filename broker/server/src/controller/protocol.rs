//! What brokers tell the controller, and what it says to that.

use forebay_broker_machines::metadata::BrokerLife;
use forebay_broker_wire::types::{PartitionIndex, Uuid};
use serde::{Deserialize, Serialize};

/// "I am there."
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Heartbeat {
    /// Which broker, in which epoch.
    pub(crate) life: BrokerLife,
    /// The image that it works by.
    pub(crate) applied_version: i64,
    /// Its partitions are open, and it serves clients; false again when it stops.
    pub(crate) ready: bool,
    /// The disk of its metadata hangs: it can't be relied on until it says otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) hung: bool,
    /// Partitions here that a failed disk has taken, or one that hangs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) offline: Vec<(Uuid, PartitionIndex)>,
    /// In-sync replicas here that take no records, because their disk is full.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) full: Vec<(Uuid, PartitionIndex)>,
    /// In-sync replicas here that take no records from clients, because their disk has only its reserve left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) low: Vec<(Uuid, PartitionIndex)>,
}

/// What the controller makes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum HeartbeatAnswer {
    /// The broker can be relied on.
    Live,
    /// It can't yet, or no more: it will be unfenced once it is ready and knows that it is registered.
    Fenced,
    /// That life is over, or was never known: the broker must register again.
    NotRegistered,
}
