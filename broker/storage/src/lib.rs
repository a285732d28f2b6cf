//! One partition's log on disk; blocking I/O, no network, no async.
//!
//! [`LogDir`] is a directory with logs in it, [`PartitionLog`] one log with its one writer, [`LogReader`] what any number of readers use.
//! Files and names are Kafka's, so that its tools read them: see `docs/internals/disk_format.md`. All file access is in `disk`.

mod append;
mod checkpoint;
mod compaction;
mod config;
pub mod disk;
#[cfg(any(test, feature = "faulty-disk"))]
pub mod faulty_disk;
mod flush;
mod flush_mark;
mod identity;
mod leader_epochs;
mod log;
mod log_dir;
mod moving;
mod names;
mod new_logs;
mod producer_state;
mod progress;
mod read;
mod recall;
mod recovery;
mod repeats;
mod retention;
mod scan;
mod segment;
mod sparse_index;
#[cfg(test)]
mod tests;
mod timestamps;
mod topic_id;
mod truncate;
mod validate;

pub use append::{AppendError, AppendRequest, Appended};
pub use checkpoint::CheckpointError;
pub use compaction::{Compacted, Compaction, CompactionError, CompactionReport};
pub use config::{LogConfig, TimestampType};
pub use disk::{Disk, DiskError, Space};
pub use flush::{DoneFlush, FlushError, PendingFlush};
pub use identity::{Identity, IdentityError};
pub use log::{LogError, PartitionLog};
pub use log_dir::{DiskFull, LogDir, OpenLogDirError, Poisoned, Room};
pub use moving::{Copied, FutureLog, MoveError, accept_moved, moved_from, settle_moved};
pub use names::LogName;
pub use producer_state::SequenceError;
pub use progress::{InProgress, Progress, Work};
pub use read::{FileSlice, LogOffsets, LogReader, ReadError, ReadSpec};
pub use recovery::{Damaged, OpenLogError, RecoveryReport, StartBeyondEnd};
pub use repeats::Repeats;
pub use retention::MaintenanceReport;
pub use timestamps::{FoundOffset, TimestampSpec};
pub use topic_id::{TopicIdError, read as read_topic_id};
pub use validate::{InvalidBatch, Origin};
