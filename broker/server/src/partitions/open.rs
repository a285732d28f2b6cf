//! Opening one replica, whatever else has its topic's name.

use std::sync::Arc;

use forebay_broker_partition::{OpenPartition, Partition};
use forebay_broker_storage::{LogName, OpenLogError, RecoveryReport, TopicIdError};
use forebay_broker_wire::types::LeaderEpoch;

use super::hosted::{HostedDir, Place};
use crate::metadata::effective::PartitionSettings;

/// The metadata says later who leads it.
const NO_ROLE_YET: LeaderEpoch = LeaderEpoch(-1);

/// So many threads make new logs: most of that is waiting for the disk, which flushes at once for all that wait.
const MAKING_THREADS: usize = 8;

/// Makes the directories of logs that are new, and says how many threads are to open all of them. Blocks.
pub(super) fn prepare(logs: &[(Place, PartitionSettings)], opening_threads: usize) -> usize {
    let Some((first, _)) = logs.first() else { return opening_threads };
    let names: Vec<_> = logs.iter().map(|(place, _)| LogName::new(&place.topic, place.index.0)).collect();
    // What fails here fails again, and is told, where the log is opened.
    let made = first.dir.log_dir.make_dirs(&names).unwrap_or_default();
    if made == logs.len() { opening_threads.max(MAKING_THREADS) } else { opening_threads }
}

/// Notes the logs that are new where they lie: from then on they are missed. Before they get a role.
pub(super) fn commit(dirs: &[Arc<HostedDir>]) {
    for dir in dirs.iter().filter(|dir| !dir.is_hung()) {
        if let Err(error) = dir.log_dir.commit_new_logs() {
            tracing::error!(dir = %dir.log_dir.path().display(), %error, "new logs could not be noted");
        }
    }
}

/// Opens one log. A directory of another topic of this name is set aside first.
pub(super) fn open(place: &Place, settings: &PartitionSettings) -> Result<(Partition, RecoveryReport), OpenLogError> {
    let name = LogName::new(&place.topic, place.index.0);
    let log_dir = &place.dir.log_dir;
    let wanted = OpenPartition {
        name: name.clone(),
        topic_id: Some(place.topic_id),
        leader_epoch: NO_ROLE_YET,
        config: settings.log.clone(),
    };
    let replication = settings.replication();
    match Partition::open_replica(log_dir, wanted.clone(), replication) {
        Err(OpenLogError::TopicId(TopicIdError::Mismatch { found, .. })) => {
            let from = log_dir.path().join(name.to_string());
            // Not the name of a log any more: nothing will open or delete it.
            let aside = log_dir.path().join(format!("{name}.{found}-stray"));
            tracing::warn!(log = %name, aside = %aside.display(), "the directory belongs to an older topic of this name: set aside");
            log_dir.disk().rename(&from, &aside)?;
            Partition::open_replica(log_dir, wanted, replication)
        }
        opened => opened,
    }
}
