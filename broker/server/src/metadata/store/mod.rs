//! MetadataStore: commands in, images out, on every broker of the cluster.
//!
//! Where the quorum's leader is, commands that wait at the same time are decided together, each on the image that the ones before it
//! leave, and become one entry; elsewhere they are sent there. Either way an answer comes only when this broker's own image has what was
//! decided. Readers take the newest image without a lock and keep it as long as they need it.

mod decide;

use std::sync::Arc;
use std::time::Duration;

use forebay_broker_config::BrokerConfig;
use forebay_broker_machines::metadata::{Command, MetadataImage, Reply};
use forebay_broker_wire::types::Uuid;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use self::decide::{Decider, NotDecided};
use crate::quorum::{
    AskError, Asker, ControllerReply, ControllerRequest, Leadership, OpenQuorum, OpenQuorumError, OwnChannel, Quorum,
};

/// How long a command may take in all, elections included.
const COMMAND_MAX: Duration = Duration::from_secs(20);
/// Waited before a command is tried again, unless the leader changes sooner.
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// Why a command got no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SubmitError {
    /// What was decided could not be made durable.
    #[error("metadata log: {message}")]
    NotDurable { message: String },
    /// There is no room on the disk. It may be decided when there is some.
    #[error("the metadata can't be changed before there is room: {message}")]
    NoRoom { message: String },
    /// Too many wait already.
    #[error("too many metadata commands are waiting: try again later")]
    Busy,
    /// Nobody decided it in time. It may be decided all the same.
    #[error("the metadata quorum has not decided within {} s: {why}", COMMAND_MAX.as_secs())]
    Undecided { why: String },
}

/// The metadata of the cluster.
pub(crate) struct MetadataStore {
    quorum: Arc<Quorum>,
    asker: Asker,
    decider: Decider,
}

impl std::fmt::Debug for MetadataStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetadataStore").field("version", &self.image().version()).finish_non_exhaustive()
    }
}

impl MetadataStore {
    /// Opens this broker's part of the quorum; no leader is waited for.
    pub(crate) async fn open(open: OpenQuorum, config: Arc<BrokerConfig>) -> Result<Self, OpenQuorumError> {
        let quorum = Quorum::open(open).await?;
        let asker = Asker::new(Arc::clone(&quorum));
        let decider = Decider::start(Arc::clone(&quorum), config);
        Ok(Self { quorum, asker, decider })
    }

    /// This broker's part in the quorum.
    pub(crate) fn quorum(&self) -> &Arc<Quorum> {
        &self.quorum
    }

    /// Topics that were deleted not long ago.
    pub(crate) fn removed_topics(&self) -> Arc<Vec<Uuid>> {
        self.quorum.machine.removed_topics()
    }

    /// The newest image.
    pub(crate) fn image(&self) -> Arc<MetadataImage> {
        self.quorum.machine.image()
    }

    /// Hears the version of each new image.
    pub(crate) fn subscribe(&self) -> watch::Receiver<i64> {
        self.quorum.machine.subscribe()
    }

    /// Hears who leads the quorum, and so is the controller.
    pub(crate) fn leadership(&self) -> watch::Receiver<Leadership> {
        self.quorum.leadership()
    }

    /// Has a command decided, and waits until the decision is durable and can be seen in [`MetadataStore::image`]; gives the
    /// version from which on it is.
    pub(crate) async fn submit(&self, command: Command) -> Result<(Reply, i64), SubmitError> {
        let until = Instant::now() + COMMAND_MAX;
        let mut leadership = self.leadership();
        loop {
            let now = *leadership.borrow_and_update();
            let why = match self.try_submit(now, &command, until).await {
                Ok((reply, version)) => return self.seen(reply, version, until).await,
                Err(Attempt::Over(error)) => return Err(error),
                Err(Attempt::Again(why)) => why,
            };
            if Instant::now() >= until {
                return Err(SubmitError::Undecided { why });
            }
            let again = until.min(Instant::now() + TRY_AGAIN);
            if timeout_at(again, leadership.changed()).await.is_ok_and(|changed| changed.is_err()) {
                return Err(SubmitError::Undecided { why: "this broker is stopping".to_owned() });
            }
        }
    }

