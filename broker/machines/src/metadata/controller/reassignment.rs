//! Replicas move to other brokers, and partitions get more or fewer of them: new replicas are added, copy what there is, and when all of
//! them are in sync those that are not wanted go.
//!
//! What must hold: until then nothing that is in sync is taken away, so that a reassignment costs no copy of what was acknowledged; and the
//! leader stays as long as it is wanted.

use forebay_broker_wire::types::{BrokerId, PartitionIndex};
use serde::{Deserialize, Serialize};

use super::leadership::{ElectionRules, changed, elect, remember_eligible};
use super::{Context, Draft, replicas_fault};
use crate::metadata::{MetadataImage, PartitionImage, Record};

/// What is wanted for one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reassignment {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: PartitionIndex,
    /// The replicas it shall have, the preferred leader first; none calls off the reassignment under way.
    pub replicas: Option<Vec<BrokerId>>,
}

/// Why replicas cannot be reassigned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ReassignError {
    /// No such partition.
    #[error("partition {partition} of topic '{topic}' does not exist")]
    UnknownPartition {
        /// The topic.
        topic: String,
        /// The partition.
        partition: PartitionIndex,
    },
    /// There is none to call off.
    #[error("partition {partition} of topic '{topic}' is not being reassigned")]
    NoReassignment {
        /// The topic.
        topic: String,
        /// The partition.
        partition: PartitionIndex,
    },
    /// The replicas cannot be.
    #[error("{fault}")]
    InvalidAssignment {
        /// In words.
        fault: String,
    },
    /// Another number of replicas, which was not allowed.
    #[error("the partition has {has} replicas: must keep that number, not {given}, unless the request allows another")]
    ReplicationFactor {
        /// As it is.
        has: usize,
        /// As given.
        given: usize,
    },
    /// Calling off would leave no copy of what was acknowledged, or nobody to lead.
    #[error(
        "only new replicas are in sync and at work: must wait until an earlier one is in sync, or let the reassignment end"
    )]
    OnlyNewInSync,
}

pub(super) fn decide(
    draft: &mut Draft,
    wanted: &[Reassignment],
    allow_replication_factor_change: bool,
    context: &Context<'_>,
) -> Vec<Result<(), ReassignError>> {
    let mut results = Vec::with_capacity(wanted.len());
    for one in wanted {
        results.push(reassign(draft, one, allow_replication_factor_change, context));
    }
    results
}

fn reassign(
    draft: &mut Draft,
    wanted: &Reassignment,
    allow_replication_factor_change: bool,
    context: &Context<'_>,
) -> Result<(), ReassignError> {
    let (name, index) = (|| wanted.topic.clone(), wanted.partition);
    let found = draft.image.topic(&wanted.topic).and_then(|topic| Some((topic, topic.partition(index)?)));
    let Some((topic, partition)) = found else {
        return Err(ReassignError::UnknownPartition { topic: name(), partition: index });
    };
    let rules = (context.elections)(&draft.image, &topic.config);
    let may_lead = |id| draft.image.may_lead(id);
    let next = match &wanted.replicas {
        Some(target) => {
            check(&draft.image, partition, target, allow_replication_factor_change)?;
            begin(partition, target, &may_lead, &rules)
        }
        None if partition.adding_replicas.is_empty() && partition.removing_replicas.is_empty() => {
            return Err(ReassignError::NoReassignment { topic: name(), partition: index });
        }
        None => Some(call_off(partition, &may_lead, &rules)?),
    };
    let topic_id = topic.id;
    if let Some(next) = next {
        draft.push(Record::Partition(next.to_record(topic_id)));
    }
    Ok(())
}

fn check(
    image: &MetadataImage,
    partition: &PartitionImage,
    target: &[BrokerId],
    allow_replication_factor_change: bool,
) -> Result<(), ReassignError> {
    if let Some(fault) = replicas_fault(image, target) {
        return Err(ReassignError::InvalidAssignment { fault: format!("the assignment {fault}") });
    }
    let has = partition.replicas.len() - partition.adding_replicas.len();
    if !allow_replication_factor_change && has != target.len() {
        return Err(ReassignError::ReplicationFactor { has, given: target.len() });
    }
    Ok(())
}

