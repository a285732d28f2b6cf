//! Bytes that are in the log but not below the high watermark yet, so that waiters can be told how many bytes an advance is worth.

use std::collections::VecDeque;

use forebay_broker_wire::types::Offset;

/// More appends than this are counted together, which only makes the count rise later.
const ENTRIES_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Unacknowledged {
    /// Log end after an append and the append's bytes, ascending.
    entries: VecDeque<(Offset, u64)>,
}

impl Unacknowledged {
    /// Notes an append that made the log end at `end`.
    pub(crate) fn push(&mut self, end: Offset, bytes: u64) {
        if self.entries.len() >= ENTRIES_MAX
            && let Some(last) = self.entries.back_mut()
        {
            *last = (end, last.1 + bytes);
            return;
        }
        self.entries.push_back((end, bytes));
    }

    /// Forgets what was cut off the log.
    pub(crate) fn truncate(&mut self, log_end: Offset) {
        self.entries.retain(|(end, _)| *end <= log_end);
    }

    /// Takes out what lies below the high watermark. Gives the bytes.
    pub(crate) fn take_below(&mut self, high_watermark: Offset) -> u64 {
        let mut bytes = 0;
        while let Some((end, entry)) = self.entries.front().copied()
            && end <= high_watermark
        {
            bytes += entry;
            self.entries.pop_front();
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_counted_once() {
        let mut waiting = Unacknowledged::default();
        (1..=3000).for_each(|n| waiting.push(Offset(n), 10));
        assert_eq!(waiting.take_below(Offset(100)), 1000);
        assert_eq!(waiting.take_below(Offset(100)), 0);
        assert_eq!(waiting.take_below(Offset(3000)), 29_000);
        assert!(waiting.entries.is_empty());
    }
}
