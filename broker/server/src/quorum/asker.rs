//! Questions to the controller from any broker: connections to the present leader, kept while it leads.
//!
//! What must hold: a question goes to whoever is said to lead now; a connection serves one question at a time, and is given up when an
//! answer did not come.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::link::{Link, LinkError};
use super::node::Quorum;
use super::protocol::{CONTROLLER_API_KEY, ControllerReply, ControllerRequest};
use super::types::VoterId;

/// Connections kept for further questions.
const IDLE_LINKS_MAX: usize = 8;

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// Nobody leads, as far as this broker knows.
    #[error("the metadata quorum has no leader")]
    NoController,
    /// It could not be reached, or does not answer.
    #[error("controller: {0}")]
    Link(#[from] LinkError),
}

/// Asks the controller over connections that are shared.
#[derive(Debug)]
pub(crate) struct Asker {
    quorum: Arc<Quorum>,
    idle: Mutex<Vec<Link>>,
}

impl Asker {
    pub(crate) fn new(quorum: Arc<Quorum>) -> Self {
        Self { quorum, idle: Mutex::default() }
    }

    /// Asks the leader, which is another broker.
    pub(crate) async fn ask(
        &self,
        request: &ControllerRequest,
        time_max: Duration,
    ) -> Result<ControllerReply, AskError> {
        let leader = self.quorum.leader().ok_or(AskError::NoController)?;
        let mut link = match self.idle_link(leader.voter) {
            Some(link) => link,
            None => dial(&self.quorum, &leader).await?,
        };
        let reply = link.call(CONTROLLER_API_KEY, request, &[], time_max).await?;
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_LINKS_MAX {
            idle.push(link);
        }
        Ok(reply)
    }

    fn idle_link(&self, leader: VoterId) -> Option<Link> {
        let mut idle = self.idle.lock();
        idle.retain(|link| link.welcome.voter == leader);
        idle.pop()
    }
}

/// One connection of its own to whoever leads: what the controller concludes from its end concerns its owner.
#[derive(Debug)]
pub(crate) struct OwnChannel {
    quorum: Arc<Quorum>,
    link: Option<Link>,
}

impl OwnChannel {
    pub(crate) fn new(quorum: Arc<Quorum>) -> Self {
        Self { quorum, link: None }
    }

    /// Asks the leader, also when it is this broker itself.
    pub(crate) async fn ask(
        &mut self,
        request: &ControllerRequest,
        time_max: Duration,
    ) -> Result<ControllerReply, AskError> {
        let leader = self.quorum.leader().ok_or(AskError::NoController)?;
        // Taken out, so that a question that is given up half way takes its connection with it.
        let mut link = match self.link.take().filter(|link| link.welcome.voter == leader.voter) {
            Some(link) => link,
            None => dial(&self.quorum, &leader).await?,
        };
        let reply = link.call(CONTROLLER_API_KEY, request, &[], time_max).await?;
        self.link = Some(link);
        Ok(reply)
    }
}

async fn dial(quorum: &Quorum, leader: &super::protocol::Leader) -> Result<Link, LinkError> {
    let link = quorum.peers.dial(&leader.address).await?;
    if link.welcome.voter != leader.voter {
        let message = format!("is {}, not {}", link.welcome.voter, leader.voter);
        return Err(LinkError::Refused { address: leader.address.clone(), message });
    }
    Ok(link)
}
