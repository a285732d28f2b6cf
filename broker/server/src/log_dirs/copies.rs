//! Logs that were being moved from one directory to another when the last life of this broker ended.
//!
//! What must hold: of a log and its copy one is served, never both and never neither; nothing is served of which a directory that is missing
//! may have more.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use forebay_broker_storage::{DiskError, LogDir, LogName, accept_moved, settle_moved};
use forebay_broker_wire::types::Uuid;

use super::FailedDir;
use crate::io::append::now_ms;

/// Copies that are left alone: by directory and log.
pub(super) type LeftAlone = BTreeSet<(PathBuf, LogName)>;

/// Settles all copies of which it is known where they are from.
pub(super) fn settle(dirs: &[Arc<LogDir>], failed: &[FailedDir]) -> Result<LeftAlone, DiskError> {
    let mut left_alone = LeftAlone::new();
    for dir in dirs {
        for (log, from) in settle_moved(dir, dirs, now_ms())? {
            if may_come_back(from, dirs, failed) {
                tracing::error!(dir = %dir.path().display(), %log, %from, "a log was being moved here from a log dir that is missing: it is offline until that is back");
                left_alone.insert((dir.path().to_owned(), log));
            } else {
                accept_moved(dir, &log)?;
            }
        }
    }
    Ok(left_alone)
}

/// Whether a directory is only missing, and not gone for good.
fn may_come_back(id: Uuid, dirs: &[Arc<LogDir>], failed: &[FailedDir]) -> bool {
    dirs.iter().any(|dir| dir.identity().directory_id == id)
        || failed.iter().any(|dir| dir.directory_id.is_none_or(|failed| failed == id))
}
