//! The partitions that this broker has open, by topic id and index; follows the metadata image.
//!
//! What must hold: the data path looks up without waiting for a change in progress; a partition in the image with this
//! broker among its replicas is open before the change that brought it is answered; a log directory of an older topic of
//! the same name is set aside, never mixed in and never destroyed; one partition that can't be opened keeps no other from it,
//! and is tried again; a disk that hangs holds up its own partitions only. Roles are taken only from images that have this life's registration: an older one says what an
//! earlier life was to do.

mod changes;
mod damaged;
mod hosted;
mod late;
mod open;
mod per_dir;
mod place;
mod strays;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use forebay_broker_config::{BrokerConfig, TopicConfig};
use forebay_broker_machines::metadata::{MetadataImage, TopicImage};
use forebay_broker_storage::LogName;
use forebay_broker_wire::types::{BrokerId, PartitionIndex, Uuid};
use parking_lot::{Mutex, RwLock};
use tokio_util::sync::CancellationToken;

use self::changes::changes;
use self::hosted::Place;
pub(crate) use self::hosted::{Hosted, HostedDir, Queued};
use self::late::Late;
use crate::io::append::now_ms;
use crate::log_dirs::cordoned::Cordoned;
use crate::metadata::effective::{self, PartitionSettings};
use crate::metrics::Metrics;

/// Which partition: its topic's id and its index.
pub(crate) type Key = (Uuid, PartitionIndex);

/// How long a partition that could not be opened is left alone.
const OPEN_AGAIN_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct PartitionTable {
    broker_id: BrokerId,
    pub(crate) dirs: Vec<Arc<HostedDir>>,
    open: RwLock<HashMap<Key, Arc<Hosted>>>,
    next_number: AtomicUsize,
    following: Mutex<Following>,
    /// The version of the image that is followed.
    followed_version: AtomicI64,
    shutdown: CancellationToken,
    /// A log was not opened because a stop came, or could not be closed: nothing may be said to be clean.
    incomplete: AtomicBool,
    /// How many could not be opened: asked for while a change is in progress.
    failed: AtomicUsize,
    /// These, and those that are offline.
    unserved: Mutex<Vec<Key>>,
    /// How much a write that does not end holds up.
    late: AtomicUsize,
}

/// What only a change needs; one change at a time.
#[derive(Debug)]
struct Following {
    image: Arc<MetadataImage>,
    /// Which directory has which log; new ones go where the fewest are.
    located: HashMap<LogName, usize>,
    /// The registration whose roles were taken.
    assigned_epoch: Option<i64>,
    /// What could not be opened.
    failed: Vec<Key>,
    /// What may lie on a directory that this life of the broker does without: beginning it anew elsewhere would be another log.
    offline: Vec<Key>,
    /// What was found damaged.
    damaged: Vec<Key>,
    /// What is served although records are missing in it.
    lacking: Vec<Key>,
    /// A directory is missing, and no image was followed yet.
    first_without_all_dirs: bool,
    retry_at: Instant,
    /// Whose settings or roles are still to be taken, because a write does not end.
    late: Vec<Key>,
    /// Whose logs are still to be deleted.
    leaving: Vec<Arc<Hosted>>,
    /// Counts how often opening was tried again.
    opened_late: u64,
}

/// See [`PartitionTable::followed`].
#[derive(Debug)]
pub(crate) struct Followed {
    pub(crate) image: Arc<MetadataImage>,
    /// Roles may be others than the image before had, whatever has changed in the image, when this is another.
    pub(crate) roles: (Option<i64>, u64),
}

/// Why a partition was not opened, or not as it should be.
#[derive(Debug, Clone, Copy)]
enum Failure {
    /// A full disk, say.
    MayPass,
    /// Somebody has to look at what is on the disk.
    Damage,
    /// It was, but records are missing.
    Lacks,
}

/// What a change is made with.
struct Means<'a> {
    image: &'a Arc<MetadataImage>,
    config: &'a BrokerConfig,
    metrics: &'a Metrics,
    progress: &'a (dyn Fn(Progress) + Sync),
}

