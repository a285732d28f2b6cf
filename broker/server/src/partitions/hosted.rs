//! An open partition with what the shell keeps beside it: its disk thread, its counters, whether it has to be flushed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use forebay_broker_machines::metadata::{PartitionImage, is_internal};
use forebay_broker_partition::{Appended, FlushError, Partition, RoleKind};
use forebay_broker_storage::{LogDir, Repeats, Room, Work};
use forebay_broker_wire::records::Compression;
use forebay_broker_wire::types::{PartitionIndex, Uuid};
use parking_lot::Mutex;
use prometheus::Histogram;
use tokio::sync::watch;
use tokio::time::Instant as Deadline;

use crate::io::append::now_ms;
use crate::io::flusher::Flusher;
use crate::io::pace::Pace;
use crate::metadata::effective::{PartitionSettings, Throttled};
use crate::metrics::TopicMetrics;

/// Kafka's default for `flush.messages`, which is never.
const NEVER_FLUSH_MESSAGES: u64 = i64::MAX as u64;

/// One log directory with what serves it.
#[derive(Debug)]
pub(crate) struct HostedDir {
    /// Its place among the directories.
    pub(crate) number: usize,
    pub(crate) log_dir: Arc<LogDir>,
    pub(crate) flusher: Flusher,
    pub(crate) flush_duration: Histogram,
    /// Whether network threads may write to it.
    pub(crate) pace: Pace,
    hung: watch::Sender<bool>,
    is_hung: AtomicBool,
    room: watch::Sender<Room>,
}

impl HostedDir {
    pub(crate) fn new(
        number: usize,
        log_dir: Arc<LogDir>,
        flusher: Flusher,
        flush_duration: Histogram,
        pace: Pace,
    ) -> Self {
        let (hung, is_hung) = (watch::Sender::new(false), AtomicBool::new(false));
        let room = watch::Sender::new(Room::Ample);
        Self { number, log_dir, flusher, flush_duration, pace, hung, is_hung, room }
    }

    /// Notes whether it hangs. Gives whether that is new.
    pub(crate) fn note_hung(&self, hung: bool) -> bool {
        self.is_hung.store(hung, Ordering::SeqCst);
        self.hung.send_if_modified(|noted| std::mem::replace(noted, hung) != hung)
    }

    /// Whether what is written there does not end.
    pub(crate) fn is_hung(&self) -> bool {
        self.is_hung.load(Ordering::SeqCst)
    }

    /// Returns when it hangs.
    pub(crate) async fn hangs(&self) {
        let mut hung = self.hung.subscribe();
        // The sender is here.
        let _never = hung.wait_for(|hung| *hung).await.is_err();
    }

    /// Notes what room there is for records. Gives whether that is new.
    pub(crate) fn note_room(&self, room: Room) -> bool {
        self.room.send_if_modified(|noted| std::mem::replace(noted, room) != room)
    }

    /// Whether clients' records are refused for want of room; it is said to be back only when it has been for a while.
    pub(crate) fn is_low(&self) -> bool {
        *self.room.borrow() != Room::Ample
    }

    /// Whether there is no room at all.
    pub(crate) fn is_exhausted(&self) -> bool {
        *self.room.borrow() == Room::None
    }

    /// Hears of what [`Self::note_room`] noted.
    pub(crate) fn watch_room(&self) -> watch::Receiver<Room> {
        self.room.subscribe()
    }

    /// Whether nothing can be written there: it has failed, or it hangs.
    pub(crate) fn is_out(&self) -> bool {
        self.is_hung() || self.log_dir.poisoned().is_some()
    }

    /// Why it hangs, in words.
    pub(crate) fn words(&self) -> String {
        format!("log directory {} hangs: what is written there does not end", self.log_dir.path().display())
    }
}

#[derive(Debug)]
pub(crate) struct Hosted {
    /// Its own number, which says which disk thread it belongs to.
    pub(crate) number: usize,
    pub(crate) topic: Arc<str>,
    pub(crate) topic_id: Uuid,
    pub(crate) index: PartitionIndex,
    pub(crate) partition: Arc<Partition>,
    pub(crate) topic_metrics: TopicMetrics,
    dir: ArcSwap<HostedDir>,
    in_force: ArcSwap<InForce>,
    dirty: AtomicBool,
    /// Appends that are with the disk threads, and the directory whose thread has them: see [`QueuedAt`].
    queued: AtomicU64,
    /// That it can't follow its leader.
    pub(crate) failures_told: Repeats,
    /// When this broker's last time as its leader ended.
    led_until: Mutex<Option<Instant>>,
    this: Weak<Self>,
}

