//! What brokers say about topics, asked for many topics at a time and remembered for a moment.
//!
//! Two ways to ask: `at` for one topic (all who ask at the same time share a call) and `sweep` for all topics of a
//! Cluster, which says which of them are no longer as they were when they were last found to be as declared. A failed look is
//! shared too, so that an unreachable cluster costs one attempt, not one per topic.
//!
//! What must always hold: `at` never answers with what was read before this operator's last change to that topic.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_broker_client::admin::{
    ConfigEntry, ConfigResource, ConfigSource, Each, OngoingReassignment, TopicDescription,
};
use forebay_broker_client::types::ErrorCode;
use forebay_broker_client::{Admin, Refused, TopicPartition};
use parking_lot::Mutex;

use super::batch::Batch;
use super::{Replication, TopicSeen, TopicState};

/// How long a look is good for, unless the topic was changed after it.
const GOOD_FOR: Duration = Duration::from_secs(2);
/// A look that takes longer has timed out.
const LONGEST_LOOK: Duration = Duration::from_secs(600);
/// Topics looked at in one go: a topic's settings are some kilobytes on the wire, of which few are kept.
const TOPICS_A_LOOK: usize = 250;
/// The setting that ConsumerProfiles ask for, wherever it comes from.
const MAX_MESSAGE_BYTES: &str = "max.message.bytes";

type Answer = Result<Arc<TopicSeen>, String>;
type Moves = BTreeMap<TopicPartition, OngoingReassignment>;

/// A topic as it was last seen.
#[derive(Debug)]
struct Entry {
    /// What was changed later is not in it.
    begun: Instant,
    ended: Instant,
    seen: Arc<TopicSeen>,
    /// What it looked like when it was last found to need nothing.
    settled: Option<Arc<TopicSeen>>,
}

#[derive(Debug, Default)]
struct Kept {
    topics: HashMap<String, Entry>,
    /// When this operator last changed a topic, as long as a look that was begun before may still end.
    changed: HashMap<String, Instant>,
    failed: Option<(Instant, String)>,
}

/// The looks at one Cluster's topics.
#[derive(Debug)]
pub(crate) struct Looks {
    asked: Batch<String, Answer>,
    kept: Mutex<Kept>,
}

impl Default for Looks {
    fn default() -> Self {
        Self { asked: Batch::new(TOPICS_A_LOOK), kept: Mutex::default() }
    }
}

impl Looks {
    /// The topic, as it is after the last change of this operator.
    pub(crate) async fn at(&self, admin: &Admin, name: &str) -> Answer {
        if let Some(known) = self.kept.lock().young(name, Instant::now()) {
            return known;
        }
        let answer = self.asked.ask(name.to_owned(), |names| self.look(admin, names)).await;
        answer.unwrap_or_else(|| Err("the request was broken off".to_owned()))
    }

    async fn look(&self, admin: &Admin, names: Vec<String>) -> Vec<Answer> {
        let begun = Instant::now();
        let distinct: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        let result = take(admin, &distinct.into_iter().collect::<Vec<_>>()).await;
        let mut kept = self.kept.lock();
        match result {
            Ok(seen) => {
                kept.store(begun, seen.clone());
                let one = |name: &String| Ok(seen.get(name).cloned().unwrap_or_else(|| Arc::new(TopicSeen::Absent)));
                names.iter().map(one).collect()
            }
            Err(why) => {
                kept.failed = Some((Instant::now(), why.clone()));
                vec![Err(why); names.len()]
            }
        }
    }

    /// Looks at all topics of a Cluster and forgets others. The names of those that are not as they were when they were
    /// last settled.
    pub(crate) async fn sweep(&self, admin: &Admin, names: &BTreeSet<String>) -> Result<Vec<String>, String> {
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        for some in all.chunks(TOPICS_A_LOOK) {
            let begun = Instant::now();
            let seen = take(admin, some).await;
            let mut kept = self.kept.lock();
            match seen {
                Ok(seen) => kept.store(begun, seen),
                Err(why) => {
                    kept.failed = Some((Instant::now(), why.clone()));
                    return Err(why);
                }
            }
        }
        let mut kept = self.kept.lock();
        kept.forget(names, Instant::now());
        let moved = |entry: &Entry| {
            entry.settled.as_ref().is_some_and(|old| !Arc::ptr_eq(old, &entry.seen) && !old.is_as(&entry.seen))
        };
        Ok(kept.topics.iter().filter(|(_, entry)| moved(entry)).map(|(name, _)| name.clone()).collect())
    }

