//! Putting a compacted segment in the place of the ones it was made from, so that a crash leaves the old or the new.
//!
//! First `.cleaned` files are written and flushed: a crash removes them. Then they are renamed to `.swap`, the `.log` last: from then on the
//! new one counts. Then the old segments it covers are renamed to `.deleted`, but for the first, which the last rename replaces. Loading a
//! log ([`finish_interrupted`]) carries on from whatever it finds.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use forebay_broker_wire::types::Offset;

use super::Group;
use crate::{
    disk::{Disk, DiskError},
    names::{parse_segment_file, segment_file},
    scan::Scanner,
    segment::{INDEX, LOG, Segment, TIME_INDEX},
};

const CLEANED: &str = ".cleaned";
const SWAP: &str = ".swap";
/// IMPORTANT: the log is renamed last; its name decides.
const FILES: [&str; 3] = [INDEX, TIME_INDEX, LOG];

/// A new segment under `.cleaned` names.
pub(crate) fn create(disk: &Disk, dir: &Path, base_offset: Offset) -> Result<Arc<Segment>, DiskError> {
    Segment::create_as(disk, dir, base_offset, CLEANED)
}

/// Removes a new segment that is not wanted after all.
pub(crate) fn discard(disk: &Disk, segment: &Segment) -> Result<(), DiskError> {
    segment.files().iter().try_for_each(|path| disk.remove_file(path))
}

/// Puts the group's new segment in place. Gives it under its final names, and the old files that are to be removed later.
pub(crate) fn commit(disk: &Disk, dir: &Path, group: &Group) -> Result<(Arc<Segment>, Vec<PathBuf>), DiskError> {
    let base = group.old[0].base_offset;
    rename_all(disk, dir, base, CLEANED, SWAP)?;
    disk.sync_dir(dir)?;
    let mut renamed = Vec::new();
    for old in &group.old[1..] {
        renamed.extend(old.mark_deleted(disk)?);
    }
    rename_all(disk, dir, base, SWAP, "")?;
    disk.sync_dir(dir)?;
    let segment = Segment::open(disk, dir, base)?;
    segment.rescan_tail(segment.size())?;
    Ok((segment, renamed))
}

fn rename_all(disk: &Disk, dir: &Path, base: Offset, from: &str, to: &str) -> Result<(), DiskError> {
    for suffix in FILES {
        let name = segment_file(base, suffix);
        match disk.rename(&dir.join(format!("{name}{from}")), &dir.join(format!("{name}{to}"))) {
            Err(error) if error.is_not_found() && suffix != LOG => {}
            result => result?,
        }
    }
    Ok(())
}

/// Carries on what a crash interrupted: unfinished successors go, finished ones take their place.
pub(crate) fn finish_interrupted(disk: &Disk, dir: &Path) -> Result<(), DiskError> {
    let names: Vec<String> = disk.list(dir)?.into_iter().map(|entry| entry.name).collect();
    if !names.iter().any(|name| name.ends_with(CLEANED) || name.ends_with(SWAP)) {
        return Ok(());
    }
    let swapped: Vec<Offset> = names.iter().filter_map(|name| parse_segment_file(name, ".log.swap")).collect();
    for name in names.iter().filter(|name| name.ends_with(CLEANED)) {
        disk.remove_file(&dir.join(name))?;
    }
    for base in &swapped {
        let log = disk.open_read(&dir.join(segment_file(*base, ".log.swap")))?;
        let mut batches = Scanner::headers(&log, 0, log.length()?);
        let mut end = *base;
        while let Some(batch) = batches.next_batch()? {
            end = batch.header.next_offset();
        }
        // Segments behind the last record it holds are left: what they hold is superseded, but not wrong.
        let covered = |name: &str| parse_segment_file(name, LOG).filter(|other| other > base && *other < end);
        for other in names.iter().filter_map(|name| covered(name)) {
            for suffix in FILES {
                disk.remove_file(&dir.join(segment_file(other, suffix)))?;
            }
        }
        rename_all(disk, dir, *base, SWAP, "")?;
    }
    for name in names.iter().filter(|name| name.ends_with(SWAP)) {
        disk.remove_file(&dir.join(name))?; // indexes whose log had not been renamed
    }
    disk.sync_dir(dir)
}
