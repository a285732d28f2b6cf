//! What a start finds of a move that a crash interrupted: see `switch.rs` for the order of its steps.

use std::sync::Arc;

use forebay_broker_wire::types::Uuid;

use crate::{disk::DiskError, log_dir::LogDir, moving::switch::MOVED_FROM, names::LogName};

/// From which directory a log that was found is, if it is a copy of which that is not settled yet. A mark that can't be understood names
/// none that there is.
pub fn moved_from(dir: &LogDir, log: &LogName) -> Result<Option<Uuid>, DiskError> {
    let content = dir.disk().read(&dir.path().join(log.to_string()).join(MOVED_FROM))?;
    Ok(content.map(|content| String::from_utf8_lossy(&content).trim().parse().unwrap_or(Uuid::ZERO)))
}

/// Settles the copies in a directory whose logs' directories are among `dirs`: where the log is still there, it counts and the copy
/// goes; else the copy is the log. Gives those whose directories are not among them, or can't be read.
pub fn settle_moved(dir: &LogDir, dirs: &[Arc<LogDir>], now_ms: i64) -> Result<Vec<(LogName, Uuid)>, DiskError> {
    let mut unsettled = Vec::new();
    for log in dir.logs()? {
        let Some(from) = moved_from(dir, &log)? else { continue };
        let other = dirs.iter().find(|other| other.identity().directory_id == from);
        match other.and_then(|other| other.logs().ok()) {
            None => unsettled.push((log, from)),
            Some(logs) if logs.contains(&log) => {
                tracing::info!(%log, dir = %dir.path().display(), "a copy is dropped: the log had not been taken away from where it was");
                dir.delete_log(&log, now_ms, now_ms)?;
            }
            Some(_) => accept_moved(dir, &log)?,
        }
    }
    dir.commit_deletions()?;
    Ok(unsettled)
}

/// The copy is the log from now on.
pub fn accept_moved(dir: &LogDir, log: &LogName) -> Result<(), DiskError> {
    let path = dir.path().join(log.to_string());
    tracing::info!(%log, dir = %dir.path().display(), "a log that was moved to here just before the stop is taken");
    dir.disk().remove_file(&path.join(MOVED_FROM))?;
    dir.disk().sync_dir(&path)
}
