//! What files there are in a log's directory.
//!
//! What must hold: listing removes only what was never finished. What waits for its removal stays until the log is loaded, since it tells
//! what was removed on purpose.

use std::path::{Path, PathBuf};

use forebay_broker_wire::types::Offset;

use crate::{
    disk::{Disk, DiskError},
    names::{DELETED, parse_segment_file},
    segment::{INDEX, LOG, TIME_INDEX},
};

/// The files of a log that say something.
#[derive(Default)]
pub(super) struct Found {
    pub(super) bases: Vec<Offset>,
    pub(super) snapshots: Vec<Offset>,
    /// Indexes without their log.
    pub(super) orphans: Vec<PathBuf>,
    /// What waits for its removal.
    pub(super) deleted: Vec<PathBuf>,
    /// The segments among that.
    pub(super) deleted_bases: Vec<Offset>,
}

impl Found {
    /// Lists a log's directory.
    pub(super) fn list(disk: &Disk, dir: &Path) -> Result<Self, DiskError> {
        let (mut found, mut indexes) = (Self::default(), Vec::new());
        for entry in disk.list(dir)? {
            let path = dir.join(&entry.name);
            if entry.name.ends_with(".tmp") {
                disk.remove_file(&path)?;
            }
            if let Some(name) = entry.name.strip_suffix(DELETED) {
                found.deleted_bases.extend(parse_segment_file(name, LOG));
                found.deleted.push(path);
                continue;
            }
            found.bases.extend(parse_segment_file(&entry.name, LOG));
            found.snapshots.extend(parse_segment_file(&entry.name, ".snapshot"));
            let index = [INDEX, TIME_INDEX].iter().find_map(|suffix| parse_segment_file(&entry.name, suffix));
            indexes.extend(index.map(|base| (base, path)));
        }
        indexes.retain(|(base, _)| !found.bases.contains(base));
        found.orphans = indexes.into_iter().map(|(_, path)| path).collect();
        Ok(found)
    }
}
