//! One session: what its client wants to fetch, in turn, and what it was last told of each partition.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// What a client was or is to be told of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// End of what consumers may see.
    pub high_watermark: i64,
    /// First offset.
    pub log_start: i64,
    /// It has records, or something else that is told each time: an epoch that diverges, a better replica.
    pub news: bool,
    /// It has an error.
    pub failed: bool,
}

#[derive(Debug)]
struct Wanted<K, P> {
    key: K,
    position: P,
    /// `None` makes the next answer tell everything: after an error, and for a partition that was never told.
    told: Option<(i64, i64)>,
}

/// The partitions of one session. Those that brought records go to the end of the line, so that all come first in turn.
#[derive(Debug)]
pub(super) struct Session<K, P> {
    /// What the next request must say.
    pub(super) epoch: i32,
    pub(super) by_topic_id: bool,
    pub(super) of_replica: bool,
    pub(super) created_ms: i64,
    pub(super) used_ms: i64,
    line: BTreeMap<u64, Wanted<K, P>>,
    places: HashMap<K, u64>,
    next_place: u64,
}

impl<K: Clone + Eq + Hash, P: Clone> Session<K, P> {
    pub(super) fn new(by_topic_id: bool, of_replica: bool, now_ms: i64) -> Self {
        Self {
            epoch: next_epoch(0),
            by_topic_id,
            of_replica,
            created_ms: now_ms,
            used_ms: now_ms,
            line: BTreeMap::new(),
            places: HashMap::new(),
            next_place: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.line.len()
    }

    /// Adds a partition at the end of the line, or moves its position.
    pub(super) fn want(&mut self, key: K, position: P) {
        if let Some(wanted) = self.places.get(&key).and_then(|place| self.line.get_mut(place)) {
            wanted.position = position;
            return;
        }
        let place = self.take_place();
        self.places.insert(key.clone(), place);
        self.line.insert(place, Wanted { key, position, told: None });
    }

    pub(super) fn forget(&mut self, key: &K) {
        if let Some(place) = self.places.remove(key) {
            self.line.remove(&place);
        }
    }

    /// Everything that is to be fetched, in turn.
    pub(super) fn wanted(&self) -> Vec<(K, P)> {
        self.line.values().map(|wanted| (wanted.key.clone(), wanted.position.clone())).collect()
    }

    /// Notes what is told of a partition; gives whether it has to be. One that is not in the session any more is told.
    pub(super) fn tell(&mut self, key: &K, told: &Told) -> bool {
        let Some(place) = self.places.get(key).copied() else { return true };
        let Some(wanted) = self.line.get_mut(&place) else { return true };
        let now = (told.high_watermark, told.log_start);
        let changed = told.news || told.failed || wanted.told != Some(now);
        wanted.told = (!told.failed).then_some(now);
        if told.news && !told.failed {
            self.move_to_end(key.clone(), place);
        }
        changed
    }

    fn move_to_end(&mut self, key: K, place: u64) {
        if let Some(wanted) = self.line.remove(&place) {
            let last = self.take_place();
            self.line.insert(last, wanted);
            self.places.insert(key, last);
        }
    }

    fn take_place(&mut self) -> u64 {
        self.next_place += 1;
        self.next_place
    }
}

/// The epoch after one: never 0, which begins a session, nor below, which ends it.
pub(super) fn next_epoch(epoch: i32) -> i32 {
    if epoch == i32::MAX { 1 } else { epoch + 1 }
}
