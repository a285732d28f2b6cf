//! More partitions for topics that exist; never fewer, since records would be lost.

use forebay_broker_wire::types::BrokerId;
use serde::{Deserialize, Serialize};

use super::{Draft, PARTITIONS_PER_COMMAND_MAX, assignment_fault};
use crate::metadata::placement::place;

/// A topic to give more partitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewPartitions {
    /// The topic.
    pub topic: String,
    /// Partitions it shall have in all.
    pub count: i32,
    /// Replicas of the new ones, if chosen.
    pub assignment: Option<Vec<Vec<BrokerId>>>,
}

/// Why a topic cannot have more partitions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum CreatePartitionsError {
    /// No such topic.
    #[error("topic '{topic}' does not exist")]
    UnknownTopic {
        /// As given.
        topic: String,
    },
    /// Not more than it has.
    #[error("topic '{topic}' has {has} partitions: must ask for more than that, not {given}")]
    NotMore {
        /// The topic.
        topic: String,
        /// Partitions it has.
        has: usize,
        /// As given.
        given: i32,
    },
    /// More than one command may make.
    #[error(
        "topic '{topic}' would get {given} partitions: one request may create at most {PARTITIONS_PER_COMMAND_MAX}"
    )]
    TooMany {
        /// The topic.
        topic: String,
        /// New ones asked for.
        given: usize,
    },
    /// The chosen replicas cannot be.
    #[error("{fault}")]
    InvalidAssignment {
        /// In words.
        fault: String,
    },
    /// Fewer brokers than the topic has replicas.
    #[error("topic '{topic}' has {wanted} replicas of each partition: there are {brokers} brokers")]
    TooFewBrokers {
        /// The topic.
        topic: String,
        /// Its replication factor.
        wanted: usize,
        /// How many there are.
        brokers: usize,
    },
    /// The request names the topic more than once.
    #[error("topic '{topic}' is in the request twice: must be there once")]
    Twice {
        /// The topic.
        topic: String,
    },
}

pub(super) fn decide(draft: &mut Draft, topics: &[NewPartitions]) -> Vec<Result<(), CreatePartitionsError>> {
    let mut room = PARTITIONS_PER_COMMAND_MAX;
    let mut results = Vec::with_capacity(topics.len());
    for wanted in topics {
        let twice = topics.iter().filter(|other| other.topic == wanted.topic).count() > 1;
        results.push(match twice {
            true => Err(CreatePartitionsError::Twice { topic: wanted.topic.clone() }),
            false => create(draft, wanted, &mut room),
        });
    }
    results
}

fn create(draft: &mut Draft, wanted: &NewPartitions, room: &mut usize) -> Result<(), CreatePartitionsError> {
    let topic_name = || wanted.topic.clone();
    let Some(topic) = draft.image.topic(&wanted.topic).cloned() else {
        return Err(CreatePartitionsError::UnknownTopic { topic: topic_name() });
    };
    let has = topic.partitions.len();
    let more = usize::try_from(wanted.count)
        .ok()
        .and_then(|count| count.checked_sub(has))
        .filter(|more| *more > 0)
        .ok_or_else(|| CreatePartitionsError::NotMore { topic: topic_name(), has, given: wanted.count })?;
    if more > *room {
        return Err(CreatePartitionsError::TooMany { topic: topic_name(), given: more });
    }
    let factor = topic.partitions.first().map_or(1, |partition| partition.replicas.len());
    let replicas = match &wanted.assignment {
        Some(assignment) => assigned(draft, assignment, more, factor)?,
        None => {
            let candidates = draft.candidates();
            let brokers = if candidates.live.is_empty() { 0 } else { candidates.count() };
            if factor > brokers {
                return Err(CreatePartitionsError::TooFewBrokers { topic: topic_name(), wanted: factor, brokers });
            }
            place(&candidates, more, factor, has)
        }
    };
    *room -= more;
    for (index, replicas) in replicas.iter().enumerate() {
        draft.push_new_partition(topic.id, has + index, replicas);
    }
    Ok(())
}

fn assigned(
    draft: &Draft,
    assignment: &[Vec<BrokerId>],
    more: usize,
    factor: usize,
) -> Result<Vec<Vec<BrokerId>>, CreatePartitionsError> {
    if assignment.len() != more {
        let fault = format!("{} assignments for {more} new partitions: must be one for each", assignment.len());
        return Err(CreatePartitionsError::InvalidAssignment { fault });
    }
    match assignment_fault(&draft.image, assignment, Some(factor)) {
        Some(fault) => Err(CreatePartitionsError::InvalidAssignment { fault }),
        None => Ok(assignment.to_vec()),
    }
}
