//! Settings change: set, delete, append to and subtract from lists. A resource's changes happen together or not at all, and what
//! they come to is judged as a whole.

use forebay_broker_wire::types::BrokerId;
use serde::{Deserialize, Serialize};

use super::leadership::{broker_back, changed, remember_eligible};
use super::{ConfigRules, Context, Draft};
use crate::metadata::{ConfigRecord, ConfigResource, MetadataImage, Record, Settings};

/// Changes to one resource's settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigChange {
    /// Whose.
    pub resource: ConfigResource,
    /// By setting name.
    pub operations: Vec<(String, ConfigOperation)>,
    /// Settings that no operation names are deleted.
    pub replace_all: bool,
}

/// What happens to one setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConfigOperation {
    /// It gets this value.
    Set(String),
    /// It has no value of its own any more.
    Delete,
    /// A list gets these items, if it has not got them.
    Append(String),
    /// A list loses these items.
    Subtract(String),
}

/// Why settings cannot change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum AlterConfigsError {
    /// No such topic.
    #[error("topic '{topic}' does not exist")]
    UnknownTopic {
        /// As given.
        topic: String,
    },
    /// No such broker.
    #[error("broker {broker_id} is not registered")]
    UnknownBroker {
        /// As given.
        broker_id: i32,
    },
    /// A setting or a resource is named more than once.
    #[error("{what} is in the request twice: must be there once")]
    Twice {
        /// Which.
        what: String,
    },
    /// The result cannot be.
    #[error("{fault}")]
    InvalidConfig {
        /// In words.
        fault: String,
    },
}

pub(super) fn decide(
    draft: &mut Draft,
    changes: &[ConfigChange],
    context: &Context<'_>,
) -> Vec<Result<(), AlterConfigsError>> {
    let mut results = Vec::with_capacity(changes.len());
    for change in changes {
        let twice = changes.iter().filter(|other| other.resource == change.resource).count() > 1;
        results.push(match twice {
            true => Err(AlterConfigsError::Twice { what: format!("{:?}", change.resource) }),
            false => alter(draft, change, context),
        });
    }
    results
}

fn alter(draft: &mut Draft, change: &ConfigChange, context: &Context<'_>) -> Result<(), AlterConfigsError> {
    let rules = &context.rules;
    let before = own_settings(&draft.image, &change.resource)?;
    let mut after = if change.replace_all { Settings::new() } else { before.clone() };
    for (index, (name, operation)) in change.operations.iter().enumerate() {
        if change.operations[..index].iter().any(|(other, _)| other == name) {
            return Err(AlterConfigsError::Twice { what: name.clone() });
        }
        apply(&mut after, &change.resource, name, operation, rules)?;
    }
    (rules.check)(&change.resource, &after).map_err(|fault| AlterConfigsError::InvalidConfig { fault })?;
    let record = |name: &str, value: Option<&String>| {
        Record::Config(ConfigRecord { resource: change.resource.clone(), name: name.to_owned(), value: value.cloned() })
    };
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        draft.push(record(name, None));
    }
    for (name, value) in after.iter().filter(|(name, value)| before.get(*name) != Some(value)) {
        draft.push(record(name, Some(value)));
    }
    if let ConfigResource::Topic(name) = &change.resource {
        elect_where_allowed(draft, name, context);
    }
    // Where fewer than before are asked for, there may be enough now; the high watermark moves again.
    draft.change_partitions(context, &|_, (_, partition), rules| {
        let waits = !partition.may_lead_out_of_sync().is_empty();
        let mut next = waits.then(|| partition.clone())?;
        remember_eligible(partition, &mut next, rules);
        changed(partition, next)
    });
    Ok(())
}

/// A topic that may be led by replicas that are not in sync need not wait for the next failure.
fn elect_where_allowed(draft: &mut Draft, topic: &str, context: &Context<'_>) {
    let Some(topic) = draft.image.topic(topic).cloned() else { return };
    let rules = (context.elections)(&draft.image, &topic.config);
    for partition in topic.partitions.iter().filter(|partition| rules.unclean && partition.leader.is_none()) {
        let next = broker_back(partition, &|id| draft.image.may_lead(id), &rules);
        next.into_iter().for_each(|next| draft.push(Record::Partition(next.to_record(topic.id))));
    }
}

fn own_settings(image: &MetadataImage, resource: &ConfigResource) -> Result<Settings, AlterConfigsError> {
    match resource {
        ConfigResource::Topic(name) => match image.topic(name) {
            Some(topic) => Ok(Settings::clone(&topic.config)),
            None => Err(AlterConfigsError::UnknownTopic { topic: name.clone() }),
        },
        ConfigResource::Broker(id) => match image.broker(BrokerId(*id)) {
            Some(broker) => Ok(Settings::clone(&image.broker_config(broker.id))),
            None => Err(AlterConfigsError::UnknownBroker { broker_id: *id }),
        },
        ConfigResource::Cluster => Ok(Settings::clone(image.cluster_config())),
    }
}

fn apply(
    settings: &mut Settings,
    resource: &ConfigResource,
    name: &str,
    operation: &ConfigOperation,
    rules: &ConfigRules<'_>,
) -> Result<(), AlterConfigsError> {
    let (items, append) = match operation {
        ConfigOperation::Set(value) => {
            settings.insert(name.to_owned(), value.clone());
            return Ok(());
        }
        ConfigOperation::Delete => {
            settings.remove(name);
            return Ok(());
        }
        ConfigOperation::Append(items) => (items, true),
        ConfigOperation::Subtract(items) => (items, false),
    };
    let in_force = (rules.list)(resource, name).ok_or_else(|| AlterConfigsError::InvalidConfig {
        fault: format!("{name}: only a list can be appended to or subtracted from"),
    })?;
    let present = settings.get(name).cloned().unwrap_or(in_force);
    let mut list: Vec<&str> = split(&present).collect();
    if append {
        for item in split(items) {
            if !list.contains(&item) {
                list.push(item);
            }
        }
    } else {
        list.retain(|item| !split(items).any(|other| other == *item));
    }
    settings.insert(name.to_owned(), list.join(","));
    Ok(())
}

fn split(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty())
}
