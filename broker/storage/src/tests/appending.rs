//! What an append answers and what it writes.

use forebay_broker_wire::records::{self, Compression, TimestampType};

use super::*;

#[test]
fn many_requests_go_down_together_and_each_is_answered() {
    let dir = temp_dir();
    let (mut log, _) = open(&log_dir(dir.path()), LogConfig::default());
    let damaged = {
        let mut bytes = batch(&["x"]).to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        Bytes::from(bytes)
    };
    let requests = [
        client(batch(&["a", "b"])),
        client(damaged),
        client(batch(&["c"])),
        client(Bytes::new()),
        client(batch(&["d"])),
    ];
    let results = log.append(&requests, LeaderEpoch(4), NOW_MS);
    let offsets: Vec<_> =
        results.iter().map(|result| result.as_ref().map(|a| (a.base_offset.0, a.last_offset.0)).ok()).collect();
    assert_eq!(offsets, [Some((0, 1)), None, Some((2, 2)), None, Some((3, 3))]);
    assert!(matches!(results[1], Err(AppendError::Invalid(InvalidBatch::Corrupt { .. }))));
    assert!(matches!(results[3], Err(AppendError::Invalid(InvalidBatch::Empty))));
    let values: Vec<_> = read_all(&log).into_iter().map(|(_, value)| value).collect();
    assert_eq!(values, ["a", "b", "c", "d"]);
    assert_eq!(log.latest_epoch(), Some(LeaderEpoch(4)));
}

#[test]
fn a_batch_is_stored_as_it_came_but_for_offset_and_epoch() {
    let dir = temp_dir();
    let (mut log, _) = open(&log_dir(dir.path()), LogConfig::default());
    append(&mut log, batch(&["first"])).unwrap();
    let big = "z".repeat(5000);
    let mut builder = BatchBuilder::default().compression(Compression::Lz4);
    builder.push(&NewRecord { timestamp_ms: NOW_MS, value: Some(big.as_bytes()), ..NewRecord::default() }).unwrap();
    for sent in [builder.build().unwrap(), batch(&[&big])] {
        let base_offset = log.log_end();
        log.append(&[client(sent.clone())], LeaderEpoch(7), NOW_MS).remove(0).unwrap();
        let spec = ReadSpec { offset: base_offset, max_bytes: 0, min_one_batch: true, upto: log.log_end() };
        let stored = log.reader().read(&spec).unwrap().unwrap().read().unwrap();
        let header = batches(&stored).next().unwrap().unwrap().header;
        assert_eq!((header.base_offset, header.partition_leader_epoch), (base_offset, LeaderEpoch(7)));
        assert_eq!(stored[16..], sent[16..], "crc and all behind it");
        assert_eq!(stored[8..12], sent[8..12], "length");
    }
}

#[test]
fn log_append_time_gives_the_brokers_time_and_a_right_checksum() {
    let dir = temp_dir();
    let config = LogConfig { timestamp_type: TimestampType::LogAppendTime, ..LogConfig::default() };
    let (mut log, _) = open(&log_dir(dir.path()), config);
    for value in ["small", &"large".repeat(1000)] {
        let appended = append(&mut log, batch_at(&[value], 17)).unwrap();
        assert_eq!(appended.log_append_time_ms, NOW_MS);
    }
    let spec = ReadSpec { offset: Offset(0), max_bytes: 1 << 20, min_one_batch: true, upto: log.log_end() };
    for batch in batches(&log.reader().read(&spec).unwrap().unwrap().read().unwrap()) {
        let batch = batch.unwrap();
        batch.check_crc().unwrap();
        let record = batch.records(1 << 20).unwrap().next().unwrap().unwrap();
        assert_eq!((record.timestamp_ms, batch.header.timestamp_type()), (NOW_MS, TimestampType::LogAppendTime));
    }
}

#[track_caller]
fn check_refused(config: LogConfig, records: Bytes, expected: &str) {
    let dir = temp_dir();
    let (mut log, _) = open(&log_dir(dir.path()), config);
    let error = append(&mut log, records).unwrap_err().to_string();
    assert!(error.contains(expected), "{error:?} says nothing of {expected:?}");
    assert_eq!(log.log_end(), Offset(0));
}

