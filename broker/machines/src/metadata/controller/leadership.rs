//! Who leads a partition and who is in its ISR, when brokers come and go and leaders propose changes. Pure: a partition as it is and what
//! happened give the partition as it will be, or nothing.
//!
//! What must hold: a leader epoch has one leader, and one life of it: a broker that registers again leads in a new epoch, since its log may
//! have lost its end. The ISR keeps its last member, since only members have all that was acknowledged; what leaves it below
//! `min.insync.replicas` stays eligible, since nothing more is acknowledged meanwhile (KIP-966); after a crash it is so when nobody else is
//! left. A replica whose log was lost with its disk is neither, even if it was the last. Each change has its partition epoch, and a proposal
//! counts only on the state it was decided on.

use forebay_broker_wire::types::{BrokerId, LeaderEpoch, PartitionIndex, Uuid};
use serde::{Deserialize, Serialize};

use crate::metadata::PartitionImage;
use crate::replication::{IsrProposal, Mutation};

/// What counts when a leader is elected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ElectionRules {
    /// `unclean.leader.election.enable`: a replica that is not in sync may lead when nobody else can. Records are lost.
    pub unclean: bool,
    /// `min.insync.replicas`: below it nothing is acknowledged that only fewer have.
    pub min_insync_replicas: usize,
    /// Only the simulation sets it.
    pub mutation: Option<Mutation>,
}

/// Why a proposed ISR is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum AlterPartitionError {
    /// Decided on another state of the partition.
    #[error("partition epoch {given} is stale: the partition is at {current}")]
    StalePartition {
        /// The proposal's.
        given: i32,
        /// The partition's.
        current: i32,
    },
    /// Not from the leader, or from an earlier one.
    #[error("broker {leader} proposes in leader epoch {given}: broker {current_leader} leads in epoch {current}")]
    NotLeader {
        /// Who proposes.
        leader: BrokerId,
        /// In which epoch.
        given: LeaderEpoch,
        /// Who leads; -1 for nobody.
        current_leader: BrokerId,
        /// In which epoch.
        current: LeaderEpoch,
    },
    /// The leader leaves itself out, or names a broker that is no replica.
    #[error("in-sync replicas {given:?} must be replicas of the partition, and the leader one of them")]
    NotReplicas {
        /// The proposal's.
        given: Vec<BrokerId>,
    },
    /// A new member is fenced, about to stop, or has registered again since.
    #[error("broker {broker} may not enter the in-sync replicas: it is fenced, stopping, or has registered again")]
    Ineligible {
        /// The new member.
        broker: BrokerId,
    },
    /// The proposer is not registered in this epoch: what it knows is of an earlier life.
    #[error("broker {broker} proposes in broker epoch {given}, which is not its present one")]
    StaleBroker {
        /// Who proposes.
        broker: BrokerId,
        /// In which epoch.
        given: i64,
    },
    /// No such partition.
    #[error("partition {partition} of topic id {topic_id} does not exist")]
    UnknownPartition {
        /// The topic.
        topic_id: Uuid,
        /// The partition.
        partition: PartitionIndex,
    },
}

/// What the logs of a broker are that registers again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// It stopped in order.
    Whole,
    /// Its end may be lost: it was killed, or its machine.
    AllButTheEnd,
    /// It was on a disk that was replaced or emptied.
    Nothing,
}

/// A broker is gone (fenced or stopped): it leaves the ISR unless it is the last, and leads no more. `live` says who may lead, and not that
/// one.
pub fn broker_gone(
    partition: &PartitionImage,
    gone: BrokerId,
    live: &dyn Fn(BrokerId) -> bool,
    rules: &ElectionRules,
) -> Option<PartitionImage> {
    let mut next = partition.clone();
    if next.in_sync_replicas.len() > 1 {
        next.in_sync_replicas.retain(|id| *id != gone);
    }
    remember_eligible(partition, &mut next, rules);
    if next.leader == Some(gone) {
        elect(&mut next, &|id| id != gone && live(id), rules);
    }
    changed(partition, next)
}

