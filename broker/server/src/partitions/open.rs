//! Opening one log of a topic, whatever else has its name.

use forebay_broker_partition::{OpenPartition, Partition};
use forebay_broker_storage::{LogConfig, LogName, OpenLogError, TopicIdError};

use super::hosted::Place;

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
