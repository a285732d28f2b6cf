//! What readers see: by offset, by time, and while the writer goes on.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use super::*;

fn spec(offset: i64, max_bytes: u32, min_one_batch: bool, upto: i64) -> ReadSpec {
    ReadSpec { offset: Offset(offset), max_bytes, min_one_batch, upto: Offset(upto) }
}

/// Base offsets of the whole batches that a read gives.
fn bases(log: &PartitionLog, spec: &ReadSpec) -> Vec<i64> {
    let slice = log.reader().read(spec).unwrap();
    let bytes = slice.map(|slice| slice.read().unwrap()).unwrap_or_default();
    batches(&bytes).map_while(Result::ok).map(|batch| batch.header.base_offset.0).collect()
}

#[track_caller]
fn check_reads(log: &PartitionLog, size: u32) {
    assert_eq!(bases(log, &spec(1, 10_000, false, 6)), [0, 2, 4], "from inside a batch the whole batch");
    assert_eq!(bases(log, &spec(3, 10_000, false, 6)), [2, 4]);
    assert_eq!(bases(log, &spec(0, 2 * size, false, 6)), [0, 2]);
    assert_eq!(bases(log, &spec(0, 10_000, false, 4)), [0, 2], "not beyond the bound");
    assert_eq!(bases(log, &spec(0, 10_000, false, 3)), [0], "no batch that crosses the bound");
    assert_eq!(bases(log, &spec(0, 1, true, 6)), [0], "the first one whole");
    assert_eq!(bases(log, &spec(0, 1, false, 6)), [0; 0]);
    assert_eq!(bases(log, &spec(0, 1, true, 1)), [0; 0]);
    assert_eq!(bases(log, &spec(6, 1, true, 6)), [0; 0], "the end is no error");
    assert!(matches!(log.reader().read(&spec(7, 1, true, 6)), Err(ReadError::OutOfRange { .. })));
    assert!(matches!(log.reader().read(&spec(-1, 1, true, 6)), Err(ReadError::OutOfRange { .. })));
}

#[test]
fn a_read_gives_whole_batches_within_its_bounds_from_memory_and_from_the_index() {
    let dir = temp_dir();
    let (mut log, _) = open(&log_dir(dir.path()), LogConfig::default());
    let size = u32::try_from(batch(&["a", "b"]).len()).unwrap();
    append_times(&mut log, 3, &batch(&["a", "b"]));
    check_reads(&log, size);
    log.close_clean().unwrap();
    let (log, _) = {
        let log_dir = Arc::clone(log.log_dir());
        drop(log);
        open(&log_dir, LogConfig::default())
    };
    check_reads(&log, size);
}

#[test]
fn every_offset_is_found_across_segments() {
    let dir = temp_dir();
    let (mut log, _) = open(&log_dir(dir.path()), small());
    for n in 0..300 {
        append(&mut log, batch(&[&format!("value {n}"), "second"])).unwrap();
    }
    assert!(log.shared.view.lock().segments.len() > 10);
    for offset in 0..600 {
        let found = bases(&log, &spec(offset, 1, true, 600));
        assert_eq!(found, [offset / 2 * 2], "offset {offset}");
    }
}

#[test]
fn a_time_leads_to_the_first_record_that_is_new_enough() {
    let dir = temp_dir();
    let (mut log, _) = open(&log_dir(dir.path()), small());
    for n in 0..200_i64 {
        let mut builder = BatchBuilder::default();
        for k in 0..3 {
            builder
                .push(&NewRecord { timestamp_ms: NOW_MS + n * 30 + k * 10, value: Some(b"v"), ..NewRecord::default() })
                .unwrap();
        }
        append(&mut log, builder.build().unwrap()).unwrap();
    }
    let find = |spec, upto: i64| {
        log.reader().offset_for_timestamp(spec, Offset(upto)).unwrap().map(|f| (f.offset.0, f.timestamp_ms - NOW_MS))
    };
    for offset in 0..600 {
        assert_eq!(find(TimestampSpec::At(NOW_MS + offset * 10), 600), Some((offset, offset * 10)));
        assert_eq!(find(TimestampSpec::At(NOW_MS + offset * 10 - 9), 600), Some((offset, offset * 10)));
    }
    assert_eq!(find(TimestampSpec::At(NOW_MS + 5991), 600), None);
    assert_eq!(find(TimestampSpec::At(NOW_MS + 1000), 100), None, "not beyond the bound");
    assert_eq!(find(TimestampSpec::Max, 600), Some((599, 5990)));
    assert_eq!(find(TimestampSpec::Latest, 600).unwrap().0, 600);
    log.delete_records_before(Offset(100), NOW_MS).unwrap();
    let find = |spec| log.reader().offset_for_timestamp(spec, Offset(600)).unwrap().map(|f| f.offset.0);
    assert_eq!(find(TimestampSpec::Earliest), Some(100));
    assert_eq!(find(TimestampSpec::At(0)), Some(100));
}

#[test]
fn readers_go_on_while_segments_are_appended_and_deleted() {
    let dir = temp_dir();
    let config = LogConfig { retention_bytes: 5000, file_delete_delay_ms: 0, ..small() };
    let (mut log, _) = open(&log_dir(dir.path()), config);
    let (reader, stop) = (log.reader(), AtomicBool::new(false));
    let read_on = || {
        let (mut offset, mut batches_read) = (Offset(0), 0_u64);
        while !stop.load(Relaxed) || batches_read == 0 {
            let upto = reader.offsets().end;
            match reader.read(&ReadSpec { offset, max_bytes: 3000, min_one_batch: true, upto }) {
                Err(ReadError::OutOfRange { log_start, .. }) => offset = log_start,
                Err(error) => panic!("{error}"),
                Ok(None) => thread::yield_now(),
                Ok(Some(slice)) => {
                    for batch in batches(&slice.read().unwrap()).map_while(Result::ok) {
                        batch.check_crc().unwrap();
                        assert!(batch.header.next_offset() > offset, "forward");
                        let record = batch.records(1000).unwrap().next().unwrap().unwrap();
                        assert_eq!(record.value.unwrap(), record.offset.0.to_string().as_bytes());
                        offset = batch.header.next_offset();
                        batches_read += 1;
                    }
                }
            }
        }
        batches_read
    };
    thread::scope(|scope| {
        let readers: Vec<_> = (0..3).map(|_| scope.spawn(read_on)).collect();
        for n in 0..3000 {
            append(&mut log, batch(&[&n.to_string()])).unwrap();
            if n % 20 == 0 {
                let upto = log.log_end();
                log.maintain(upto, NOW_MS).unwrap();
            }
        }
        stop.store(true, Relaxed);
        readers.into_iter().for_each(|reader| assert!(reader.join().unwrap() > 0));
    });
    assert!(log.log_start() > Offset(2000), "retention was at work");
}
