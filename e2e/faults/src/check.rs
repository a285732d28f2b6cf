//! What was acknowledged and read, against what the log holds in the end. Pure.

use crate::ledger::{Partition, Read};

/// What is wrong with one partition; all zero when nothing is.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Verdict {
    /// Acknowledged, and nowhere in the log.
    pub(crate) lost: u64,
    /// Acknowledged at an offset where the log holds something else, though it holds the record elsewhere.
    pub(crate) moved: u64,
    /// In the log more than once.
    pub(crate) duplicated: u64,
    /// Behind a record that was sent after it.
    pub(crate) out_of_order: u64,
    /// Offsets that the log passes over.
    pub(crate) gaps: u64,
    /// Read by the group, but another record, or none, is at that offset in the end.
    pub(crate) vanished: u64,
    /// The first of each kind, in words.
    pub(crate) examples: Vec<String>,
}

impl Verdict {
    pub(crate) fn is_clean(&self) -> bool {
        *self == Self::default()
    }

    fn found(&mut self, of: fn(&mut Self) -> &mut u64, example: impl FnOnce() -> String) {
        let count = of(self);
        *count += 1;
        if *count == 1 {
            let example = example();
            self.examples.push(example);
        }
    }
}

/// Compares. `log` is the whole partition in offset order: each record's offset and number.
pub(crate) fn check(partition: &Partition, log: &[Read]) -> Verdict {
    let mut verdict = Verdict::default();
    let most = log.iter().map(|read| read.number).max().map_or(0, |most| usize::try_from(most).unwrap_or(0) + 1);
    let mut offset_of: Vec<Option<i64>> = vec![None; most];
    let (mut next, mut highest) = (0, None);
    for read in log {
        if read.offset != next {
            verdict.found(|v| &mut v.gaps, || format!("offset {} follows {}", read.offset, next - 1));
        }
        next = read.offset + 1;
        let Some(known) = usize::try_from(read.number).ok().and_then(|n| offset_of.get_mut(n)) else { continue };
        if let Some(first) = *known {
            let again = || format!("record {} is at {first} and again at {}", read.number, read.offset);
            verdict.found(|v| &mut v.duplicated, again);
            continue;
        }
        *known = Some(read.offset);
        if highest.is_some_and(|highest| read.number < highest) {
            let behind = || format!("record {} at {} is behind a later one", read.number, read.offset);
            verdict.found(|v| &mut v.out_of_order, behind);
        }
        highest = highest.max(Some(read.number));
    }
    let at = |offset: i64| log.binary_search_by_key(&offset, |read| read.offset).ok().and_then(|i| log.get(i));
    for ack in &partition.acknowledged {
        let is_at = usize::try_from(ack.number).ok().and_then(|n| offset_of.get(n)).copied().flatten();
        let told = ack.offset.map_or(String::new(), |offset| format!(" at {offset}"));
        match (is_at, ack.offset) {
            (None, _) => verdict.found(|v| &mut v.lost, || format!("record {} was acknowledged{told}", ack.number)),
            // A duplicate is counted as such; here it matters that the promised place holds it.
            (Some(is), Some(offset)) if at(offset).is_none_or(|read| read.number != ack.number) => {
                let moved = || format!("record {} was acknowledged{told} and is at {is}", ack.number);
                verdict.found(|v| &mut v.moved, moved);
            }
            _ => {}
        }
    }
    for read in &partition.read {
        if at(read.offset).is_none_or(|now| now.number != read.number) {
            let gone = || format!("record {} was read at {} and is not there", read.number, read.offset);
            verdict.found(|v| &mut v.vanished, gone);
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Acknowledged;

    fn log(numbers: &[u64]) -> Vec<Read> {
        numbers.iter().zip(0..).map(|(number, offset)| Read { offset, number: *number }).collect()
    }

    fn partition(acknowledged: &[(u64, i64)], read: &[(i64, u64)]) -> Partition {
        let ack = |(number, offset): &(u64, i64)| Acknowledged { number: *number, offset: Some(*offset) };
        let read_one = |(offset, number): &(i64, u64)| Read { offset: *offset, number: *number };
        let mut partition = Partition::default();
        partition.acknowledged.extend(acknowledged.iter().map(ack));
        partition.read.extend(read.iter().map(read_one));
        partition
    }

    #[test]
    fn a_log_with_all_that_was_acknowledged_is_clean() {
        // Record 2 was sent and never acknowledged: it may be missing.
        let partition = partition(&[(0, 0), (1, 1), (3, 2)], &[(0, 0), (1, 1), (0, 0)]);
        assert!(check(&partition, &log(&[0, 1, 3])).is_clean());
    }

    #[test]
    fn a_lost_record_is_found_at_the_end_and_amid_the_log() {
        assert_eq!(check(&partition(&[(0, 0), (1, 1)], &[]), &log(&[0])).lost, 1);
        let verdict = check(&partition(&[(0, 0), (1, 1), (2, 2)], &[]), &log(&[0, 2]));
        assert_eq!((verdict.lost, verdict.moved), (1, 1));
    }

    #[test]
    fn duplicates_and_disorder_are_told_apart() {
        let verdict = check(&Partition::default(), &log(&[0, 1, 1, 3, 2]));
        assert_eq!((verdict.duplicated, verdict.out_of_order), (1, 1));
    }

    #[test]
    fn what_was_read_must_stay() {
        let verdict = check(&partition(&[], &[(0, 0), (1, 5), (2, 6)]), &log(&[0, 1]));
        assert_eq!(verdict.vanished, 2);
        assert_eq!(verdict.examples, ["record 5 was read at 1 and is not there"]);
    }

    #[test]
    fn a_missing_offset_is_a_gap() {
        let log = [Read { offset: 0, number: 0 }, Read { offset: 2, number: 1 }];
        assert_eq!(check(&Partition::default(), &log).gaps, 1);
    }
}
