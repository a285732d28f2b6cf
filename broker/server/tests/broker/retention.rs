//! Retention of a running broker: what is too old goes by itself, segment by segment.

use std::time::{Duration, Instant};

use crate::create_topics::{create, topic};
use crate::harness::{BrokerProcess, batch_at};

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

#[test]
fn records_older_than_retention_ms_go_and_younger_ones_stay() {
    let dir = tempfile::tempdir().unwrap();
    let settings =
        ["log.initial.task.delay.ms=0", "log.retention.check.interval.ms=50", "log.segment.delete.delay.ms=0"];
    let broker = BrokerProcess::start_with(dir.path(), &settings);
    let client = &mut broker.client();
    let hour_ms = 3_600_000;
    let configs = [("retention.ms", Some("3600000")), ("segment.ms", Some("100"))];
    create(client, topic("orders", 1, &configs));
    create(client, topic("kept", 1, &[]));
    for (offset, age_ms) in [3 * hour_ms, 2 * hour_ms, 0].into_iter().enumerate() {
        let records = batch_at(&["x"], now_ms() - age_ms);
        assert_eq!(client.produce("orders", 0, records.clone(), 1).base_offset, i64::try_from(offset).unwrap());
        assert_eq!(client.produce("kept", 0, records, 1).error_code, 0);
    }
    let until = Instant::now() + Duration::from_secs(30);
    while client.fetch("orders", 0, 2).log_start_offset != 2 {
        assert!(Instant::now() < until, "the old ones never went");
        std::thread::sleep(Duration::from_millis(20));
    }
    let left: Vec<_> = client.read_all_from("orders", 0, 2).into_keys().collect();
    assert_eq!(left, [2]);
    assert_eq!(client.read_all("kept", 0).len(), 3);
    let log = dir.path().join("data/orders-0");
    let files = || std::fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    while files().any(|file| file.starts_with("00000000000000000000") || file.ends_with(".deleted")) {
        assert!(Instant::now() < until, "the files are still there: {:?}", files().collect::<Vec<_>>());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(client.produce("orders", 0, batch_at(&["next"], now_ms()), 1).base_offset, 3);
}
