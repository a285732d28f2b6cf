//! One move from its turn to its end, on a blocking thread: copy until little is left, let the partition go on in the copy.
//!
//! What must hold: whatever ends a move but its success leaves the replica where it is and removes the copy; a disk that fails or hangs ends
//! it; so do a partition that leaves this broker and a stop.

use std::sync::Arc;
use std::time::Duration;

use forebay_broker_partition::SwitchError;
use forebay_broker_storage::{FutureLog, MoveError, Work};

use super::Move;
use crate::broker::Broker;
use crate::io::append::now_ms;
use crate::metadata::random_id;
use crate::partitions::HostedDir;

/// Copied between two looks at whether to go on.
const STEP_BYTES: u64 = 1 << 20;
/// With so little left the log changes hands.
const SWITCH_BELOW_BYTES: u64 = 4 << 20;
/// Waited after an attempt that came at a bad moment.
const TRY_AGAIN: Duration = Duration::from_millis(100);
/// The longest rest, so that a rate that is raised counts soon.
const REST_MAX: Duration = Duration::from_secs(1);

/// How a move ended, when nothing failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Moved,
    CalledOff,
}

#[derive(Debug, thiserror::Error)]
enum MoveFailure {
    #[error(transparent)]
    Switch(#[from] SwitchError),
    #[error(transparent)]
    Copy(#[from] MoveError),
    #[error("log dir {path} takes no writes")]
    Out { path: String },
}

pub(super) async fn run(broker: Arc<Broker>, this: Arc<Move>) {
    let turn = tokio::select! {
        turn = broker.moves.turns.acquire() => turn.ok(),
        () = this.ended.cancelled() => None,
    };
    if turn.is_some() {
        let (working, moving) = (Arc::clone(&broker), Arc::clone(&this));
        if tokio::task::spawn_blocking(move || carry_out(&working, &moving)).await.is_err() {
            tracing::error!("a move to another log dir ended by a panic");
        }
    }
    drop(turn);
    broker.moves.over(&this);
}

fn carry_out(broker: &Broker, this: &Move) {
    let Move { hosted, target, .. } = this;
    let (topic, partition, to) = (&hosted.topic, hosted.index, target.log_dir.path().display());
    tracing::info!(%topic, %partition, %to, "a replica begins to move to another log dir");
    let began = FutureLog::begin(&target.log_dir, hosted.partition.name(), random_id());
    let ended = began.map_err(MoveFailure::from).and_then(|mut future| {
        let ended = copy_and_switch(broker, this, &mut future);
        if !matches!(ended, Ok(Ended::Moved))
            && let Err(error) = future.discard()
        {
            tracing::warn!(%topic, %partition, %to, %error, "what was copied is left until the next start");
        }
        ended
    });
    match ended {
        Ok(Ended::Moved) => tracing::info!(%topic, %partition, %to, "a replica has moved to another log dir"),
        Ok(Ended::CalledOff) | Err(MoveFailure::Switch(SwitchError::Closed(_))) => {
            tracing::info!(%topic, %partition, %to, "a move to another log dir is called off");
        }
        Err(error) => {
            tracing::warn!(%topic, %partition, %to, %error, "a replica is not moved to another log dir");
        }
    }
}

fn copy_and_switch(broker: &Broker, this: &Move, future: &mut FutureLog) -> Result<Ended, MoveFailure> {
    loop {
        if this.hold().is_none() || broker.shutdown.is_cancelled() {
            return Ok(Ended::CalledOff);
        }
        check(&this.hosted.dir())?;
        check(&this.target)?;
        if let Some(wait) = broker.moves.wait(broker) {
            this.pause(wait.min(REST_MAX));
            continue;
        }
        let copied = {
            let _in_progress = this.target.log_dir.progress().begin(Work::Background);
            this.hosted.partition.copy_some(future, STEP_BYTES)?
        };
        broker.moves.throttle.take(copied.bytes);
        this.note(&copied);
        if copied.left_bytes > SWITCH_BELOW_BYTES {
            continue;
        }
        match switch(broker, this, future) {
            Err(MoveFailure::Switch(SwitchError::Compacting | SwitchError::Move(MoveError::Behind { .. }))) => {
                this.pause(TRY_AGAIN);
            }
            ended => {
                broker.moves.throttle.take(copied.left_bytes);
                return ended;
            }
        }
    }
}

fn check(dir: &HostedDir) -> Result<(), MoveFailure> {
    let path = || dir.log_dir.path().display().to_string();
    if dir.is_out() { Err(MoveFailure::Out { path: path() }) } else { Ok(()) }
}

fn switch(broker: &Broker, this: &Move, future: &mut FutureLog) -> Result<Ended, MoveFailure> {
    let _in_progress = this.target.log_dir.progress().begin(Work::Background);
    // So that nothing but what came last has to be waited for while the partition stands still.
    future.flush()?;
    let Some(_held) = this.hold() else { return Ok(Ended::CalledOff) };
    this.hosted.partition.switch_to(future, now_ms())?;
    this.hosted.moved_to(Arc::clone(&this.target));
    broker.partitions.relocate(&this.hosted);
    // The other disk may have been full.
    broker.disks_changed.notify_one();
    Ok(Ended::Moved)
}
