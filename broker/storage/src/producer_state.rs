//! What a partition knows about each idempotent producer: its epoch and its last five batches.
//!
//! It is derived from the log and decides three things before an append: is this batch a repetition (answer the offsets it got the first time),
//! the next in sequence, or neither. A producer that is not known (its state has expired, or its records are gone) may start anywhere.
//! Snapshots have Kafka's format, so that the state need not be rebuilt from the whole log; they have only the last batch of each producer
//! (`recall.rs`).

use std::collections::{HashMap, VecDeque};

use forebay_broker_wire::{
    records::BatchHeader,
    types::{Offset, ProducerEpoch, ProducerId},
};

/// As many batches as a producer may have in flight, hence repeat.
pub(crate) const BATCHES_PER_PRODUCER: usize = 5;
const SNAPSHOT_VERSION: i16 = 1;
const SNAPSHOT_PREFIX_BYTES: usize = 10;
const SNAPSHOT_ENTRY_BYTES: usize = 46;
const NO_SEQUENCE: i32 = -1;

/// Why a producer's batch is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SequenceError {
    /// A newer incarnation of the producer has written.
    #[error("producer {producer_id} has epoch {found}, but epoch {current} has already written here")]
    InvalidProducerEpoch {
        /// The producer.
        producer_id: ProducerId,
        /// The batch's epoch.
        found: ProducerEpoch,
        /// The newest epoch seen.
        current: ProducerEpoch,
    },
    /// A batch before this one is missing, or this one is older than the last five.
    #[error("producer {producer_id} sent sequence {found}, expected {expected}")]
    OutOfOrder {
        /// The producer.
        producer_id: ProducerId,
        /// The batch's first sequence number.
        found: i32,
        /// What would have been next.
        expected: i32,
    },
}

/// What is remembered of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProducerBatch {
    pub(crate) last_sequence: i32,
    pub(crate) last_offset: Offset,
    pub(crate) offset_delta: i32,
    pub(crate) timestamp_ms: i64,
}

impl ProducerBatch {
    fn of(header: &BatchHeader) -> Self {
        Self {
            last_sequence: header.last_sequence(),
            last_offset: header.last_offset(),
            offset_delta: header.last_offset_delta,
            timestamp_ms: header.max_timestamp_ms,
        }
    }

    fn first_sequence(&self) -> i32 {
        sequence_minus(self.last_sequence, self.offset_delta)
    }

    pub(crate) fn base_offset(&self) -> Offset {
        Offset(self.last_offset.0 - i64::from(self.offset_delta))
    }
}

/// One producer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Producer {
    epoch: ProducerEpoch,
    batches: VecDeque<ProducerBatch>,
    /// The batches came from a snapshot: there may be older ones in the log.
    cut: bool,
    last_timestamp_ms: i64,
    coordinator_epoch: i32,
    transaction_first_offset: Option<Offset>,
}

/// All producers of a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ProducerState {
    producers: HashMap<ProducerId, Producer>,
}

impl ProducerState {
    /// The number of producers known.
    pub(crate) fn len(&self) -> usize {
        self.producers.len()
    }

    /// The offset of each producer's last record.
    pub(crate) fn last_offsets(&self) -> Vec<(ProducerId, Offset)> {
        let last = |(id, producer): (&ProducerId, &Producer)| Some((*id, producer.batches.back()?.last_offset));
        self.producers.iter().filter_map(last).collect()
    }

    /// Refuses the batch of a producer that is not known and does not begin.
    pub(crate) fn check_begin(&self, header: &BatchHeader) -> Result<(), SequenceError> {
        if header.base_sequence == 0 || self.producers.contains_key(&header.producer_id) {
            return Ok(());
        }
        let (producer_id, found) = (header.producer_id, header.base_sequence);
        Err(SequenceError::OutOfOrder { producer_id, found, expected: 0 })
    }

