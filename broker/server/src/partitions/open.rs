//! Opening logs: several at a time in each directory, because after an unclean stop each of them may have to be checked.

use std::sync::Arc;

use forebay_broker_partition::{OpenPartition, Partition};
use forebay_broker_storage::{LogConfig, LogName, OpenLogError, TopicIdError};
use parking_lot::Mutex;

use super::hosted::Place;
use crate::metadata::effective::PartitionSettings;

/// Calls `open` for each log, on up to `threads_per_dir` threads for each directory.
pub(super) fn open_all(
    logs: Vec<(Place, PartitionSettings)>,
    threads_per_dir: usize,
    open: impl Fn(Place, PartitionSettings) + Sync,
) {
    if logs.len() <= 1 {
        logs.into_iter().for_each(|(place, config)| open(place, config));
        return;
    }
    let mut by_dir: Vec<Vec<(Place, PartitionSettings)>> = Vec::new();
    for log in logs {
        match by_dir.iter_mut().find(|dir| Arc::ptr_eq(&dir[0].0.dir, &log.0.dir)) {
            Some(dir) => dir.push(log),
            None => by_dir.push(vec![log]),
        }
    }
    std::thread::scope(|scope| {
        for dir in by_dir {
            let threads = threads_per_dir.clamp(1, dir.len());
            let left = Arc::new(Mutex::new(dir.into_iter()));
            for _ in 0..threads {
                let (left, open) = (Arc::clone(&left), &open);
                scope.spawn(move || {
                    while let Some((place, config)) = { left.lock().next() } {
                        open(place, config);
                    }
                });
            }
        }
    });
}

/// Opens one log. A directory of another topic of this name is set aside first.
pub(super) fn open(place: &Place, config: LogConfig) -> Result<Partition, OpenLogError> {
    let name = LogName::new(&place.topic, place.index.0);
    let log_dir = &place.dir.log_dir;
    let wanted =
        OpenPartition { name: name.clone(), topic_id: Some(place.topic_id), leader_epoch: place.leader_epoch, config };
    let opened = match Partition::open(log_dir, wanted.clone()) {
        Err(OpenLogError::TopicId(TopicIdError::Mismatch { found, .. })) => {
            let from = log_dir.path().join(name.to_string());
            // Not the name of a log any more: nothing will open or delete it.
            let aside = log_dir.path().join(format!("{name}.{found}-stray"));
            tracing::warn!(log = %name, aside = %aside.display(), "the directory belongs to an older topic of this name: set aside");
            log_dir.disk().rename(&from, &aside)?;
            Partition::open(log_dir, wanted)
        }
        opened => opened,
    };
    opened.map(|(partition, _report)| partition)
}