/// The topic's settings that the shell itself obeys; the log has its own.
#[derive(Debug, Clone, Copy)]
struct InForce {
    flush_ms: u64,
    /// `flush.messages` is set: an append may have to wait for a flush.
    counts_to_flush: bool,
    compression: Option<Compression>,
    min_insync_replicas: usize,
    throttled: Throttled,
}

impl InForce {
    fn of(settings: &PartitionSettings) -> Self {
        let PartitionSettings { log, compression, min_insync_replicas, throttled, .. } = settings;
        Self {
            flush_ms: log.flush_ms,
            counts_to_flush: log.flush_messages < NEVER_FLUSH_MESSAGES,
            compression: *compression,
            min_insync_replicas: *min_insync_replicas,
            throttled: *throttled,
        }
    }
}

/// What a partition is, before it is open.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) number: usize,
    pub(super) topic: Arc<str>,
    pub(super) topic_id: Uuid,
    pub(super) index: PartitionIndex,
    pub(super) dir: Arc<HostedDir>,
}

impl Hosted {
    pub(super) fn new(
        place: Place,
        partition: Arc<Partition>,
        topic_metrics: TopicMetrics,
        settings: &PartitionSettings,
    ) -> Arc<Self> {
        let Place { number, topic, topic_id, index, dir } = place;
        Arc::new_cyclic(|this| Self {
            number,
            topic,
            topic_id,
            index,
            partition,
            topic_metrics,
            dir: ArcSwap::new(dir),
            in_force: ArcSwap::from_pointee(InForce::of(settings)),
            dirty: AtomicBool::new(false),
            queued: AtomicU64::new(0),
            failures_told: Repeats::default(),
            led_until: Mutex::default(),
            this: Weak::clone(this),
        })
    }

    /// The directory that its log lies in: another one after a move.
    pub(crate) fn dir(&self) -> Guard<Arc<HostedDir>> {
        self.dir.load()
    }

    /// Its log lies in another directory from now on.
    pub(crate) fn moved_to(&self, dir: Arc<HostedDir>) {
        self.dir.store(dir);
    }

    /// False when a write goes on for so long: to be done again then.
    pub(super) fn update_settings(&self, settings: PartitionSettings, time_max: Duration) -> bool {
        self.in_force.store(Arc::new(InForce::of(&settings)));
        self.partition.update_replication(settings.replication());
        self.partition.update_config_within(settings.log, time_max)
    }

    /// Leads or follows as the metadata says. False when a write goes on for so long: to be done again then.
    pub(super) fn assign(&self, image: &PartitionImage, time_max: Duration) -> bool {
        if image.leader != Some(self.dir().log_dir.identity().node_id) && self.leads() {
            // Before anybody is told.
            *self.led_until.lock() = Some(Instant::now());
        }
        self.partition.assign_within(image, now_ms(), time_max)
    }

    /// Whether this broker led it until so recently.
    pub(crate) fn led_within(&self, time: Duration) -> bool {
        self.led_until.lock().is_some_and(|until| until.elapsed() <= time)
    }

    /// Whether it takes no records from clients because its disk is full. Internal topics may use up the reserve.
    pub(crate) fn is_full(&self) -> bool {
        match *self.dir().room.borrow() {
            Room::Ample => false,
            Room::Reserve => !is_internal(&self.topic),
            Room::None => true,
        }
    }

    /// Whether this broker leads it.
    pub(crate) fn leads(&self) -> bool {
        self.partition.role() == RoleKind::Leader
    }

    /// Whether other brokers can go on with it without this one.
    pub(crate) fn others_go_on(&self) -> bool {
        self.partition.in_sync_replicas().is_none_or(|in_sync| in_sync.len() > 1)
    }

    /// Returns when its directory hangs and whoever waits had better go elsewhere: at once if others can go on with it, else at the deadline.
    pub(crate) async fn given_up(&self, deadline: Option<Deadline>) {
        let dir = self.dir.load_full();
        dir.hangs().await;
        if !self.others_go_on() {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        }
    }

