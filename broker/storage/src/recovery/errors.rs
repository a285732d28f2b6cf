//! Why a log is not loaded. What is said here is all that people have to go by: each error tells what was found, where, and what to do.

use forebay_broker_wire::types::Offset;

use crate::{disk::DiskError, names::LogName, topic_id::TopicIdError};

/// Why a log cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum OpenLogError {
    /// The file system failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The directory holds another topic's records under this name.
    #[error(transparent)]
    TopicId(#[from] TopicIdError),
    /// The log would have to be cut below what was flushed.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// All of the log lies before its start.
    #[error(transparent)]
    StartBeyondEnd(#[from] StartBeyondEnd),
}

impl OpenLogError {
    /// True when trying again changes nothing: somebody has to look at what is on the disk.
    pub fn needs_a_person(&self) -> bool {
        matches!(self, Self::Damaged(_) | Self::StartBeyondEnd(_))
    }
}

/// The checkpoint of log start offsets would have all that is there deleted; it is made durable only after what it speaks of. Nothing was
/// removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{checkpoint} lets {log} begin at offset {log_start}, but it ends at offset {end}: nothing was removed; while the broker is stopped, restore \
     the log from a copy, or take the line \"{} {} {log_start}\" out of that file to have the records that are there", log.topic, log.partition
)]
pub struct StartBeyondEnd {
    /// The log.
    pub log: LogName,
    /// The file.
    pub checkpoint: String,
    /// What it says.
    pub log_start: Offset,
    /// Where the log ends.
    pub end: Offset,
}

/// Something is wrong with a part of a log that had been flushed: no crash does that. Nothing was cut.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{path} is damaged at offset {offset}, byte {position}: {reason}; all below offset {flushed} had been on disk, so this is no torn write, \
     and cutting it here would lose it{}; {remedy}",
    match whole_batch { Some(offset) => format!(" (a whole batch follows at offset {offset})"), None => String::new() }
)]
pub struct Damaged {
    /// The segment, or the log's directory when segments are missing.
    pub path: String,
    /// Up to where the log is right.
    pub offset: Offset,
    /// Where in the file.
    pub position: u64,
    /// What is wrong.
    pub reason: String,
    /// Everything below had been flushed.
    pub flushed: Offset,
    /// Where the first whole batch behind the damage starts, if one was found.
    pub whole_batch: Option<Offset>,
    /// What to do.
    pub remedy: String,
}
