//! A disk that fills up under a real broker: refused in time, of use all the while, back by itself when there is room.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use forebay_broker_wire::types::ErrorCode;

use crate::create_topics::{create, topic};
use crate::delete_topics::delete_records;
use crate::group_client::{await_coordinator, commit, committed};
use crate::harness::{BrokerProcess, Client, batch};
use crate::mounts::Mount;

const RESERVE_BYTES: u64 = 8 << 20;
const BATCH_BYTES: usize = 200_000;

const SETTINGS: &[&str] = &[
    "forebay.log.dir.reserve.bytes=8388608",
    "log.segment.bytes=1048576",
    "log.segment.delete.delay.ms=0",
    "log.initial.task.delay.ms=0",
    "log.retention.check.interval.ms=100",
];

/// Produces until the broker refuses; gives how many batches it took and what it said.
fn fill(client: &mut Client) -> (usize, String) {
    let value = "x".repeat(BATCH_BYTES);
    for taken in 0..10_000 {
        let answer = client.produce("orders", 0, batch(&[&value]), -1);
        if answer.error_code != 0 {
            assert_eq!(ErrorCode::from_code(answer.error_code), ErrorCode::KafkaStorageError);
            return (taken, answer.error_message.unwrap().to_string());
        }
    }
    panic!("the disk never filled up");
}

/// Takes all the room that is left, as a program beside the broker may.
fn take_all_room(path: &Path) {
    let mut file = File::create(path).unwrap();
    for size in [1 << 20, 4096, 1] {
        while file.write_all(&vec![b'x'; size]).is_ok() {}
    }
    file.sync_all().unwrap_or_default();
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_full_disk_refuses_records_before_it_is_full_and_takes_them_again_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = Mount::tmpfs(&dir.path().join("data"), 40) else { return };
    let broker = BrokerProcess::start_with(dir.path(), SETTINGS);
    let client = &mut broker.client();
    create(client, topic("orders", 1, &[("retention.ms", Some("-1"))]));
    await_coordinator(client, "readers");
    create(client, topic("short", 1, &[("retention.ms", Some("1"))]));
    assert_eq!(client.produce("short", 0, batch(&[&"x".repeat(2_000)]), -1).error_code, 0);
    let (taken, message) = fill(client);
    assert!(taken > 50, "{taken}");
    assert!(message.contains("bytes free, at least 8388608 must stay free: delete data or grow the disk"), "{message}");
    // Producers ate no more of the reserve than one group of batches; the broker's own few records may use it.
    assert!(disk.free_bytes() > RESERVE_BYTES - (1 << 20), "{}", disk.free_bytes());
    eventually("it is said", || broker.said("the disk is nearly full").is_some());

    // Everything else goes on.
    assert_eq!(client.read_all("orders", 0).len(), taken);
    assert_eq!(commit(client, "readers", "orders", 7, ""), ErrorCode::None);
    let filler = dir.path().join("data/filler");
    std::fs::write(&filler, vec![b'x'; 1 << 20]).unwrap(); // records are refused a little above the reserve
    let refused = create(client, topic("made-while-full", 1, &[]));
    assert_eq!(ErrorCode::from_code(refused.error_code), ErrorCode::PolicyViolation);
    let words = refused.error_message.unwrap();
    assert!(words.contains("no room for new partitions") && words.contains("bytes free, at least 8388608"), "{words}");
    eventually("retention goes on", || client.fetch("short", 0, 1).log_start_offset == 1);

    // Room made: written again without a restart.
    let all = i64::try_from(taken).unwrap();
    let deleted = delete_records(client, "orders", 0, all);
    assert_eq!((deleted.error_code, deleted.low_watermark), (0, all));
    let mut again = || client.produce("orders", 0, batch(&["again"]), -1).error_code == 0;
    eventually("records are taken again", &mut again);
    eventually("it is told", || again() && broker.said("there is room again").is_some());
    assert_eq!(create(client, topic("made-while-full", 1, &[])).error_code, 0);
    assert!(broker.terminate(), "a clean end");
}

