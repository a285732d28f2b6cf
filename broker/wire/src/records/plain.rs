//! Are a batch's uncompressed records what its header says? On the way of every batch that is produced, so nothing is copied or allocated.
//!
//! What must hold: what passes can be read by every consumer: as many records as counted, offsets without a gap, every length within its
//! record, no byte left over. A checksum only says that the bytes are what the producer sent.

use super::header::HEADER_BYTES;
use super::{Batch, Compression, RecordError};
use crate::primitives::{DecodeError, DecodeErrorKind};

/// A byte each: length, attributes, two deltas, two lengths and a count.
const LEAST_RECORD_BYTES: usize = 7;
/// Bits of a varint's last byte when it takes all five or ten bytes: what else there is to 32 and 64.
const LAST_OF_FIVE: u64 = 0x0f;
const LAST_OF_TEN: u64 = 0x01;

/// -1 in zigzag form.
const NULL: u32 = 1;
/// No less than five varints of two bytes and the attributes.
const HEAD_BYTES: usize = 16;

/// What is known of records that have been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainRecords {
    /// No key is null.
    pub all_have_keys: bool,
}

impl Batch {
    /// Whether as many records as counted can be in so many uncompressed bytes at all.
    #[must_use]
    pub fn count_fits(&self, plain_bytes: usize) -> bool {
        usize::try_from(self.header.record_count).is_ok_and(|count| count <= plain_bytes / LEAST_RECORD_BYTES)
    }

    /// Goes over the records as they stand in the batch; `None` if they are compressed. For batches as producers make them: the gaps that
    /// compaction leaves do not pass.
    pub fn check_plain_records(&self) -> Result<Option<PlainRecords>, RecordError> {
        if self.header.compression() != Compression::None {
            return Ok(None);
        }
        let mut rest = self.bytes.get(HEADER_BYTES..).unwrap_or_default();
        let mut all_have_keys = true;
        for index in 0..self.header.record_count {
            let Some(has_key) = record(&mut rest, index) else { return Err(self.why_not(index)) };
            all_have_keys &= has_key;
        }
        if rest.is_empty() {
            Ok(Some(PlainRecords { all_have_keys }))
        } else {
            Err(self.why_not(self.header.record_count))
        }
    }

    /// Names what is wrong, without haste.
    fn why_not(&self, index: i32) -> RecordError {
        let decoded = self.records(usize::MAX).and_then(|mut records| records.try_for_each(|record| record.map(drop)));
        // All that is left: the offsets are within the batch, but not one after the other.
        let kind = DecodeErrorKind::InvalidValue(i64::from(index));
        decoded.err().unwrap_or(RecordError::Field { index, source: DecodeError { field: "offset_delta", kind } })
    }
}

/// Goes over one record and says whether it has a key.
#[inline]
fn record(rest: &mut &[u8], index: i32) -> Option<bool> {
    let Some((has_key, end)) = usual_record(rest, index) else { return any_record(rest, index) };
    *rest = rest.get(end..)?;
    Some(has_key)
}

/// Most records: no number of more than two bytes, no headers. Gives whether it has a key and where it ends, or nothing if it is not that simple.
#[inline]
fn usual_record(rest: &[u8], index: i32) -> Option<(bool, usize)> {
    let head = rest.first_chunk()?;
    let mut at = 0;
    let length = bytes_of(short(head, &mut at)?)?;
    let end = at + length;
    at += 1; // attributes
    short(head, &mut at)?; // timestamp
    if short(head, &mut at)? != u32::try_from(index).ok()? << 1 {
        return None;
    }
    let key = short(head, &mut at)?;
    let has_key = key != NULL;
    let value = if has_key {
        at += bytes_of(key)?;
        let head = rest.get(at..)?.first_chunk()?;
        let mut read = 0;
        let value = short(head, &mut read)?;
        at += read;
        value
    } else {
        short(head, &mut at)?
    };
    at += if value == NULL { 0 } else { bytes_of(value)? };
    (at + 1 == end && rest.get(at) == Some(&0)).then_some((has_key, end))
}