impl PartitionTable {
    /// A table with nothing open. `located` are the logs that were found, by directory; `all_dirs` says that no directory is missing.
    pub(crate) fn new(
        broker_id: BrokerId,
        dirs: Vec<Arc<HostedDir>>,
        located: HashMap<LogName, usize>,
        all_dirs: bool,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            broker_id,
            dirs,
            open: RwLock::new(HashMap::new()),
            next_number: AtomicUsize::new(0),
            following: Mutex::new(Following {
                image: Arc::new(MetadataImage::default()),
                located,
                assigned_epoch: None,
                failed: Vec::new(),
                offline: Vec::new(),
                damaged: Vec::new(),
                lacking: Vec::new(),
                first_without_all_dirs: !all_dirs,
                retry_at: Instant::now(),
                late: Vec::new(),
                leaving: Vec::new(),
                opened_late: 0,
            }),
            followed_version: AtomicI64::new(0),
            shutdown,
            incomplete: AtomicBool::new(false),
            failed: AtomicUsize::new(0),
            unserved: Mutex::default(),
            late: AtomicUsize::new(0),
        }
    }

    pub(crate) fn get(&self, topic_id: Uuid, index: PartitionIndex) -> Option<Arc<Hosted>> {
        self.open.read().get(&(topic_id, index)).cloned()
    }

    /// The logs that were found at start.
    pub(crate) fn logs_found(&self) -> Vec<LogName> {
        self.following.lock().located.keys().cloned().collect()
    }

    /// A log that was found is gone.
    pub(crate) fn forget(&self, log: &LogName) {
        self.following.lock().located.remove(log);
    }

    pub(crate) fn count(&self) -> usize {
        self.open.read().len()
    }

    /// Bytes of the logs in one directory.
    pub(crate) fn used_bytes(&self, dir: &HostedDir) -> u64 {
        let open = self.open.read();
        let here = open.values().filter(|hosted| std::ptr::eq(&**hosted.dir(), dir));
        here.map(|hosted| hosted.partition.size_bytes()).sum()
    }

    /// All open partitions, in the order of their names.
    pub(crate) fn all(&self) -> Vec<Arc<Hosted>> {
        let mut all: Vec<_> = self.open.read().values().cloned().collect();
        all.sort_by(|a, b| (&a.topic, a.index).cmp(&(&b.topic, b.index)));
        all
    }

    /// Opens, configures and removes partitions and gives them their roles, until the table is as `image` says; an older image than the
    /// one followed already changes nothing. `broker_epoch` is this life's registration. Blocks.
    pub(crate) fn follow(
        &self,
        image: &Arc<MetadataImage>,
        config: &BrokerConfig,
        metrics: &Metrics,
        broker_epoch: i64,
        progress: &(dyn Fn(Progress) + Sync),
    ) {
        let mut following = self.following.lock();
        if image.version() < following.image.version() {
            return;
        }
        let means = Means { image, config, metrics, progress };
        let registered = image.brokers().any(|broker| broker.id == self.broker_id && broker.epoch == broker_epoch);
        let anew = registered && following.assigned_epoch != Some(broker_epoch);
        let mut changes = changes(&following.image, image, self.broker_id, anew);
        for hosted in std::mem::take(&mut following.leaving) {
            self.delete(hosted, &mut following.leaving);
        }
        for topic in &changes.removed {
            self.remove(topic, &mut following, metrics);
        }
        for (topic, index) in &changes.left {
            self.leave(topic, *index, &mut following);
        }
        if anew && following.assigned_epoch.is_none() {
            strays::remove(image, self.broker_id, &self.dirs, &mut following.located);
        }
        self.commit_deletions();
        if std::mem::take(&mut following.first_without_all_dirs) {
            let Following { located, offline, .. } = &mut *following;
            changes.open.retain(|(topic, index)| {
                let found = located.contains_key(&LogName::new(&topic.name, index.0));
                offline.extend((!found).then_some((topic.id, *index)));
                found
            });
        }
        let again = self.due_again(&mut following, image, registered);
        changes.open.extend(again.iter().cloned());
        let cordoned = Cordoned::of(config, image);
        let located = &mut following.located;
        let places = changes.open.iter().map(|(topic, index)| self.place(topic, *index, located, &cordoned)).collect();
        let failed = self.open_all(places, &changes.open, &means);
        open::commit(&self.dirs);
        following.opened_late += u64::from(!again.is_empty());
        for (key, failure) in failed {
            match failure {
                Failure::MayPass => following.failed.push(key),
                Failure::Damage => following.damaged.push(key),
                Failure::Lacks => following.lacking.push(key),
            }
        }
        let mut late = Late::new(self.dirs.len());
        let were_late = self.here(std::mem::take(&mut following.late), image);
        self.configure(&changes.configure, &were_late, &means, &mut late);
        if registered {
            for (topic, index) in changes.assign.iter().chain(&again).chain(&were_late) {
                if let (Some(hosted), Some(partition)) = (self.get(topic.id, *index), topic.partition(*index)) {
                    late.unless(&hosted, |time_max| hosted.assign(partition, time_max));
                }
            }
            following.assigned_epoch = Some(broker_epoch);
        }
        self.late.store(late.keys.len() + following.leaving.len(), Ordering::Relaxed);
        following.late = late.keys;
        self.failed.store(following.failed.len(), Ordering::Relaxed);
        *self.unserved.lock() = [following.failed.as_slice(), &following.offline, &following.damaged].concat();
        following.image = Arc::clone(image);
        self.followed_version.store(image.version(), Ordering::Release);
    }

    /// Partitions that are to be tried again now.
    fn due_again(
        &self,
        following: &mut Following,
        image: &MetadataImage,
        registered: bool,
    ) -> Vec<(Arc<TopicImage>, PartitionIndex)> {
        let mut again = if registered { self.give_up_damaged(following, image) } else { Vec::new() };
        if !following.failed.is_empty() && Instant::now() >= following.retry_at {
            following.retry_at = Instant::now() + OPEN_AGAIN_EVERY;
            again.append(&mut following.failed);
        }
        self.here(again, image)
    }

    /// Those that this broker has a replica of.
    fn here(&self, keys: Vec<Key>, image: &MetadataImage) -> Vec<(Arc<TopicImage>, PartitionIndex)> {
        let here = |(id, index): Key| {
            let topic = image.topic_by_id(id)?;
            topic.partition(index)?.replicas.contains(&self.broker_id).then(|| (Arc::clone(topic), index))
        };
        keys.into_iter().filter_map(here).collect()
    }

    /// Gives those that could not be opened.
    fn open_all(
        &self,
        places: Vec<Place>,
        open: &[(Arc<TopicImage>, PartitionIndex)],
        means: &Means<'_>,
    ) -> Vec<(Key, Failure)> {
        (means.progress)(Progress::ToOpen(places.len()));
        // Partitions of one topic come together: what holds for the topic is found once.
        let mut of_topic: Option<(Uuid, TopicConfig)> = None;
        let logs: Vec<_> = places
            .into_iter()
            .zip(open)
            .map(|(place, (topic, index))| {
                let known = of_topic.take().filter(|(id, _)| *id == topic.id);
                let found = || (topic.id, effective::topic_config(means.config, means.image, topic));
                let (_, found) = of_topic.insert(known.unwrap_or_else(found));
                let settings = means.settings(topic, found, *index);
                (place, settings)
            })
            .collect();
        let failed = Mutex::new(Vec::new());
        per_dir::for_each(
            logs,
            |(place, _)| Arc::clone(&place.dir),
            |logs| open::prepare(logs, means.config.threads.recovery_per_data_dir),
            |(place, settings)| {
                if self.shutdown.is_cancelled() {
                    self.incomplete.store(true, Ordering::Relaxed);
                    return;
                }
                let key = (place.topic_id, place.index);
                if let Err(failure) = self.open_one(place, &settings, means.metrics) {
                    failed.lock().push((key, failure));
                }
                (means.progress)(Progress::Opened);
            },
        );
        failed.into_inner()
    }

    fn configure(
        &self,
        topics: &[Arc<TopicImage>],
        partitions: &[(Arc<TopicImage>, PartitionIndex)],
        means: &Means<'_>,
        late: &mut Late,
    ) {
        let mut one = |topic: &Arc<TopicImage>, found: &TopicConfig, index: PartitionIndex| {
            if let Some(hosted) = self.get(topic.id, index) {
                let settings = means.settings(topic, found, index);
                late.unless(&hosted, |time_max| hosted.update_settings(settings, time_max));
            }
        };
        for topic in topics {
            let found = effective::topic_config(means.config, means.image, topic);
            topic.partitions.iter().for_each(|partition| one(topic, &found, partition.index));
        }
        for (topic, index) in partitions {
            one(topic, &effective::topic_config(means.config, means.image, topic), *index);
        }
    }

    /// Whether something could not be done yet, because a write does not end.
    pub(crate) fn has_late(&self) -> bool {
        self.late.load(Ordering::Relaxed) > 0
    }

    /// What the roles of the open partitions come from.
    pub(crate) fn followed(&self) -> Followed {
        let following = self.following.lock();
        let roles = (following.assigned_epoch, following.opened_late);
        Followed { image: Arc::clone(&following.image), roles }
    }

    /// Whether what that image says is done, or was tried.
    pub(crate) fn has_followed(&self, image: &MetadataImage) -> bool {
        self.followed_version.load(Ordering::Acquire) >= image.version()
    }

    /// How many partitions wait to be opened again.
    pub(crate) fn failed(&self) -> usize {
        self.failed.load(Ordering::Relaxed)
    }

    /// Replicas that this broker should have and cannot serve: not opened, or on a directory that has failed, hangs or is missing.
    pub(crate) fn on_failed_dirs(&self) -> Vec<Key> {
        // Not from what a change in progress has: it may be waiting for a disk that hangs.
        let mut keys = self.unserved.lock().clone();
        let open = self.open.read();
        let failed = open.iter().filter(|(_, hosted)| hosted.dir().is_out());
        keys.extend(failed.map(|(key, _)| *key));
        keys
    }

    /// Replicas here that take no records because their disk is full, and those that take none from clients, of the partitions for which
    /// `image` has others in sync: they could do without.
    pub(crate) fn on_full_dirs(&self, image: &MetadataImage) -> [Vec<Key>; 2] {
        let mut keys = [Vec::new(), Vec::new()];
        if self.dirs.iter().any(|dir| dir.is_low()) {
            let relied_on = |(topic, index): &Key| {
                let partition = image.topic_by_id(*topic).and_then(|topic| topic.partition(*index));
                let in_sync = partition.map(|partition| partition.in_sync_replicas.as_slice()).unwrap_or_default();
                in_sync.len() > 1 && in_sync.contains(&self.broker_id)
            };
            let open = self.open.read();
            for (key, hosted) in open.iter().filter(|(key, hosted)| hosted.is_full() && relied_on(key)) {
                keys[usize::from(!hosted.dir().is_exhausted())].push(*key);
            }
        }
        keys
    }

    fn open_one(&self, place: Place, settings: &PartitionSettings, metrics: &Metrics) -> Result<(), Failure> {
        match open::open(&place, settings) {
            Ok((partition, report)) => {
                let key = (place.topic_id, place.index);
                let topic_metrics = metrics.topic(&place.topic);
                let hosted = Hosted::new(place, Arc::new(partition), topic_metrics, settings);
                self.open.write().insert(key, hosted);
                if report.missing.is_empty() { Ok(()) } else { Err(Failure::Lacks) }
            }
            Err(error) => {
                tracing::error!(topic = %place.topic, partition = %place.index, %error, "a partition could not be opened");
                Err(if error.needs_a_person() { Failure::Damage } else { Failure::MayPass })
            }
        }
    }

    fn remove(&self, topic: &TopicImage, following: &mut Following, metrics: &Metrics) {
        for partition in &topic.partitions {
            self.leave(topic, partition.index, following);
        }
        metrics.forget_topic(&topic.name);
    }

    fn leave(&self, topic: &TopicImage, index: PartitionIndex, following: &mut Following) {
        following.located.remove(&LogName::new(&topic.name, index.0));
        if let Some(hosted) = { self.open.write().remove(&(topic.id, index)) } {
            self.delete(hosted, &mut following.leaving);
        }
    }

    /// Where the disk hangs, later.
    fn delete(&self, hosted: Arc<Hosted>, leaving: &mut Vec<Arc<Hosted>>) {
        if hosted.dir().is_hung() {
            leaving.push(hosted);
        } else if let Err(error) = hosted.partition.delete(now_ms()) {
            tracing::error!(topic = %hosted.topic, partition = %hosted.index, %error, "a deleted partition's log is left");
        }
    }

    /// Once for all that one change of the metadata removed.
    fn commit_deletions(&self) {
        for dir in self.dirs.iter().filter(|dir| !dir.is_hung()) {
            if let Err(error) = dir.log_dir.commit_deletions() {
                tracing::error!(dir = %dir.log_dir.path().display(), %error, "deletions are not durable yet");
            }
        }
    }

    /// Flushes and closes every log, then says of each directory that it was closed cleanly. Blocks.
    pub(crate) fn close(&self, threads_per_dir: usize) {
        // Taken out first: whoever looks up now, a scrape say, finds nothing and does not wait.
        let open: Vec<_> = std::mem::take(&mut *self.open.write()).into_values().collect();
        per_dir::for_each(
            open,
            |hosted| Arc::clone(&hosted.dir()),
            |_| threads_per_dir,
            |hosted| {
                if let Err(error) = hosted.partition.close() {
                    self.incomplete.store(true, Ordering::Relaxed);
                    tracing::error!(topic = %hosted.topic, partition = %hosted.index, %error, "a log could not be closed");
                }
            },
        );
        let clean = !self.incomplete.load(Ordering::Relaxed);
        for dir in self.dirs.iter().filter(|_| clean) {
            if let Err(error) = dir.log_dir.close_clean() {
                tracing::error!(dir = %dir.log_dir.path().display(), %error, "a log directory could not be closed");
            }
        }
    }
}

impl Means<'_> {
    fn settings(&self, topic: &TopicImage, settings: &TopicConfig, index: PartitionIndex) -> PartitionSettings {
        effective::partition_settings(self.config, self.image, settings, (topic.id, index))
    }
}

/// What a caller of `follow` may want to show.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Progress {
    ToOpen(usize),
    Opened,
}
