//! Replicas of brokers that are at work but can't write to the disk that they lie on: it has failed, hangs, or is full.
//!
//! What must hold: what nobody else could lead stays where it is, and comes back with the disk; a full disk takes no records but is read, so
//! it gives way only to replicas in sync that can write; brokers whose disks are all full, or have all failed, hand nothing back and forth.

use forebay_broker_wire::types::{BrokerId, PartitionIndex, Uuid};
use serde::{Deserialize, Serialize};

use super::fencing::BrokerLife;
use super::leadership::{ElectionRules, changed, disk_lost, elect, remember_eligible};
use super::{Context, Draft};
use crate::metadata::PartitionImage;

/// Rather than have fewer copies of a record, those that have a reserve use it.
const COPIES_MIN: usize = 2;

/// What is the matter with the disk under a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Inability {
    /// It has failed or hangs.
    Offline,
    /// It has no room for any record; what is there is read.
    Full,
    /// It takes no records from clients, but has a reserve to follow with.
    Low,
}

/// A partition, and whose replicas of it can't be written to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnableReplicas {
    /// Its topic.
    pub topic_id: Uuid,
    /// Which.
    pub partition: PartitionIndex,
    /// Whose, and why.
    pub replicas: Vec<(BrokerLife, Inability)>,
}

/// Those that can't be written to leave the ISR and lead no more, where others can.
pub fn replicas_unable(
    partition: &PartitionImage,
    unable: &[(BrokerId, Inability)],
    live: &dyn Fn(BrokerId) -> bool,
    rules: &ElectionRules,
) -> Option<PartitionImage> {
    let readable = |id| live(id) && !unable.contains(&(id, Inability::Offline));
    let full = |id| unable.contains(&(id, Inability::Full));
    let low = |id| unable.contains(&(id, Inability::Low));
    let writable = |id| readable(id) && !full(id) && !low(id);
    let mut next = partition.clone();
    for (broker, _) in unable.iter().filter(|(_, inability)| *inability == Inability::Offline) {
        let lost = disk_lost(&next, *broker, &writable, rules).or_else(|| disk_lost(&next, *broker, &readable, rules));
        next = lost.unwrap_or(next);
    }
    // One that is only eligible will be in sync soon, since the full one is read: until then nothing is gained by a move.
    if next.in_sync_replicas.iter().any(|id| writable(*id)) {
        let before = next.clone();
        let copies = rules.min_insync_replicas.max(COPIES_MIN).min(next.replicas.len());
        let enough = next.in_sync_replicas.iter().filter(|id| writable(**id)).count() >= copies;
        let leaves = |id| full(id) || (enough && low(id));
        next.in_sync_replicas.retain(|id| !leaves(*id));
        remember_eligible(&before, &mut next, rules);
        if next.leader.is_some_and(|leader| full(leader) || low(leader)) {
            elect(&mut next, &writable, &ElectionRules { unclean: false, ..*rules });
        }
        next = changed(&before, next.clone()).unwrap_or(next);
    }
    (next != *partition).then_some(next)
}

