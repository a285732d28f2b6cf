//! A broker whose metadata disk hangs, or is full to the last byte: its log takes no entry, its vote can't be given, and openraft may wait for the disk for as long as it
//! lasts. It leads no more, stands for no election, and finds out from the others who leads.
//!
//! What must hold: nothing is concluded from what openraft says here, which may be old; only brokers that are not the only voter give way.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::members;
use super::node::{Quorum, successor};

/// Between two questions to the others.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// openraft may be waiting for the disk already.
const STEP_DOWN_MAX: Duration = Duration::from_millis(100);

/// Acts whenever the disk hangs.
pub(super) async fn give_way(quorum: Arc<Quorum>) {
    let mut hung = quorum.hung.subscribe();
    while hung.wait_for(|hung| *hung).await.is_ok() {
        if quorum.is_away() {
            tracing::error!(
                "the disk of the metadata log hangs or is full: this broker takes no part in the metadata quorum until it goes on"
            );
            quorum.raft.runtime_config().elect(false);
            quorum.raft.runtime_config().heartbeat(false);
            quorum.tell_leadership();
            step_down(&quorum).await;
            while *hung.borrow_and_update() {
                *quorum.elsewhere.lock() = members::leader_elsewhere(&quorum).await;
                quorum.tell_leadership();
                tokio::select! {
                    () = sleep(ASK_AGAIN) => {}
                    changed = hung.changed() => if changed.is_err() { return },
                }
            }
            tracing::warn!("the disk of the metadata log goes on: this broker takes part in the metadata quorum again");
            quorum.elsewhere.lock().take();
            quorum.raft.runtime_config().heartbeat(true);
            quorum.raft.runtime_config().elect(true);
            quorum.tell_leadership();
        } else if hung.wait_for(|hung| !*hung).await.is_err() {
            return;
        }
    }
}

/// Tells when the log waits for room.
pub(super) async fn watch_room(quorum: Arc<Quorum>) {
    let mut room = quorum.log.watch_room();
    while room.changed().await.is_ok() {
        quorum.look_at_disk();
    }
}

/// A leader hands over to another at once; if it can't, its heartbeats are missed.
async fn step_down(quorum: &Quorum) {
    if let Some(successor) = successor(&quorum.metrics(), quorum.own) {
        let handed = timeout(STEP_DOWN_MAX, quorum.raft.trigger().transfer_leader(successor)).await;
        tracing::info!(to = successor.broker.0, asked = handed.is_ok(), "another is to lead the metadata quorum");
    }
}
