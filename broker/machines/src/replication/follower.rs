//! What a follower decides: whom it believes, and where its log is to be cut.

use forebay_broker_wire::types::{BrokerId, LeaderEpoch, Offset};

use super::EpochEnd;

/// A follower of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Follower {
    /// Whom it follows; nobody while the partition has no leader.
    pub leader: Option<BrokerId>,
    /// The leader's epoch.
    pub epoch: LeaderEpoch,
}

impl Follower {
    /// Where to cut a log that ends at `log_end`, when the leader says where the last epoch that both may have ends.
    ///
    /// If this log has that very epoch, it agrees with the leader's up to the nearer of its two ends. Otherwise only older epochs can be
    /// common, and what lies behind them goes; the next fetch asks about the rest.
    pub(super) fn diverged(
        &self,
        leader_epoch: LeaderEpoch,
        leader_end: EpochEnd,
        local_end: Option<EpochEnd>,
        log_end: Offset,
    ) -> Option<Offset> {
        if leader_epoch != self.epoch {
            return None;
        }
        let offset = match local_end {
            Some(local) if local.epoch == leader_end.epoch => local.end.min(leader_end.end),
            Some(local) => local.end,
            None => leader_end.end,
        };
        Some(offset.min(log_end))
    }
}
