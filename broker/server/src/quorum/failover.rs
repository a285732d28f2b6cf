//! Elections that need not wait for openraft's timeout: a leader whose process is gone, which is known at once, because its connections
//! broke and nobody listens where it was; and a cluster that was down as a whole, once a majority is back and none of them is led.
//!
//! What must hold: a leader that only cannot be reached is not replaced here, but by openraft's election timeout; the voters do not all
//! stand at the same moment.

use std::collections::BTreeSet;
use std::time::Duration;

use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::raft::TransferLeaderRequest;

use super::link::LinkError;
use super::node::Quorum;
use super::protocol::Welcome;
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

/// Stands for election at the start if a majority of the voters is there and none of them leads. `others` answered just now. Whom they
/// name may have led before everybody was killed; who hears of a living leader refuses the pre-vote.
pub(super) async fn stand_if_nobody_leads(quorum: &Quorum, others: impl Iterator<Item = &Welcome>) {
    let others: Vec<&Welcome> = others.collect();
    let (vote, rank) = {
        let metrics = quorum.raft.metrics();
        let metrics = metrics.borrow_watched();
        let voters: BTreeSet<VoterId> = metrics.membership_config.voter_ids().collect();
        let Some(rank) = turn(quorum.own, &voters, &others) else { return };
        if metrics.state != ServerState::Follower {
            return;
        }
        (metrics.vote, rank)
    };
    tokio::time::sleep(STAGGER * rank).await;
    if quorum.raft.metrics().borrow_watched().vote != vote {
        return;
    }
    if let Err(error) = quorum.raft.trigger().elect(true).await {
        tracing::warn!(%error, "no election for the metadata quorum");
    }
}

/// How many of the voters that are there stand before this one; none if there are too few, or one of them leads.
fn turn(own: VoterId, voters: &BTreeSet<VoterId>, others: &[&Welcome]) -> Option<u32> {
    let leads = |welcome: &&Welcome| welcome.leader.as_ref().is_some_and(|leader| leader.voter == welcome.voter);
    let led = others.iter().copied().any(|welcome| leads(&welcome));
    let there: BTreeSet<VoterId> =
        others.iter().map(|welcome| welcome.voter).chain([own]).filter(|voter| voters.contains(voter)).collect();
    let rank = there.iter().position(|voter| *voter == own)?;
    let majority = there.len() * 2 > voters.len() && voters.len() > 1;
    u32::try_from(rank).ok().filter(|_| majority && !led)
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

#[cfg(test)]
mod tests {
    use forebay_broker_wire::types::{BrokerId, Uuid};

    use super::*;
    use crate::quorum::protocol::Leader;
    use crate::quorum::types::Address;

    fn voter(id: i32) -> VoterId {
        VoterId { broker: BrokerId(id), directory: Uuid([9; 16]) }
    }

    fn welcome(id: i32, leader: Option<i32>) -> Welcome {
        let leader = leader.map(|id| Leader { voter: voter(id), address: Address::default() });
        Welcome { cluster_id: "c".to_owned(), voter: voter(id), pristine: false, leader }
    }

    #[test]
    fn a_majority_that_nobody_leads_stands_one_after_another() {
        let voters = BTreeSet::from([1, 2, 3].map(voter));
        let (one, two, leads) = (welcome(1, None), welcome(2, Some(3)), welcome(2, Some(2)));
        assert_eq!(turn(voter(3), &voters, &[&one, &two]), Some(2), "one remembers who led before");
        assert_eq!(turn(voter(1), &voters, &[&two]), Some(0));
        assert_eq!(turn(voter(3), &voters, &[]), None, "alone it can't win");
        assert_eq!(turn(voter(3), &voters, &[&one, &leads]), None);
        assert_eq!(turn(voter(4), &voters, &[&one, &two]), None, "it does not vote");
        assert_eq!(turn(voter(1), &BTreeSet::from([voter(1)]), &[]), None, "a broker alone needs nobody");
    }
}
