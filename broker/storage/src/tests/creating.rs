//! How often the disk is waited for when logs are made and opened, and what is there when the power is cut right after.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::*;
use crate::{disk::Operation, faulty_disk::FaultyDisk};

const TOPIC_ID: Uuid = Uuid([7; 16]);

/// Counts flushes of files and directories from now on.
fn count_flushes(disk: &FaultyDisk) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    disk.inject(move |operation| {
        if matches!(operation, Operation::Sync { .. } | Operation::SyncDir { .. }) {
            counted.fetch_add(1, Relaxed);
        }
        disk::Verdict::Proceed
    });
    count
}

fn names(count: i32) -> Vec<LogName> {
    (0..count).map(|partition| LogName::new("new", partition)).collect()
}

fn open_all(log_dir: &Arc<LogDir>, names: &[LogName]) {
    for name in names {
        PartitionLog::open(log_dir, name, Some(TOPIC_ID), small()).unwrap();
    }
}

#[test]
fn many_new_logs_wait_once_for_the_directory_that_they_lie_in_and_twice_each() {
    let dir = temp_dir();
    let disk = FaultyDisk::new(dir.path()).unwrap();
    let (log_dir, names) = (log_dir_on(disk.disk(), dir.path()), names(5));
    let flushes = count_flushes(&disk);
    assert_eq!(log_dir.make_dirs(&names).unwrap(), 5);
    open_all(&log_dir, &names);
    assert_eq!(flushes.load(Relaxed), 1 + 2 * 5);
    assert_eq!(log_dir.make_dirs(&names).unwrap(), 0, "they are there");
    assert_eq!(flushes.load(Relaxed), 1 + 2 * 5);
}

#[test]
fn a_new_log_knows_its_topic_when_the_power_is_cut_right_after() {
    let dir = temp_dir();
    let disk = FaultyDisk::new(dir.path()).unwrap();
    let (log_dir, names) = (log_dir_on(disk.disk(), dir.path()), names(2));
    log_dir.make_dirs(&names).unwrap();
    open_all(&log_dir, &names);
    drop(log_dir);
    disk.cut_power(&mut |_| 0).unwrap();
    for name in names {
        let there = dir.path().join(name.to_string());
        assert_eq!(read_topic_id(&Disk::real(), &there).unwrap(), Some(TOPIC_ID), "{name}");
        assert!(there.join("00000000000000000000.log").is_file(), "{name}");
    }
}

#[test]
fn opening_a_log_flushes_nothing_after_a_clean_stop_and_its_directory_after_a_crash() {
    let dir = temp_dir();
    let disk = FaultyDisk::new(dir.path()).unwrap();
    let names = names(1);
    for (clean, expected) in [(true, 0), (false, 1), (true, 0)] {
        let log_dir = log_dir_on(disk.disk(), dir.path());
        let (mut log, _) = PartitionLog::open(&log_dir, &names[0], Some(TOPIC_ID), small()).unwrap();
        append(&mut log, batch(&["a"])).unwrap();
        log.close_clean().unwrap();
        let closed = if clean { log_dir.close_clean() } else { log_dir.write_checkpoints() };
        closed.unwrap();
        drop((log, log_dir));
        let log_dir = log_dir_on(disk.disk(), dir.path());
        let flushes = count_flushes(&disk);
        open_all(&log_dir, &names);
        assert_eq!(flushes.load(Relaxed), expected, "clean: {clean}");
        disk.heal();
    }
}

#[test]
fn directories_that_are_not_durable_are_not_left() {
    let dir = temp_dir();
    let disk = FaultyDisk::new(dir.path()).unwrap();
    let (log_dir, names) = (log_dir_on(disk.disk(), dir.path()), names(3));
    disk.inject(|operation| match operation {
        Operation::SyncDir { .. } => disk::Verdict::Fail(std::io::Error::other("no flush")),
        _ => disk::Verdict::Proceed,
    });
    assert!(log_dir.make_dirs(&names).is_err());
    assert!(names.iter().all(|name| !dir.path().join(name.to_string()).exists()));
    disk.heal();
    assert_eq!(log_dir.make_dirs(&names).unwrap(), 3);
}

#[test]
fn a_log_that_is_gone_after_a_crash_is_missed_however_young_it_was() {
    let dir = temp_dir();
    let disk = FaultyDisk::new(dir.path()).unwrap();
    let (log_dir, names) = (log_dir_on(disk.disk(), dir.path()), names(2));
    open_all(&log_dir, &names);
    log_dir.commit_new_logs().unwrap();
    let flushes = count_flushes(&disk);
    log_dir.commit_new_logs().unwrap();
    assert_eq!(flushes.load(Relaxed), 0, "they are noted");
    drop(log_dir);
    disk.cut_power(&mut |_| 0).unwrap();
    std::fs::remove_dir_all(dir.path().join(names[1].to_string())).unwrap();
    assert_eq!(log_dir_on(Disk::real(), dir.path()).missing_logs(), [names[1].clone()]);
}
