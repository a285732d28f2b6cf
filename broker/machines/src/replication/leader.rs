//! What a partition's leader knows about its replicas, and what follows from it: the high watermark.
//!
//! The high watermark is the least offset that every in-sync replica has reached, this one included. It never goes back while one leader
//! leads. Whether this replica has reached an offset when it is written or only when it is flushed is the partition's [`CommitRule`].

use std::collections::BTreeMap;

use forebay_broker_wire::types::{BrokerId, LeaderEpoch, Offset};

/// When this replica counts a record as reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitRule {
    /// As soon as it is written.
    Written,
    /// Only when it is flushed (`flush.messages=1`).
    Flushed,
}

/// A follower as its leader sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Follower {
    /// It has everything below this offset; `None` until its first fetch.
    pub log_end: Option<Offset>,
    /// It is in the ISR: the high watermark waits for it.
    pub in_sync: bool,
}

/// The leader of one partition.
#[derive(Debug, Clone)]
pub struct Leader {
    epoch: LeaderEpoch,
    rule: CommitRule,
    log_end: Offset,
    flushed_end: Offset,
    high_watermark: Offset,
    followers: BTreeMap<BrokerId, Follower>,
}

impl Leader {
    /// A leader from `epoch` on whose log is known to be safe up to `high_watermark` and flushed up to `log_end`.
    pub fn new(epoch: LeaderEpoch, rule: CommitRule, high_watermark: Offset, log_end: Offset) -> Self {
        let mut leader =
            Self { epoch, rule, log_end, flushed_end: log_end, high_watermark, followers: BTreeMap::new() };
        leader.advance();
        leader
    }

    /// Its epoch.
    pub fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// All records below are on every in-sync replica.
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// The followers.
    pub fn followers(&self) -> &BTreeMap<BrokerId, Follower> {
        &self.followers
    }

    /// Leads on in a newer epoch; an older one changes nothing.
    pub fn set_epoch(&mut self, epoch: LeaderEpoch) {
        self.epoch = self.epoch.max(epoch);
    }

    /// Changes the rule. Gives the high watermark if it rose.
    pub fn set_rule(&mut self, rule: CommitRule) -> Option<Offset> {
        self.rule = rule;
        self.advance()
    }

    /// Records up to `log_end` are written here. Gives the high watermark if it rose.
    pub fn written(&mut self, log_end: Offset) -> Option<Offset> {
        self.log_end = self.log_end.max(log_end);
        self.advance()
    }

    /// Records up to `end` are flushed here. Gives the high watermark if it rose.
    pub fn flushed(&mut self, end: Offset) -> Option<Offset> {
        self.flushed_end = self.flushed_end.max(end);
        self.advance()
    }

    /// Sets who replicates this partition and who of them is in sync. Gives the high watermark if it rose.
    pub fn set_replicas(&mut self, followers: &[(BrokerId, bool)]) -> Option<Offset> {
        let known = std::mem::take(&mut self.followers);
        let progress = |id| known.get(id).and_then(|follower| follower.log_end);
        self.followers = followers
            .iter()
            .map(|(id, in_sync)| (*id, Follower { log_end: progress(id), in_sync: *in_sync }))
            .collect();
        self.advance()
    }

    /// A follower asks for records from `offset` on, hence has all before. Gives the high watermark if it rose.
    pub fn fetched(&mut self, follower: BrokerId, offset: Offset) -> Option<Offset> {
        self.followers.get_mut(&follower)?.log_end = Some(offset.min(self.log_end));
        self.advance()
    }

    fn advance(&mut self) -> Option<Offset> {
        let own = match self.rule {
            CommitRule::Written => self.log_end,
            CommitRule::Flushed => self.flushed_end.min(self.log_end),
        };
        let in_sync = self.followers.values().filter(|follower| follower.in_sync);
        let reached = in_sync.map(|follower| follower.log_end.unwrap_or(Offset(0))).fold(own, Offset::min);
        let rose = reached > self.high_watermark;
        self.high_watermark = self.high_watermark.max(reached);
        rose.then_some(self.high_watermark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leader(rule: CommitRule) -> Leader {
        Leader::new(LeaderEpoch(3), rule, Offset(10), Offset(10))
    }

    #[test]
    fn alone_the_high_watermark_is_the_logs_end() {
        let mut leader = leader(CommitRule::Written);
        assert_eq!(leader.written(Offset(15)), Some(Offset(15)));
        assert_eq!(leader.written(Offset(15)), None);
    }

    #[test]
    fn with_flush_messages_1_it_is_the_flushed_end() {
        let mut leader = leader(CommitRule::Flushed);
        assert_eq!(leader.written(Offset(15)), None);
        assert_eq!(leader.flushed(Offset(12)), Some(Offset(12)));
        assert_eq!(leader.set_rule(CommitRule::Written), Some(Offset(15)));
        leader.set_rule(CommitRule::Flushed);
        assert_eq!(leader.high_watermark(), Offset(15), "never back");
    }

    #[test]
    fn it_waits_for_in_sync_followers_only() {
        let mut leader = leader(CommitRule::Written);
        leader.set_replicas(&[(BrokerId(2), true), (BrokerId(3), false)]);
        assert_eq!(leader.written(Offset(20)), None);
        assert_eq!(leader.fetched(BrokerId(3), Offset(20)), None);
        assert_eq!(leader.fetched(BrokerId(2), Offset(14)), Some(Offset(14)));
        assert_eq!(leader.fetched(BrokerId(9), Offset(20)), None, "nobody's follower");
        assert_eq!(leader.set_replicas(&[(BrokerId(2), false), (BrokerId(3), true)]), Some(Offset(20)));
        assert_eq!(leader.followers()[&BrokerId(3)].log_end, Some(Offset(20)));
    }

    #[test]
    fn a_follower_ahead_of_the_log_does_not_move_it_past_the_end() {
        let mut leader = leader(CommitRule::Written);
        leader.set_replicas(&[(BrokerId(2), true)]);
        leader.fetched(BrokerId(2), Offset(99));
        assert_eq!(leader.high_watermark(), Offset(10));
        assert_eq!(leader.followers()[&BrokerId(2)].log_end, Some(Offset(10)));
    }
}