    /// Says that a topic, as it was seen, needs nothing; `None`: that nothing is known about it now.
    pub(crate) fn settled(&self, name: &str, seen: Option<&Arc<TopicSeen>>) {
        if let Some(entry) = self.kept.lock().topics.get_mut(name) {
            entry.settled = seen.cloned();
        }
    }

    /// The topics that were not found to need nothing.
    pub(crate) fn unsettled(&self, names: &BTreeSet<String>) -> Vec<String> {
        let kept = self.kept.lock();
        let is_settled = |name: &&String| kept.topics.get(*name).is_some_and(|entry| entry.settled.is_some());
        names.iter().filter(|name| !is_settled(name)).cloned().collect()
    }

    /// Says that this operator has just changed a topic.
    pub(crate) fn changed(&self, name: &str) {
        self.kept.lock().changed.insert(name.to_owned(), Instant::now());
    }
}

impl Kept {
    fn young(&self, name: &str, now: Instant) -> Option<Answer> {
        let is_young = |ended: Instant| now.duration_since(ended) < GOOD_FOR;
        if let Some((ended, why)) = self.failed.as_ref().filter(|(ended, _)| is_young(*ended))
            && self.topics.get(name).is_none_or(|entry| entry.ended < *ended)
        {
            return Some(Err(why.clone()));
        }
        let entry = self.topics.get(name)?;
        let is_after_change = self.changed.get(name).is_none_or(|changed| *changed < entry.begun);
        (is_young(entry.ended) && is_after_change).then(|| Ok(Arc::clone(&entry.seen)))
    }

    fn store(&mut self, begun: Instant, seen: HashMap<String, Arc<TopicSeen>>) {
        let ended = Instant::now();
        for (name, seen) in seen {
            let entry = self.topics.entry(name).or_insert_with(|| Entry {
                begun,
                ended,
                seen: Arc::clone(&seen),
                settled: None,
            });
            if entry.begun > begun {
                continue;
            }
            // One copy of what does not change.
            if let Some(settled) = entry.settled.as_ref().filter(|settled| ***settled == *seen) {
                entry.seen = Arc::clone(settled);
            } else {
                entry.seen = seen;
            }
            (entry.begun, entry.ended) = (begun, ended);
        }
        if self.failed.as_ref().is_some_and(|(failed, _)| *failed < begun) {
            self.failed = None;
        }
    }

    /// Forgets topics that nobody names, and changes that every look to come is later than.
    fn forget(&mut self, names: &BTreeSet<String>, now: Instant) {
        let is_old = |at: Instant| now.duration_since(at) >= GOOD_FOR;
        self.topics.retain(|name, entry| names.contains(name) || !is_old(entry.ended));
        self.changed.retain(|_, at| now.duration_since(*at) < LONGEST_LOOK);
    }
}

async fn take(admin: &Admin, names: &[&str]) -> Result<HashMap<String, Arc<TopicSeen>>, String> {
    let mut all = HashMap::with_capacity(names.len());
    for some in names.chunks(TOPICS_A_LOOK) {
        let described = admin.describe_topics(some).await.map_err(|error| error.to_string())?;
        let present: Vec<&TopicDescription> = described.values().filter_map(|topic| topic.as_ref().ok()).collect();
        let moves = match present.iter().any(|topic| may_be_moving(topic)) {
            true => admin.list_partition_reassignments().await.map_err(|error| error.to_string())?,
            false => Moves::new(),
        };
        let resources: Vec<ConfigResource> =
            present.iter().map(|topic| ConfigResource::Topic(topic.name.clone())).collect();
        let configs = match resources.is_empty() {
            true => Each::new(),
            false => admin.describe_configs(&resources).await.map_err(|error| error.to_string())?,
        };
        for name in some {
            let seen = match described.get(*name) {
                None => TopicSeen::Absent,
                Some(Err(refused)) => refused_or_absent(refused),
                Some(Ok(topic)) => match configs.get(&ConfigResource::Topic((*name).to_owned())) {
                    Some(Ok(configs)) => TopicSeen::Present(state(topic, configs, &moves)),
                    Some(Err(refused)) => refused_or_absent(refused), // deleted between the two calls
                    None => TopicSeen::Refused("brokers did not describe its configuration".to_owned()),
                },
            };
            all.insert((*name).to_owned(), Arc::new(seen));
        }
    }
    Ok(all)
}

