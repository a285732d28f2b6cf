//! Upkeep: retention, rolling by time, expiry of producers, removal of deleted files, checkpoints, free space; compaction.
//!
//! What must hold: it runs beside the data path, on a blocking thread, one partition after another; it wakes at the
//! intervals of the configuration and not more often; a partition that fails does not keep the others from their turn.

use std::sync::Arc;
use std::time::Duration;

use forebay_broker_partition::UpdateError;
use tokio::time::{Instant, sleep_until};

use super::append::now_ms;
use crate::broker::Broker;

/// Kafka's `log.cleaner.backoff.ms`: how long the cleaner rests. Asking a log that has nothing to do costs next to nothing.
const COMPACTION_EVERY: Duration = Duration::from_secs(15);

/// Runs until shutdown.
pub(crate) async fn run(broker: Arc<Broker>) {
    let log = &broker.config.log;
    let upkeep_every = Duration::from_millis(log.retention_check_interval_ms);
    let checkpoint_every = Duration::from_millis(log.flush_offset_checkpoint_interval_ms);
    let mut upkeep_at = Instant::now() + Duration::from_millis(log.initial_task_delay_ms);
    let mut checkpoint_at = Instant::now() + checkpoint_every;
    loop {
        let next = upkeep_at.min(checkpoint_at);
        tokio::select! {
            () = sleep_until(next) => {}
            () = broker.shutdown.cancelled() => return,
        }
        let now = Instant::now();
        if now >= upkeep_at {
            on_blocking_thread(&broker, upkeep).await;
            upkeep_at = Instant::now() + upkeep_every;
        }
        if now >= checkpoint_at {
            on_blocking_thread(&broker, checkpoint).await;
            checkpoint_at = Instant::now() + checkpoint_every;
        }
    }
}

/// Compacts logs until shutdown, one after another; apart from the rest of the upkeep, because one log can take long.
pub(crate) async fn compact(broker: Arc<Broker>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(COMPACTION_EVERY) => {}
            () = broker.shutdown.cancelled() => return,
        }
        on_blocking_thread(&broker, compact_all).await;
    }
}

async fn on_blocking_thread(broker: &Arc<Broker>, work: fn(&Broker)) {
    let broker = Arc::clone(broker);
    if tokio::task::spawn_blocking(move || work(&broker)).await.is_err() {
        tracing::error!("upkeep ended by a panic");
    }
}

fn upkeep(broker: &Broker) {
    for hosted in broker.partitions.all() {
        if broker.shutdown.is_cancelled() {
            return;
        }
        if hosted.dir().is_hung() {
            continue;
        }
        match hosted.partition.maintain(now_ms()) {
            Ok(report) => tracing::debug!(topic = %hosted.topic, partition = %hosted.index, ?report, "upkeep"),
            // Deleted since the list was made.
            Err(UpdateError::Closed(_)) => {}
            Err(error) => tracing::error!(topic = %hosted.topic, partition = %hosted.index, %error, "upkeep failed"),
        }
    }
}

fn compact_all(broker: &Broker) {
    for hosted in broker.partitions.all() {
        if broker.shutdown.is_cancelled() {
            return;
        }
        match hosted.partition.compact(now_ms()) {
            Ok(None) => {}
            Ok(Some(report)) => tracing::info!(topic = %hosted.topic, partition = %hosted.index, ?report, "compacted"),
            Err(error) => tracing::warn!(topic = %hosted.topic, partition = %hosted.index, %error, "not compacted"),
        }
    }
}

fn checkpoint(broker: &Broker) {
    for dir in broker.partitions.dirs.iter().filter(|dir| !dir.is_hung()) {
        let log_dir = &dir.log_dir;
        let path = log_dir.path().display();
        if let Err(error) = log_dir.write_checkpoints() {
            tracing::error!(dir = %path, %error, "recovery points could not be written");
        }
        if let Err(error) = log_dir.remove_deleted(now_ms()) {
            tracing::error!(dir = %path, %error, "deleted logs could not be removed");
        }
        if let Err(error) = log_dir.refresh_space() {
            tracing::error!(dir = %path, %error, "free space is not known");
        }
    }
}
