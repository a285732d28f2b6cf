//! Logs of partitions that were moved to other brokers while this one was away.
//!
//! What must hold: a log goes only when the metadata, newer than this broker's registration, knows its very topic and has other replicas
//! for the partition; whatever else is found stays where it is.

use std::collections::HashMap;
use std::sync::Arc;

use forebay_broker_machines::metadata::MetadataImage;
use forebay_broker_storage::{LogName, read_topic_id};
use forebay_broker_wire::types::{BrokerId, PartitionIndex};

use super::HostedDir;
use crate::io::append::now_ms;

/// Durable after the next commit of deletions.
pub(super) fn remove(
    image: &MetadataImage,
    broker: BrokerId,
    dirs: &[Arc<HostedDir>],
    located: &mut HashMap<LogName, usize>,
) {
    located.retain(|log, dir| {
        let moved = image.topic(&log.topic).filter(|topic| {
            let partition = topic.partition(PartitionIndex(log.partition));
            partition.is_some_and(|partition| !partition.replicas.contains(&broker))
        });
        let (Some(topic), Some(dir)) = (moved, dirs.get(*dir)) else { return true };
        let log_dir = &dir.log_dir;
        let found = read_topic_id(log_dir.disk(), &log_dir.path().join(log.to_string())).ok().flatten();
        if found != Some(topic.id) {
            return true;
        }
        tracing::info!(%log, "the log of a partition that was moved to other brokers is removed");
        if let Err(error) = log_dir.delete_log(log, now_ms(), now_ms()) {
            tracing::error!(%log, %error, "the log of a partition that was moved away is left");
        }
        false
    });
}
