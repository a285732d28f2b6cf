//! One task that makes everything here follow the metadata: partitions, groups.
//!
//! What must hold: each image is followed after the one before it and by nothing else; images that come meanwhile are followed together.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::broker::Broker;

/// Between two tries to do what a disk that hangs holds up.
const LATE_AGAIN: Duration = Duration::from_millis(250);

/// Follows until `stop` is cancelled; what is being followed then is followed to its end.
pub(crate) async fn run(broker: Arc<Broker>, stop: CancellationToken) {
    let mut versions = broker.metadata.subscribe();
    versions.mark_changed();
    loop {
        let changed = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            changed = versions.changed() => changed,
            () = tokio::time::sleep(LATE_AGAIN), if broker.partitions.has_late() => Ok(()),
        };
        if changed.is_err() {
            return;
        }
        versions.mark_unchanged();
        let following = Arc::clone(&broker);
        if let Err(error) = tokio::task::spawn_blocking(move || following.follow()).await {
            tracing::error!(%error, "following the metadata ended by a panic");
            broker.shutdown.cancel();
            return;
        }
    }
}
