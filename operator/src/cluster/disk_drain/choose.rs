//! Where replicas of a disk that is to go are to be: each on that other disk of its broker which has the most room, the largest first.
//! All that are left are placed before the first one moves, so that nothing begins which can't end.

use std::collections::BTreeMap;

use forebay_broker_config::status::BrokerStatus;
use forebay_crds::cluster::Disk;

use crate::kafka::log_dirs::{DirMove, DirSeen, ReplicaSeen};

/// So much of a disk is left free when all have moved: what clients write meanwhile goes there too.
const STAYS_FREE_PERCENT: u64 = 5;

/// A partition.
type Key<'a> = (&'a str, i32);

/// The disks of one broker.
#[derive(Debug)]
pub(crate) struct Layout<'a> {
    broker: i32,
    /// Bytes by log dir that replicas may still come to: those that stay and take writes. None where that is not told.
    room: BTreeMap<&'a str, Option<u64>>,
    /// Where each replica is, with its bytes.
    current: BTreeMap<Key<'a>, (&'a str, u64)>,
    /// Where each copy is that is to take the place of a replica, with the bytes that it has so far.
    future: BTreeMap<Key<'a>, (&'a str, u64)>,
    leaving: Vec<String>,
}

impl<'a> Layout<'a> {
    pub(crate) fn of(broker: i32, removing: &[&Disk], said: &BrokerStatus, dirs: &'a [DirSeen]) -> Self {
        let leaving: Vec<String> = removing.iter().map(|disk| disk.effective_mount_path()).collect();
        let takes = |dir: &&DirSeen| {
            let mut same = said.log_dirs.iter().filter(|said| said.path == dir.path);
            !leaving.contains(&dir.path) && same.any(|dir| !(dir.poisoned || dir.hung || dir.full || dir.cordoned))
        };
        let free = |(total, free): (u64, u64)| free.saturating_sub(total / 100 * STAYS_FREE_PERCENT);
        let room = dirs.iter().filter(takes).map(|dir| (dir.path.as_str(), dir.room.map(free))).collect();
        let of_kind = |is_future: bool| {
            let key = |replica: &'a ReplicaSeen| (replica.topic.as_str(), replica.index);
            let all = dirs.iter().flat_map(|dir| dir.replicas.iter().map(move |replica| (dir.path.as_str(), replica)));
            let these = all.filter(|(_, replica)| replica.is_future == is_future);
            these.map(|(path, replica)| (key(replica), (path, replica.bytes))).collect::<BTreeMap<_, _>>()
        };
        let (current, future) = (of_kind(false), of_kind(true));
        Self { broker, room, current, future, leaving }
    }

    /// What is to move that is not on its way, and how many replicas are left on what is to go, those on their way among them.
    pub(crate) fn choose(&self) -> Result<(Vec<DirMove>, usize), String> {
        let leaves = |path: &str| self.leaving.iter().any(|leaving| leaving == path);
        let mut room = self.room.clone();
        // What is on its way will be as large as what it is a copy of.
        for (key, (path, has)) in &self.future {
            let bytes = self.current.get(key).map_or(0, |(_, bytes)| bytes.saturating_sub(*has));
            take(&mut room, path, bytes);
        }
        let (mut moves, mut left) = (Vec::new(), 0);
        // One that comes to what is to go is called back, if it comes from elsewhere.
        for (key, _) in self.future.iter().filter(|(_, (path, _))| leaves(path)) {
            left += 1;
            match self.current.get(key) {
                Some((from, _)) if !leaves(from) => moves.push(self.to(*key, from)),
                // It is moved below.
                Some(_) => left -= 1,
                None => {}
            }
        }
        let mut waiting: Vec<(u64, Key<'_>)> = Vec::new();
        for (key, (_, bytes)) in self.current.iter().filter(|(_, (path, _))| leaves(path)) {
            left += 1;
            if self.future.get(key).is_none_or(|(path, _)| leaves(path)) {
                waiting.push((*bytes, *key));
            }
        }
        waiting.sort_by_key(|(bytes, key)| (std::cmp::Reverse(*bytes), *key));
        for (bytes, key) in waiting {
            let to = self.place(&room, bytes, key)?;
            take(&mut room, to, bytes);
            moves.push(self.to(key, to));
        }
        Ok((moves, left))
    }

    fn to(&self, (topic, index): Key<'_>, to: &str) -> DirMove {
        DirMove { broker: self.broker, topic: topic.to_owned(), index, to: to.to_owned() }
    }

    /// The disk with the most room, if it has enough.
    fn place(&self, room: &BTreeMap<&'a str, Option<u64>>, bytes: u64, key: Key<'_>) -> Result<&'a str, String> {
        let (id, (topic, index)) = (self.broker, key);
        let best = room.iter().max_by_key(|(path, free)| (**free, std::cmp::Reverse(**path)));
        let no_room = |free: u64| {
            format!(
                "{topic}-{index} of broker {id} has {bytes} bytes, and its other disks have room for {free} beside what else is to come there: enlarge one, or put the disk back into spec.disks"
            )
        };
        match best {
            None => {
                Err(format!("broker {id} has no other disk that takes replicas: put the disk back into spec.disks"))
            }
            Some((path, None)) => Err(format!("broker {id} does not say what room {path} has")),
            Some((path, Some(free))) if bytes <= *free => Ok(path),
            Some((_, Some(free))) => Err(no_room(*free)),
        }
    }
}

fn take(room: &mut BTreeMap<&str, Option<u64>>, path: &str, bytes: u64) {
    if let Some(Some(free)) = room.get_mut(path) {
        *free = free.saturating_sub(bytes);
    }
}
