//! Why a log is not moved. But for [`MoveError::NotLeft`] it is served where it was, as if nobody had asked.

use forebay_broker_wire::types::Offset;

use crate::{
    disk::DiskError,
    log_dir::{DiskFull, Poisoned},
    names::LogName,
    recovery::OpenLogError,
};

/// Why a log is not moved to another directory.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// One of the two directories takes no more writes.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
    /// There is no room where it is to go.
    #[error(transparent)]
    DiskFull(#[from] DiskFull),
    /// The log can't be read.
    #[error(transparent)]
    Read(DiskError),
    /// A segment is shorter than it was.
    #[error("{path} ends at byte {at}, before its last batch")]
    Short {
        /// The segment.
        path: String,
        /// Where.
        at: u64,
    },
    /// The copy can't be written.
    #[error(transparent)]
    Write(DiskError),
    /// The name is taken where it is to go.
    #[error("{path} is there already: nothing is put in its place; take it away if nobody needs it")]
    Taken {
        /// The directory.
        path: String,
    },
    /// More is missing than can be copied while the log waits.
    #[error("{bytes} bytes are to be copied yet")]
    Behind {
        /// So many.
        bytes: u64,
    },
    /// The copy can't be opened.
    #[error("the copy can't be opened: {0}")]
    Open(#[from] OpenLogError),
    /// The copy is not what the log is. This can't be.
    #[error(
        "the copy of {name} has offsets {found_start} to {found_end}, must have {start} to {end}, whole and in the same epochs"
    )]
    Differs {
        /// The log.
        name: LogName,
        /// First offset of the copy.
        found_start: Offset,
        /// Next offset of the copy.
        found_end: Offset,
        /// First offset.
        start: Offset,
        /// Next offset.
        end: Offset,
    },
    /// The log could not be taken out of its own directory, which takes no more writes: the copy is whole, and the next start takes
    /// one of the two.
    #[error("the copy is there, but the log can't be taken away from where it was: {0}")]
    NotLeft(DiskError),
}