#[test]
fn refuses_what_the_settings_do_not_allow() {
    let config = LogConfig::default;
    check_refused(
        LogConfig { max_message_bytes: 80, ..config() },
        batch(&["more than that would take"]),
        "max.message.bytes=80",
    );
    check_refused(
        LogConfig { segment_bytes: 80, ..config() },
        batch(&["more than that would take"]),
        "segment.bytes=80",
    );
    check_refused(config(), batch_at(&["x"], NOW_MS + 3_600_001), "message.timestamp.after.max.ms=3600000");
    let before = LogConfig { message_timestamp_before_max_ms: 1000, ..config() };
    check_refused(before, batch_at(&["x"], NOW_MS - 1001), "message.timestamp.before.max.ms=1000");
    check_refused(LogConfig { compact: true, ..config() }, batch(&["no key"]), "needs a key");
    let control = fill(BatchBuilder::default().control(true), &["x"], NOW_MS);
    check_refused(config(), control, "control");
    let mut magic = batch(&["x"]).to_vec();
    magic[16] = 1;
    check_refused(config(), magic.into(), "magic 1");
    check_refused(config(), batch(&["x"]).slice(..65), "needs");
}

#[test]
fn refuses_a_count_that_does_not_match_the_offsets() {
    let mut builder = BatchBuilder::default();
    builder.push_at(5, &NewRecord { timestamp_ms: NOW_MS, ..NewRecord::default() }).unwrap();
    check_refused(LogConfig::default(), builder.build().unwrap(), "record count");
}

#[test]
fn refuses_records_that_are_not_what_the_header_says_however_right_the_checksum() {
    /// Changes what the checksum covers, which becomes right again with the time of an append.
    fn forged(records: &Bytes, change: impl FnOnce(&mut [u8])) -> Bytes {
        let mut bytes = records.to_vec();
        change(&mut bytes);
        records::set_log_append_time(&mut bytes, NOW_MS).unwrap();
        bytes.into()
    }
    let counting = |records: &Bytes, count: i32| {
        forged(records, |bytes| {
            bytes[23..27].copy_from_slice(&(count - 1).to_be_bytes());
            bytes[57..61].copy_from_slice(&count.to_be_bytes());
        })
    };
    let three = batch(&["a", "b", "c"]);
    check_refused(LogConfig::default(), counting(&three, 4), "record 3");
    check_refused(LogConfig::default(), counting(&three, 2), "record 1: records");
    check_refused(LogConfig::default(), counting(&three, i32::MAX), "more records than can be");
    check_refused(LogConfig::default(), forged(&three, |bytes| bytes[61..].fill(0x2a)), "record 0");
    let compressed = fill(BatchBuilder::default().compression(Compression::Zstd), &["a"], NOW_MS);
    check_refused(LogConfig::default(), counting(&compressed, i32::MAX), "more records than can be");
    let dir = temp_dir();
    let (mut log, _) = open(&log_dir(dir.path()), LogConfig::default());
    append(&mut log, counting(&three, 3)).unwrap();
}

#[test]
fn a_repetition_gets_the_first_offsets_even_within_one_write() {
    let dir = temp_dir();
    let (mut log, _) = open(&log_dir(dir.path()), LogConfig::default());
    append(&mut log, batch(&["before"])).unwrap();
    let first = idempotent(9, 0, 0, &["a", "b"]);
    let requests = [client(first.clone()), client(first.clone()), client(idempotent(9, 0, 2, &["c"])), client(first)];
    let results: Vec<_> = log.append(&requests, LeaderEpoch(0), NOW_MS).into_iter().map(Result::unwrap).collect();
    let seen: Vec<_> = results.iter().map(|a| (a.base_offset.0, a.last_offset.0, a.duplicate)).collect();
    assert_eq!(seen, [(1, 2, false), (1, 2, true), (3, 3, false), (1, 2, true)]);
    assert_eq!(read_all(&log).len(), 4);
    let gap = append(&mut log, idempotent(9, 0, 5, &["x"])).unwrap_err();
    assert!(matches!(gap, AppendError::Sequence(SequenceError::OutOfOrder { found: 5, expected: 3, .. })));
}