/// A broker registers again. As if it were gone; and it is not relied on where it may have lost something and there is anybody else, nor
/// where it has lost all.
pub(super) fn broker_returns(
    partition: &PartitionImage,
    broker: BrokerId,
    kept: Kept,
    live: &dyn Fn(BrokerId) -> bool,
    rules: &ElectionRules,
) -> Option<PartitionImage> {
    let trusted = rules.mutation == Some(Mutation::TrustEmptyLog);
    if kept == Kept::Whole || trusted || !partition.replicas.contains(&broker) {
        return broker_gone(partition, broker, live, rules);
    }
    // Who is eligible and at work has kept its log; of one that is down nobody knows.
    let eligible = partition.eligible_leader_replicas.iter().filter(|id| live(**id));
    let alone = partition.in_sync_replicas.iter().chain(eligible).all(|id| *id == broker);
    let mut next = partition.clone();
    if kept == Kept::Nothing {
        next.lost_replicas.push(broker);
        next.lost_replicas.sort_unstable();
        next.lost_replicas.dedup();
    }
    if kept == Kept::Nothing || !alone {
        next.in_sync_replicas.retain(|id| *id != broker);
        remember_eligible(partition, &mut next, rules);
        let has_a_claim = next.may_lead_out_of_sync().contains(&broker);
        next.eligible_leader_replicas.retain(|id| *id != broker);
        next.crashed_replicas.retain(|id| *id != broker);
        if has_a_claim && kept == Kept::AllButTheEnd {
            next.crashed_replicas.push(broker);
            next.crashed_replicas.sort_unstable();
        }
    }
    if next.leader == Some(broker) {
        elect(&mut next, &|id| id != broker && live(id), rules);
    }
    changed(partition, next)
}

/// What left the ISR stays eligible as long as fewer are in sync than `min.insync.replicas` asks for; what has crashed since stays in its
/// list.
pub(super) fn remember_eligible(before: &PartitionImage, next: &mut PartitionImage, rules: &ElectionRules) {
    let PartitionImage { replicas, in_sync_replicas, .. } = &*next;
    let (mut eligible, mut crashed) = (Vec::new(), Vec::new());
    if in_sync_replicas.len() < rules.min_insync_replicas.min(replicas.len()) {
        let out = |id: &&BrokerId| replicas.contains(id) && !in_sync_replicas.contains(id);
        eligible.extend(before.eligible_leader_replicas.iter().chain(&before.in_sync_replicas).filter(out));
        eligible.sort_unstable();
        eligible.dedup();
        crashed.extend(before.crashed_replicas.iter().filter(out));
        crashed.retain(|id| !eligible.contains(id));
    }
    (next.eligible_leader_replicas, next.crashed_replicas) = (eligible, crashed);
    next.lost_replicas.retain(|id| next.replicas.contains(id) && !next.in_sync_replicas.contains(id));
}

/// A broker is about to stop: it leaves the ISR and leads no more, but where nobody else could lead it does so to the end.
pub fn broker_leaving(
    partition: &PartitionImage,
    leaving: BrokerId,
    live: &dyn Fn(BrokerId) -> bool,
    rules: &ElectionRules,
) -> Option<PartitionImage> {
    let successor = partition.in_sync_replicas.iter().any(|id| *id != leaving && live(*id));
    if partition.leader == Some(leaving) && !successor {
        return None;
    }
    broker_gone(partition, leaving, live, &ElectionRules { unclean: false, ..*rules })
}

/// A broker has lost the disk of its replica: it leaves the ISR and leads no more. None where it stays, because nobody else could lead: what
/// was acknowledged last may be only there, and the broker goes on with it once the disk is back. So never unclean.
pub(super) fn disk_lost(
    partition: &PartitionImage,
    broker: BrokerId,
    live: &dyn Fn(BrokerId) -> bool,
    rules: &ElectionRules,
) -> Option<PartitionImage> {
    let rules = ElectionRules { unclean: false, ..*rules };
    broker_gone(partition, broker, live, &rules).filter(|next| next.leader.is_some())
}

/// The only replica registers again. Nobody else could lead meanwhile, so it goes on; in a new epoch if its log may have lost its end.
pub(super) fn next_life(partition: &PartitionImage, clean: bool) -> Option<PartitionImage> {
    let mut next = partition.clone();
    if !clean && next.leader.is_some() {
        next.leader_epoch.0 += 1;
    }
    changed(partition, next)
}

/// A broker can be relied on (again): it leads what has no leader and waits for it.
pub fn broker_back(
    partition: &PartitionImage,
    live: &dyn Fn(BrokerId) -> bool,
    rules: &ElectionRules,
) -> Option<PartitionImage> {
    let mut next = partition.clone();
    if next.leader.is_none() {
        elect(&mut next, live, rules);
        next.leader?; // nobody, as before: no epoch for that
    }
    changed(partition, next)
}