    /// Decides on a producer's batch: `Ok(None)` to append it, `Ok(Some)` when it is there already.
    pub(crate) fn check(&self, header: &BatchHeader) -> Result<Option<ProducerBatch>, SequenceError> {
        let Some(producer) = self.producers.get(&header.producer_id) else { return Ok(None) };
        let producer_id = header.producer_id;
        if header.producer_epoch < producer.epoch {
            return Err(SequenceError::InvalidProducerEpoch {
                producer_id,
                found: header.producer_epoch,
                current: producer.epoch,
            });
        }
        if header.is_control() {
            return Ok(None);
        }
        let out_of_order = |expected| SequenceError::OutOfOrder { producer_id, found: header.base_sequence, expected };
        if header.producer_epoch > producer.epoch {
            return if header.base_sequence == 0 { Ok(None) } else { Err(out_of_order(0)) };
        }
        let last_sequence = header.last_sequence();
        let same = |batch: &&ProducerBatch| {
            batch.first_sequence() == header.base_sequence && batch.last_sequence == last_sequence
        };
        if let Some(batch) = producer.batches.iter().find(same) {
            return Ok(Some(*batch));
        }
        let expected = producer.batches.back().map_or(0, |batch| sequence_plus(batch.last_sequence, 1));
        if header.base_sequence == expected { Ok(None) } else { Err(out_of_order(expected)) }
    }

    /// Notes a batch that is in the log (or about to be) with its final offsets. Gives what was known before, for [`Self::restore`].
    pub(crate) fn update(&mut self, header: &BatchHeader) -> Option<Producer> {
        let before = self.producers.get(&header.producer_id).cloned();
        let producer = self.producers.entry(header.producer_id).or_insert_with(|| Producer {
            epoch: header.producer_epoch,
            batches: VecDeque::new(),
            cut: false,
            last_timestamp_ms: header.max_timestamp_ms,
            coordinator_epoch: -1,
            transaction_first_offset: None,
        });
        if producer.epoch != header.producer_epoch {
            producer.epoch = header.producer_epoch;
            producer.batches.clear();
            producer.cut = false;
        }
        producer.last_timestamp_ms = header.max_timestamp_ms;
        if header.is_control() {
            producer.transaction_first_offset = None;
            return before;
        }
        if header.is_transactional() {
            producer.transaction_first_offset.get_or_insert(header.base_offset);
        }
        if producer.batches.len() == BATCHES_PER_PRODUCER {
            producer.batches.pop_front();
        }
        producer.batches.push_back(ProducerBatch::of(header));
        before
    }

    /// The epoch of a producer of which older batches may be in the log, and where the oldest one known begins.
    pub(crate) fn oldest_of_cut(&self, producer_id: ProducerId) -> Option<(ProducerEpoch, Offset)> {
        let producer = self.producers.get(&producer_id)?;
        let is_cut = producer.cut && producer.batches.len() < BATCHES_PER_PRODUCER;
        Some((producer.epoch, producer.batches.front().filter(|_| is_cut)?.base_offset()))
    }

    /// Adds older batches, the last of `older` right before those known.
    pub(crate) fn put_before(&mut self, producer_id: ProducerId, older: &[BatchHeader]) {
        let Some(producer) = self.producers.get_mut(&producer_id) else { return };
        producer.cut = false;
        for header in older.iter().rev().take(BATCHES_PER_PRODUCER - producer.batches.len().min(BATCHES_PER_PRODUCER)) {
            producer.batches.push_front(ProducerBatch::of(header));
        }
    }

    /// Takes back an [`Self::update`].
    pub(crate) fn restore(&mut self, producer_id: ProducerId, before: Option<Producer>) {
        match before {
            Some(producer) => self.producers.insert(producer_id, producer),
            None => self.producers.remove(&producer_id),
        };
    }

    /// Drops producers that have been silent; one in a transaction stays. Gives how many went.
    pub(crate) fn expire(&mut self, now_ms: i64, expiration_ms: u64) -> usize {
        let before = self.producers.len();
        let expiration_ms = i64::try_from(expiration_ms).unwrap_or(i64::MAX);
        self.producers.retain(|_, producer| {
            producer.transaction_first_offset.is_some()
                || now_ms.saturating_sub(producer.last_timestamp_ms) < expiration_ms
        });
        before - self.producers.len()
    }

