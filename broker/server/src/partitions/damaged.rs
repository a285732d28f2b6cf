//! Logs that were found damaged, or without some of their records. Where nobody needs the replica, its log is set aside and copied again from
//! the leader; else what lacks records is served, and what is damaged waits for a person.
//!
//! What must hold: only a replica is given up that another broker leads and that has no claim to lead, by metadata newer than this broker's
//! registration; nothing is removed, and a log that is damaged again while the first one is still there waits for a person.

use forebay_broker_machines::metadata::{MetadataImage, PartitionImage};
use forebay_broker_storage::LogName;
use forebay_broker_wire::types::BrokerId;

use super::{Following, HostedDir, Key, PartitionTable};

/// What a folder that is set aside is called behind its own name.
const SUFFIX: &str = "damaged";

/// Whether all that was acknowledged is elsewhere, with somebody to copy it from.
fn is_needless(partition: &PartitionImage, own: BrokerId) -> bool {
    let has_a_claim = partition.in_sync_replicas.contains(&own) || partition.may_lead_out_of_sync().contains(&own);
    partition.leader.is_some_and(|leader| leader != own) && !has_a_claim && partition.replicas.contains(&own)
}

fn set_aside(dir: &HostedDir, log: &LogName) -> bool {
    let path = dir.log_dir.path().display();
    match dir.log_dir.set_aside(log, SUFFIX) {
        Ok(true) => {
            tracing::warn!(dir = %path, %log, "a damaged log is set aside as {log}.{SUFFIX}, and copied again from the leader");
            true
        }
        // Told when it was not opened.
        Ok(false) => false,
        Err(error) => {
            tracing::error!(dir = %path, %log, %error, "a damaged log can't be set aside");
            false
        }
    }
}

impl PartitionTable {
    /// Sets aside what can be copied again; gives the partitions that are to be opened anew.
    pub(super) fn give_up_damaged(&self, following: &mut Following, image: &MetadataImage) -> Vec<Key> {
        if following.damaged.is_empty() && following.lacking.is_empty() {
            return Vec::new();
        }
        let Following { damaged, lacking, located, .. } = following;
        let needless = |(topic, index): &Key| {
            let topic = image.topic_by_id(*topic)?;
            let log = LogName::new(&topic.name, index.0);
            let dir = located.get(&log).and_then(|dir| self.dirs.get(*dir)).filter(|dir| !dir.is_out())?;
            is_needless(topic.partition(*index)?, self.broker_id).then_some((dir, log))
        };
        let mut given_up: Vec<Key> =
            damaged.extract_if(.., |key| needless(key).is_some_and(|(dir, log)| set_aside(dir, &log))).collect();
        for (key, (dir, log)) in
            lacking.extract_if(.., |key| needless(key).is_some()).filter_map(|key| Some((key, needless(&key)?)))
        {
            self.close_one(&key);
            set_aside(dir, &log);
            // Where it could not be, it is served as it was.
            given_up.push(key);
        }
        self.commit_deletions();
        given_up
    }

    /// Takes a partition out of service, to be opened again.
    fn close_one(&self, key: &Key) {
        let Some(hosted) = ({ self.open.write().remove(key) }) else { return };
        if let Err(error) = hosted.partition.close() {
            tracing::error!(topic = %hosted.topic, partition = %hosted.index, %error, "a log could not be closed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_given_up_only_where_another_leads_and_it_could_not() {
        let ids = |ids: &[i32]| ids.iter().copied().map(BrokerId).collect::<Vec<_>>();
        let partition = |leader: Option<i32>, in_sync: &[i32]| PartitionImage {
            replicas: ids(&[1, 2, 3]),
            in_sync_replicas: ids(in_sync),
            leader: leader.map(BrokerId),
            ..PartitionImage::default()
        };
        assert!(is_needless(&partition(Some(2), &[2, 3]), BrokerId(1)));
        assert!(!is_needless(&partition(Some(2), &[1, 2, 3]), BrokerId(1)), "it counts as in sync");
        assert!(!is_needless(&partition(None, &[2]), BrokerId(1)), "nobody to copy from");
        assert!(!is_needless(&partition(Some(1), &[1]), BrokerId(1)));
        assert!(!is_needless(&partition(Some(2), &[2]), BrokerId(4)), "it has no replica");
        let eligible = PartitionImage { eligible_leader_replicas: ids(&[1]), ..partition(Some(2), &[2]) };
        let crashed = PartitionImage { crashed_replicas: ids(&[1]), ..partition(Some(2), &[2]) };
        assert!(!is_needless(&eligible, BrokerId(1)) && !is_needless(&crashed, BrokerId(1)));
    }
}