/// The partition once its replicas are to be `target`; done at once if nothing has to be copied. None if nothing changes.
pub(super) fn begin(
    partition: &PartitionImage,
    target: &[BrokerId],
    live: &dyn Fn(BrokerId) -> bool,
    rules: &ElectionRules,
) -> Option<PartitionImage> {
    let is_original = |id: &BrokerId| partition.replicas.contains(id) && !partition.adding_replicas.contains(id);
    let removing: Vec<_> = partition.replicas.iter().copied().filter(|id| !target.contains(id)).collect();
    let mut next = partition.clone();
    next.replicas = target.iter().chain(&removing).copied().collect();
    next.adding_replicas = target.iter().copied().filter(|id| !is_original(id)).collect();
    next.removing_replicas = removing;
    remember_eligible(partition, &mut next, rules);
    let next = complete(&next, live, rules).unwrap_or(next);
    changed(partition, next)
}

/// The partition once its reassignment is over; none if there is none, or it isn't over yet. The partition epoch is left to the caller.
pub(super) fn complete(
    partition: &PartitionImage,
    live: &dyn Fn(BrokerId) -> bool,
    rules: &ElectionRules,
) -> Option<PartitionImage> {
    if partition.adding_replicas.is_empty() && partition.removing_replicas.is_empty() {
        return None;
    }
    let in_sync = &partition.in_sync_replicas;
    let added = partition.adding_replicas.iter().all(|id| in_sync.contains(id));
    let goes = |id: &BrokerId| partition.removing_replicas.contains(id);
    if !added || in_sync.iter().all(goes) {
        return None;
    }
    let mut next = partition.clone();
    next.replicas.retain(|id| !goes(id));
    next.in_sync_replicas.retain(|id| !goes(id));
    next.adding_replicas.clear();
    next.removing_replicas.clear();
    remember_eligible(partition, &mut next, rules);
    if next.leader.as_ref().is_some_and(goes) {
        elect(&mut next, live, rules);
        next.leader?; // the leader stays until another one is there
    }
    Some(next)
}

fn call_off(
    partition: &PartitionImage,
    live: &dyn Fn(BrokerId) -> bool,
    rules: &ElectionRules,
) -> Result<PartitionImage, ReassignError> {
    let is_new = |id: &BrokerId| partition.adding_replicas.contains(id);
    let mut next = partition.clone();
    next.replicas.retain(|id| !is_new(id));
    next.in_sync_replicas.retain(|id| !is_new(id));
    next.adding_replicas.clear();
    next.removing_replicas.clear();
    if next.in_sync_replicas.is_empty() {
        return Err(ReassignError::OnlyNewInSync);
    }
    remember_eligible(partition, &mut next, rules);
    if next.leader.as_ref().is_some_and(is_new) {
        elect(&mut next, live, rules);
        next.leader.ok_or(ReassignError::OnlyNewInSync)?;
    }
    next.partition_epoch += 1;
    Ok(next)
}

#[cfg(test)]
mod tests {
    use forebay_broker_wire::types::LeaderEpoch;

    use super::*;

    const RULES: ElectionRules = ElectionRules { unclean: false, min_insync_replicas: 1, mutation: None };

    fn ids(ids: &[i32]) -> Vec<BrokerId> {
        ids.iter().copied().map(BrokerId).collect()
    }

    fn partition(replicas: &[i32], in_sync: &[i32]) -> PartitionImage {
        PartitionImage {
            replicas: ids(replicas),
            in_sync_replicas: ids(in_sync),
            leader: Some(BrokerId(in_sync[0])),
            leader_epoch: LeaderEpoch(7),
            partition_epoch: 20,
            ..PartitionImage::default()
        }
    }