    /// The content of a snapshot file.
    pub(crate) fn encode_snapshot(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SNAPSHOT_PREFIX_BYTES + self.producers.len() * SNAPSHOT_ENTRY_BYTES);
        out.extend(SNAPSHOT_VERSION.to_be_bytes());
        out.extend([0; 4]);
        out.extend(i32::try_from(self.producers.len()).unwrap_or(i32::MAX).to_be_bytes());
        for (producer_id, producer) in &self.producers {
            let last = producer.batches.back().copied().unwrap_or(ProducerBatch {
                last_sequence: NO_SEQUENCE,
                last_offset: Offset(-1),
                offset_delta: 0,
                timestamp_ms: producer.last_timestamp_ms,
            });
            out.extend(producer_id.0.to_be_bytes());
            out.extend(producer.epoch.0.to_be_bytes());
            out.extend(last.last_sequence.to_be_bytes());
            out.extend(last.last_offset.0.to_be_bytes());
            out.extend(last.offset_delta.to_be_bytes());
            out.extend(producer.last_timestamp_ms.to_be_bytes());
            out.extend(producer.coordinator_epoch.to_be_bytes());
            out.extend(producer.transaction_first_offset.unwrap_or(Offset(-1)).0.to_be_bytes());
        }
        let crc = crc32c::crc32c(&out[6..]);
        out[2..6].copy_from_slice(&crc.to_be_bytes());
        out
    }

    /// Reads a snapshot file's content; `None` when it is damaged.
    pub(crate) fn decode_snapshot(content: &[u8]) -> Option<Self> {
        let (prefix, entries) = content.split_at_checked(SNAPSHOT_PREFIX_BYTES)?;
        let version = i16::from_be_bytes(array(prefix, 0));
        let crc = u32::from_be_bytes(array(prefix, 2));
        let count = usize::try_from(i32::from_be_bytes(array(prefix, 6))).ok()?;
        if version != SNAPSHOT_VERSION
            || crc != crc32c::crc32c(&content[6..])
            || entries.len() != count * SNAPSHOT_ENTRY_BYTES
        {
            return None;
        }
        Some(Self { producers: entries.chunks_exact(SNAPSHOT_ENTRY_BYTES).map(decode_entry).collect() })
    }
}

