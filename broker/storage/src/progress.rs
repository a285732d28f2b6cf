//! What is being written or flushed in a log directory just now, and since when: so that somebody can see that a disk hangs, of which the
//! writes themselves say nothing.
//!
//! What must hold: noting costs next to nothing and never waits; what does not end is seen, also when others come and go beside it. Only
//! work that somebody waits for is noted as awaited; a flush in the background may take its time.

use std::sync::{
    LazyLock,
    atomic::{
        AtomicU64, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    },
};
use std::time::{Duration, Instant};

/// More at once than that are not noted: if the disk hangs, those that are noted hang too.
const SLOTS: usize = 32;

/// Times are told from here on.
static ZERO: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Where each thread looks for a free slot first, so that they don't get into each other's way.
static NEXT_START: AtomicUsize = AtomicUsize::new(0);
thread_local! {
    static START: usize = NEXT_START.fetch_add(1, Relaxed);
}

/// Whether somebody waits for the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// An append, a flush before an answer, a change of the metadata.
    Awaited,
    /// A flush that nobody waits for.
    Background,
}

/// What is in progress in one directory.
#[derive(Debug, Default)]
pub struct Progress {
    awaited: Slots,
    background: Slots,
}

/// When each piece of work began, in nanoseconds since [`ZERO`]; 0 for none.
#[derive(Debug, Default)]
struct Slots([AtomicU64; SLOTS]);

/// Work that goes on until this is dropped.
#[derive(Debug)]
pub struct InProgress<'a>(Option<&'a AtomicU64>);

impl Progress {
    /// Notes that work begins.
    pub fn begin(&self, work: Work) -> InProgress<'_> {
        self.slots(work).begin(nanos(Instant::now()))
    }

    /// For how long the oldest work has been in progress.
    pub fn oldest(&self, work: Work, now: Instant) -> Option<Duration> {
        let began = self.slots(work).0.iter().map(|slot| slot.load(Acquire)).filter(|began| *began > 0).min()?;
        Some(Duration::from_nanos(nanos(now).saturating_sub(began)))
    }

    fn slots(&self, work: Work) -> &Slots {
        match work {
            Work::Awaited => &self.awaited,
            Work::Background => &self.background,
        }
    }
}

impl Slots {
    fn begin(&self, now: u64) -> InProgress<'_> {
        let start = START.with(|start| *start);
        let from_start = (0..SLOTS).map(|index| &self.0[(start + index) % SLOTS]);
        let mut free = from_start.filter(|slot| slot.load(Relaxed) == 0);
        InProgress(free.find(|slot| slot.compare_exchange(0, now, Release, Relaxed).is_ok()))
    }
}

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            slot.store(0, Release);
        }
    }
}

/// Never 0.
fn nanos(at: Instant) -> u64 {
    let since = at.saturating_duration_since(*ZERO).as_nanos();
    u64::try_from(since).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_end_is_seen_while_others_come_and_go() {
        let progress = Progress::default();
        assert_eq!(progress.oldest(Work::Awaited, Instant::now()), None);
        let began = Instant::now();
        let hangs = progress.begin(Work::Awaited);
        for _ in 0..3 * SLOTS {
            drop(progress.begin(Work::Awaited));
        }
        let later = began + Duration::from_secs(5);
        let oldest = progress.oldest(Work::Awaited, later).unwrap();
        assert!(oldest > Duration::from_secs(4), "{oldest:?}");
        assert_eq!(progress.oldest(Work::Background, later), None, "nobody waits for that");
        drop(hangs);
        assert_eq!(progress.oldest(Work::Awaited, later), None);
    }

    #[test]
    fn more_work_than_can_be_noted_is_done_all_the_same() {
        let progress = Progress::default();
        let many: Vec<_> = (0..2 * SLOTS).map(|_| progress.begin(Work::Background)).collect();
        assert!(progress.oldest(Work::Background, Instant::now()).is_some());
        drop(many);
        assert_eq!(progress.oldest(Work::Background, Instant::now()), None);
    }
}
