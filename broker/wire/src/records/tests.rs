//! Tests of batches and records: what is built is read back, and no damage goes unnoticed or panics.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::*;
use crate::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

const LIMIT_BYTES: usize = 1 << 20;

type Owned = (i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<(Vec<u8>, Option<Vec<u8>>)>);

fn build(compression: Compression, records: &[Owned]) -> Bytes {
    let mut builder = BatchBuilder::new(Offset(0)).compression(compression);
    for (timestamp_ms, key, value, headers) in records {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (&name[..], value.as_deref())).collect();
        let record =
            NewRecord { timestamp_ms: *timestamp_ms, key: key.as_deref(), value: value.as_deref(), headers: &headers };
        builder.push(&record).unwrap();
    }
    builder.build().unwrap()
}

fn one(value: &[u8]) -> Owned {
    (1_700_000_000_000, Some(b"key".to_vec()), Some(value.to_vec()), vec![(b"h".to_vec(), None)])
}

fn read(batch: &Bytes) -> Result<Vec<Record>, RecordError> {
    Batch::validate(batch.clone())?.records(LIMIT_BYTES)?.collect()
}

fn owned() -> impl Strategy<Value = Owned> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..200);
    let optional = || prop::option::of(prop::collection::vec(any::<u8>(), 0..200));
    let headers = prop::collection::vec((bytes(), optional()), 0..4);
    (0..i64::MAX / 2, optional(), optional(), headers)
}

fn compression() -> impl Strategy<Value = Compression> {
    prop::sample::select(&Compression::ALL[..])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn records_come_back_as_they_were_put_in(compression in compression(), records in prop::collection::vec(owned(), 0..20)) {
        let batch = build(compression, &records);
        let header = BatchHeader::validate(&batch).unwrap();
        prop_assert_eq!(header.total_bytes(), batch.len());
        prop_assert_eq!(header.compression(), compression);
        prop_assert_eq!(header.max_timestamp_ms, records.iter().map(|record| record.0).max().unwrap_or(-1));
        let back = read(&batch).unwrap();
        prop_assert_eq!(back.len(), records.len());
        for (index, (record, (timestamp_ms, key, value, headers))) in back.iter().zip(&records).enumerate() {
            prop_assert_eq!(record.offset, Offset(index as i64));
            prop_assert_eq!(record.timestamp_ms, *timestamp_ms);
            prop_assert_eq!(record.key.as_deref(), key.as_deref());
            prop_assert_eq!(record.value.as_deref(), value.as_deref());
            prop_assert_eq!(record.headers.len(), headers.len());
            for (header, (name, value)) in record.headers.iter().zip(headers) {
                prop_assert_eq!(&header.key[..], &name[..]);
                prop_assert_eq!(header.value.as_deref(), value.as_deref());
            }
        }
    }

    #[test]
    fn a_changed_byte_after_the_crc_is_noticed(compression in compression(), at in 17usize..200, bit in 0u8..8) {
        let mut batch = build(compression, &[one(&[7; 200])]).to_vec();
        let at = at % (batch.len() - 17) + 17;
        batch[at] ^= 1 << bit;
        prop_assert!(BatchHeader::validate(&batch).is_err());
    }

    #[test]
    fn damaged_batches_with_a_right_crc_never_panic(
        compression in compression(),
        damage in prop::collection::vec((any::<usize>(), any::<u8>()), 1..6),
        cut in any::<usize>(),
    ) {
        let mut batch = build(compression, &[one(&[1; 300]), one(b"second"), one(b"")]).to_vec();
        for (at, byte) in damage {
            let length = batch.len();
            batch[at % length] = byte;
        }
        batch.truncate(cut % batch.len() + 1);
        for batch in batches(&Bytes::from(batch)).flatten() {
            if let Ok(records) = batch.records(LIMIT_BYTES) {
                let _ = records.count();
            }
        }
    }

    #[test]
    fn bytes_that_are_no_batch_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for batch in batches(&Bytes::from(bytes)).flatten() {
            if let Ok(records) = batch.records(LIMIT_BYTES) {
                let _ = records.count();
            }
        }
    }
}

#[test]
fn placing_a_batch_in_the_log_keeps_its_crc() {
    let mut batch = BytesMut::from(&build(Compression::None, &[one(b"a"), one(b"b")])[..]);
    let before = BatchHeader::validate(&batch).unwrap();
    set_base_offset_and_leader_epoch(&mut batch, Offset(1_000), LeaderEpoch(7)).unwrap();
    let after = BatchHeader::validate(&batch).unwrap();
    assert_eq!(after, BatchHeader { base_offset: Offset(1_000), partition_leader_epoch: LeaderEpoch(7), ..before });
    assert_eq!((after.last_offset(), after.next_offset()), (Offset(1_001), Offset(1_002)));
}

#[test]
fn log_append_time_replaces_every_timestamp_and_the_crc() {
    let mut batch = BytesMut::from(&build(Compression::Gzip, &[one(b"a"), one(b"b")])[..]);
    let before = BatchHeader::validate(&batch).unwrap();
    set_log_append_time(&mut batch, 42).unwrap();
    let after = BatchHeader::validate(&batch).unwrap();
    assert_ne!(after.crc, before.crc);
    assert_eq!(after.timestamp_type(), TimestampType::LogAppendTime);
    let times: Vec<_> = read(&batch.freeze()).unwrap().iter().map(|record| record.timestamp_ms).collect();
    assert_eq!(times, [42, 42]);
}