/// The first live member of the ISR leads, in the replicas' order, else the first live one that is eligible, else, if nobody else has all, the
/// first live one that was until it crashed. Without one nobody does, unless the rules allow to lose records: then one that has lost its log
/// comes last.
pub(super) fn elect(partition: &mut PartitionImage, live: &dyn Fn(BrokerId) -> bool, rules: &ElectionRules) {
    let in_sync =
        |id: &BrokerId| partition.in_sync_replicas.contains(id) || rules.mutation == Some(Mutation::ElectOutOfSync);
    let first = |of: &dyn Fn(&BrokerId) -> bool| partition.replicas.iter().copied().find(|id| live(*id) && of(id));
    let eligible = |id: &BrokerId| partition.eligible_leader_replicas.contains(id);
    let has_a_log = |id: &BrokerId| rules.unclean && !partition.lost_replicas.contains(id);
    let crashed = |id: &BrokerId| partition.crashed_replicas.contains(id);
    let nobody_else = partition.in_sync_replicas.is_empty() && partition.eligible_leader_replicas.is_empty();
    let last_resort = || first(&crashed).filter(|_| nobody_else || rules.unclean);
    let clean = first(&in_sync).or_else(|| first(&eligible)).or_else(last_resort);
    let leader = clean.or_else(|| first(&has_a_log)).or_else(|| first(&|_| rules.unclean));
    if let Some(leader) = leader.filter(|leader| !partition.in_sync_replicas.contains(leader)) {
        let mut before = partition.clone();
        if !eligible(&leader) {
            // Records may be lost: nobody has more than others, but for those that crashed as the leader did.
            let crashed_replicas = if crashed(&leader) { before.crashed_replicas } else { Vec::new() };
            (before.in_sync_replicas, before.eligible_leader_replicas) = (Vec::new(), Vec::new());
            before.crashed_replicas = crashed_replicas;
        }
        partition.in_sync_replicas = vec![leader];
        remember_eligible(&before, partition, rules);
    }
    partition.leader = leader;
    if rules.mutation != Some(Mutation::ReuseEpoch) {
        partition.leader_epoch.0 += 1;
    }
}

/// A leader proposes an ISR. `live_epoch` gives the broker epoch of brokers that are registered and not fenced.
///
/// # Errors
/// The proposal is stale or may not be; nothing changes.
pub fn alter_partition(
    partition: &PartitionImage,
    proposal: &IsrProposal,
    live_epoch: &dyn Fn(BrokerId) -> Option<i64>,
    rules: &ElectionRules,
) -> Result<PartitionImage, AlterPartitionError> {
    if partition.leader != Some(proposal.leader) || partition.leader_epoch != proposal.leader_epoch {
        return Err(AlterPartitionError::NotLeader {
            leader: proposal.leader,
            given: proposal.leader_epoch,
            current_leader: partition.leader.unwrap_or(BrokerId(-1)),
            current: partition.leader_epoch,
        });
    }
    let (given, current) = (proposal.partition_epoch, partition.partition_epoch);
    if given != current && rules.mutation != Some(Mutation::IgnorePartitionEpoch) {
        return Err(AlterPartitionError::StalePartition { given, current });
    }
    let members: Vec<_> = proposal.in_sync_replicas.iter().map(|(id, _)| *id).collect();
    if !members.contains(&proposal.leader) || members.iter().any(|id| !partition.replicas.contains(id)) {
        return Err(AlterPartitionError::NotReplicas { given: members });
    }
    for (id, broker_epoch) in &proposal.in_sync_replicas {
        let is_new = !partition.in_sync_replicas.contains(id);
        let eligible = broker_epoch.is_some() && live_epoch(*id) == *broker_epoch;
        if is_new && !eligible && rules.mutation != Some(Mutation::CountFencedFollower) {
            return Err(AlterPartitionError::Ineligible { broker: *id });
        }
    }
    let mut next = partition.clone();
    next.in_sync_replicas = members;
    remember_eligible(partition, &mut next, rules);
    next.partition_epoch += 1; // even when the members are the same: it makes earlier proposals void
    Ok(next)
}

