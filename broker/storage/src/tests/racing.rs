//! Flushes beside everything else: they hold no lock while they wait for the disk, so files come and go around them.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use super::*;

/// Flushes that move the recovery point, on another thread, as a background flusher does; each beside a roll.
#[test]
fn a_flush_and_a_roll_at_the_same_time_harm_neither() {
    let temp = temp_dir();
    let dir = log_dir(temp.path());
    let (mut log, _) = open(&dir, LogConfig { segment_bytes: 1 << 20, ..small() });
    let large = batch(&["x".repeat(3_000).as_str()]);
    for round in 0..300 {
        append(&mut log, large.clone()).unwrap();
        let pending = log.begin_flush().unwrap();
        let flusher = std::thread::spawn(move || pending.run());
        log.roll().unwrap_or_else(|error| panic!("round {round}: {error}"));
        let done = flusher.join().unwrap().unwrap_or_else(|error| panic!("round {round}: {error}"));
        log.end_flush(&done);
    }
    assert!(dir.poisoned().is_none(), "{:?}", dir.poisoned());
}

/// The flush neither fails nor leaves anything to the next log of that name.
#[test]
fn a_log_may_be_deleted_while_it_is_flushed() {
    let temp = temp_dir();
    let dir = log_dir(temp.path());
    let (mut log, _) = open(&dir, LogConfig { segment_bytes: 1 << 20, ..small() });
    append(&mut log, batch(&["x".repeat(3_000).as_str()])).unwrap();
    let pending = log.begin_flush().unwrap();
    log.delete(NOW_MS).unwrap();
    let (next, _) = open(&dir, small());
    let done = pending.run().unwrap();
    log.end_flush(&done);
    assert!(dir.poisoned().is_none(), "{:?}", dir.poisoned());
    assert_eq!(dir.recovery_point(&LogName::new("topic", 0)), Offset(0));
    let names: Vec<_> =
        Disk::real().list(&temp.path().join("topic-0")).unwrap().into_iter().map(|entry| entry.name).collect();
    assert!(
        names.iter().all(|name| !name.ends_with(".snapshot") || name.starts_with("00000000000000000000")),
        "{names:?}"
    );
    drop(next);
}

#[test]
fn what_vanishes_while_a_directory_is_listed_is_left_out() {
    let temp = temp_dir();
    let disk = Disk::default();
    let stop = Arc::new(AtomicBool::new(false));
    let others = std::thread::spawn({
        let (stop, path) = (Arc::clone(&stop), temp.path().to_path_buf());
        move || {
            while !stop.load(Relaxed) {
                for name in 0..50 {
                    std::fs::write(path.join(format!("{name}")), "").unwrap();
                }
                for name in 0..50 {
                    std::fs::remove_file(path.join(format!("{name}"))).unwrap();
                }
            }
        }
    });
    let failed = (0..2_000).find_map(|_| disk.list(temp.path()).err());
    stop.store(true, Relaxed);
    others.join().unwrap();
    assert!(failed.is_none(), "{failed:?}");
}