#[test]
fn older_formats_are_refused_by_name() {
    for magic in [0, 1, 3, -1] {
        let mut batch = build(Compression::None, &[one(b"a")]).to_vec();
        batch[16] = i8::to_be_bytes(magic)[0];
        assert_eq!(BatchHeader::parse(&batch), Err(BatchError::UnsupportedMagic(magic)));
        assert_eq!(BatchHeader::parse(&batch[..17]), Err(BatchError::UnsupportedMagic(magic)));
    }
}

#[test]
fn a_cut_batch_ends_the_iteration_with_what_is_missing() {
    let first = build(Compression::None, &[one(b"a")]);
    let both = [&first[..], &first[..first.len() - 1]].concat();
    let mut iterator = batches(&Bytes::from(both));
    assert_eq!(iterator.next().unwrap().unwrap().bytes, first);
    let incomplete = BatchError::Incomplete { needed: first.len(), present: first.len() - 1 };
    assert_eq!(iterator.next(), Some(Err(incomplete)));
    assert_eq!(iterator.next(), None);
}

#[test]
fn counts_that_contradict_each_other_are_refused() {
    let patch = |at: usize, value: i32| {
        let mut batch = build(Compression::None, &[one(b"a"), one(b"b")]).to_vec();
        batch[at..at + 4].copy_from_slice(&value.to_be_bytes());
        BatchHeader::parse(&batch)
    };
    for (at, value) in [(57, 3), (57, -1), (23, -1), (23, 0)] {
        assert!(matches!(patch(at, value), Err(BatchError::InvalidCount { .. })), "{at} {value}");
    }
    assert!(patch(23, 9).is_ok(), "compaction leaves fewer records than offsets");
    for length in [-1, 0, 48] {
        assert_eq!(patch(8, length), Err(BatchError::InvalidLength(length)));
    }
}

#[test]
fn no_compression_becomes_more_bytes_than_allowed() {
    let zeros = vec![0; 300_000];
    for compression in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        let batch = Batch::validate(build(compression, &[one(&zeros)])).unwrap();
        assert!(batch.bytes.len() < 20_000, "{compression} of zeros is small");
        assert_eq!(batch.records(LIMIT_BYTES).unwrap().count(), 1);
        assert_eq!(batch.records(usize::MAX).unwrap().count(), 1, "{compression} without a limit");
        let plain =
            BatchHeader::validate(&build(Compression::None, &[one(&zeros)])).unwrap().total_bytes() - HEADER_BYTES;
        assert!(batch.records(plain).is_ok(), "{compression} at exactly the limit");
        let refused = batch.records(plain - 1).unwrap_err();
        assert_eq!(refused, RecordError::TooLarge { compression, limit_bytes: plain - 1 });
    }
}

#[test]
fn raw_snappy_without_the_java_framing_is_read() {
    let plain = build(Compression::None, &[one(b"from librdkafka")]);
    let raw = snap::raw::Encoder::new().compress_vec(&plain[HEADER_BYTES..]).unwrap();
    let mut header = BatchHeader::parse(&plain).unwrap();
    header.attributes |= Compression::Snappy.id();
    header.batch_length = i32::try_from(HEADER_BYTES - LENGTH_PREFIX_BYTES + raw.len()).unwrap();
    let mut batch = [&header.to_bytes()[..], &raw].concat();
    super::header::seal(&mut batch);
    assert_eq!(read(&Bytes::from(batch)).unwrap()[0].value.as_deref(), Some(&b"from librdkafka"[..]));
}

#[test]
fn compaction_keeps_what_identifies_a_batch() {
    let mut builder = BatchBuilder::new(Offset(100)).producer(ProducerId(5), ProducerEpoch(1), 20).transactional(true);
    for value in [b"a", b"b", b"c"] {
        builder.push(&NewRecord { timestamp_ms: 9, key: None, value: Some(value), headers: &[] }).unwrap();
    }
    let original = Batch::validate(builder.build().unwrap()).unwrap();
    let mut kept = BatchBuilder::like(&original.header);
    let middle = original.records(LIMIT_BYTES).unwrap().nth(1).unwrap().unwrap();
    kept.push_record(&middle).unwrap();
    let kept = Batch::validate(kept.build().unwrap()).unwrap();
    assert_eq!(kept.header.last_offset(), Offset(102));
    assert_eq!(kept.header.last_sequence(), 22);
    assert!(kept.header.is_transactional() && !kept.header.is_control());
    assert_eq!(kept.records(LIMIT_BYTES).unwrap().collect::<Result<Vec<_>, _>>().unwrap(), [middle]);
    let empty = Batch::validate(BatchBuilder::like(&original.header).build().unwrap()).unwrap();
    assert_eq!((empty.header.record_count, empty.header.last_offset()), (0, Offset(102)));
}

#[test]
fn sequences_wrap_to_zero() {
    let mut builder = BatchBuilder::new(Offset(0)).producer(ProducerId(1), ProducerEpoch(0), i32::MAX);
    builder.push(&NewRecord::default()).unwrap().push(&NewRecord::default()).unwrap();
    assert_eq!(BatchHeader::validate(&builder.build().unwrap()).unwrap().last_sequence(), 0);
}

#[test]
fn offsets_within_a_batch_must_rise() {
    let mut builder = BatchBuilder::default();
    builder.push_at(3, &NewRecord::default()).unwrap();
    let refused = builder.push_at(3, &NewRecord::default()).unwrap_err();
    assert_eq!(refused, BuildError::OffsetNotRising { delta: 3, last: 3 });
}