fn refused_or_absent(refused: &Refused) -> TopicSeen {
    match refused.code {
        ErrorCode::UnknownTopicOrPartition => TopicSeen::Absent,
        _ => TopicSeen::Refused(refused.to_string()),
    }
}

/// A partition on its way has replicas that are not in sync yet, or another number of them than others.
fn may_be_moving(topic: &TopicDescription) -> bool {
    let counts: HashSet<usize> = topic.partitions.iter().map(|partition| partition.replicas.len()).collect();
    counts.len() > 1 || topic.partitions.iter().any(|partition| partition.isr.len() < partition.replicas.len())
}

fn state(topic: &TopicDescription, configs: &[ConfigEntry], moves: &Moves) -> TopicState {
    let leaders: BTreeSet<i32> = topic.partitions.iter().filter_map(|p| p.leader.map(|id| id.0)).collect();
    let kept = |entry: &&ConfigEntry| entry.source == ConfigSource::TopicConfig || entry.name == MAX_MESSAGE_BYTES;
    TopicState {
        topic_id: topic.topic_id.to_string(),
        partitions: count(topic.partitions.len()),
        replication: replication(topic, moves),
        leaders: leaders.into_iter().collect(),
        configs: configs.iter().filter(kept).cloned().collect(),
    }
}

fn replication(topic: &TopicDescription, moves: &Moves) -> Replication {
    let mut all = Replication { now: i32::MAX, target_least: i32::MAX, target_most: 0, moving: 0 };
    for partition in &topic.partitions {
        let ongoing = moves.get(&TopicPartition::new(&topic.name, partition.index));
        let (adding, removing) = ongoing.map_or((0, 0), |o| (o.adding.len(), o.removing.len()));
        let now = count(partition.replicas.len().saturating_sub(adding));
        let target = count(partition.replicas.len().saturating_sub(removing));
        all.now = all.now.min(now);
        all.target_least = all.target_least.min(target);
        all.target_most = all.target_most.max(target);
        all.moving += i32::from(ongoing.is_some());
    }
    if topic.partitions.is_empty() { Replication::default() } else { all }
}

fn count(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(partitions: i32, leader: i32) -> Arc<TopicSeen> {
        Arc::new(TopicSeen::Present(TopicState {
            topic_id: "id".to_owned(),
            partitions,
            replication: Replication { now: 1, target_least: 1, target_most: 1, moving: 0 },
            leaders: vec![leader],
            configs: Vec::new(),
        }))
    }

    fn stored(kept: &mut Kept, begun: Instant, seen: Arc<TopicSeen>) {
        kept.store(begun, HashMap::from([("t".to_owned(), seen)]));
    }

    #[test]
    fn a_look_is_good_while_young_and_only_for_topics_not_changed_after_it() {
        let (start, mut kept) = (Instant::now(), Kept::default());
        assert!(kept.young("t", start).is_none());
        stored(&mut kept, start, seen(4, 0));
        let ended = kept.topics["t"].ended;
        assert_eq!(kept.young("t", ended + Duration::from_millis(1999)), Some(Ok(seen(4, 0))));
        assert!(kept.young("t", ended + GOOD_FOR).is_none());
        kept.changed.insert("t".to_owned(), ended);
        assert!(kept.young("t", ended).is_none(), "the change came after the look was begun");
        let begun = ended + Duration::from_millis(1);
        stored(&mut kept, begun, seen(5, 0));
        stored(&mut kept, start, seen(4, 0));
        assert_eq!(kept.young("t", begun), Some(Ok(seen(5, 0))), "an older look that ends later changes nothing");
    }

    #[test]
    fn a_failure_is_everybodys_while_young_until_a_look_succeeds() {
        let (start, mut kept) = (Instant::now(), Kept::default());
        kept.failed = Some((start, "unreachable".to_owned()));
        assert_eq!(kept.young("t", start), Some(Err("unreachable".to_owned())));
        assert!(kept.young("t", start + GOOD_FOR).is_none());
        stored(&mut kept, start + Duration::from_millis(1), seen(4, 0));
        assert_eq!(kept.young("other", start), None);
    }

    #[test]
    fn a_topic_has_moved_when_more_than_its_leaders_did() {
        assert!(seen(4, 0).is_as(&seen(4, 1)));
        assert!(!seen(4, 0).is_as(&seen(5, 0)));
        assert!(!seen(4, 0).is_as(&TopicSeen::Absent));
    }
}
