//! Which directories a broker has had: remembered in each of them, so that a disk that is not mounted is not taken for a new, empty one.
//!
//! One line a directory, `directory.id path`. Only a broker with several directories needs it.

use std::path::{Path, PathBuf};

use forebay_broker_storage::{Disk, DiskError, LogDir};
use forebay_broker_wire::types::Uuid;

const FILE_NAME: &str = "forebay-log-dirs";

/// Ids by path.
pub(super) type Known = Vec<(PathBuf, Uuid)>;

/// What one directory remembers; nothing if it is a new one.
pub(super) fn read(disk: &Disk, dir: &Path) -> Result<Known, DiskError> {
    let content = disk.read(&dir.join(FILE_NAME))?.unwrap_or_default();
    let text = String::from_utf8_lossy(&content);
    let parse = |line: &str| line.split_once(' ').and_then(|(id, path)| Some((PathBuf::from(path), id.parse().ok()?)));
    Ok(text.lines().filter_map(parse).collect())
}

/// Makes all directories remember `known`. What is not remembered costs only a warning one day.
pub(super) fn write(dirs: &[std::sync::Arc<LogDir>], known: &Known) {
    let content: String = known.iter().map(|(path, id)| format!("{id} {}\n", path.display())).collect();
    for dir in dirs {
        let path = dir.path().join(FILE_NAME);
        let found = dir.disk().read(&path).ok().flatten();
        let nothing_to_tell = known.len() == 1 && found.is_none();
        if nothing_to_tell || found.as_deref() == Some(content.as_bytes()) {
            continue;
        }
        if let Err(error) = dir.disk().replace(&path, content.as_bytes()) {
            tracing::warn!(%error, "the list of this broker's log dirs could not be written");
        }
    }
}
