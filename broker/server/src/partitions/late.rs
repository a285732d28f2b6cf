//! What a change has to leave for later, because a write to a disk does not end: the other disks' partitions must not wait for it.

use std::time::Duration;

use super::{Hosted, Key};

/// How long a change waits for the writes to one disk, all its partitions together.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// What is left for later.
#[derive(Debug)]
pub(super) struct Late {
    pub(super) keys: Vec<Key>,
    /// By directory: it was waited for in vain.
    waited: Vec<bool>,
}

impl Late {
    pub(super) fn new(dirs: usize) -> Self {
        Self { keys: Vec::new(), waited: vec![false; dirs] }
    }

    /// Notes a partition unless something is done to it within the time that there is.
    pub(super) fn unless(&mut self, hosted: &Hosted, act: impl FnOnce(Duration) -> bool) {
        let dir = hosted.dir();
        let waited = self.waited.get_mut(dir.number);
        let patient = !dir.is_hung() && waited.as_deref() == Some(&false);
        if act(if patient { WAIT_MAX } else { Duration::ZERO }) {
            return;
        }
        if let Some(waited) = waited {
            *waited = true;
        }
        let key = (hosted.topic_id, hosted.index);
        if !self.keys.contains(&key) {
            self.keys.push(key);
        }
    }
}
