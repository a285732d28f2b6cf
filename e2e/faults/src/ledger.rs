//! What clients were told: which records were acknowledged and where, what groups read and committed. Kept while the run goes on;
//! `check` compares it with the logs afterwards.
//!
//! What no log is needed for is noticed at once: a group that skips records, a committed offset that goes back.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_broker_client::TopicPartition;

/// An acknowledged record. The number is the record's key: records of a partition are numbered from 0 as they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    pub(crate) number: u64,
    /// None when the broker no longer knew it: a repetition of something old.
    pub(crate) offset: Option<i64>,
}

/// A record that a group has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) offset: i64,
    pub(crate) number: u64,
}

/// A partition as its clients saw it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Partition {
    pub(crate) acknowledged: Vec<Acknowledged>,
    pub(crate) read: Vec<Read>,
    /// The longest time between two acknowledgements, and when it began.
    pub(crate) longest_gap: Duration,
    pub(crate) longest_gap_at: Duration,
    /// The longest that ended since [`Ledger::gap_lately`] was asked.
    gap_lately: Duration,
    last_acknowledgement: Option<Duration>,
    next_to_read: i64,
    committed: i64,
}

#[derive(Debug, Default)]
struct Inner {
    partitions: BTreeMap<TopicPartition, Partition>,
    problems: Vec<String>,
    /// Errors that clients met, by their text: a fault shows here, and is no problem.
    errors: BTreeMap<String, u64>,
}

/// Shared by all clients.
#[derive(Debug)]
pub(crate) struct Ledger {
    began: Instant,
    inner: Mutex<Inner>,
}

/// More different errors than this are counted together.
const ERRORS_MAX: usize = 200;

impl Ledger {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), inner: Mutex::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since the run began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Records from `first` on have been acknowledged, from this offset on.
    pub(crate) fn acknowledged(&self, tp: &TopicPartition, first: u64, count: u64, offset: i64) {
        let now = self.elapsed();
        let mut inner = self.inner();
        let partition = inner.partitions.entry(tp.clone()).or_default();
        for n in 0..count {
            let at = i64::try_from(n).ok().filter(|_| offset >= 0).map(|n| offset + n);
            partition.acknowledged.push(Acknowledged { number: first + n, offset: at });
        }
        partition.gap_until(now);
        partition.last_acknowledgement = Some(now);
    }

    /// Nothing more will be sent: a gap that is still open counts up to now.
    pub(crate) fn ends(&self) {
        let now = self.elapsed();
        self.inner().partitions.values_mut().for_each(|partition| partition.gap_until(now));
    }

    /// A member of a partition's group has read a record. Said before the member commits it.
    pub(crate) fn read(&self, tp: &TopicPartition, read: Read) {
        let mut inner = self.inner();
        let partition = inner.partitions.entry(tp.clone()).or_default();
        let expected = partition.next_to_read;
        partition.read.push(read);
        if read.offset >= expected {
            partition.next_to_read = read.offset + 1;
        }
        if read.offset > expected {
            inner.problems.push(format!("{tp}: its group got offset {} after {}: skipped", read.offset, expected - 1));
        }
    }

    /// A commit has been acknowledged.
    pub(crate) fn committed(&self, tp: &TopicPartition, offset: i64) {
        let mut inner = self.inner();
        let partition = inner.partitions.entry(tp.clone()).or_default();
        partition.committed = partition.committed.max(offset);
    }

    /// The committed offset that any later look must find, at least.
    pub(crate) fn least_committed(&self) -> BTreeMap<TopicPartition, i64> {
        self.inner().partitions.iter().map(|(tp, partition)| (tp.clone(), partition.committed)).collect()
    }

    /// The next offset that each partition's group will read.
    pub(crate) fn next_to_read(&self) -> BTreeMap<TopicPartition, i64> {
        self.inner().partitions.iter().map(|(tp, partition)| (tp.clone(), partition.next_to_read)).collect()
    }

    /// Something that must never be.
    pub(crate) fn problem(&self, text: String) {
        eprintln!("{:7.1} s  PROBLEM  {text}", self.elapsed().as_secs_f64());
        self.inner().problems.push(text);
    }

    /// Something that a client may meet while there are faults.
    pub(crate) fn error(&self, text: String) {
        let mut inner = self.inner();
        let full = inner.errors.len() >= ERRORS_MAX && !inner.errors.contains_key(&text);
        let text = if full { "other errors".to_owned() } else { text };
        *inner.errors.entry(text).or_default() += 1;
    }

    pub(crate) fn count(&self) -> u64 {
        let count = |partition: &Partition| u64::try_from(partition.acknowledged.len()).unwrap_or(u64::MAX);
        self.inner().partitions.values().map(count).sum()
    }

    /// The longest time in which a partition acknowledged nothing: of those that ended since this was asked last, and those that go on.
    pub(crate) fn gap_lately(&self) -> Duration {
        let now = self.elapsed();
        let mut inner = self.inner();
        let one = |partition: &mut Partition| std::mem::take(&mut partition.gap_lately).max(partition.gap_at(now));
        inner.partitions.values_mut().map(one).max().unwrap_or_default()
    }

    /// Everything, for the check.
    pub(crate) fn take(&self) -> (BTreeMap<TopicPartition, Partition>, Vec<String>, BTreeMap<String, u64>) {
        let inner = std::mem::take(&mut *self.inner());
        (inner.partitions, inner.problems, inner.errors)
    }
}

impl Partition {
    /// How long it has acknowledged nothing.
    fn gap_at(&self, now: Duration) -> Duration {
        self.last_acknowledgement.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    fn gap_until(&mut self, now: Duration) {
        let gap = self.gap_at(now);
        self.gap_lately = self.gap_lately.max(gap);
        if gap > self.longest_gap {
            (self.longest_gap, self.longest_gap_at) = (gap, now - gap);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(offsets: &[i64]) -> Vec<String> {
        let (ledger, tp) = (Ledger::new(), TopicPartition::new("t", 0));
        offsets.iter().for_each(|offset| ledger.read(&tp, Read { offset: *offset, number: 0 }));
        ledger.take().1
    }

    #[test]
    fn a_group_may_read_again_but_not_skip() {
        assert!(problems(&[0, 1, 2, 1, 2, 3]).is_empty());
        assert_eq!(problems(&[0, 1, 3]), ["t-0: its group got offset 3 after 1: skipped"]);
    }

    #[test]
    fn a_gap_is_told_while_it_goes_on_and_once_after_it() {
        let (ledger, tp) = (Ledger::new(), TopicPartition::new("t", 0));
        ledger.acknowledged(&tp, 0, 1, 0);
        std::thread::sleep(Duration::from_millis(20));
        assert!(ledger.gap_lately() >= Duration::from_millis(20), "it goes on");
        ledger.acknowledged(&tp, 1, 1, 1);
        let told = ledger.gap_lately();
        assert!(told >= Duration::from_millis(20), "it has ended: its whole length");
        assert!(ledger.gap_lately() < told, "it is not told again");
    }

    #[test]
    fn a_commit_counts_from_its_acknowledgement_on() {
        let (ledger, tp) = (Ledger::new(), TopicPartition::new("t", 0));
        ledger.committed(&tp, 9);
        ledger.committed(&tp, 4);
        assert_eq!(ledger.least_committed()[&tp], 9);
    }
}