    async fn try_submit(&self, now: Leadership, command: &Command, until: Instant) -> Result<(Reply, i64), Attempt> {
        if now.here {
            return match timeout_at(until, self.decider.decide(command.clone())).await {
                Ok(decided) => decided.map_err(Attempt::from),
                Err(_elapsed) => Err(Attempt::Again("no majority of its voters answers".to_owned())),
            };
        }
        if now.leader.is_none_or(|leader| leader == self.quorum.broker_id()) {
            return Err(Attempt::Again(match self.quorum.waiting_for() {
                nothing if nothing.is_empty() => "it has no leader".to_owned(),
                what => format!("it waits for {what}"),
            }));
        }
        let request = ControllerRequest::Submit { command: command.clone() };
        let left = until.saturating_duration_since(Instant::now());
        match self.asker.ask(&request, left).await {
            Ok(ControllerReply::Submitted { reply, version }) => Ok((reply, version)),
            Ok(
                ControllerReply::NotController { .. } | ControllerReply::Quorum(_) | ControllerReply::Heartbeat { .. },
            ) => Err(Attempt::Again("its leader changes".to_owned())),
            Ok(ControllerReply::Busy) => Err(Attempt::Over(SubmitError::Busy)),
            Ok(ControllerReply::Failed { message }) => Err(Attempt::Over(SubmitError::NotDurable { message })),
            Err(error) => Err(Attempt::Again(error.to_string())),
        }
    }

    /// Waits until this broker's image has a version.
    async fn seen(&self, reply: Reply, version: i64, until: Instant) -> Result<(Reply, i64), SubmitError> {
        let mut versions = self.subscribe();
        match timeout_at(until, versions.wait_for(|seen| *seen >= version)).await {
            Ok(Ok(_)) => Ok((reply, version)),
            Ok(Err(_)) | Err(_) => {
                Err(SubmitError::Undecided { why: "it was decided, but this broker has not heard of it".to_owned() })
            }
        }
    }

    /// Asks the controller, wherever it is; what is asked here is answered by `answer`.
    pub(crate) async fn ask_controller(
        &self,
        request: &ControllerRequest,
        time_max: Duration,
    ) -> Result<ControllerReply, AskError> {
        self.asker.ask(request, time_max).await
    }

    /// A connection of one's own to whoever is the controller.
    pub(crate) fn own_channel(&self) -> OwnChannel {
        OwnChannel::new(Arc::clone(&self.quorum))
    }

    /// Decides another broker's command, if this is the controller.
    pub(crate) async fn answer_submit(&self, command: Command) -> ControllerReply {
        let decided = match self.leadership().borrow().here {
            true => Ok(self.decider.decide(command)),
            false => Err(()),
        };
        let Ok(decided) = decided else { return self.not_controller() };
        match decided.await {
            Ok((reply, version)) => ControllerReply::Submitted { reply, version },
            Err(NotDecided::NotController) => self.not_controller(),
            Err(NotDecided::Busy) => ControllerReply::Busy,
            Err(NotDecided::NoRoom(message) | NotDecided::Failed(message)) => ControllerReply::Failed { message },
        }
    }

    /// The answer to what is asked of a broker that is not the controller.
    pub(crate) fn not_controller(&self) -> ControllerReply {
        ControllerReply::NotController { controller: self.leadership().borrow().leader.map(|id| id.0) }
    }

    /// Stops taking part in the quorum, and makes the next start short.
    pub(crate) async fn close(&self) -> Result<(), SubmitError> {
        self.quorum.stop().await;
        let log = self.quorum.log.clone();
        let failed = |message: String| SubmitError::NotDurable { message };
        let closed = tokio::task::spawn_blocking(move || log.close()).await;
        closed.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))
    }
}

/// What came of one attempt.
enum Attempt {
    Again(String),
    Over(SubmitError),
}

impl From<NotDecided> for Attempt {
    fn from(error: NotDecided) -> Self {
        match error {
            NotDecided::NotController => Self::Again("its leader changes".to_owned()),
            NotDecided::Busy => Self::Over(SubmitError::Busy),
            NotDecided::NoRoom(message) => Self::Over(SubmitError::NoRoom { message }),
            NotDecided::Failed(message) => Self::Over(SubmitError::NotDurable { message }),
        }
    }
}

#[cfg(test)]
mod tests;