/// A varint of one byte or two, as it stands: zigzag. The head is longer than all that is read from it.
#[inline]
fn short(head: &[u8; HEAD_BYTES], at: &mut usize) -> Option<u32> {
    let first = u32::from(head[*at % HEAD_BYTES]);
    if first < 0x80 {
        *at += 1;
        return Some(first);
    }
    let second = u32::from(head[(*at + 1) % HEAD_BYTES]);
    *at += 2;
    (second < 0x80).then_some((first & 0x7f) | (second << 7))
}

/// A length out of its zigzag form.
#[inline]
fn bytes_of(zigzag: u32) -> Option<usize> {
    if zigzag & 1 == 0 { usize::try_from(zigzag >> 1).ok() } else { None }
}

/// Every record there can be.
fn any_record(rest: &mut &[u8], index: i32) -> Option<bool> {
    let length = varint(rest)?;
    let mut body = take(rest, length)?;
    let body = &mut body;
    take(body, 1)?; // attributes, of which there are none
    raw::<10, LAST_OF_TEN>(body)?; // any timestamp will do
    if varint(body)? != i64::from(index) {
        return None;
    }
    let has_key = skip(body)?;
    skip(body)?;
    for _ in 0..count(body)? {
        let has_name = skip(body)?;
        skip(body).filter(|_| has_name)?;
    }
    body.is_empty().then_some(has_key)
}

fn count(rest: &mut &[u8]) -> Option<u64> {
    u64::try_from(varint(rest)?).ok()
}

/// Skips bytes with their length before them; says whether they are not null.
#[inline]
fn skip(rest: &mut &[u8]) -> Option<bool> {
    let length = varint(rest)?;
    if length == -1 {
        return Some(false);
    }
    take(rest, length).map(|_| true)
}

#[inline]
fn take<'a>(rest: &mut &'a [u8], length: i64) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = left;
    Some(taken)
}

/// A zigzag varint of 32 bits.
#[inline]
fn varint(rest: &mut &[u8]) -> Option<i64> {
    let raw = raw::<5, LAST_OF_FIVE>(rest)?.cast_signed();
    Some((raw >> 1) ^ -(raw & 1))
}

