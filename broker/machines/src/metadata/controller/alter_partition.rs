//! Leaders propose ISRs, many at once; each proposal is decided on its own. An ISR that ends a reassignment ends it in the same record.

use forebay_broker_wire::types::{BrokerId, LeaderEpoch, PartitionIndex, Uuid};
use serde::{Deserialize, Serialize};

use super::fencing::BrokerLife;
use super::leadership::{self, AlterPartitionError};
use super::{Context, Draft, reassignment};
use crate::metadata::Record;
use crate::replication::IsrProposal;

/// What a leader wants the ISR of a partition to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionProposal {
    /// The topic.
    pub topic_id: Uuid,
    /// The partition.
    pub partition: PartitionIndex,
    /// The wanted ISR.
    pub proposal: IsrProposal,
}

/// The partition after a proposal was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlteredPartition {
    /// As before.
    pub leader_epoch: LeaderEpoch,
    /// One more than the proposal's.
    pub partition_epoch: i32,
    /// The ISR now.
    pub in_sync_replicas: Vec<BrokerId>,
    /// Who else may be elected, with nothing lost that was acknowledged.
    #[serde(rename = "eligible_leader_replicas")]
    pub may_lead_out_of_sync: Vec<BrokerId>,
}

pub(super) fn decide(
    draft: &mut Draft,
    proposer: BrokerLife,
    partitions: &[PartitionProposal],
    context: &Context<'_>,
) -> Vec<Result<AlteredPartition, AlterPartitionError>> {
    let BrokerLife { broker_id, broker_epoch } = proposer;
    let present = draft.image.broker(broker_id).is_some_and(|broker| broker.epoch == broker_epoch);
    let mut results = Vec::with_capacity(partitions.len());
    for one in partitions {
        results.push(match present && one.proposal.leader == broker_id {
            true => alter(draft, one, context),
            false => Err(AlterPartitionError::StaleBroker { broker: broker_id, given: broker_epoch }),
        });
    }
    results
}

fn alter(
    draft: &mut Draft,
    wanted: &PartitionProposal,
    context: &Context<'_>,
) -> Result<AlteredPartition, AlterPartitionError> {
    let PartitionProposal { topic_id, partition, proposal } = wanted;
    let unknown = || AlterPartitionError::UnknownPartition { topic_id: *topic_id, partition: *partition };
    let topic = draft.image.topic_by_id(*topic_id).ok_or_else(unknown)?;
    let current = topic.partition(*partition).ok_or_else(unknown)?;
    let rules = (context.elections)(&draft.image, &topic.config);
    let image = &draft.image;
    let live_epoch = |id| image.broker(id).filter(|broker| broker.may_lead()).map(|broker| broker.epoch);
    let next = leadership::alter_partition(current, proposal, &live_epoch, &rules)?;
    let next = reassignment::complete(&next, &|id| image.may_lead(id), &rules).unwrap_or(next);
    draft.push(Record::Partition(next.to_record(*topic_id)));
    if next.leader != Some(proposal.leader) {
        // It was the leader only until the reassignment was complete.
        return Err(AlterPartitionError::NotLeader {
            leader: proposal.leader,
            given: proposal.leader_epoch,
            current_leader: next.leader.unwrap_or(BrokerId(-1)),
            current: next.leader_epoch,
        });
    }
    Ok(AlteredPartition {
        leader_epoch: next.leader_epoch,
        partition_epoch: next.partition_epoch,
        may_lead_out_of_sync: next.may_lead_out_of_sync(),
        in_sync_replicas: next.in_sync_replicas,
    })
}
