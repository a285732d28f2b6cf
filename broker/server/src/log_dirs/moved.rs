//! The metadata of a broker whose metadata disk was missing lies on another of its disks; the missing one may come back.
//!
//! What must hold: of two metadata logs the one counts that was begun because the other was missing, since it has voted since; the other
//! is set aside, never removed. Where nothing says which, the broker does not start.

use std::path::Path;
use std::sync::Arc;

use forebay_broker_machines::metadata::CLUSTER_METADATA_TOPIC;
use forebay_broker_storage::{Disk, DiskError, LogDir, LogName};
use forebay_broker_wire::types::Uuid;

/// Beside the log: ids of the directories that were missing when it was begun, one a line.
const FILE_NAME: &str = "begun-without";

/// Begins a metadata log in a directory, because others are missing.
pub(super) fn begin(dir: &LogDir, missing: impl Iterator<Item = Uuid>) -> Result<(), DiskError> {
    let path = dir.path().join(log_name());
    dir.disk().create_dir(&path)?;
    let lines: String = missing.map(|id| format!("{id}\n")).collect();
    dir.disk().replace(&path.join(FILE_NAME), lines.as_bytes())
}

/// Sets a metadata log aside that another took the place of while its directory was missing.
pub(super) fn set_aside(dirs: &[Arc<LogDir>]) -> Result<(), DiskError> {
    for newer in dirs {
        let replaced = begun_without(newer.disk(), &newer.path().join(log_name()))?;
        for older in dirs.iter().filter(|dir| replaced.contains(&dir.identity().directory_id)) {
            let from = older.path().join(log_name());
            if older.disk().exists(&from) {
                // Not the name of a log any more.
                let aside = older.path().join(format!("{}.replaced", log_name()));
                tracing::warn!(dir = %older.path().display(), aside = %aside.display(), "the metadata here is old: another disk of this broker has it since this one was missing");
                older.disk().remove_dir_all(&aside)?;
                older.disk().rename(&from, &aside)?;
                older.disk().sync_dir(older.path())?;
            }
        }
    }
    Ok(())
}

fn begun_without(disk: &Disk, log: &Path) -> Result<Vec<Uuid>, DiskError> {
    let content = disk.read(&log.join(FILE_NAME))?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&content).lines().filter_map(|line| line.parse().ok()).collect())
}

fn log_name() -> String {
    LogName::new(CLUSTER_METADATA_TOPIC, 0).to_string()
}
