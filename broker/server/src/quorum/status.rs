//! The quorum as the leader sees it: who votes, who listens, how far each has come.

use forebay_broker_wire::types::BrokerId;
use openraft::{Instant, RaftMetrics, ServerState};
use serde::{Deserialize, Serialize};

use super::node::Quorum;
use super::types::{Address, Types, VoterId};

/// The quorum at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct QuorumStatus {
    pub(crate) term: u64,
    pub(crate) leader: Option<VoterId>,
    /// The offset after the last entry that is committed, as this broker knows.
    pub(crate) high_watermark: i64,
    pub(crate) voters: Vec<MemberStatus>,
    pub(crate) learners: Vec<MemberStatus>,
}

/// One member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemberStatus {
    pub(crate) voter: VoterId,
    pub(crate) address: Address,
    /// -1 where it is not known, as on brokers that do not lead.
    pub(crate) log_end: i64,
    /// How long ago it last answered the leader; -1 where it is not known.
    pub(crate) heard_ms_ago: i64,
}

impl Quorum {
    /// The quorum as this broker sees it; how far others have come is known on the leader only.
    pub(crate) fn status(&self) -> QuorumStatus {
        let metrics = self.metrics();
        let membership = metrics.membership_config.membership();
        let member = |voter: VoterId| {
            let known = membership.get_node(&voter).cloned().unwrap_or_default();
            let address =
                if voter == self.voter() { self.address.clone() } else { self.peers.address_of(voter.broker, &known) };
            MemberStatus {
                voter,
                address,
                log_end: log_end(&metrics, voter),
                heard_ms_ago: heard_ms_ago(&metrics, voter),
            }
        };
        QuorumStatus {
            term: metrics.current_term,
            leader: metrics.current_leader,
            high_watermark: after(metrics.cluster_committed.map(|last| last.index)),
            voters: membership.voter_ids().map(member).collect(),
            learners: membership.learner_ids().map(member).collect(),
        }
    }
}

impl QuorumStatus {
    /// Entries that the member which misses most does not have yet; none where that is not known.
    pub(crate) fn largest_lag(&self, own: BrokerId) -> Option<i64> {
        let members = || self.voters.iter().chain(&self.learners);
        let end = members().find(|member| member.voter.broker == own && member.log_end >= 0)?.log_end;
        members().map(|member| (end - member.log_end.max(0)).max(0)).max()
    }
}

fn after(index: Option<u64>) -> i64 {
    index.map_or(0, |index| i64::try_from(index).unwrap_or(i64::MAX).saturating_add(1))
}

fn log_end(metrics: &RaftMetrics<Types>, voter: VoterId) -> i64 {
    if voter == metrics.id {
        return after(metrics.last_log_index);
    }
    let reached = metrics.replication.as_ref().filter(|_| metrics.state == ServerState::Leader);
    reached.and_then(|reached| reached.get(&voter)).map_or(-1, |last| after(last.map(|last| last.index)))
}

fn heard_ms_ago(metrics: &RaftMetrics<Types>, voter: VoterId) -> i64 {
    if voter == metrics.id {
        return 0;
    }
    let heard = metrics.heartbeat.as_ref().and_then(|heard| heard.get(&voter)).and_then(Option::as_ref);
    heard.map_or(-1, |at| i64::try_from(at.elapsed().as_millis()).unwrap_or(i64::MAX))
}