fn decode_entry(entry: &[u8]) -> (ProducerId, Producer) {
    let batch = ProducerBatch {
        last_sequence: i32::from_be_bytes(array(entry, 10)),
        last_offset: Offset(i64::from_be_bytes(array(entry, 14))),
        offset_delta: i32::from_be_bytes(array(entry, 22)),
        timestamp_ms: i64::from_be_bytes(array(entry, 26)),
    };
    let transaction_first_offset = Offset(i64::from_be_bytes(array(entry, 38)));
    let producer = Producer {
        epoch: ProducerEpoch(i16::from_be_bytes(array(entry, 8))),
        batches: if batch.last_sequence == NO_SEQUENCE { VecDeque::new() } else { VecDeque::from([batch]) },
        cut: batch.last_sequence != NO_SEQUENCE,
        last_timestamp_ms: batch.timestamp_ms,
        coordinator_epoch: i32::from_be_bytes(array(entry, 34)),
        transaction_first_offset: (transaction_first_offset >= Offset(0)).then_some(transaction_first_offset),
    };
    (ProducerId(i64::from_be_bytes(array(entry, 0))), producer)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// Sequence numbers run from 0 to the largest i32 and begin again.
fn sequence_plus(sequence: i32, delta: i32) -> i32 {
    i32::try_from((i64::from(sequence) + i64::from(delta)) & i64::from(i32::MAX)).unwrap_or(0)
}

fn sequence_minus(sequence: i32, delta: i32) -> i32 {
    i32::try_from((i64::from(sequence) - i64::from(delta)) & i64::from(i32::MAX)).unwrap_or(0)
}

/// The name of the snapshot that holds the state before `offset`.
pub(crate) fn snapshot_name(offset: Offset) -> String {
    format!("{:020}.snapshot", offset.0)
}

#[cfg(test)]
mod tests {
    use forebay_broker_wire::records::{BatchBuilder, NewRecord};

    use super::*;

    fn header(epoch: i16, base_sequence: i32, count: i32, base_offset: i64) -> BatchHeader {
        let builder = BatchBuilder::new(Offset(base_offset));
        let mut builder = builder.producer(ProducerId(9), ProducerEpoch(epoch), base_sequence);
        for _ in 0..count {
            builder.push(&NewRecord { timestamp_ms: 1000, ..NewRecord::default() }).unwrap();
        }
        BatchHeader::parse(&builder.build().unwrap()).unwrap()
    }

    fn out_of_order(found: i32, expected: i32) -> SequenceError {
        SequenceError::OutOfOrder { producer_id: ProducerId(9), found, expected }
    }

    #[test]
    fn a_repetition_of_the_last_five_batches_gives_the_first_offsets() {
        let mut state = ProducerState::default();
        for n in 0..6 {
            let next = header(0, n * 10, 10, i64::from(n) * 10);
            assert_eq!(state.check(&next), Ok(None));
            state.update(&next);
        }
        for n in 1..6 {
            let found = state.check(&header(0, n * 10, 10, 999)).unwrap().expect("a duplicate");
            assert_eq!(
                (found.base_offset(), found.last_offset),
                (Offset(i64::from(n) * 10), Offset(i64::from(n) * 10 + 9))
            );
        }
        assert_eq!(state.check(&header(0, 0, 10, 0)), Err(out_of_order(0, 60)), "older than the last five");
        assert_eq!(state.check(&header(0, 50, 9, 0)), Err(out_of_order(50, 60)), "same start, other end");
    }

    #[test]
    fn a_gap_is_refused_and_an_unknown_producer_may_start_anywhere() {
        let mut state = ProducerState::default();
        assert_eq!(state.check(&header(3, 77, 1, 0)), Ok(None));
        state.update(&header(3, 77, 1, 0));
        assert_eq!(state.check(&header(3, 79, 1, 0)), Err(out_of_order(79, 78)));
        assert_eq!(state.check(&header(3, 78, 1, 0)), Ok(None));
    }

    #[test]
    fn a_new_epoch_starts_at_zero_and_fences_the_old_one() {
        let mut state = ProducerState::default();
        state.update(&header(3, 0, 5, 0));
        assert_eq!(state.check(&header(4, 5, 1, 5)), Err(out_of_order(5, 0)));
        state.update(&header(4, 0, 1, 5));
        let fenced = SequenceError::InvalidProducerEpoch {
            producer_id: ProducerId(9),
            found: ProducerEpoch(3),
            current: ProducerEpoch(4),
        };
        assert_eq!(state.check(&header(3, 5, 1, 6)), Err(fenced));
    }

    #[test]
    fn sequences_wrap_after_the_largest() {
        let mut state = ProducerState::default();
        state.update(&header(0, i32::MAX - 1, 4, 0)); // MAX-1, MAX, 0, 1
        assert_eq!(state.check(&header(0, 2, 1, 4)), Ok(None));
        assert!(state.check(&header(0, i32::MAX - 1, 4, 0)).unwrap().is_some());
    }

    #[test]
    fn a_snapshot_carries_the_last_batch_and_any_flipped_byte_is_noticed() {
        let mut state = ProducerState::default();
        state.update(&header(1, 0, 5, 0));
        state.update(&header(1, 5, 5, 5));
        let content = state.encode_snapshot();
        let read = ProducerState::decode_snapshot(&content).expect("whole");
        assert_eq!(read.check(&header(1, 5, 5, 0)).unwrap().map(|batch| batch.base_offset()), Some(Offset(5)));
        assert_eq!(read.check(&header(1, 10, 1, 0)), Ok(None));
        for at in 0..content.len() {
            let mut flipped = content.clone();
            flipped[at] ^= 0x40;
            assert_eq!(ProducerState::decode_snapshot(&flipped), None, "byte {at}");
        }
        assert_eq!(ProducerState::decode_snapshot(&content[..content.len() - 1]), None);
    }

    #[test]
    fn silent_producers_expire() {
        let mut state = ProducerState::default();
        state.update(&header(0, 0, 1, 0));
        assert_eq!(state.expire(1999, 1000), 0);
        assert_eq!((state.expire(2000, 1000), state.len()), (1, 0));
    }
}
