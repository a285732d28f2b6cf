//! The newest offset of each key, by a 128-bit hash with secret random seeds: nobody can make two keys meet on purpose, and by chance they
//! do not within the life of a cluster.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher,
};

use forebay_broker_wire::types::Offset;

#[derive(Debug)]
pub(crate) struct KeyMap {
    seeds: [RandomState; 2],
    offsets: HashMap<(u64, u64), Offset>,
    keys_max: usize,
}

impl KeyMap {
    pub(crate) fn new(keys_max: usize) -> Self {
        Self { seeds: [RandomState::new(), RandomState::new()], offsets: HashMap::new(), keys_max }
    }

    fn hash(&self, key: &[u8]) -> (u64, u64) {
        (self.seeds[0].hash_one(key), self.seeds[1].hash_one(key))
    }

    /// Notes that `key` is at `offset`, which ascends from call to call. False when the map is full.
    pub(crate) fn insert(&mut self, key: &[u8], offset: Offset) -> bool {
        let hash = self.hash(key);
        if self.offsets.len() >= self.keys_max && !self.offsets.contains_key(&hash) {
            return false;
        }
        self.offsets.insert(hash, offset);
        true
    }

    /// True when the key is known to be at a later offset.
    pub(crate) fn is_superseded(&self, key: &[u8], offset: Offset) -> bool {
        self.offsets.get(&self.hash(key)).is_some_and(|newest| *newest > offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_offset_counts_and_a_full_map_says_so() {
        let mut map = KeyMap::new(2);
        assert!(map.insert(b"a", Offset(1)) && map.insert(b"b", Offset(2)) && map.insert(b"a", Offset(3)));
        assert!(!map.insert(b"c", Offset(4)), "full");
        assert!(map.insert(b"b", Offset(5)), "known ones still fit");
        assert!(map.is_superseded(b"a", Offset(1)) && !map.is_superseded(b"a", Offset(3)));
        assert!(!map.is_superseded(b"c", Offset(0)));
    }
}
