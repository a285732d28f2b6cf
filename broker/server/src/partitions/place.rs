//! Where a log is opened: where it lies, or else where a new one is to lie.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_broker_machines::metadata::TopicImage;
use forebay_broker_storage::LogName;
use forebay_broker_wire::types::PartitionIndex;

use super::PartitionTable;
use super::hosted::{Hosted, Place};
use crate::log_dirs::cordoned::Cordoned;

impl PartitionTable {
    pub(super) fn place(
        &self,
        topic: &TopicImage,
        index: PartitionIndex,
        located: &mut HashMap<LogName, usize>,
        cordoned: &Cordoned,
    ) -> Place {
        let name = LogName::new(&topic.name, index.0);
        let dir = located.get(&name).copied().unwrap_or_else(|| {
            let dir = self.place_new(located, cordoned);
            if cordoned.has(self.dirs[dir].log_dir.path()) {
                let path = self.dirs[dir].log_dir.path().display();
                tracing::warn!(log = %name, dir = %path, "a new log is placed in a cordoned log dir: there is no other");
            }
            dir
        });
        located.insert(name, dir);
        Place {
            number: self.next_number.fetch_add(1, Ordering::Relaxed),
            topic: Arc::clone(&topic.name),
            topic_id: topic.id,
            index,
            dir: Arc::clone(&self.dirs[dir]),
        }
    }

    /// Notes where a partition's log lies after a move; of one that is not open any more others have noted it.
    pub(crate) fn relocate(&self, hosted: &Arc<Hosted>) {
        let mut following = self.following.lock();
        let is_open = self.get(hosted.topic_id, hosted.index).is_some_and(|open| Arc::ptr_eq(&open, hosted));
        if is_open {
            following.located.insert(LogName::new(&hosted.topic, hosted.index.0), hosted.dir().number);
        }
    }

    /// The directory with room and the fewest logs, and one that is cordoned only where there is no other.
    fn place_new(&self, located: &HashMap<LogName, usize>, cordoned: &Cordoned) -> usize {
        if self.dirs.len() == 1 {
            return 0; // asking the disk for each of thousands takes its time
        }
        let logs_in = |dir: usize| located.values().filter(|located| **located == dir).count();
        let usable = (0..self.dirs.len()).filter(|dir| !self.dirs[*dir].is_out());
        let by = |dir: &usize| {
            let log_dir = &self.dirs[*dir].log_dir;
            (cordoned.has(log_dir.path()), log_dir.check_room().is_err(), logs_in(*dir))
        };
        usable.min_by_key(by).unwrap_or_default()
    }
}
