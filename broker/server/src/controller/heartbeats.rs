//! Every broker's side of its session: it tells the controller that it is there, hears whether it can be relied on, and registers again
//! when its life is said to be over.
//!
//! What must hold: the connection is the heartbeats' own, and is kept, because its end tells the controller that the process may be gone.
//! A broker that is alone says once that it is ready, and then nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::protocol::{Heartbeat, HeartbeatAnswer};
use crate::broker::Broker;
use crate::quorum::{AskError, ControllerReply, ControllerRequest, OwnChannel};

/// Waited after a heartbeat that was not answered, if the interval is not shorter.
const TRY_AGAIN: Duration = Duration::from_millis(100);
/// Partitions of failed or full disks that one heartbeat names; the next one has the rest, since those named are then taken away.
const OFFLINE_MAX: usize = 10_000;

/// Beats until `stop` is cancelled.
pub(crate) async fn run(broker: Arc<Broker>, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = beat_for_ever(&broker) => {}
    }
}

async fn beat_for_ever(broker: &Arc<Broker>) {
    let interval = broker.config.membership.heartbeat_interval;
    let mut channel = broker.metadata.own_channel();
    let mut leadership = broker.metadata.leadership();
    let mut ready = broker.ready.subscribe();
    let mut followed = broker.followed();
    loop {
        leadership.mark_unchanged();
        ready.mark_unchanged();
        followed.mark_unchanged();
        let beat = heartbeat(broker);
        let answer = tokio::select! {
            answer = ask(broker, &mut channel, &beat) => answer,
            // The one that was asked is not the one to ask.
            changed = leadership.changed() => match changed {
                Ok(()) => continue,
                Err(_stopping) => return,
            },
        };
        if let Ok(Some(HeartbeatAnswer::NotRegistered)) = answer {
            tracing::warn!("the controller says that this broker's registration is over: it registers again");
            broker.register_again().await;
            continue;
        }
        let alone = broker.metadata.image().brokers().len() < 2;
        let pause = match answer {
            Ok(Some(_)) if alone && leadership.borrow().here => None,
            Ok(Some(_)) => Some(interval),
            Ok(None) | Err(_) => Some(interval.min(TRY_AGAIN)),
        };
        // An image that says more may be what the controller waits for.
        let behind = pause.is_none() || beat.applied_version <= beat.life.broker_epoch;
        let stopping = tokio::select! {
            () = pause_for(pause) => false,
            changed = leadership.changed() => changed.is_err(),
            changed = ready.changed() => changed.is_err(),
            () = broker.disks_changed.notified() => false,
            changed = followed.changed(), if behind => changed.is_err(),
        };
        if stopping {
            return;
        }
    }
}

fn heartbeat(broker: &Broker) -> Heartbeat {
    let mut offline = broker.partitions.on_failed_dirs();
    offline.truncate(OFFLINE_MAX);
    let [mut full, mut low] = broker.partitions.on_full_dirs(&broker.metadata.image());
    full.truncate(OFFLINE_MAX);
    low.truncate(OFFLINE_MAX);
    Heartbeat {
        life: broker.life(),
        applied_version: *broker.followed().borrow(),
        ready: *broker.ready.borrow(),
        hung: broker.metadata.quorum().is_away(),
        offline,
        full,
        low,
    }
}

/// None if whoever was asked is not the controller.
async fn ask(broker: &Broker, channel: &mut OwnChannel, beat: &Heartbeat) -> Result<Option<HeartbeatAnswer>, AskError> {
    let reply = if broker.metadata.leadership().borrow().here {
        return Ok(broker.sessions.heartbeat(beat, &broker.metadata.image()));
    } else {
        let request = ControllerRequest::Heartbeat { heartbeat: beat.clone() };
        channel.ask(&request, broker.config.membership.session_timeout).await
    };
    match reply {
        Ok(ControllerReply::Heartbeat { answer }) => Ok(Some(answer)),
        Ok(other) => {
            tracing::debug!(?other, "a heartbeat was not taken");
            Ok(None)
        }
        Err(error) => {
            tracing::debug!(%error, "a heartbeat was not answered");
            Err(error)
        }
    }
}

async fn pause_for(pause: Option<Duration>) {
    match pause {
        Some(pause) => sleep(pause).await,
        None => std::future::pending().await,
    }
}
