//! Fetches that wait for a partition: told how many bytes became readable, so that nobody polls.
//!
//! A fetch registers first, reads next and then waits: what comes in between is counted, so no wake-up is lost.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;

/// Somebody who waits for records. Called on the appending thread: must be quick and must not call the partition.
pub trait FetchWaiter: Send + Sync {
    /// So many bytes more may be read: they lie below the high watermark, or for [`crate::Partition::watch_log_end`] in the log.
    fn advanced(&self, bytes: u64);
    /// The partition is gone or led by another broker: look again.
    fn closed(&self);
}

#[derive(Default)]
pub(crate) struct Waiters {
    count: AtomicUsize,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    next_id: u64,
    waiters: BTreeMap<u64, Arc<dyn FetchWaiter>>,
}

impl fmt::Debug for Waiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiters").field("count", &self.count).finish()
    }
}

impl Waiters {
    pub(crate) fn watch(self: &Arc<Self>, waiter: Arc<dyn FetchWaiter>) -> WatchGuard {
        let mut list = self.list.lock();
        let id = list.next_id;
        list.next_id += 1;
        list.waiters.insert(id, waiter);
        self.count.store(list.waiters.len(), Ordering::SeqCst);
        WatchGuard { waiters: Arc::clone(self), id }
    }

    pub(crate) fn advanced(&self, bytes: u64) {
        self.each(|waiter| waiter.advanced(bytes));
    }

    pub(crate) fn closed(&self) {
        self.each(|waiter| waiter.closed());
    }

    fn each(&self, call: impl Fn(&dyn FetchWaiter)) {
        if self.count.load(Ordering::SeqCst) > 0 {
            self.list.lock().waiters.values().for_each(|waiter| call(&**waiter));
        }
    }
}

/// Ends the watch when dropped.
#[derive(Debug)]
pub struct WatchGuard {
    waiters: Arc<Waiters>,
    id: u64,
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        let mut list = self.waiters.list.lock();
        let removed = list.waiters.remove(&self.id);
        self.waiters.count.store(list.waiters.len(), Ordering::SeqCst);
        drop(list);
        drop(removed); // its own drop may do anything, so not under the lock
    }
}
