//! Which leader epoch wrote from which offset on: the log's `leader-epoch-checkpoint`.
//!
//! Epochs and offsets both ascend strictly. It answers a client's or follower's question "where did epoch e end" and is durable before an
//! append with a new epoch is answered.

use std::path::PathBuf;

use forebay_broker_wire::types::{LeaderEpoch, Offset};

use crate::{
    checkpoint::{self, CheckpointError},
    disk::{Disk, DiskError},
};

/// File name within a log's directory.
pub(crate) const FILE_NAME: &str = "leader-epoch-checkpoint";

#[derive(Debug, Clone)]
pub(crate) struct LeaderEpochs {
    disk: Disk,
    path: PathBuf,
    entries: Vec<(LeaderEpoch, Offset)>,
}

impl LeaderEpochs {
    pub(crate) fn load(disk: &Disk, path: PathBuf) -> Result<Self, CheckpointError> {
        let entries = checkpoint::read_epochs(disk, &path)?;
        Ok(Self { disk: disk.clone(), path, entries })
    }

    pub(crate) fn empty(disk: &Disk, path: PathBuf) -> Self {
        Self { disk: disk.clone(), path, entries: Vec::new() }
    }

    /// A record at `offset` is written in `epoch`. Gives whether that changed anything; if so, [`Self::save`].
    pub(crate) fn assign(&mut self, epoch: LeaderEpoch, offset: Offset) -> bool {
        if epoch < LeaderEpoch(0) || self.latest().is_some_and(|latest| latest >= epoch) {
            return false;
        }
        self.entries.retain(|(_, start)| *start < offset); // an epoch without a record never was
        self.entries.push((epoch, offset));
        true
    }

    /// The same in another directory, where they are not saved yet.
    pub(crate) fn at(&self, disk: &Disk, path: PathBuf) -> Self {
        Self { disk: disk.clone(), path, entries: self.entries.clone() }
    }

    /// Makes the entries durable.
    pub(crate) fn save(&self) -> Result<(), DiskError> {
        checkpoint::write_epochs(&self.disk, &self.path, &self.entries)
    }

    pub(crate) fn latest(&self) -> Option<LeaderEpoch> {
        self.entries.last().map(|(epoch, _)| *epoch)
    }

    /// Where the oldest one begins.
    pub(crate) fn first_start(&self) -> Option<Offset> {
        self.entries.first().map(|(_, start)| *start)
    }

    /// The epoch that wrote `offset`.
    pub(crate) fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        let at = self.entries.partition_point(|(_, start)| *start <= offset);
        Some(self.entries.get(at.checked_sub(1)?)?.0)
    }

    /// The largest epoch not above `epoch` and the offset where it ended. `None` when the epoch is not known here.
    pub(crate) fn end_offset_for(&self, epoch: LeaderEpoch, log_end: Offset) -> Option<(LeaderEpoch, Offset)> {
        let latest = self.latest()?;
        if epoch < LeaderEpoch(0) || epoch > latest {
            return None;
        }
        if epoch == latest {
            return Some((epoch, log_end));
        }
        let above = self.entries.partition_point(|(known, _)| *known <= epoch);
        let found = above.checked_sub(1).map_or(epoch, |at| self.entries[at].0);
        Some((found, self.entries[above].1))
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Forgets what starts at or after `offset`. Gives whether anything changed.
    pub(crate) fn truncate_end(&mut self, offset: Offset) -> bool {
        let before = self.entries.len();
        self.entries.retain(|(_, start)| *start < offset);
        self.entries.len() != before
    }

    /// Forgets what ended before `offset`. Gives whether anything changed.
    pub(crate) fn truncate_start(&mut self, offset: Offset) -> bool {
        let at = self.entries.partition_point(|(_, start)| *start <= offset);
        let Some(at) = at.checked_sub(1) else { return false };
        if at == 0 && self.entries[0].1 == offset {
            return false;
        }
        self.entries.drain(..at);
        self.entries[0].1 = offset;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(entries: &[(i32, i64)]) -> LeaderEpochs {
        let entries = entries.iter().map(|(epoch, offset)| (LeaderEpoch(*epoch), Offset(*offset))).collect();
        LeaderEpochs { disk: Disk::real(), path: PathBuf::new(), entries }
    }

    fn end(known: &LeaderEpochs, epoch: i32) -> Option<(i32, i64)> {
        known.end_offset_for(LeaderEpoch(epoch), Offset(100)).map(|(epoch, offset)| (epoch.0, offset.0))
    }

    #[test]
    fn tells_where_each_epoch_ended() {
        let known = epochs(&[(2, 10), (5, 40), (7, 60)]);
        assert_eq!(end(&known, 7), Some((7, 100)), "the latest ends at the log's end");
        assert_eq!(end(&known, 6), Some((5, 60)), "an epoch without records is the one before");
        assert_eq!(end(&known, 5), Some((5, 60)));
        assert_eq!(end(&known, 2), Some((2, 40)));
        assert_eq!(end(&known, 0), Some((0, 10)), "older than the log");
        assert_eq!(end(&known, 8), None);
        assert_eq!(end(&known, -1), None);
        assert_eq!(end(&epochs(&[]), 0), None);
    }

    #[test]
    fn an_epoch_that_wrote_nothing_is_replaced() {
        let mut known = epochs(&[(2, 10), (5, 40)]);
        assert!(known.assign(LeaderEpoch(6), Offset(40)));
        assert!(!known.assign(LeaderEpoch(6), Offset(50)));
        assert!(!known.assign(LeaderEpoch(4), Offset(50)));
        assert_eq!(known.entries, epochs(&[(2, 10), (6, 40)]).entries);
        assert_eq!(known.epoch_at(Offset(39)), Some(LeaderEpoch(2)));
        assert_eq!(known.epoch_at(Offset(9)), None);
    }

    #[test]
    fn both_ends_can_be_cut() {
        let mut known = epochs(&[(2, 10), (5, 40), (7, 60)]);
        assert!(known.truncate_start(Offset(45)));
        assert_eq!(known.entries, epochs(&[(5, 45), (7, 60)]).entries);
        assert!(!known.truncate_start(Offset(45)));
        assert!(known.truncate_end(Offset(60)));
        assert_eq!(known.entries, epochs(&[(5, 45)]).entries);
        assert!(!known.truncate_end(Offset(46)));
    }
}