    /// How batches are stored; none keeps them as they come.
    pub(crate) fn compression(&self) -> Option<Compression> {
        self.in_force.load().compression
    }

    /// Whether an append now would be a write and nothing else, and would overtake no other.
    pub(crate) fn may_append_hot(&self) -> bool {
        let in_force = self.in_force.load();
        let free = QueuedAt(self.queued.load(Ordering::Acquire)).is_none() && !self.dir().is_hung();
        !in_force.counts_to_flush && in_force.compression.is_none() && free
    }

    /// Notes an append that is handed to the disk threads, until the note is dropped.
    pub(crate) fn note_queued(self: &Arc<Self>) -> Queued {
        let dir = self.dir().number;
        let one_more = |queued| Some(QueuedAt(queued).and_one(dir).0);
        let before = self.queued.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        let dir = QueuedAt(before.unwrap_or_else(|unchanged| unchanged)).and_one(dir).dir();
        Queued { hosted: Arc::clone(self), dir }
    }

    /// `min.insync.replicas`.
    pub(crate) fn min_insync_replicas(&self) -> usize {
        self.in_force.load().min_insync_replicas
    }

    /// Which copying of it is held back.
    pub(crate) fn throttled(&self) -> Throttled {
        self.in_force.load().throttled
    }

    /// Makes everything appended so far durable. Blocks.
    pub(crate) fn flush(&self) -> Result<(), FlushError> {
        let began = Instant::now();
        self.partition.flush()?;
        self.dir().flush_duration.observe(began.elapsed().as_secs_f64());
        Ok(())
    }

    /// Something was appended that nobody flushed: the flusher will, `flush.ms` from now.
    pub(crate) fn mark_dirty(&self) {
        if !self.dirty.swap(true, Ordering::AcqRel) {
            let within = Duration::from_millis(self.in_force.load().flush_ms);
            self.dir().flusher.schedule(Weak::clone(&self.this), within);
        }
    }

    /// The flusher's part: clean first, then flush, so that an append in between is not forgotten. Blocks.
    pub(crate) fn flush_dirty(&self) {
        self.dirty.store(false, Ordering::Release);
        let dir = self.dir();
        let _in_progress = dir.log_dir.progress().begin(Work::Background);
        if let Err(error) = self.flush() {
            tracing::error!(topic = %self.topic, partition = %self.index, %error, "background flush failed");
        }
    }

    pub(crate) fn count_in(&self, appended: &Appended) {
        self.topic_metrics.bytes_in.inc_by(appended.bytes);
        self.topic_metrics.messages_in.inc_by(u64::from(appended.records));
    }
}

/// An append on its way to the disk; dropped when it has been written, or never will be.
#[derive(Debug)]
pub(crate) struct Queued {
    hosted: Arc<Hosted>,
    dir: usize,
}

impl Queued {
    pub(crate) fn hosted(&self) -> &Arc<Hosted> {
        &self.hosted
    }

    /// The directory whose thread is to have it.
    pub(crate) fn dir(&self) -> usize {
        self.dir
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.hosted.queued.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How many appends are queued, with the directory that the first of them was for. While there are some, others go to the same thread, also
/// when the log has moved meanwhile: they must not overtake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct QueuedAt(u64);

impl QueuedAt {
    const COUNT_BITS: u32 = 32;

    fn is_none(self) -> bool {
        self.0 & ((1 << Self::COUNT_BITS) - 1) == 0
    }

    fn dir(self) -> usize {
        usize::try_from(self.0 >> Self::COUNT_BITS).unwrap_or_default()
    }

    /// One more; `dir` is where its log is now.
    fn and_one(self, dir: usize) -> Self {
        let dir = if self.is_none() { u64::try_from(dir).unwrap_or_default() << Self::COUNT_BITS } else { self.0 };
        Self(dir + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appends_stay_with_one_thread_until_none_of_them_is_queued() {
        let one = QueuedAt(0).and_one(3);
        let two = one.and_one(5);
        assert_eq!((one.dir(), two.dir(), two.is_none()), (3, 3, false));
        let none = QueuedAt(two.0 - 2);
        assert!(none.is_none());
        assert_eq!(none.and_one(5).dir(), 5);
    }
}
