//! A leader whose process is gone: known at once, because its connections broke and nobody listens where it was.
//!
//! What must hold: a leader that only cannot be reached is not replaced here, but by openraft's election timeout; the voters do not all
//! stand at the same moment.

use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::raft::TransferLeaderRequest;

use super::link::LinkError;
use super::node::Quorum;
use super::types::VoterId;

/// Between the voters' candidatures: longer than a vote takes.
const STAGGER: Duration = Duration::from_millis(40);
/// Candidatures until openraft's own timeout has its turn.
const ATTEMPTS: u32 = 5;

/// Stands for election if the leader's process is gone.
pub(super) async fn succeed(quorum: &Quorum, leader: VoterId) {
    let (mut rank, vote) = {
        let metrics = quorum.raft.metrics();
        let metrics = metrics.borrow_watched();
        if metrics.current_leader != Some(leader) {
            return;
        }
        let others = metrics.membership_config.voter_ids().filter(|voter| *voter != leader);
        let Some(rank) = others.collect::<Vec<_>>().iter().position(|voter| *voter == quorum.own) else { return };
        (u32::try_from(rank).unwrap_or(u32::MAX), metrics.vote)
    };
    if !is_gone(quorum, leader).await {
        return;
    }
    tracing::info!(
        leader = leader.broker.0,
        "the leader of the metadata quorum is gone: its connections broke, and nobody listens where it was"
    );
    for _ in 0..ATTEMPTS {
        tokio::time::sleep(STAGGER * rank).await;
        if quorum.raft.metrics().borrow_watched().vote != vote {
            return;
        }
        // As if the leader had asked for it: the others' patience with it need not run out first.
        let request = TransferLeaderRequest::new(vote, quorum.own, None);
        if let Err(error) = quorum.raft.handle_transfer_leader(request).await {
            tracing::warn!(%error, "no election for the metadata quorum");
            return;
        }
        rank = rank.max(1) + 1;
    }
}

async fn is_gone(quorum: &Quorum, leader: VoterId) -> bool {
    let known = {
        let metrics = quorum.raft.metrics();
        metrics.borrow_watched().membership_config.membership().get_node(&leader).cloned().unwrap_or_default()
    };
    let address = quorum.peers.address_of(leader.broker, &known);
    match quorum.peers.dial(&address).await {
        Err(LinkError::NobodyThere { .. }) => true,
        // Another life of the process does not lead.
        Ok(link) => link.welcome.voter != leader || link.welcome.leader.is_none_or(|told| told.voter != leader),
        Err(_) => false,
    }
}
