//! What becomes of one batch: a pure decision.
//!
//! A record goes when its key is at a later offset, when it has no key, or when it is a tombstone whose time is over. The time of a tombstone
//! begins when compaction first meets it: the batch then gets a delete horizon. What cannot be read, and control batches, stay as they are.

use forebay_broker_wire::{
    records::{Batch, BatchBuilder, BatchHeader, BuildError, Record},
    types::{Offset, ProducerId},
};

use super::key_map::KeyMap;
use crate::config::LogConfig;

/// A batch's records are decompressed into at most so many bytes.
const DECOMPRESSED_BYTES_MAX: usize = 256 << 20;

pub(crate) struct Rewrite<'a> {
    pub(crate) map: &'a KeyMap,
    pub(crate) config: &'a LogConfig,
    pub(crate) now_ms: i64,
    pub(crate) last_offsets: &'a [(ProducerId, Offset)],
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Rewritten {
    /// All its records stay.
    Same,
    /// Some stay, or it gets a delete horizon.
    Other(Batch),
    /// Nothing stays.
    Gone,
}

/// All records of a batch; `None` when it cannot be read or is none of people's.
pub(crate) fn records(batch: &Batch) -> Option<Vec<Record>> {
    if batch.header.is_control() {
        return None;
    }
    batch.records(DECOMPRESSED_BYTES_MAX).ok()?.collect::<Result<_, _>>().ok()
}

impl Rewrite<'_> {
    pub(crate) fn batch(&self, batch: &Batch) -> Rewritten {
        let header = &batch.header;
        let Some(records) = records(batch) else { return Rewritten::Same };
        let horizon_over = header.has_delete_horizon() && header.base_timestamp_ms <= self.now_ms;
        let keep = |record: &&Record| {
            let Some(key) = &record.key else { return false };
            let expired = record.value.is_none() && horizon_over;
            !expired && !self.map.is_superseded(key, record.offset)
        };
        let kept: Vec<&Record> = records.iter().filter(keep).collect();
        let tombstones = kept.iter().any(|record| record.value.is_none());
        let new_horizon = tombstones && !header.has_delete_horizon();
        if kept.len() == records.len() && !new_horizon && !records.is_empty() {
            return Rewritten::Same;
        }
        if kept.is_empty() && !self.is_last_of_producer(header) {
            return Rewritten::Gone;
        }
        // A batch that cannot be built is one that stays.
        self.build(header, &kept, new_horizon).map_or(Rewritten::Same, Rewritten::Other)
    }

    /// The newest batch of a producer stays, if only empty: its sequence is read from it when producer state is made anew.
    fn is_last_of_producer(&self, header: &BatchHeader) -> bool {
        header.has_producer_id() && self.last_offsets.contains(&(header.producer_id, header.last_offset()))
    }

    fn build(&self, header: &BatchHeader, kept: &[&Record], new_horizon: bool) -> Result<Batch, BuildError> {
        let mut builder = BatchBuilder::like(header);
        if new_horizon {
            builder = builder.delete_horizon_ms(self.now_ms.saturating_add(self.config.delete_retention_ms));
        }
        for record in kept {
            builder.push_record(record)?;
        }
        let bytes = builder.build()?;
        let header = BatchHeader::parse(&bytes).unwrap_or(*header);
        Ok(Batch { header, bytes })
    }
}

#[cfg(test)]
mod tests {
    use forebay_broker_wire::records::{Compression, NewRecord};

    use super::*;

    const NOW_MS: i64 = 1_000_000;

    fn batch(base: i64, records: &[(Option<&str>, Option<&str>)]) -> Batch {
        let mut builder = BatchBuilder::new(Offset(base)).compression(Compression::Zstd);
        for (key, value) in records {
            let (key, value) = (key.map(str::as_bytes), value.map(str::as_bytes));
            builder.push(&NewRecord { timestamp_ms: 500, key, value, ..NewRecord::default() }).unwrap();
        }
        Batch::validate(builder.build().unwrap()).unwrap()
    }