#[test]
fn a_flush_is_required_every_so_many_messages_and_for_a_repetition_of_unflushed_ones() {
    let dir = temp_dir();
    let (mut log, _) = open(&log_dir(dir.path()), LogConfig { flush_messages: 3, ..LogConfig::default() });
    assert!(!append(&mut log, idempotent(1, 0, 0, &["a", "b"])).unwrap().flush_required);
    assert!(append(&mut log, idempotent(1, 0, 2, &["c"])).unwrap().flush_required);
    assert!(append(&mut log, idempotent(1, 0, 2, &["c"])).unwrap().flush_required, "not flushed yet");
    assert_eq!(log.flush().unwrap(), Offset(3));
    assert!(!append(&mut log, idempotent(1, 0, 2, &["c"])).unwrap().flush_required, "flushed");
    assert!(!append(&mut log, batch(&["d"])).unwrap().flush_required);
}

#[test]
fn rolls_by_size_by_time_and_when_the_index_is_full() {
    let dir = temp_dir();
    let log_dir = log_dir(dir.path());
    let segments = |log: &PartitionLog| log.shared.view.lock().bases().iter().map(|base| base.0).collect::<Vec<_>>();
    let (mut log, _) = open(&log_dir, LogConfig { segment_bytes: 200, ..LogConfig::default() });
    append_times(&mut log, 4, &batch(&["some twenty bytes or so"]));
    assert_eq!(segments(&log), [0, 2], "91 bytes each");
    log.set_config(LogConfig { segment_ms: 1000, ..LogConfig::default() });
    append(&mut log, batch_at(&["x"], NOW_MS + 1000)).unwrap();
    append(&mut log, batch_at(&["x"], NOW_MS + 1001)).unwrap();
    assert_eq!(segments(&log), [0, 2, 5]);
    log.set_config(LogConfig { segment_index_bytes: 24, index_interval_bytes: 0, ..LogConfig::default() });
    append_times(&mut log, 6, &batch_at(&["x"], NOW_MS + 1001));
    assert_eq!(segments(&log), [0, 2, 5, 9]);
    assert_eq!(read_all(&log).len(), 12);
}

#[test]
fn the_leaders_batches_keep_their_offsets_and_epochs() {
    let dir = temp_dir();
    let (mut log, _) = open(&log_dir(dir.path()), LogConfig::default());
    let leader = |offset: i64, epoch: i32| {
        let records = fill(BatchBuilder::new(Offset(offset)).leader_epoch(LeaderEpoch(epoch)), &["x", "y"], NOW_MS);
        AppendRequest { records, origin: Origin::Leader }
    };
    let results = log.append(&[leader(0, 1), leader(2, 1), leader(8, 3), leader(9, 3)], LeaderEpoch(99), NOW_MS);
    assert!(matches!(results[3], Err(AppendError::NotNext { found: Offset(9), end: Offset(10) })));
    assert_eq!(log.log_end(), Offset(10));
    let reader = log.reader();
    assert_eq!(reader.end_offset_for_epoch(LeaderEpoch(1)), Some((LeaderEpoch(1), Offset(8))));
    assert_eq!(reader.end_offset_for_epoch(LeaderEpoch(3)), Some((LeaderEpoch(3), Offset(10))));
    assert_eq!(read_from(&log, Offset(5)).first().unwrap().0, 8, "a gap is stepped over");
}

#[test]
fn a_hot_append_stops_where_it_would_have_to_wait_and_leaves_the_rest_to_a_patient_one() {
    let dir = temp_dir();
    let (mut log, _) = open(&log_dir(dir.path()), small());
    let requests: Vec<_> = ["a", "b", "c"].iter().map(|value| client(batch(&[&value.repeat(350)]))).collect();
    assert!(log.append_hot(&requests, LeaderEpoch(0), NOW_MS).is_empty(), "a new leader epoch has to be saved");
    append(&mut log, batch(&["first"])).unwrap();
    let answers = log.append_hot(&requests, LeaderEpoch(0), NOW_MS);
    let offsets: Vec<_> = answers.into_iter().map(|answer| answer.unwrap().base_offset.0).collect();
    assert_eq!(offsets, [1, 2], "the third needs a new segment");
    assert_eq!(log.append(&requests[2..], LeaderEpoch(0), NOW_MS)[0].as_ref().unwrap().base_offset, Offset(3));
    let firsts: Vec<_> = read_all(&log).into_iter().map(|(_, value)| value[..1].to_owned()).collect();
    assert_eq!(firsts, ["f", "a", "b", "c"]);
}