pub(super) fn decide(draft: &mut Draft, partitions: &[UnableReplicas], context: &Context<'_>) {
    for UnableReplicas { topic_id, partition, replicas } in partitions {
        let image = &draft.image;
        let Some(topic) = image.topic_by_id(*topic_id) else { continue };
        let Some(current) = topic.partition(*partition) else { continue };
        let present = |life: &BrokerLife| image.broker(life.broker_id).is_some_and(|at| at.epoch == life.broker_epoch);
        let unable: Vec<_> = replicas.iter().filter(|(life, _)| present(life)).collect();
        let unable: Vec<_> = unable.iter().map(|(life, inability)| (life.broker_id, *inability)).collect();
        let rules = (context.elections)(image, &topic.config);
        if let Some(next) = replicas_unable(current, &unable, &|id| image.may_lead(id), &rules) {
            draft.push(super::Record::Partition(next.to_record(*topic_id)));
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_broker_wire::types::LeaderEpoch;

    use super::Inability::{Full, Low, Offline};
    use super::*;

    const TWO: ElectionRules = ElectionRules { unclean: false, min_insync_replicas: 2, mutation: None };
    const UNCLEAN: ElectionRules = ElectionRules { unclean: true, ..TWO };

    fn ids(ids: &[i32]) -> Vec<BrokerId> {
        ids.iter().copied().map(BrokerId).collect()
    }

    fn partition(leader: i32, in_sync: &[i32]) -> PartitionImage {
        PartitionImage {
            replicas: ids(&[1, 2, 3]),
            in_sync_replicas: ids(in_sync),
            leader: Some(BrokerId(leader)),
            leader_epoch: LeaderEpoch(7),
            partition_epoch: 20,
            ..PartitionImage::default()
        }
    }

    /// Leader, ISR and eligible replicas afterwards. All brokers are live but 9.
    fn after(before: &PartitionImage, unable: &[(i32, Inability)]) -> Option<(i32, Vec<i32>, Vec<i32>)> {
        let unable: Vec<_> = unable.iter().map(|(id, inability)| (BrokerId(*id), *inability)).collect();
        let numbers = |ids: &[BrokerId]| ids.iter().map(|id| id.0).collect::<Vec<_>>();
        let next = replicas_unable(before, &unable, &|id| id != BrokerId(9), &UNCLEAN)?;
        assert_eq!(replicas_unable(&next, &unable, &|id| id != BrokerId(9), &UNCLEAN), None, "it comes to rest");
        let leader = next.leader.map_or(-1, |leader| leader.0);
        Some((leader, numbers(&next.in_sync_replicas), numbers(&next.eligible_leader_replicas)))
    }

    #[test]
    fn a_full_disk_leads_no_more_and_leaves_the_isr() {
        let all = partition(1, &[1, 2, 3]);
        assert_eq!(after(&all, &[(1, Full)]), Some((2, vec![2, 3], vec![])));
        assert_eq!(after(&all, &[(3, Full)]), Some((1, vec![1, 2], vec![])));
        assert_eq!(after(&all, &[(1, Full), (2, Full)]), Some((3, vec![3], vec![1, 2])), "they stay eligible");
        assert_eq!(after(&all, &[(8, Full)]), None, "it has no replica");
    }

    #[test]
    fn a_low_disk_leaves_the_isr_where_enough_others_have_room_and_else_only_leads_no_more() {
        let all = partition(1, &[1, 2, 3]);
        assert_eq!(after(&all, &[(1, Low)]), Some((2, vec![2, 3], vec![])));
        assert_eq!(after(&all, &[(1, Low), (2, Low)]), Some((3, vec![1, 2, 3], vec![])));
        assert_eq!(after(&all, &[(1, Low), (2, Full)]), Some((3, vec![1, 3], vec![])));
        assert_eq!(after(&partition(3, &[1, 3]), &[(1, Low)]), None, "two copies are better than one");
        assert_eq!(after(&all, &[(1, Low), (2, Low), (3, Low)]), None);
        assert_eq!(after(&all, &[(1, Low), (2, Low), (3, Full)]), None);
    }

    #[test]
    fn where_all_disks_are_full_everything_stays_as_it_is() {
        assert_eq!(after(&partition(1, &[1, 2, 3]), &[(1, Full), (2, Full), (3, Full)]), None);
        assert_eq!(after(&partition(3, &[3, 2]), &[(2, Full), (3, Full)]), None, "1 is not in sync");
        let last = PartitionImage { eligible_leader_replicas: ids(&[1, 2]), ..partition(3, &[3]) };
        assert_eq!(after(&last, &[(1, Full), (2, Full), (3, Full)]), None);
        assert_eq!(after(&last, &[(3, Full)]), None, "the others fetch from it and are in sync soon");
    }

    #[test]
    fn one_that_has_room_again_leads_once_it_is_in_sync() {
        let before = partition(3, &[3, 1]);
        assert_eq!(after(&before, &[(2, Full), (3, Full)]), Some((1, vec![1], vec![3])));
    }

    #[test]
    fn a_failed_disk_gives_way_to_a_full_one_if_there_is_no_other() {
        let all = partition(1, &[1, 2, 3]);
        assert_eq!(after(&all, &[(2, Full), (1, Offline)]), Some((3, vec![3], vec![2])));
        assert_eq!(after(&all, &[(1, Offline), (2, Full), (3, Full)]), Some((2, vec![2, 3], vec![])), "it is read");
        assert_eq!(after(&partition(1, &[1]), &[(1, Offline)]), None, "never unclean");
    }

    #[test]
    fn disks_that_have_all_failed_hand_nothing_back_and_forth() {
        let last = PartitionImage { eligible_leader_replicas: ids(&[1, 2]), ..partition(3, &[3]) };
        assert_eq!(after(&last, &[(1, Offline), (2, Offline), (3, Offline)]), None);
        assert_eq!(after(&last, &[(1, Offline), (3, Offline)]), Some((2, vec![2], vec![1, 3])));
        assert_eq!(after(&last, &[(2, Offline), (1, Full), (3, Offline)]), Some((1, vec![1], vec![2, 3])));
    }

    #[test]
    fn a_broker_that_is_not_at_work_is_no_reason_to_move() {
        let pair = PartitionImage { replicas: ids(&[1, 9]), ..partition(1, &[1, 9]) };
        assert_eq!(after(&pair, &[(1, Full)]), None);
    }
}