    fn check(batch: &Batch, newest: &[(&str, i64)], now_ms: i64) -> Rewritten {
        let mut map = KeyMap::new(100);
        newest.iter().for_each(|(key, offset)| assert!(map.insert(key.as_bytes(), Offset(*offset))));
        let config = LogConfig { delete_retention_ms: 100, ..LogConfig::default() };
        Rewrite { map: &map, config: &config, now_ms, last_offsets: &[(ProducerId(7), Offset(11))] }.batch(batch)
    }

    fn other(rewritten: Rewritten) -> Batch {
        let Rewritten::Other(batch) = rewritten else { panic!("{rewritten:?}") };
        Batch::validate(batch.bytes.clone()).unwrap();
        batch
    }

    #[test]
    fn superseded_records_go_and_the_others_keep_offset_and_time() {
        let old =
            batch(10, &[(Some("a"), Some("1")), (Some("b"), Some("2")), (None, Some("3")), (Some("c"), Some("4"))]);
        assert_eq!(check(&old, &[("a", 99), ("b", 99), ("c", 99)], NOW_MS), Rewritten::Gone);
        let new = other(check(&old, &[("a", 99)], NOW_MS));
        let found: Vec<_> =
            records(&new).unwrap().iter().map(|r| (r.offset.0, r.timestamp_ms, r.key.clone().unwrap())).collect();
        assert_eq!(found, [(11, 500, "b".into()), (13, 500, "c".into())]);
        let (a, b) = (&old.header, &new.header);
        assert_eq!(
            (a.base_offset, a.last_offset_delta, a.compression()),
            (b.base_offset, b.last_offset_delta, b.compression())
        );
    }

    #[test]
    fn a_batch_that_keeps_everything_is_not_touched() {
        let old = batch(10, &[(Some("a"), Some("1")), (Some("b"), Some("2"))]);
        assert_eq!(check(&old, &[("a", 10), ("b", 5)], NOW_MS), Rewritten::Same);
    }

    #[test]
    fn a_tombstone_waits_from_the_first_meeting_on_and_then_goes() {
        let old = batch(10, &[(Some("a"), None), (Some("b"), Some("2"))]);
        let marked = other(check(&old, &[("a", 10)], NOW_MS));
        assert!(marked.header.has_delete_horizon());
        assert_eq!((marked.header.base_timestamp_ms, records(&marked).unwrap().len()), (NOW_MS + 100, 2));
        assert_eq!(records(&marked).unwrap()[0].timestamp_ms, 500, "times stay right");
        assert_eq!(check(&marked, &[], NOW_MS + 99), Rewritten::Same);
        let without = other(check(&marked, &[], NOW_MS + 100));
        assert_eq!(records(&without).unwrap().iter().map(|r| r.offset.0).collect::<Vec<_>>(), [11]);
    }

    #[test]
    fn a_producers_last_batch_stays_if_only_empty() {
        let mut builder =
            BatchBuilder::new(Offset(10)).producer(ProducerId(7), forebay_broker_wire::types::ProducerEpoch(0), 5);
        for _ in 0..2 {
            builder.push(&NewRecord { key: Some(b"a"), value: Some(b"1"), ..NewRecord::default() }).unwrap();
        }
        let old = Batch::validate(builder.build().unwrap()).unwrap();
        let new = other(check(&old, &[("a", 99)], NOW_MS));
        assert_eq!((new.header.record_count, new.header.last_sequence(), new.header.last_offset()), (0, 6, Offset(11)));
        assert_eq!(other(check(&new, &[], NOW_MS)).header.record_count, 0, "and again");
    }

    #[test]
    fn what_cannot_be_read_stays() {
        let mut damaged = batch(10, &[(Some("a"), Some("1"))]);
        let mut bytes = damaged.bytes.to_vec();
        bytes[61..].fill(0xff);
        damaged.bytes = bytes.into();
        assert_eq!(check(&damaged, &[("a", 99)], NOW_MS), Rewritten::Same);
    }
}
