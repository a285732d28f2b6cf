//! Topics go, by name or by id; their settings and partitions go with them.

use forebay_broker_wire::types::Uuid;
use serde::{Deserialize, Serialize};

use super::Draft;
use crate::metadata::Record;

/// A topic, by one of its two names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TopicReference {
    /// By name.
    Name(String),
    /// By id.
    Id(Uuid),
}

/// A topic that is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletedTopic {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
}

/// Why a topic cannot go.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum DeleteTopicError {
    /// No topic of this name.
    #[error("topic '{name}' does not exist")]
    UnknownName {
        /// As given.
        name: String,
    },
    /// No topic of this id.
    #[error("topic id {id} does not exist")]
    UnknownId {
        /// As given.
        id: Uuid,
    },
    /// The request names the topic more than once.
    #[error("topic '{name}' is in the request twice: must be there once")]
    Twice {
        /// The topic.
        name: String,
    },
}

pub(super) fn decide(draft: &mut Draft, topics: &[TopicReference]) -> Vec<Result<DeletedTopic, DeleteTopicError>> {
    let mut deleted: Vec<DeletedTopic> = Vec::new();
    let mut results = Vec::with_capacity(topics.len());
    for reference in topics {
        let result = delete(draft, reference, &deleted);
        deleted.extend(result.as_ref().ok().cloned());
        results.push(result);
    }
    results
}

fn delete(
    draft: &mut Draft,
    reference: &TopicReference,
    deleted: &[DeletedTopic],
) -> Result<DeletedTopic, DeleteTopicError> {
    let found = match reference {
        TopicReference::Name(name) => draft.image.topic(name),
        TopicReference::Id(id) => draft.image.topic_by_id(*id),
    };
    if let Some(topic) = found {
        let gone = DeletedTopic { id: topic.id, name: topic.name.to_string() };
        draft.push(Record::TopicRemoved { topic_id: gone.id });
        return Ok(gone);
    }
    let before = deleted.iter().find(|gone| match reference {
        TopicReference::Name(name) => gone.name == *name,
        TopicReference::Id(id) => gone.id == *id,
    });
    Err(match (before, reference) {
        (Some(gone), _) => DeleteTopicError::Twice { name: gone.name.clone() },
        (None, TopicReference::Name(name)) => DeleteTopicError::UnknownName { name: name.clone() },
        (None, TopicReference::Id(id)) => DeleteTopicError::UnknownId { id: *id },
    })
}