    fn begun(from: &PartitionImage, target: &[i32]) -> PartitionImage {
        begin(from, &ids(target), &|_| true, &RULES).unwrap()
    }

    fn in_sync(mut partition: PartitionImage, members: &[i32]) -> PartitionImage {
        partition.in_sync_replicas = ids(members);
        partition
    }

    #[test]
    fn replicas_go_only_when_all_new_ones_are_in_sync() {
        let moving = begun(&partition(&[1, 2, 3], &[1, 2, 3]), &[4, 5, 1]);
        assert_eq!((&moving.replicas, &moving.adding_replicas), (&ids(&[4, 5, 1, 2, 3]), &ids(&[4, 5])));
        assert_eq!((&moving.removing_replicas, moving.leader), (&ids(&[2, 3]), Some(BrokerId(1))));
        let half = in_sync(moving.clone(), &[1, 2, 3, 4]);
        assert_eq!(complete(&half, &|_| true, &RULES), None);
        let done = complete(&in_sync(moving, &[1, 2, 3, 4, 5]), &|_| true, &RULES).unwrap();
        assert_eq!((done.replicas, done.in_sync_replicas), (ids(&[4, 5, 1]), ids(&[1, 4, 5])));
        assert_eq!((done.leader, done.leader_epoch.0), (Some(BrokerId(1)), 7), "the leader stays");
        assert!(done.adding_replicas.is_empty() && done.removing_replicas.is_empty());
    }

    #[test]
    fn a_leader_that_goes_leaves_to_a_live_new_one_in_a_new_epoch() {
        let moving = in_sync(begun(&partition(&[1], &[1]), &[2, 3]), &[1, 2, 3]);
        let done = complete(&moving, &|id| id != BrokerId(2), &RULES).unwrap();
        assert_eq!((done.leader, done.leader_epoch.0), (Some(BrokerId(3)), 8));
        assert_eq!(complete(&moving, &|id| id == BrokerId(1), &RULES), None, "nobody could lead");
    }

    #[test]
    fn fewer_replicas_or_another_order_is_done_at_once() {
        let fewer = begun(&partition(&[1, 2, 3], &[1, 2, 3]), &[2, 1]);
        assert_eq!((fewer.replicas, fewer.in_sync_replicas), (ids(&[2, 1]), ids(&[1, 2])));
        assert_eq!((fewer.leader, fewer.partition_epoch), (Some(BrokerId(1)), 21));
        assert_eq!(begin(&partition(&[1, 2], &[1, 2]), &ids(&[1, 2]), &|_| true, &RULES), None);
        let waits = begun(&partition(&[1, 2, 3], &[3]), &[1, 2]);
        assert_eq!(waits.removing_replicas, ids(&[3]), "the only copy of what was acknowledged");
    }

    #[test]
    fn calling_off_gives_back_what_was_before() {
        let before = partition(&[1, 2, 3], &[1, 2, 3]);
        let moving = in_sync(begun(&before, &[4, 5, 1]), &[1, 2, 3, 4]);
        let back = call_off(&moving, &|_| true, &RULES).unwrap();
        assert_eq!((back.replicas, back.in_sync_replicas), (before.replicas, before.in_sync_replicas));
        assert_eq!(back.partition_epoch, 22);
        let moving = in_sync(begun(&partition(&[1], &[1]), &[2, 3]), &[2]);
        assert_eq!(call_off(&moving, &|_| true, &RULES), Err(ReassignError::OnlyNewInSync));
    }

    #[test]
    fn a_changed_mind_still_waits_for_what_is_not_yet_in_sync() {
        let moving = begun(&partition(&[1, 2], &[1, 2]), &[1, 3]);
        let other = begun(&moving, &[3, 4]);
        assert_eq!(other.adding_replicas, ids(&[3, 4]));
        assert_eq!(other.removing_replicas, ids(&[1, 2]));
    }
}
