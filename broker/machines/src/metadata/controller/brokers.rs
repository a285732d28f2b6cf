//! Brokers register; producer ids are set aside in blocks, so that giving one out does not need a record each.

use forebay_broker_wire::types::{BrokerId, Uuid};

use super::Draft;
use crate::metadata::{BrokerRecord, Endpoint, Record};

/// Producer ids in a block.
pub const PRODUCER_ID_BLOCK_SIZE: i64 = 1000;

/// What a broker says when it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerRegistration {
    /// `node.id`.
    pub broker_id: BrokerId,
    /// The cluster it belongs to.
    pub cluster_id: String,
    /// `broker.rack`.
    pub rack: Option<String>,
    /// Where it is reached, by listener.
    pub endpoints: Vec<Endpoint>,
    /// The ids of its log dirs.
    pub directories: Vec<Uuid>,
}

/// Why a broker may not register.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// It belongs to another cluster.
    #[error("broker {broker_id} belongs to cluster {given}: this is cluster {own}")]
    OtherCluster {
        /// The broker.
        broker_id: i32,
        /// Its cluster.
        given: String,
        /// This one.
        own: String,
    },
}

/// Some producer ids that nobody else has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerIdBlock {
    /// The first.
    pub first: i64,
    /// How many.
    pub count: i64,
}

pub(super) fn register(draft: &mut Draft, registration: &BrokerRegistration) -> Result<i64, RegisterError> {
    match draft.image.cluster_id() {
        None => draft.push(Record::Cluster { cluster_id: registration.cluster_id.clone() }),
        Some(own) if **own != registration.cluster_id => {
            return Err(RegisterError::OtherCluster {
                broker_id: registration.broker_id.0,
                given: registration.cluster_id.clone(),
                own: own.to_string(),
            });
        }
        Some(_) => {}
    }
    // The version only grows, so no two registrations share an epoch.
    let broker_epoch = draft.image.version();
    draft.push(Record::Broker(BrokerRecord {
        broker_id: registration.broker_id.0,
        broker_epoch,
        rack: registration.rack.clone(),
        endpoints: registration.endpoints.clone(),
        directories: registration.directories.clone(),
    }));
    Ok(broker_epoch)
}

pub(super) fn allocate_producer_ids(draft: &mut Draft) -> ProducerIdBlock {
    let first = draft.image.next_producer_id();
    draft.push(Record::ProducerIds { next_producer_id: first + PRODUCER_ID_BLOCK_SIZE });
    ProducerIdBlock { first, count: PRODUCER_ID_BLOCK_SIZE }
}
