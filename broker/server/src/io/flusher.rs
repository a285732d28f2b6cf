//! Flushes in the background, one thread a log directory: what was appended is on disk at the latest `flush.ms` later.
//!
//! What must hold: the thread sleeps while nothing is dirty; a partition is marked clean before its flush begins, so that
//! an append during the flush marks it again; partitions whose time comes within one window are flushed in one go.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::stop_on_panic::PanicAlarm;
use crate::partitions::Hosted;

/// A flush so far away is none: Kafka's default for `flush.ms` is the largest number there is.
const NEVER: Duration = Duration::from_secs(100 * 365 * 86_400);

#[derive(Debug, Default)]
struct Queue {
    due: BinaryHeap<Reverse<Due>>,
    stopping: bool,
}

/// Held weakly: a deleted partition needs no flush.
#[derive(Debug)]
struct Due {
    at: Instant,
    hosted: Weak<Hosted>,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug)]
pub(crate) struct Flusher {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Flusher {
    pub(crate) fn start(log_dir: usize, alarm: &PanicAlarm) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let thread = std::thread::Builder::new().name(format!("flush-{log_dir}")).spawn({
            let (shared, watch) = (Arc::clone(&shared), alarm.watch());
            move || {
                let _watch = watch;
                run(&shared);
            }
        })?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Flushes `hosted` once `within` is over. Called when it turns dirty, not for every append.
    pub(crate) fn schedule(&self, hosted: Weak<Hosted>, within: Duration) {
        if within >= NEVER {
            return;
        }
        let at = Instant::now() + within;
        let mut queue = self.shared.queue.lock();
        let sooner = queue.due.peek().is_none_or(|Reverse(first)| at < first.at);
        queue.due.push(Reverse(Due { at, hosted }));
        drop(queue);
        if sooner {
            self.shared.changed.notify_one();
        }
    }

    /// Ends the thread; closing the partitions flushes what is still dirty. Blocks.
    pub(crate) fn stop(&self) {
        self.shared.queue.lock().stopping = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            let _panicked = thread.join();
        }
    }
}

fn run(shared: &Shared) {
    loop {
        let mut due = Vec::new();
        {
            let mut queue = shared.queue.lock();
            if queue.stopping {
                return;
            }
            match queue.due.peek().map(|Reverse(first)| first.at) {
                None => shared.changed.wait(&mut queue),
                Some(at) if at > Instant::now() => {
                    shared.changed.wait_until(&mut queue, at);
                }
                Some(_) => {
                    while queue.due.peek().is_some_and(|Reverse(first)| first.at <= Instant::now()) {
                        due.extend(queue.due.pop().and_then(|Reverse(due)| due.hosted.upgrade()));
                    }
                }
            }
        }
        for hosted in due {
            hosted.flush_dirty();
        }
    }
}
