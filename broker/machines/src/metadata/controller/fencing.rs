//! Whether a broker can be relied on: it is fenced and unfenced, and says that it is about to stop.
//!
//! What must hold: only the present life of a broker is meant. Whoever names an earlier epoch changes nothing, so that a word that comes
//! late can't undo what a later registration has made.

use forebay_broker_wire::types::BrokerId;
use serde::{Deserialize, Serialize};

use super::leadership::{broker_back, broker_gone, broker_leaving};
use super::{Context, Draft};
use crate::metadata::{BrokerImage, MetadataImage, Record};

/// One life of a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerLife {
    /// `node.id`.
    pub broker_id: BrokerId,
    /// What its registration was answered with.
    pub broker_epoch: i64,
}

/// Why nothing is said about a broker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum BrokerLifeError {
    /// It is not registered.
    #[error("broker {broker_id} is not registered")]
    NotRegistered {
        /// The broker.
        broker_id: BrokerId,
    },
    /// It has registered again since.
    #[error("broker {broker_id} is meant in epoch {given}: it is registered in epoch {current}")]
    StaleEpoch {
        /// The broker.
        broker_id: BrokerId,
        /// The epoch that was meant.
        given: i64,
        /// Its present one.
        current: i64,
    },
}

/// The broker, if that life of it is the present one.
fn present(image: &MetadataImage, life: BrokerLife) -> Result<&BrokerImage, BrokerLifeError> {
    let BrokerLife { broker_id, broker_epoch: given } = life;
    match image.broker(broker_id) {
        None => Err(BrokerLifeError::NotRegistered { broker_id }),
        Some(broker) if broker.epoch != given => {
            Err(BrokerLifeError::StaleEpoch { broker_id, given, current: broker.epoch })
        }
        Some(broker) => Ok(broker),
    }
}

/// It can be relied on: it leads what waits for it.
pub(super) fn unfence(draft: &mut Draft, life: BrokerLife, context: &Context<'_>) -> Result<(), BrokerLifeError> {
    let mut broker = present(&draft.image, life)?.clone();
    if broker.fenced {
        broker.fenced = false;
        draft.push(Record::Broker(broker.to_record()));
        draft.change_partitions(context, &|image, (_, partition), rules| {
            let waits_for_it = partition.leader.is_none() && partition.replicas.contains(&life.broker_id);
            waits_for_it.then(|| broker_back(partition, &|id| image.may_lead(id), rules)).flatten()
        });
    }
    Ok(())
}

/// It can't be relied on: it leads nothing, and leaves the ISRs that somebody else keeps.
pub(super) fn fence(draft: &mut Draft, life: BrokerLife, context: &Context<'_>) -> Result<(), BrokerLifeError> {
    let mut broker = present(&draft.image, life)?.clone();
    if !broker.fenced {
        broker.fenced = true;
        draft.push(Record::Broker(broker.to_record()));
        draft.change_partitions(context, &|image, (_, partition), rules| {
            broker_gone(partition, life.broker_id, &|id| image.may_lead(id), rules)
        });
    }
    Ok(())
}

/// It is about to stop: leaders move away. Gives how many it leads still, since nobody else could.
pub(super) fn controlled_shutdown(
    draft: &mut Draft,
    life: BrokerLife,
    context: &Context<'_>,
) -> Result<usize, BrokerLifeError> {
    let mut broker = present(&draft.image, life)?.clone();
    if !broker.in_controlled_shutdown {
        broker.in_controlled_shutdown = true;
        draft.push(Record::Broker(broker.to_record()));
    }
    // Again each time: somebody may have come into an ISR since.
    draft.change_partitions(context, &|image, (_, partition), rules| {
        broker_leaving(partition, life.broker_id, &|id| image.may_lead(id), rules)
    });
    let partitions = draft.image.topics().flat_map(|topic| &topic.partitions);
    Ok(partitions.filter(|partition| partition.leader == Some(life.broker_id)).count())
}