pub(super) fn changed(before: &PartitionImage, mut next: PartitionImage) -> Option<PartitionImage> {
    if *before == next {
        return None;
    }
    next.partition_epoch += 1;
    Some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: ElectionRules = ElectionRules { unclean: false, min_insync_replicas: 1, mutation: None };

    fn ids(ids: &[i32]) -> Vec<BrokerId> {
        ids.iter().copied().map(BrokerId).collect()
    }

    fn partition(leader: i32, in_sync: &[i32]) -> PartitionImage {
        PartitionImage {
            index: PartitionIndex(0),
            replicas: ids(&[1, 2, 3]),
            in_sync_replicas: ids(in_sync),
            leader: (leader > 0).then_some(BrokerId(leader)),
            leader_epoch: LeaderEpoch(7),
            partition_epoch: 20,
            ..PartitionImage::default()
        }
    }

    fn gone(from: &PartitionImage, broker: i32, live: &[i32]) -> PartitionImage {
        let live = ids(live);
        broker_gone(from, BrokerId(broker), &|id| live.contains(&id), &RULES).unwrap()
    }

    fn proposal(leader_epoch: i32, partition_epoch: i32, members: &[(i32, Option<i64>)]) -> IsrProposal {
        IsrProposal {
            leader: BrokerId(1),
            leader_epoch: LeaderEpoch(leader_epoch),
            partition_epoch,
            in_sync_replicas: members.iter().map(|(id, epoch)| (BrokerId(*id), *epoch)).collect(),
        }
    }

    fn alter(proposal: &IsrProposal) -> Result<PartitionImage, AlterPartitionError> {
        // Broker 3 is fenced; broker 2 has registered with epoch 40.
        let live = |id: BrokerId| (id != BrokerId(3)).then_some(40);
        alter_partition(&partition(1, &[1]), proposal, &live, &RULES)
    }

    #[test]
    fn the_first_live_in_sync_replica_leads_next() {
        let next = gone(&partition(1, &[1, 3]), 1, &[2, 3]);
        assert_eq!((next.leader, next.leader_epoch.0), (Some(BrokerId(3)), 8), "broker 2 is not in sync");
        assert_eq!((next.in_sync_replicas, next.partition_epoch), (ids(&[3]), 21));
    }

    #[test]
    fn a_lost_follower_leaves_and_the_leader_goes_on_in_its_epoch() {
        let next = gone(&partition(1, &[1, 2, 3]), 2, &[1, 3]);
        assert_eq!((next.leader, next.leader_epoch.0, next.partition_epoch), (Some(BrokerId(1)), 7, 21));
        assert_eq!(next.in_sync_replicas, ids(&[1, 3]));
    }

    #[test]
    fn the_last_in_sync_replica_is_waited_for() {
        let offline = gone(&partition(1, &[1]), 1, &[2, 3]);
        assert_eq!((offline.leader, offline.leader_epoch.0), (None, 8));
        assert_eq!(offline.in_sync_replicas, ids(&[1]));
        assert_eq!(broker_back(&offline, &|id| id != BrokerId(1), &RULES), None);
        let back = broker_back(&offline, &|_| true, &RULES).unwrap();
        assert_eq!((back.leader, back.leader_epoch.0, back.partition_epoch), (Some(BrokerId(1)), 9, 22));
    }

    #[test]
    fn a_leader_that_registers_again_leads_in_a_new_epoch() {
        let before = partition(1, &[1]);
        let offline = gone(&before, 1, &[1, 2, 3]);
        let again = broker_back(&offline, &|_| true, &RULES).unwrap();
        assert_eq!((again.leader, again.leader_epoch.0), (Some(BrokerId(1)), 9));
    }

    #[test]
    fn a_broker_that_stops_in_order_leads_on_only_where_nobody_else_could() {
        let alone = |in_sync| broker_leaving(&partition(1, in_sync), BrokerId(1), &|id| id != BrokerId(1), &RULES);
        assert_eq!(alone(&[1]), None);
        let next = alone(&[1, 2]).unwrap();
        assert_eq!((next.leader, next.in_sync_replicas), (Some(BrokerId(2)), ids(&[2])));
        assert_eq!(broker_leaving(&partition(1, &[1, 2]), BrokerId(1), &|_| false, &RULES), None, "broker 2 is down");
    }

    #[test]
    fn an_only_replica_goes_on_in_its_epoch_if_it_lost_nothing() {
        assert_eq!(next_life(&partition(1, &[1]), true), None);
        let next = next_life(&partition(1, &[1]), false).unwrap();
        assert_eq!((next.leader, next.leader_epoch.0, next.partition_epoch), (Some(BrokerId(1)), 8, 21));
        assert_eq!(next_life(&partition(0, &[1]), false), None, "it will lead in a new epoch anyway");
    }

    #[test]
    fn an_unclean_election_is_made_only_when_asked() {
        let unclean = ElectionRules { unclean: true, ..RULES };
        let next = broker_gone(&partition(1, &[1]), BrokerId(1), &|id| id == BrokerId(3), &unclean).unwrap();
        assert_eq!((next.leader, next.in_sync_replicas), (Some(BrokerId(3)), ids(&[3])));
    }

    const TWO: ElectionRules = ElectionRules { min_insync_replicas: 2, ..RULES };

    fn returned(from: &PartitionImage, broker: i32, kept: Kept, live: &[i32], rules: &ElectionRules) -> PartitionImage {
        let live = ids(live);
        broker_returns(from, BrokerId(broker), kept, &|id| live.contains(&id), rules).unwrap_or_else(|| from.clone())
    }

    #[test]
    fn whoever_leaves_below_min_insync_replicas_may_lead_when_the_last_one_has_lost_its_disk() {
        let two = broker_gone(&partition(1, &[1, 2, 3]), BrokerId(3), &|_| true, &TWO).unwrap();
        assert_eq!((two.in_sync_replicas.len(), &two.eligible_leader_replicas), (2, &ids(&[])), "two suffice");
        let one = broker_leaving(&two, BrokerId(2), &|_| true, &TWO).unwrap();
        assert_eq!((&one.in_sync_replicas, &one.eligible_leader_replicas), (&ids(&[1]), &ids(&[2])));
        let none = broker_gone(&one, BrokerId(1), &|_| false, &TWO).unwrap();
        assert_eq!((none.leader, &none.in_sync_replicas), (None, &ids(&[1])));
        let lost = returned(&none, 1, Kept::Nothing, &[], &TWO);
        assert_eq!((&lost.in_sync_replicas, &lost.lost_replicas), (&ids(&[]), &ids(&[1])));
        assert_eq!(broker_back(&lost, &|id| id == BrokerId(1), &TWO), None, "it has nothing");
        let led = broker_back(&lost, &|_| true, &TWO).unwrap();
        assert_eq!((led.leader, &led.in_sync_replicas), (Some(BrokerId(2)), &ids(&[2])));
        let again = PartitionImage { eligible_leader_replicas: ids(&[]), ..led };
        let both = [(BrokerId(2), None), (BrokerId(1), Some(9))].to_vec();
        let IsrProposal { leader_epoch, partition_epoch, .. } =
            proposal(again.leader_epoch.0, again.partition_epoch, &[]);
        let proposed = IsrProposal { leader: BrokerId(2), leader_epoch, partition_epoch, in_sync_replicas: both };
        let full = alter_partition(&again, &proposed, &|_| Some(9), &TWO).unwrap();
        assert_eq!(full.lost_replicas, ids(&[]), "it has everything again");
    }

    #[test]
    fn an_unclean_leader_is_one_that_has_a_log_if_there_is_any() {
        let before = PartitionImage { leader: None, ..partition(1, &[1]) };
        let lost = returned(&before, 1, Kept::Nothing, &[1], &RULES);
        assert_eq!((lost.leader, &lost.in_sync_replicas), (None, &ids(&[])), "one was enough: nobody is eligible");
        let unclean = ElectionRules { unclean: true, ..RULES };
        assert_eq!(broker_back(&lost, &|_| true, &unclean).unwrap().leader, Some(BrokerId(2)));
        assert_eq!(broker_back(&lost, &|id| id == BrokerId(1), &unclean).unwrap().leader, Some(BrokerId(1)));
    }

    #[test]
    fn the_last_in_sync_replica_gives_way_after_a_crash_only_to_one_that_is_there() {
        let before = PartitionImage { leader: None, eligible_leader_replicas: ids(&[2]), ..partition(1, &[1]) };
        let waits = returned(&before, 1, Kept::AllButTheEnd, &[3], &TWO);
        assert_eq!((&waits.in_sync_replicas, &waits.eligible_leader_replicas), (&ids(&[1]), &ids(&[2])));
        let gives_way = returned(&before, 1, Kept::AllButTheEnd, &[2], &TWO);
        assert_eq!((&gives_way.in_sync_replicas, &gives_way.eligible_leader_replicas), (&ids(&[]), &ids(&[2])));
        let later = returned(&before, 2, Kept::AllButTheEnd, &[1], &TWO);
        assert_eq!(later.eligible_leader_replicas, ids(&[]), "its end may be lost");
        assert_eq!((later.crashed_replicas, later.leader), (ids(&[2]), None), "and the last one is waited for");
    }

    #[test]
    fn after_a_crash_of_all_those_that_were_in_sync_lead_if_the_last_one_has_lost_its_disk() {
        let one = returned(&partition(1, &[1, 2, 3]), 1, Kept::AllButTheEnd, &[2, 3], &TWO);
        assert_eq!(
            (&one.in_sync_replicas, &one.crashed_replicas),
            (&ids(&[2, 3]), &ids(&[])),
            "two may acknowledge more"
        );
        let two = returned(&one, 2, Kept::AllButTheEnd, &[1, 3], &TWO);
        assert_eq!((&two.in_sync_replicas, &two.crashed_replicas), (&ids(&[3]), &ids(&[2])));
        assert_eq!((&two.eligible_leader_replicas, two.may_lead_out_of_sync()), (&ids(&[]), ids(&[2])));
        let two = returned(&two, 2, Kept::AllButTheEnd, &[1, 3], &TWO);
        assert_eq!(two.crashed_replicas, ids(&[2]), "once more");
        let lost = returned(&two, 3, Kept::Nothing, &[1, 2], &TWO);
        assert_eq!((lost.leader, &lost.in_sync_replicas), (Some(BrokerId(2)), &ids(&[2])), "broker 1 may lack more");
        let none = returned(&lost, 2, Kept::Nothing, &[1, 3], &TWO);
        assert_eq!((none.leader, none.in_sync_replicas, none.crashed_replicas), (None, ids(&[]), ids(&[])));
    }

    #[test]
    fn a_crashed_replica_has_no_claim_once_enough_are_in_sync() {
        let crashed = PartitionImage { crashed_replicas: ids(&[3]), ..partition(1, &[1]) };
        let gone = broker_gone(&crashed, BrokerId(1), &|id| id == BrokerId(3), &TWO).unwrap();
        assert_eq!((gone.leader, &gone.crashed_replicas), (None, &ids(&[3])), "the last one is waited for");
        let both = [(BrokerId(1), None), (BrokerId(2), Some(9))].to_vec();
        let wanted = IsrProposal { in_sync_replicas: both, ..proposal(7, 20, &[]) };
        let enough = alter_partition(&crashed, &wanted, &|_| Some(9), &TWO).unwrap();
        assert_eq!(enough.may_lead_out_of_sync(), ids(&[]));
    }

    #[test]
    fn a_proposal_counts_on_the_state_it_was_decided_on() {
        let next = alter(&proposal(7, 20, &[(1, None), (2, Some(40))])).unwrap();
        assert_eq!((next.in_sync_replicas, next.partition_epoch, next.leader_epoch.0), (ids(&[1, 2]), 21, 7));
        let stale = alter(&proposal(7, 19, &[(1, None), (2, Some(40))]));
        assert_eq!(stale, Err(AlterPartitionError::StalePartition { given: 19, current: 20 }));
        assert!(matches!(alter(&proposal(6, 20, &[(1, None)])), Err(AlterPartitionError::NotLeader { .. })));
    }

    #[test]
    fn only_the_present_life_of_a_live_broker_may_enter() {
        let ineligible = |broker| Err(AlterPartitionError::Ineligible { broker: BrokerId(broker) });
        assert_eq!(alter(&proposal(7, 20, &[(1, None), (2, Some(39))])), ineligible(2));
        assert_eq!(alter(&proposal(7, 20, &[(1, None), (2, None)])), ineligible(2));
        assert_eq!(alter(&proposal(7, 20, &[(1, None), (3, Some(40))])), ineligible(3));
        assert!(matches!(alter(&proposal(7, 20, &[(2, Some(40))])), Err(AlterPartitionError::NotReplicas { .. })));
        assert!(matches!(
            alter(&proposal(7, 20, &[(1, None), (9, None)])),
            Err(AlterPartitionError::NotReplicas { .. })
        ));
    }
}