/// A varint of at most `BYTES` bytes, the last of them at most `LAST`.
#[inline]
fn raw<const BYTES: usize, const LAST: u64>(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for index in 0..BYTES {
        let (byte, left) = rest.split_first()?;
        *rest = left;
        let byte = u64::from(*byte);
        if index == BYTES - 1 && byte > LAST {
            return None;
        }
        value |= (byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::super::header::seal;
    use super::super::{BatchBuilder, NewRecord};
    use super::*;

    const LAST_OFFSET_DELTA: usize = 23;
    const RECORD_COUNT: usize = 57;

    type Headers<'a> = &'a [(&'a [u8], Option<&'a [u8]>)];
    /// Key, value and headers.
    type Given<'a> = (Option<&'a [u8]>, Option<&'a [u8]>, Headers<'a>);

    fn builder(records: &[Given<'_>]) -> BatchBuilder {
        let mut builder = BatchBuilder::default();
        for (key, value, headers) in records {
            let record = NewRecord { timestamp_ms: 1_700_000_000_000, key: *key, value: *value, headers };
            builder.push(&record).unwrap();
        }
        builder
    }

    /// Three records of a kind that each has something else.
    fn three() -> Bytes {
        let long = [7; 300];
        builder(&[
            (Some(b"key"), Some(&long), &[(b"name", Some(b"value")), (b"", None)]),
            (Some(b""), None, &[]),
            (Some(b"k"), Some(b""), &[]),
        ])
        .build()
        .unwrap()
    }

    /// Records of the usual kind between others.
    fn several() -> Bytes {
        let (long, short) = ([7; 300], [9; 20]);
        builder(&[
            (None, Some(&short), &[]),
            (Some(b"key"), Some(&long), &[]),
            (Some(b"key"), None, &[]),
            (None, None, &[]),
            (Some(b"key"), Some(&short), &[(b"name", None)]),
            (Some(&long), Some(&short), &[]),
            (Some(b""), Some(b""), &[]),
        ])
        .build()
        .unwrap()
    }

    fn changed(change: impl FnOnce(&mut Vec<u8>)) -> Batch {
        change_of(&three(), change)
    }

    fn change_of(batch: &Bytes, change: impl FnOnce(&mut Vec<u8>)) -> Batch {
        let mut bytes = batch.to_vec();
        change(&mut bytes);
        let length = i32::try_from(bytes.len() - 12).unwrap();
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        seal(&mut bytes);
        Batch::validate(bytes.into()).unwrap()
    }

    fn counting(count: i32) -> Batch {
        changed(|bytes| {
            bytes[LAST_OFFSET_DELTA..][..4].copy_from_slice(&(count - 1).to_be_bytes());
            bytes[RECORD_COUNT..][..4].copy_from_slice(&count.to_be_bytes());
        })
    }

    #[test]
    fn what_a_producer_builds_passes_and_null_keys_are_told() {
        let good = Batch::validate(three()).unwrap();
        assert_eq!(good.check_plain_records(), Ok(Some(PlainRecords { all_have_keys: true })));
        let keyless = builder(&[(Some(b"k"), None, &[]), (None, Some(b"v"), &[])]).build().unwrap();
        let found = Batch::validate(keyless).unwrap().check_plain_records();
        assert_eq!(found, Ok(Some(PlainRecords { all_have_keys: false })));
        let compressed = builder(&[(None, None, &[])]).compression(Compression::Lz4).build().unwrap();
        assert_eq!(Batch::validate(compressed).unwrap().check_plain_records(), Ok(None));
    }

    #[test]
    fn a_count_of_more_or_fewer_records_than_there_are_is_refused() {
        for count in [1, 2, 4, 1000, i32::MAX] {
            let error = counting(count).check_plain_records().unwrap_err();
            assert!(matches!(error, RecordError::Field { index, .. } if index <= 3), "{count}: {error}");
        }
        assert!(counting(3).check_plain_records().is_ok());
    }

    #[test]
    fn a_count_that_no_bytes_can_hold_is_noticed_without_reading_them() {
        let batch = counting(10);
        assert!(batch.count_fits(70) && !batch.count_fits(69));
        assert!(!counting(i32::MAX).count_fits(64 << 20));
    }

    #[test]
    fn offsets_that_do_not_follow_one_another_are_refused_and_named() {
        let batch = changed(|bytes| {
            // The last record, of 8 bytes, says that it is the second.
            let at = bytes.len() - 5;
            assert_eq!(bytes[at], 4);
            bytes[at] = 2;
        });
        let error = batch.check_plain_records().unwrap_err().to_string();
        assert!(error.contains("offset_delta"), "{error}");
    }

    #[test]
    fn bytes_that_are_no_records_are_refused() {
        for fill in [0u8, 0x2a, 0x7f, 0xff] {
            let batch = changed(|bytes| bytes[HEADER_BYTES..].fill(fill));
            assert!(batch.check_plain_records().is_err(), "{fill:#x}");
        }
        assert!(changed(|bytes| bytes.push(0)).check_plain_records().is_err(), "a byte too many");
        assert!(changed(|bytes| bytes.truncate(bytes.len() - 1)).check_plain_records().is_err(), "a byte too few");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

        #[test]
        fn what_passes_is_what_the_decoder_reads_one_by_one(
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        ) {
            let batch = change_of(&several(), |bytes| {
                // Not among the values, where nothing can be wrong.
                let telling: Vec<usize> = (HEADER_BYTES..bytes.len()).filter(|at| ![7, 9].contains(&bytes[*at])).collect();
                damage.iter().for_each(|(at, byte)| bytes[*at.get(&telling)] = *byte);
            });
            let decoded: Result<Vec<_>, _> = batch.records(0).unwrap().collect();
            let offsets_follow = |records: &[super::super::Record]| records.iter().zip(0..).all(|(record, at)| record.offset.0 == at);
            let expected = decoded.is_ok_and(|records| offsets_follow(&records));
            prop_assert_eq!(batch.check_plain_records().is_ok(), expected);
        }
    }
}
