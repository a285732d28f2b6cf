//! Brokers register, and are taken off the list; producer ids are set aside in blocks, so that giving one out does not need a record each.

use std::collections::BTreeMap;

use forebay_broker_wire::types::{BrokerId, PartitionIndex, Uuid};
use serde::{Deserialize, Serialize};

use super::leadership::{Kept, broker_returns, next_life};
use super::{Context, Draft};
use crate::metadata::{BrokerImage, BrokerRecord, Endpoint, Record, TopicImage};

/// Producer ids in a block.
pub const PRODUCER_ID_BLOCK_SIZE: i64 = 1000;

/// Partitions by topic.
pub type Logs = BTreeMap<String, Vec<PartitionIndex>>;

/// What a broker says when it starts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerRegistration {
    /// `node.id`.
    pub broker_id: BrokerId,
    /// The cluster it belongs to.
    pub cluster_id: String,
    /// `broker.rack`.
    pub rack: Option<String>,
    /// Where it is reached, by listener.
    pub endpoints: Vec<Endpoint>,
    /// The ids of its log dirs, of those that have failed too.
    pub directories: Vec<Uuid>,
    /// The partitions that it has logs of, by topic: from a broker with several log dirs of which one was begun anew.
    #[serde(default)]
    pub logs: Option<Logs>,
    /// The partitions whose logs it had in these log dirs and has no more.
    #[serde(default)]
    pub vanished_logs: Logs,
    /// One life of its process.
    pub incarnation: Uuid,
    /// It stopped in order before: its logs end where they ended.
    pub clean_shutdown: bool,
}

/// Why a broker may not register.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
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
    /// A broker of this number is at work, and has other log dirs.
    #[error(
        "broker {broker_id} is at work with other log dirs: each broker must have a node.id of its own, and one that has lost its disks must wait until its session is over"
    )]
    Duplicate {
        /// The broker.
        broker_id: i32,
    },
}

/// Why a broker may not be taken off the list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum UnregisterError {
    /// It is not on it.
    #[error("broker {broker_id} is not registered")]
    NotRegistered {
        /// The broker.
        broker_id: BrokerId,
    },
    /// It would only register again.
    #[error("broker {broker_id} is at work: must be stopped first")]
    AtWork {
        /// The broker.
        broker_id: BrokerId,
    },
}

/// Some producer ids that nobody else has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProducerIdBlock {
    /// The first.
    pub first: i64,
    /// How many.
    pub count: i64,
}

/// Every registration begins a life: fenced, in no ISR that somebody else keeps, leading nothing that somebody else could lead.
pub(super) fn register(
    draft: &mut Draft,
    registration: &BrokerRegistration,
    context: &Context<'_>,
) -> Result<i64, RegisterError> {
    let id = registration.broker_id;
    match draft.image.cluster_id() {
        None => draft.push(Record::Cluster { cluster_id: registration.cluster_id.clone() }),
        Some(own) if **own != registration.cluster_id => {
            return Err(RegisterError::OtherCluster {
                broker_id: id.0,
                given: registration.cluster_id.clone(),
                own: own.to_string(),
            });
        }
        Some(_) => {}
    }
    // Whoever holds the lock of a log dir is the only life of its broker; with other log dirs it may be another broker altogether.
    let at_work = draft.image.broker(id).filter(|known| !known.fenced && known.incarnation != registration.incarnation);
    let shares_a_dir =
        |known: &[Uuid]| known.is_empty() || known.iter().any(|dir| registration.directories.contains(dir));
    if at_work.is_some_and(|known| !shares_a_dir(&known.directories)) {
        return Err(RegisterError::Duplicate { broker_id: id.0 });
    }
    // The version only grows, so no two registrations share an epoch.
    let broker_epoch = draft.image.version();
    let replaced = replaced_a_dir(draft.image.broker(id), &registration.directories);
    draft.push(Record::Broker(BrokerRecord {
        broker_id: id.0,
        broker_epoch,
        rack: registration.rack.clone(),
        endpoints: registration.endpoints.clone(),
        directories: registration.directories.clone(),
        incarnation: registration.incarnation,
        fenced: true,
        in_controlled_shutdown: false,
    }));
    draft.change_partitions(context, &|image, (topic, partition), rules| match partition.replicas == [id] {
        true => next_life(partition, registration.clean_shutdown),
        false => {
            let kept = kept(registration, replaced, (topic, partition.index));
            broker_returns(partition, id, kept, &|other| image.may_lead(other), rules)
        }
    });
    Ok(broker_epoch)
}

/// Whether a log dir that it had is not there any more, and another one is. One that has only failed keeps its logs.
fn replaced_a_dir(known: Option<&BrokerImage>, directories: &[Uuid]) -> bool {
    let known = known.map(|broker| broker.directories.as_slice()).unwrap_or_default();
    known.iter().any(|dir| !directories.contains(dir)) && directories.iter().any(|dir| !known.contains(dir))
}

fn kept(registration: &BrokerRegistration, replaced: bool, (topic, index): (&TopicImage, PartitionIndex)) -> Kept {
    let among = |logs: &Logs| logs.get(&*topic.name).is_some_and(|partitions| partitions.contains(&index));
    let lost_with_a_dir = replaced && !registration.logs.as_ref().is_some_and(among);
    match (lost_with_a_dir || among(&registration.vanished_logs), registration.clean_shutdown) {
        (true, _) => Kept::Nothing,
        (false, false) => Kept::AllButTheEnd,
        (false, true) => Kept::Whole,
    }
}

/// The broker will not come again. Its replicas stay assigned to it until somebody reassigns them.
pub(super) fn unregister(draft: &mut Draft, broker_id: BrokerId) -> Result<(), UnregisterError> {
    match draft.image.broker(broker_id) {
        None => Err(UnregisterError::NotRegistered { broker_id }),
        Some(broker) if !broker.fenced => Err(UnregisterError::AtWork { broker_id }),
        Some(_) => {
            draft.push(Record::BrokerRemoved { broker_id: broker_id.0 });
            Ok(())
        }
    }
}

pub(super) fn allocate_producer_ids(draft: &mut Draft) -> ProducerIdBlock {
    let first = draft.image.next_producer_id();
    draft.push(Record::ProducerIds { next_producer_id: first + PRODUCER_ID_BLOCK_SIZE });
    ProducerIdBlock { first, count: PRODUCER_ID_BLOCK_SIZE }
}
