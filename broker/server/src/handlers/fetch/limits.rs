//! When a fetch is answered: decided from what is there and from the request's own limits, without I/O or a clock.
//!
//! What must hold: a response that can't grow is answered at once, whatever `min_bytes` says. An ordinary broker lets a
//! client whose `fetch.min.bytes` is above what one response may carry wait the whole `fetch.max.wait.ms` each time. Such a
//! request is "trapped": as it can never be satisfied, it is held only while its response keeps growing.

/// What one look at a partition found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// The most that this partition may bring (`partition_max_bytes`).
    pub(crate) limit_bytes: u64,
    pub(crate) bytes: u64,
    /// There is more to read that a limit kept out.
    pub(crate) more: bool,
    pub(crate) failed: bool,
}

impl Found {
    fn can_grow(&self) -> bool {
        !self.failed && !self.more && self.bytes < self.limit_bytes
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Answer,
    /// Look again when `wake_bytes` more have come.
    Wait {
        wake_bytes: u64,
        hold: Hold,
    },
}

/// How long to wait at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// As long as the request says.
    MaxWait,
    /// Until it stops growing: the request can't be satisfied, and there is something to answer.
    WhileGrowing,
}

pub(crate) fn decide(min_bytes: u64, max_bytes: u64, found: &[Found]) -> Verdict {
    let total: u64 = found.iter().map(|found| found.bytes).sum();
    let growable = || found.iter().filter(|found| found.can_grow());
    if total >= min_bytes || total >= max_bytes || found.iter().any(|found| found.failed) || growable().next().is_none()
    {
        return Verdict::Answer;
    }
    // A partition that reaches its limit may end the wait too, so its room counts as well as the bytes still wanted.
    let room = growable().map(|found| found.limit_bytes - found.bytes).min().unwrap_or(u64::MAX);
    let wake_bytes = room.min(min_bytes.min(max_bytes) - total).max(1);
    let ceiling = found.iter().map(|found| found.limit_bytes).sum::<u64>().min(max_bytes);
    let hold = if min_bytes > ceiling && total > 0 { Hold::WhileGrowing } else { Hold::MaxWait };
    Verdict::Wait { wake_bytes, hold }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn partition(bytes: u64, more: bool) -> Found {
        Found { limit_bytes: MIB, bytes, more, failed: false }
    }

    #[test]
    fn enough_bytes_are_answered_and_too_few_wait_for_the_rest() {
        let found = [partition(600, false), partition(0, false)];
        assert_eq!(decide(600, 50 * MIB, &found), Verdict::Answer);
        let wait = Verdict::Wait { wake_bytes: 400, hold: Hold::MaxWait };
        assert_eq!(decide(1_000, 50 * MIB, &found), wait);
    }

    #[test]
    fn a_response_that_cannot_grow_is_answered_however_much_was_asked_for() {
        // 4 partitions of 1 MiB can never make 8 MiB: the trap.
        let full = [partition(MIB - 9, true), partition(MIB, false), partition(MIB - 1, true), partition(MIB, true)];
        assert_eq!(decide(8 * MIB, 50 * MIB, &full), Verdict::Answer);
        assert_eq!(
            decide(8 * MIB, 2 * MIB, &[partition(MIB, false), partition(MIB, false)]),
            Verdict::Answer,
            "whole limit"
        );
        assert_eq!(decide(1, 50 * MIB, &[]), Verdict::Answer, "no partitions, nothing to wait for");
    }

    #[test]
    fn one_partition_with_room_keeps_the_request_waiting() {
        let found = [partition(MIB, true), partition(10, false)];
        let wait = Verdict::Wait { wake_bytes: MIB - 10, hold: Hold::MaxWait };
        assert_eq!(decide(2 * MIB, 50 * MIB, &found), wait);
    }

    #[test]
    fn a_trapped_request_is_held_only_while_it_grows() {
        let found = [partition(10, false)];
        let wait = Verdict::Wait { wake_bytes: MIB - 10, hold: Hold::WhileGrowing };
        assert_eq!(decide(8 * MIB, 50 * MIB, &found), wait);
        let nothing_yet = Verdict::Wait { wake_bytes: MIB, hold: Hold::MaxWait };
        assert_eq!(decide(8 * MIB, 50 * MIB, &[partition(0, false)]), nothing_yet);
    }

    #[test]
    fn an_error_is_answered_at_once() {
        let failed = Found { limit_bytes: MIB, bytes: 0, more: false, failed: true };
        assert_eq!(decide(MIB, 50 * MIB, &[partition(0, false), failed]), Verdict::Answer);
    }
}
