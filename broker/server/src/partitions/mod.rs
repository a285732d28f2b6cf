//! The partitions that this broker has open, by topic id and index; follows the metadata image.
//!
//! What must hold: the data path looks up without waiting for a change in progress; a partition in the image with this
//! broker among its replicas is open before the change that brought it is answered; a log directory of an older topic of
//! the same name is set aside, never mixed in and never destroyed; one partition that can't be opened keeps no other from it.

mod changes;
mod hosted;
mod open;
mod per_dir;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use forebay_broker_config::{BrokerConfig, TopicConfig};
use forebay_broker_machines::metadata::{MetadataImage, TopicImage};
use forebay_broker_storage::LogName;
use forebay_broker_wire::types::{BrokerId, LeaderEpoch, PartitionIndex, Uuid};
use parking_lot::{Mutex, RwLock};
use tokio_util::sync::CancellationToken;

use self::changes::changes;
use self::hosted::Place;
pub(crate) use self::hosted::{Hosted, HostedDir};
use crate::io::append::now_ms;
use crate::metadata::effective::{self, PartitionSettings};
use crate::metrics::Metrics;

type Key = (Uuid, PartitionIndex);

#[derive(Debug)]
pub(crate) struct PartitionTable {
    broker_id: BrokerId,
    pub(crate) dirs: Vec<Arc<HostedDir>>,
    open: RwLock<HashMap<Key, Arc<Hosted>>>,
    next_number: AtomicUsize,
    following: Mutex<Following>,
    shutdown: CancellationToken,
    /// A log was not opened because a stop came, or could not be closed: nothing may be said to be clean.
    incomplete: AtomicBool,
}

/// What only a change needs; one change at a time.
#[derive(Debug)]
struct Following {
    image: Arc<MetadataImage>,
    /// Which directory has which log; new ones go where the fewest are.
    located: HashMap<LogName, usize>,
}

