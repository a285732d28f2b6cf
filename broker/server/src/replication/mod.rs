//! Replication between brokers: fetchers copy what other brokers lead (`fetcher.rs`, `round.rs`, `apply.rs`), and one task asks the
//! controller for the changes of ISRs that this broker's partitions propose (`isr.rs`).
//!
//! What must hold: a partition belongs to one fetcher at a time, that of its leader; a fetcher without partitions has no connection; nothing
//! here wakes while a cluster has one broker. What is right to believe, partitions decide themselves.

mod apply;
mod assignment;
mod fetcher;
mod isr;
mod lane;
mod round;
mod throttle;

use std::collections::HashMap;
use std::sync::Arc;

use forebay_broker_machines::metadata::MetadataImage;
use forebay_broker_wire::types::{BrokerId, LeaderEpoch, PartitionIndex};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::assignment::fetcher_of;
use self::fetcher::{Change, Fetcher, Inbox};
pub(crate) use self::isr::Proposals;
pub(crate) use self::throttle::Throttle;
use crate::broker::Broker;
use crate::metadata::effective::broker_number;
use crate::partitions::{Followed, Hosted, Key};

/// The rate that stands for no limit.
pub(crate) const NO_LIMIT: u64 = i64::MAX as u64;

/// Fetchers and the ISR task of one broker.
pub(crate) struct Replication {
    pub(crate) proposals: Proposals,
    /// For what this broker sends to replicas that are not in sync, and for what it fetches as one.
    pub(crate) leader_throttle: Throttle,
    pub(crate) follower_throttle: Throttle,
    assigned: Mutex<Assigned>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

#[derive(Default)]
struct Assigned {
    image: Arc<MetadataImage>,
    roles: Option<(Option<i64>, u64)>,
    /// Whom each partition is fetched from, and in which epoch.
    partitions: HashMap<Key, (BrokerId, LeaderEpoch)>,
    fetchers: HashMap<(BrokerId, usize), Arc<Inbox>>,
}

impl Replication {
    pub(crate) fn new() -> Self {
        Self {
            proposals: Proposals::default(),
            leader_throttle: Throttle::default(),
            follower_throttle: Throttle::default(),
            assigned: Mutex::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Starts the ISR task.
    pub(crate) fn start(&self, broker: &Arc<Broker>, runtime: &Handle) {
        self.tasks.spawn_on(isr::run(Arc::clone(broker), self.stop.clone()), runtime);
    }

    /// Follows the partition table: fetches what is led elsewhere from where it is led. To be called after the table has followed.
    pub(crate) fn follow(&self, broker: &Arc<Broker>, runtime: &Handle) {
        let mut assigned = self.assigned.lock();
        if self.stop.is_cancelled() {
            return;
        }
        let Followed { image, roles } = broker.partitions.followed();
        let before = std::mem::replace(&mut assigned.image, Arc::clone(&image));
        self.follow_rates(broker, &image);
        let anew = assigned.roles.replace(roles) != Some(roles);
        let mut changes = Changes { all: HashMap::new(), fetchers: broker.config.threads.replica_fetchers };
        for topic in image.topics() {
            let same = before.topic_by_id(topic.id).is_some_and(|before| Arc::ptr_eq(before, topic));
            if same && !anew {
                continue;
            }
            for partition in &topic.partitions {
                let key = (topic.id, partition.index);
                let leader = partition.leader.filter(|leader| *leader != broker.id());
                let wanted = leader.zip(broker.partitions.get(topic.id, partition.index));
                let wanted = wanted.map(|(leader, hosted)| (leader, partition.leader_epoch, hosted));
                changes.assign(&mut assigned.partitions, key, wanted, anew);
            }
        }
        for topic in before.topics().filter(|topic| image.topic_by_id(topic.id).is_none()) {
            for partition in &topic.partitions {
                changes.assign(&mut assigned.partitions, (topic.id, partition.index), None, anew);
            }
        }
        for source in assigned.fetchers.keys().filter(|(source, _)| moved(&before, &image, *source)) {
            changes.all.entry(*source).or_default().push(Change::Dial);
        }
        for (fetcher, changes) in changes.all {
            let inbox =
                assigned.fetchers.entry(fetcher).or_insert_with(|| self.start_fetcher(broker, runtime, fetcher));
            inbox.put(changes);
        }
    }

    fn follow_rates(&self, broker: &Broker, image: &MetadataImage) {
        let rate = |name| broker_number::<u64>(&broker.config, image, name).filter(|rate| *rate < NO_LIMIT);
        let now = Instant::now();
        self.leader_throttle.set_rate(rate("leader.replication.throttled.rate"), now);
        self.follower_throttle.set_rate(rate("follower.replication.throttled.rate"), now);
    }

    fn start_fetcher(&self, broker: &Arc<Broker>, runtime: &Handle, (source, number): (BrokerId, usize)) -> Arc<Inbox> {
        let inbox = Arc::new(Inbox::default());
        let fetcher = Fetcher::new(Arc::clone(broker), source, number, Arc::clone(&inbox));
        self.tasks.spawn_on(fetcher.run(self.stop.clone()), runtime);
        inbox
    }

    /// Ends all tasks.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.assigned.lock().fetchers.clear();
    }
}

/// What each fetcher is to be told.
struct Changes {
    all: HashMap<(BrokerId, usize), Vec<Change>>,
    /// Fetchers for each source.
    fetchers: usize,
}

impl Changes {
    fn assign(
        &mut self,
        partitions: &mut HashMap<Key, (BrokerId, LeaderEpoch)>,
        key: Key,
        wanted: Option<(BrokerId, LeaderEpoch, Arc<Hosted>)>,
        anew: bool,
    ) {
        let known = partitions.get(&key).copied();
        let target = wanted.as_ref().map(|(source, epoch, _)| (*source, *epoch));
        if known == target && !(anew && target.is_some()) {
            return;
        }
        if let Some((source, _)) = known.filter(|(source, _)| target.is_none_or(|(wanted, _)| wanted != *source)) {
            self.tell(source, key, Change::Leave(key));
        }
        match wanted {
            Some((source, epoch, hosted)) => {
                partitions.insert(key, (source, epoch));
                self.tell(source, key, Change::Follow(key, hosted));
            }
            None => {
                partitions.remove(&key);
            }
        }
    }

    fn tell(&mut self, source: BrokerId, key: Key, change: Change) {
        self.all.entry((source, fetcher_of(key, self.fetchers))).or_default().push(change);
    }
}

/// Whether a broker has begun a new life, or has another address.
fn moved(before: &MetadataImage, after: &MetadataImage, broker: BrokerId) -> bool {
    let find = |image: &MetadataImage| {
        image.brokers().find(|known| known.id == broker).map(|known| (known.epoch, known.endpoints.clone()))
    };
    find(before) != find(after)
}

/// For messages.
fn name_of((_, index): Key, hosted: &Hosted) -> String {
    let PartitionIndex(index) = index;
    format!("{}-{index}", hosted.topic)
}
