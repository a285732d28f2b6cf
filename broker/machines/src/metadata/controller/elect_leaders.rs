//! Leaders are chosen when somebody asks: the preferred one, or one that is not in sync where nobody else is left.

use forebay_broker_wire::types::{BrokerId, PartitionIndex, Uuid};
use serde::{Deserialize, Serialize};

use super::leadership::{ElectionRules, changed, elect};
use super::{Context, Draft};
use crate::metadata::{PartitionImage, Record, TopicImage};

/// Who may be elected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ElectionKind {
    /// The first of the replicas, if it is in sync.
    Preferred,
    /// Any replica that is at work, where there is no leader. Records are lost.
    Unclean,
}

/// Why no leader was elected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ElectLeadersError {
    /// No such partition.
    #[error("partition {partition} of topic '{topic}' does not exist")]
    UnknownPartition {
        /// The topic.
        topic: String,
        /// The partition.
        partition: PartitionIndex,
    },
    /// It leads already, or somebody does.
    #[error("broker {leader} leads already")]
    NotNeeded {
        /// Who.
        leader: BrokerId,
    },
    /// The preferred one is not at work, or not in sync.
    #[error("broker {preferred}, the preferred leader, is not at work or not in sync")]
    PreferredNotAvailable {
        /// Who.
        preferred: BrokerId,
    },
    /// No replica is at work.
    #[error("no replica is at work: one of brokers {replicas:?} must come back")]
    NoneAvailable {
        /// All of them.
        replicas: Vec<BrokerId>,
    },
}

/// The outcome for one partition: its leader now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Election {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: PartitionIndex,
    /// The leader, newly elected.
    pub result: Result<BrokerId, ElectLeadersError>,
}

/// None stands for all partitions; then those that need no election are not in the answer.
pub(super) fn decide(
    draft: &mut Draft,
    kind: ElectionKind,
    partitions: Option<&[(String, PartitionIndex)]>,
    context: &Context<'_>,
) -> Vec<Election> {
    let Some(partitions) = partitions else {
        return everywhere(draft, kind, context);
    };
    let mut elections = Vec::with_capacity(partitions.len());
    for (name, index) in partitions {
        let rules = |topic: &TopicImage| (context.elections)(&draft.image, &topic.config);
        let found = draft.image.topic(name);
        let found = found.and_then(|topic| Some((topic.id, topic.partition(*index)?.clone(), rules(topic))));
        let result = match found {
            None => Err(ElectLeadersError::UnknownPartition { topic: name.clone(), partition: *index }),
            Some((topic_id, partition, rules)) => elect_one(draft, kind, topic_id, &partition, rules),
        };
        elections.push(Election { topic: name.clone(), partition: *index, result });
    }
    elections
}

fn everywhere(draft: &mut Draft, kind: ElectionKind, context: &Context<'_>) -> Vec<Election> {
    let image = draft.image.clone();
    let mut elections = Vec::new();
    for topic in image.topics() {
        let rules = (context.elections)(&image, &topic.config);
        for partition in &topic.partitions {
            let result = elect_one(draft, kind, topic.id, partition, rules);
            if !matches!(result, Err(ElectLeadersError::NotNeeded { .. })) {
                elections.push(Election { topic: topic.name.to_string(), partition: partition.index, result });
            }
        }
    }
    elections
}

fn elect_one(
    draft: &mut Draft,
    kind: ElectionKind,
    topic_id: Uuid,
    partition: &PartitionImage,
    rules: ElectionRules,
) -> Result<BrokerId, ElectLeadersError> {
    let may_lead = |id| draft.image.may_lead(id);
    let next = match kind {
        ElectionKind::Preferred => preferred(partition, &may_lead)?,
        ElectionKind::Unclean => unclean(partition, &may_lead, rules)?,
    };
    let leader = next.leader.unwrap_or(BrokerId(-1));
    draft.push(Record::Partition(next.to_record(topic_id)));
    Ok(leader)
}

fn preferred(partition: &PartitionImage, live: &dyn Fn(BrokerId) -> bool) -> Result<PartitionImage, ElectLeadersError> {
    let preferred = partition.replicas.first().copied().unwrap_or(BrokerId(-1));
    if partition.leader == Some(preferred) {
        return Err(ElectLeadersError::NotNeeded { leader: preferred });
    }
    if !partition.in_sync_replicas.contains(&preferred) || !live(preferred) {
        return Err(ElectLeadersError::PreferredNotAvailable { preferred });
    }
    let mut next = partition.clone();
    elect(&mut next, &|id| id == preferred, &ElectionRules::default());
    changed(partition, next).ok_or(ElectLeadersError::PreferredNotAvailable { preferred })
}

fn unclean(
    partition: &PartitionImage,
    live: &dyn Fn(BrokerId) -> bool,
    rules: ElectionRules,
) -> Result<PartitionImage, ElectLeadersError> {
    if let Some(leader) = partition.leader {
        return Err(ElectLeadersError::NotNeeded { leader });
    }
    let mut next = partition.clone();
    elect(&mut next, live, &ElectionRules { unclean: true, ..rules });
    let none_available = || ElectLeadersError::NoneAvailable { replicas: partition.replicas.clone() };
    next.leader.ok_or_else(none_available)?;
    changed(partition, next).ok_or_else(none_available)
}
