//! Logs that may not be cut below what was flushed: damage is told from a torn end.

use std::{fs, path::PathBuf};

use super::*;

fn guarded(dir: &Path) -> Result<(PartitionLog, RecoveryReport), OpenLogError> {
    let config = LogConfig { segment_bytes: 1 << 20, ..LogConfig::default() };
    PartitionLog::open_guarded(&log_dir(dir), &LogName::new("topic", 0), None, config)
}

fn segment(dir: &Path) -> PathBuf {
    dir.join("topic-0").join(names::segment_file(Offset(0), ".log"))
}

/// 20 flushed batches and 2 that were not, of a process that was killed; gives where each begins.
fn killed(dir: &Path) -> Vec<u64> {
    let (mut log, _) = guarded(dir).unwrap();
    let mut positions = Vec::new();
    for n in 0..22 {
        positions.push(log.active().size());
        append(&mut log, batch(&[&format!("value {n}")])).unwrap();
        if n < 20 {
            log.flush().unwrap();
        }
    }
    positions
}

fn flip(dir: &Path, at: u64) {
    let mut content = fs::read(segment(dir)).unwrap();
    content[usize::try_from(at).unwrap()] ^= 0x10;
    fs::write(segment(dir), content).unwrap();
}

#[test]
fn a_flipped_bit_in_what_was_flushed_is_refused_and_nothing_is_cut() {
    let dir = temp_dir();
    let positions = killed(dir.path());
    flip(dir.path(), positions[7] + 70);
    let before = fs::read(segment(dir.path())).unwrap();
    for _ in 0..2 {
        let OpenLogError::Damaged(damaged) = guarded(dir.path()).unwrap_err() else { panic!("another error") };
        assert_eq!((damaged.offset, damaged.position), (Offset(7), positions[7]));
        assert_eq!((damaged.flushed, damaged.whole_batch), (Offset(20), Some(Offset(8))));
        let words = damaged.to_string();
        assert!(
            words.contains("is damaged at offset 7") && words.contains("a whole batch follows at offset 8"),
            "{words}"
        );
        assert!(fs::read(segment(dir.path())).unwrap() == before, "a refusal changes nothing");
    }
    flip(dir.path(), positions[7] + 70);
    assert_eq!(read_all(&guarded(dir.path()).unwrap().0).len(), 22, "mended, it is whole again");
}

#[test]
fn a_flipped_bit_anywhere_in_what_was_flushed_is_never_cut_in_silence() {
    let original = temp_dir();
    let positions = killed(original.path());
    let content = fs::read(segment(original.path())).unwrap();
    for at in (0..positions[20]).step_by(3) {
        flip(original.path(), at);
        match guarded(original.path()) {
            Err(OpenLogError::Damaged(_)) => {}
            Err(error) => panic!("byte {at}: {error}"),
            // Base offset and leader epoch are not under the checksum.
            Ok((log, report)) => assert_eq!((read_all(&log).len(), report.truncated_bytes), (22, 0), "byte {at}"),
        }
        fs::write(segment(original.path()), &content).unwrap();
    }
}

#[test]
fn a_torn_end_behind_what_was_flushed_is_cut_as_ever() {
    let dir = temp_dir();
    let positions = killed(dir.path());
    flip(dir.path(), positions[20] + 70);
    let (log, report) = guarded(dir.path()).unwrap();
    assert_eq!(read_all(&log).len(), 20);
    assert_eq!(report.cut_whole_batch_at, Some(Offset(21)), "the report tells that a whole batch went");
}

#[test]
fn an_end_that_is_missing_is_damage_too() {
    let dir = temp_dir();
    let positions = killed(dir.path());
    fs::File::options().write(true).open(segment(dir.path())).unwrap().set_len(positions[12]).unwrap();
    let error = guarded(dir.path()).unwrap_err().to_string();
    assert!(error.contains("is damaged at offset 12") && error.contains("the log ends before that"), "{error}");
    fs::remove_file(segment(dir.path())).unwrap();
    let error = guarded(dir.path()).unwrap_err().to_string();
    assert!(error.contains("is damaged at offset 0"), "{error}");
}

#[test]
fn what_is_cut_on_purpose_is_not_missed() {
    let dir = temp_dir();
    killed(dir.path());
    let (mut log, _) = guarded(dir.path()).unwrap();
    log.truncate_to(Offset(9), NOW_MS).unwrap();
    drop(log);
    let (mut log, _) = guarded(dir.path()).unwrap();
    assert_eq!(log.log_end(), Offset(9));
    append(&mut log, batch(&["on"])).unwrap();
    log.flush().unwrap();
    log.truncate_fully_and_start_at(Offset(500), NOW_MS).unwrap();
    drop(log);
    let (mut log, _) = guarded(dir.path()).unwrap();
    append(&mut log, batch(&["anew"])).unwrap();
    log.flush().unwrap();
    drop(log);
    assert_eq!(read_all(&guarded(dir.path()).unwrap().0), [(500, "anew".to_owned())]);
}
