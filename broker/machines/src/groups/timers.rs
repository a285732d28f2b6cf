//! Deadlines of groups and members, earliest first.
//!
//! One entry a key. Arming a key for later than it is armed already changes nothing: who is woken looks at its own
//! deadline and arms again. So a heartbeat costs one look-up, and a cancelled deadline needs no removal.

use std::collections::{BTreeSet, HashMap};

use super::ids::{GroupId, MemberId};

/// What a deadline is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A member, or a member id that was given out, is gone unless heard of.
    Member(GroupId, MemberId),
    /// The join phase of a rebalance ends.
    JoinPhase(GroupId),
    /// Members that have not synced by now are removed.
    SyncPhase(GroupId),
    /// Expired offsets and empty groups are looked for.
    Retention,
}

/// The armed deadlines.
#[derive(Debug, Default)]
pub(super) struct Timers {
    by_deadline: BTreeSet<(i64, Timer)>,
    deadlines: HashMap<Timer, i64>,
}

impl Timers {
    /// Wakes `timer` at `deadline_ms` or before.
    pub(super) fn arm(&mut self, timer: Timer, deadline_ms: i64) {
        match self.deadlines.get(&timer).copied() {
            Some(armed_ms) if armed_ms <= deadline_ms => {}
            earlier => {
                if let Some(armed_ms) = earlier {
                    self.by_deadline.remove(&(armed_ms, timer.clone()));
                }
                self.by_deadline.insert((deadline_ms, timer.clone()));
                self.deadlines.insert(timer, deadline_ms);
            }
        }
    }

    pub(super) fn next_deadline_ms(&self) -> Option<i64> {
        self.by_deadline.first().map(|(deadline_ms, _)| *deadline_ms)
    }

    /// Takes one timer that is due.
    pub(super) fn pop_due(&mut self, now_ms: i64) -> Option<Timer> {
        if self.next_deadline_ms()? > now_ms {
            return None;
        }
        let (_, timer) = self.by_deadline.pop_first()?;
        self.deadlines.remove(&timer);
        Some(timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str) -> Timer {
        Timer::Member("g".into(), name.into())
    }

    #[test]
    fn timers_fire_in_order_of_their_deadlines_and_not_before() {
        let mut timers = Timers::default();
        timers.arm(member("b"), 20);
        timers.arm(member("a"), 10);
        assert_eq!(timers.next_deadline_ms(), Some(10));
        assert_eq!(timers.pop_due(9), None);
        assert_eq!(timers.pop_due(20), Some(member("a")));
        assert_eq!(timers.pop_due(20), Some(member("b")));
        assert_eq!(timers.pop_due(20), None);
    }

    #[test]
    fn arming_for_later_keeps_the_earlier_deadline_and_arming_for_earlier_replaces_it() {
        let mut timers = Timers::default();
        timers.arm(member("a"), 10);
        timers.arm(member("a"), 30);
        assert_eq!(timers.next_deadline_ms(), Some(10));
        timers.arm(member("a"), 5);
        assert_eq!(timers.pop_due(5), Some(member("a")));
        assert_eq!(timers.next_deadline_ms(), None);
    }
}
