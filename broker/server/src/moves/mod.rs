//! Replicas on their way from one log dir of this broker to another (KIP-113): which there are, and how far. `run.rs` does the work.
//!
//! What must hold: a replica has one move at most; what is called off ends without a trace; so many are copied at a time as
//! `num.replica.alter.log.dirs.threads` says, and others wait for their turn. Nothing is remembered: a move that a stop of the broker ends
//! has to be asked for again.

mod run;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay_broker_storage::Copied;
use forebay_broker_wire::types::Offset;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::broker::Broker;
use crate::metadata::effective::broker_number;
use crate::partitions::{Hosted, HostedDir, Key};
use crate::replication::{NO_LIMIT, Throttle};

/// How long a stop waits for copying to end, which a disk that hangs may never do.
const STOP_WAIT: Duration = Duration::from_secs(5);

const RATE: &str = "replica.alter.log.dirs.io.max.bytes.per.second";

/// All moves of one broker.
#[derive(Debug)]
pub(crate) struct Moves {
    under_way: Mutex<BTreeMap<Key, Arc<Move>>>,
    turns: Semaphore,
    throttle: Throttle,
    tasks: TaskTracker,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Move {
    pub(crate) hosted: Arc<Hosted>,
    pub(crate) target: Arc<HostedDir>,
    copied_bytes: AtomicU64,
    end: AtomicI64,
    /// Held while the log changes hands.
    called_off: Mutex<bool>,
    changed: Condvar,
    ended: CancellationToken,
}

impl Moves {
    pub(crate) fn new(at_once: usize) -> Self {
        Self {
            under_way: Mutex::default(),
            turns: Semaphore::new(at_once.clamp(1, Semaphore::MAX_PERMITS)),
            throttle: Throttle::default(),
            tasks: TaskTracker::new(),
        }
    }

    /// Has a replica moved to a directory: not if it is there or on its way there. Any other move of it is called off. Blocks, on a runtime.
    pub(crate) fn ask(&self, broker: &Arc<Broker>, hosted: &Arc<Hosted>, target: &Arc<HostedDir>) {
        let key = (hosted.topic_id, hosted.index);
        loop {
            let other = {
                let mut under_way = self.under_way.lock();
                match under_way.get(&key) {
                    Some(other) if other.is(hosted, target) => return,
                    Some(_) => under_way.remove(&key),
                    None => {
                        if !Arc::ptr_eq(&hosted.dir(), target) && !self.tasks.is_closed() {
                            let this = Arc::new(Move::new(hosted, target));
                            under_way.insert(key, Arc::clone(&this));
                            self.tasks.spawn(run::run(Arc::clone(broker), this));
                        }
                        return;
                    }
                }
            };
            // It may be changing hands just now: where the replica is has to be looked at again.
            if let Some(other) = other {
                other.call_off();
            }
        }
    }

    /// Those to one directory.
    pub(crate) fn to(&self, dir: &Arc<HostedDir>) -> Vec<Arc<Move>> {
        let under_way = self.under_way.lock();
        let here =
            under_way.values().filter(|one| Arc::ptr_eq(&one.target, dir) && !Arc::ptr_eq(&one.hosted.dir(), dir));
        here.cloned().collect()
    }

    fn over(&self, this: &Arc<Move>) {
        let key = (this.hosted.topic_id, this.hosted.index);
        let mut under_way = self.under_way.lock();
        if under_way.get(&key).is_some_and(|known| Arc::ptr_eq(known, this)) {
            under_way.remove(&key);
        }
    }

    /// How long nothing may be copied, by the rate that is in force now.
    fn wait(&self, broker: &Broker) -> Option<Duration> {
        let rate = broker_number::<u64>(&broker.config, &broker.metadata.image(), RATE);
        let now = Instant::now();
        self.throttle.set_rate(rate.filter(|rate| *rate < NO_LIMIT), now.into());
        self.throttle.wait(now.into())
    }

    /// Ends all moves.
    pub(crate) async fn stop(&self) {
        self.tasks.close();
        let all: Vec<_> = std::mem::take(&mut *self.under_way.lock()).into_values().collect();
        let called_off = tokio::task::spawn_blocking(move || all.iter().for_each(|one| one.call_off()));
        let ended = async {
            let _panicked = called_off.await.is_err();
            self.tasks.wait().await;
        };
        if timeout(STOP_WAIT, ended).await.is_err() {
            tracing::warn!("stopping although a replica is still being copied to another log dir");
        }
    }
}

impl Move {
    fn new(hosted: &Arc<Hosted>, target: &Arc<HostedDir>) -> Self {
        Self {
            hosted: Arc::clone(hosted),
            target: Arc::clone(target),
            copied_bytes: AtomicU64::new(0),
            end: AtomicI64::new(hosted.partition.offsets().log_start.0),
            called_off: Mutex::new(false),
            changed: Condvar::new(),
            ended: CancellationToken::new(),
        }
    }

    fn is(&self, hosted: &Arc<Hosted>, target: &Arc<HostedDir>) -> bool {
        Arc::ptr_eq(&self.hosted, hosted) && Arc::ptr_eq(&self.target, target)
    }

    /// Bytes that the copy has.
    pub(crate) fn copied_bytes(&self) -> u64 {
        self.copied_bytes.load(Ordering::Relaxed)
    }

    /// Records that the copy lacks, about.
    pub(crate) fn lag(&self) -> i64 {
        let Offset(end) = self.hosted.partition.offsets().log_end;
        end.saturating_sub(self.end.load(Ordering::Relaxed)).max(0)
    }

    fn note(&self, copied: &Copied) {
        self.copied_bytes.store(copied.done_bytes, Ordering::Relaxed);
        self.end.store(copied.end.0, Ordering::Relaxed);
    }

    /// When this returns the log has changed hands, or never will by this move.
    fn call_off(&self) {
        *self.called_off.lock() = true;
        self.changed.notify_all();
        self.ended.cancel();
    }

    /// Until this is dropped nobody calls it off; none if that has happened.
    fn hold(&self) -> Option<MutexGuard<'_, bool>> {
        Some(self.called_off.lock()).filter(|called_off| !**called_off)
    }

    /// Waits for so long, or until it is called off.
    fn pause(&self, time: Duration) {
        let mut called_off = self.called_off.lock();
        if !*called_off {
            self.changed.wait_for(&mut called_off, time);
        }
    }
}