#[test]
fn a_broker_starts_on_a_disk_without_any_room_serves_what_it_has_and_comes_back_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let Some(disk) = Mount::tmpfs(&data, 40) else { return };
    let broker = BrokerProcess::start_with(dir.path(), SETTINGS);
    let client = &mut broker.client();
    create(client, topic("orders", 1, &[("retention.ms", Some("-1"))]));
    await_coordinator(client, "readers");
    assert_eq!(commit(client, "readers", "orders", 7, ""), ErrorCode::None);
    let (taken, _) = fill(client);
    let filler = data.join("filler");
    take_all_room(&filler);
    assert_eq!(disk.free_bytes(), 0);
    broker.kill();

    for end in ["kill", "term", "kill"] {
        let broker = BrokerProcess::start_with(dir.path(), SETTINGS);
        let client = &mut broker.client();
        assert!(broker.http_get("/readyz").starts_with("HTTP/1.1 200"), "ready");
        assert_eq!(client.read_all("orders", 0).len(), taken);
        await_coordinator(client, "readers");
        assert_eq!(committed(client, "readers", "orders").committed_offset, 7);
        let refused = client.produce("orders", 0, batch(&["x"]), -1);
        assert_eq!(ErrorCode::from_code(refused.error_code), ErrorCode::KafkaStorageError);
        if end == "kill" { broker.kill() } else { assert!(broker.terminate(), "a clean end on a full disk") }
    }

    let broker = BrokerProcess::start_with(dir.path(), SETTINGS);
    let client = &mut broker.client();
    std::fs::remove_file(&filler).unwrap();
    assert_eq!(delete_records(client, "orders", 0, 30).error_code, 0);
    eventually("records are taken again", || client.produce("orders", 0, batch(&["again"]), -1).error_code == 0);
    await_coordinator(client, "readers");
    assert_eq!(commit(client, "readers", "orders", 31, ""), ErrorCode::None);
    assert!(broker.terminate(), "a clean end");
    let broker = BrokerProcess::start_with(dir.path(), SETTINGS);
    let client = &mut broker.client();
    assert_eq!(client.fetch("orders", 0, 30).log_start_offset, 30);
    await_coordinator(client, "readers");
    assert_eq!(committed(client, "readers", "orders").committed_offset, 31);
}

#[test]
fn a_change_that_finds_no_room_is_refused_in_time_and_others_are_made_when_there_is_some() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let Some(_disk) = Mount::tmpfs(&data, 40) else { return };
    let broker = BrokerProcess::start_with(dir.path(), &["forebay.log.dir.reserve.bytes=0"]);
    let client = &mut broker.client();
    create(client, topic("orders", 1, &[]));
    assert_eq!(client.produce("orders", 0, batch(&["x"]), -1).error_code, 0);
    // What is kept for the metadata is used up first, then the rest of its last block.
    let refused = (0..200).find_map(|number| {
        take_all_room(&data.join(format!("filler-{number}")));
        let answer = create(client, topic(&format!("no-room-{number}"), 1, &[]));
        (answer.error_code != 0).then_some(answer)
    });
    let refused = refused.unwrap();
    assert_eq!(ErrorCode::from_code(refused.error_code), ErrorCode::PolicyViolation);
    let words = refused.error_message.unwrap();
    assert!(
        words.contains("the metadata can't be changed before there is room") && words.contains("bytes free"),
        "{words}"
    );
    assert_ne!(create(client, topic("another", 1, &[])).error_code, 0, "and the next one too");
    assert_eq!(client.read_all("orders", 0).len(), 1, "the rest goes on");
    for entry in std::fs::read_dir(&data).unwrap().map(Result::unwrap) {
        if entry.file_name().to_str().unwrap().starts_with("filler") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    eventually("it is made", || create(client, topic("another", 1, &[])).error_code == 0);
    assert!(broker.said("there is room for the metadata again").is_some());
    assert_eq!(client.produce("another", 0, batch(&["x"]), -1).error_code, 0);
    assert!(broker.terminate(), "a clean end");
}

#[test]
fn partitions_that_found_no_room_are_opened_when_there_is_some_and_until_then_the_broker_is_not_ready() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let Some(_disk) = Mount::tmpfs(&data, 40) else { return };
    let broker = BrokerProcess::start_with(dir.path(), &["forebay.log.dir.reserve.bytes=0"]);
    let client = &mut broker.client();
    create(client, topic("orders", 1, &[]));
    take_all_room(&data.join("filler"));
    create(client, topic("gives-back-what-is-kept-for-the-metadata", 1, &[]));
    std::fs::write(data.join("room"), [b'x'; 30_000]).unwrap();
    take_all_room(&data.join("filler-2"));
    std::fs::remove_file(data.join("room")).unwrap();
    assert_eq!(create(client, topic("shut", 40, &[])).error_code, 0, "without a reserve nothing is refused in time");
    let ready = broker.http_get("/readyz");
    assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("partitions could not be opened"), "{ready}");
    std::fs::remove_file(data.join("filler")).unwrap();
    eventually("it is ready again", || broker.http_get("/readyz").starts_with("HTTP/1.1 200"));
    assert_eq!(client.produce("shut", 39, batch(&["x"]), -1).error_code, 0);
    assert!(broker.terminate(), "a clean end");
}
