//! New topics: the name, the counts, the replicas somebody chose, the settings; then an id, and replicas where nobody chose.

use std::collections::BTreeMap;

use forebay_broker_wire::types::{BrokerId, Uuid};
use serde::{Deserialize, Serialize};

use super::{Context, Draft, PARTITIONS_PER_COMMAND_MAX, assignment_fault};
use crate::metadata::names::collide;
use crate::metadata::placement::place;
use crate::metadata::{ConfigRecord, ConfigResource, Record, Settings, TopicRecord, name_fault};

/// A topic to make; by default with the defaults for everything but the name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// None takes the default.
    pub partitions: Option<i32>,
    /// None takes the default.
    pub replication_factor: Option<i16>,
    /// Replicas by partition, instead of the two counts.
    pub assignment: Option<Vec<Vec<BrokerId>>>,
    /// Settings of its own.
    pub config: Settings,
}

/// A topic that was made, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedTopic {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// How many partitions.
    pub partitions: usize,
    /// How many replicas each.
    pub replication_factor: usize,
    /// Settings of its own.
    pub config: Settings,
}

/// Why a topic cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum CreateTopicError {
    /// The name cannot be.
    #[error("topic name '{name}' {fault}")]
    InvalidName {
        /// As given.
        name: String,
        /// What is wrong.
        fault: String,
    },
    /// The name is taken.
    #[error("topic '{name}' already exists")]
    AlreadyExists {
        /// As given.
        name: String,
    },
    /// Metrics could not tell the two apart.
    #[error(
        "topic '{name}' collides with existing topic '{other}': '.' and '_' must not be all that tells two names apart"
    )]
    Collides {
        /// As given.
        name: String,
        /// The one that is there.
        other: String,
    },
    /// The request names the topic more than once.
    #[error("topic '{name}' is in the request twice: must be there once")]
    Twice {
        /// As given.
        name: String,
    },
    /// Zero or less.
    #[error("partitions={given}: must be at least 1, or -1 for the default")]
    InvalidPartitions {
        /// As given.
        given: i32,
    },
    /// More than one command may make.
    #[error("partitions={given}: one request may create at most {PARTITIONS_PER_COMMAND_MAX} partitions")]
    TooManyPartitions {
        /// As given, with those of earlier topics.
        given: usize,
    },
    /// Zero, less, or more than there are brokers.
    #[error("replication factor {given}: must be from 1 to {brokers}, the number of brokers, or -1 for the default")]
    InvalidReplicationFactor {
        /// As given.
        given: i16,
        /// How many there are.
        brokers: usize,
    },
    /// Nobody could lead.
    #[error("no broker is at work yet: must wait until one is")]
    NoBroker,
    /// The counts and the chosen replicas exclude each other.
    #[error("partitions and replication factor must be -1 when replicas are assigned")]
    CountsAndAssignment,
    /// The chosen replicas cannot be.
    #[error("{fault}")]
    InvalidAssignment {
        /// In words.
        fault: String,
    },
    /// The settings cannot be.
    #[error("{fault}")]
    InvalidConfig {
        /// In words.
        fault: String,
    },
}

pub(super) fn decide(
    draft: &mut Draft,
    topics: &[NewTopic],
    context: &mut Context<'_>,
) -> Vec<Result<CreatedTopic, CreateTopicError>> {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for topic in topics {
        *times.entry(&topic.name).or_default() += 1;
    }
    let mut room = PARTITIONS_PER_COMMAND_MAX;
    let mut results = Vec::with_capacity(topics.len());
    for topic in topics {
        let result = match times.get(topic.name.as_str()) {
            Some(1) => create(draft, topic, &mut room, context),
            _ => Err(CreateTopicError::Twice { name: topic.name.clone() }),
        };
        results.push(result);
    }
    results
}

fn create(
    draft: &mut Draft,
    topic: &NewTopic,
    room: &mut usize,
    context: &mut Context<'_>,
) -> Result<CreatedTopic, CreateTopicError> {
    check_name(draft, &topic.name)?;
    let resource = ConfigResource::Topic(topic.name.clone());
    (context.rules.check)(&resource, &topic.config).map_err(|fault| CreateTopicError::InvalidConfig { fault })?;
    let replicas = replicas(draft, topic, *room, context)?;
    *room -= replicas.len();
    let id = (context.new_id)();
    draft.push(Record::Topic(TopicRecord { topic_id: id, name: topic.name.clone() }));
    for (index, replicas) in replicas.iter().enumerate() {
        draft.push_new_partition(id, index, replicas);
    }
    for (name, value) in &topic.config {
        draft.push(Record::Config(ConfigRecord {
            resource: resource.clone(),
            name: name.clone(),
            value: Some(value.clone()),
        }));
    }
    Ok(CreatedTopic {
        id,
        name: topic.name.clone(),
        partitions: replicas.len(),
        replication_factor: replicas.first().map_or(0, Vec::len),
        config: topic.config.clone(),
    })
}

fn check_name(draft: &Draft, name: &str) -> Result<(), CreateTopicError> {
    if let Some(fault) = name_fault(name) {
        return Err(CreateTopicError::InvalidName { name: name.to_owned(), fault: fault.to_owned() });
    }
    if draft.image.topic(name).is_some() {
        return Err(CreateTopicError::AlreadyExists { name: name.to_owned() });
    }
    let other = draft.image.topics().find(|other| collide(name, &other.name));
    match other {
        Some(other) => Err(CreateTopicError::Collides { name: name.to_owned(), other: other.name.to_string() }),
        None => Ok(()),
    }
}

fn replicas(
    draft: &Draft,
    topic: &NewTopic,
    room: usize,
    context: &Context<'_>,
) -> Result<Vec<Vec<BrokerId>>, CreateTopicError> {
    if let Some(assignment) = &topic.assignment {
        return assigned(draft, topic, assignment, room);
    }
    let given = topic.partitions.unwrap_or(context.default_partitions);
    let count =
        usize::try_from(given).ok().filter(|count| *count > 0).ok_or(CreateTopicError::InvalidPartitions { given })?;
    if count > room {
        return Err(CreateTopicError::TooManyPartitions { given: PARTITIONS_PER_COMMAND_MAX - room + count });
    }
    let candidates = draft.candidates();
    if candidates.live.is_empty() {
        return Err(CreateTopicError::NoBroker);
    }
    let brokers = candidates.count();
    let given = topic.replication_factor.unwrap_or(context.default_replication_factor);
    let factor = usize::try_from(given)
        .ok()
        .filter(|factor| (1..=brokers).contains(factor))
        .ok_or(CreateTopicError::InvalidReplicationFactor { given, brokers })?;
    // The version differs from topic to topic, and so does the broker where the turn begins.
    let start = usize::try_from(draft.image.version()).unwrap_or_default();
    Ok(place(&candidates, count, factor, start))
}

fn assigned(
    draft: &Draft,
    topic: &NewTopic,
    assignment: &[Vec<BrokerId>],
    room: usize,
) -> Result<Vec<Vec<BrokerId>>, CreateTopicError> {
    if topic.partitions.is_some() || topic.replication_factor.is_some() {
        return Err(CreateTopicError::CountsAndAssignment);
    }
    if assignment.len() > room {
        return Err(CreateTopicError::TooManyPartitions {
            given: PARTITIONS_PER_COMMAND_MAX - room + assignment.len(),
        });
    }
    match assignment_fault(&draft.image, assignment, None) {
        Some(fault) => Err(CreateTopicError::InvalidAssignment { fault }),
        None => Ok(assignment.to_vec()),
    }
}