impl PartitionTable {
    /// A table with nothing open. `located` are the logs that were found, by directory.
    pub(crate) fn new(
        broker_id: BrokerId,
        dirs: Vec<Arc<HostedDir>>,
        located: HashMap<LogName, usize>,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            broker_id,
            dirs,
            open: RwLock::new(HashMap::new()),
            next_number: AtomicUsize::new(0),
            following: Mutex::new(Following { image: Arc::new(MetadataImage::default()), located }),
            shutdown,
            incomplete: AtomicBool::new(false),
        }
    }

    pub(crate) fn get(&self, topic_id: Uuid, index: PartitionIndex) -> Option<Arc<Hosted>> {
        self.open.read().get(&(topic_id, index)).cloned()
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
        let here = open.values().filter(|hosted| std::ptr::eq(&*hosted.dir, dir));
        here.map(|hosted| hosted.partition.size_bytes()).sum()
    }

    /// All open partitions, in the order of their names.
    pub(crate) fn all(&self) -> Vec<Arc<Hosted>> {
        let mut all: Vec<_> = self.open.read().values().cloned().collect();
        all.sort_by(|a, b| (&a.topic, a.index).cmp(&(&b.topic, b.index)));
        all
    }

    /// Opens, configures and removes partitions until the table is as `image` says; an older image than the one followed
    /// already changes nothing. `progress` hears how many are to be opened, then of each one opened. Blocks.
    pub(crate) fn follow(
        &self,
        image: &Arc<MetadataImage>,
        config: &BrokerConfig,
        metrics: &Metrics,
        progress: &(dyn Fn(Progress) + Sync),
    ) {
        let mut following = self.following.lock();
        if image.version() < following.image.version() {
            return;
        }
        let changes = changes(&following.image, image, self.broker_id);
        for topic in &changes.removed {
            self.remove(topic, &mut following.located, metrics);
        }
        self.commit_deletions();
        progress(Progress::ToOpen(changes.open.len()));
        let places = changes.open.iter().map(|(topic, index)| self.place(topic, *index, &mut following.located));
        let settings = |topic: &TopicImage, settings: &TopicConfig, index: PartitionIndex| {
            effective::partition_settings(config, image, settings, (topic.id, index))
        };
        // Partitions of one topic come together: what holds for the topic is found once.
        let mut of_topic: Option<(Uuid, TopicConfig)> = None;
        let logs: Vec<_> = places
            .zip(&changes.open)
            .map(|(place, (topic, index))| {
                let known = of_topic.take().filter(|(id, _)| *id == topic.id);
                let (_, found) =
                    of_topic.insert(known.unwrap_or_else(|| (topic.id, effective::topic_config(config, image, topic))));
                (place, settings(topic, found, *index))
            })
            .collect();
        per_dir::for_each(
            logs,
            |(place, _)| &place.dir,
            config.threads.recovery_per_data_dir,
            |(place, settings)| {
                if self.shutdown.is_cancelled() {
                    self.incomplete.store(true, Ordering::Relaxed);
                    return;
                }
                self.open_one(place, &settings, metrics);
                progress(Progress::Opened);
            },
        );
        for topic in &changes.configure {
            let found = effective::topic_config(config, image, topic);
            for partition in &topic.partitions {
                if let Some(hosted) = self.get(topic.id, partition.index) {
                    hosted.update_settings(settings(topic, &found, partition.index));
                }
            }
        }
        following.image = Arc::clone(image);
    }

    fn place(&self, topic: &TopicImage, index: PartitionIndex, located: &mut HashMap<LogName, usize>) -> Place {
        let name = LogName::new(&topic.name, index.0);
        let fewest = || {
            let logs_in = |dir: usize| located.values().filter(|located| **located == dir).count();
            let usable = (0..self.dirs.len()).filter(|dir| self.dirs[*dir].log_dir.poisoned().is_none());
            usable.min_by_key(|dir| logs_in(*dir)).unwrap_or_default()
        };
        let dir = located.get(&name).copied().unwrap_or_else(fewest);
        located.insert(name, dir);
        Place {
            number: self.next_number.fetch_add(1, Ordering::Relaxed),
            topic: Arc::clone(&topic.name),
            topic_id: topic.id,
            index,
            leader_epoch: leader_epoch(topic, index),
            dir: Arc::clone(&self.dirs[dir]),
        }
    }

    fn open_one(&self, place: Place, settings: &PartitionSettings, metrics: &Metrics) {
        match open::open(&place, settings.log.clone()) {
            Ok(partition) => {
                let key = (place.topic_id, place.index);
                let topic_metrics = metrics.topic(&place.topic);
                self.open.write().insert(key, Hosted::new(place, partition, topic_metrics, settings));
            }
            Err(error) => {
                tracing::error!(topic = %place.topic, partition = %place.index, %error, "a partition could not be opened");
            }
        }
    }

    fn remove(&self, topic: &TopicImage, located: &mut HashMap<LogName, usize>, metrics: &Metrics) {
        for partition in &topic.partitions {
            located.remove(&LogName::new(&topic.name, partition.index.0));
            let Some(hosted) = self.open.write().remove(&(topic.id, partition.index)) else { continue };
            if let Err(error) = hosted.partition.delete(now_ms()) {
                tracing::error!(topic = %topic.name, partition = %partition.index, %error, "a deleted partition's log is left");
            }
        }
        metrics.forget_topic(&topic.name);
    }

    /// Once for all that one change of the metadata removed.
    fn commit_deletions(&self) {
        for dir in &self.dirs {
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
            |hosted| &hosted.dir,
            threads_per_dir,
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

fn leader_epoch(topic: &TopicImage, index: PartitionIndex) -> LeaderEpoch {
    let partition = topic.partitions.iter().find(|partition| partition.index == index);
    partition.map_or(LeaderEpoch(0), |partition| partition.leader_epoch)
}

/// What a caller of `follow` may want to show.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Progress {
    ToOpen(usize),
    Opened,
}
