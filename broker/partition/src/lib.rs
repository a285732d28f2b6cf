//! One partition: its log, its replication machine and its waiters.
//!
//! [`Partition`] is synchronous and runs as it is in the server and in simulation. Storage and machines meet only here.

mod commits;
mod errors;
mod following;
mod moving;
#[cfg(test)]
mod moving_tests;
mod partition;
mod reading;
#[cfg(test)]
mod replication_tests;
mod roles;
#[cfg(test)]
mod tests;
mod unacknowledged;
mod waiters;

pub use commits::{CommitGuard, CommitOutcome, CommitWaiter};
pub use errors::{AppendError, Closed, NotLeader, UpdateError};
pub use following::{FetchPosition, FollowError, LeaderAnswer};
pub use forebay_broker_machines::replication::{EpochEnd, IsrAnswer, IsrProposal, RoleKind, Settings};
pub use forebay_broker_storage::{
    AppendRequest, Appended, CompactionError, CompactionReport, DiskFull, FileSlice, FlushError, FoundOffset,
    InvalidBatch, LogConfig, LogDir, LogError, LogName, MaintenanceReport, OpenLogError, Origin, Poisoned, ReadSpec,
    RecoveryReport, SequenceError, TimestampSpec,
};
pub use moving::SwitchError;
pub use partition::{OpenPartition, Partition, PartitionOffsets};
pub use reading::{FetchSpec, Isolation, ReadError, ReadResult};
pub use roles::{ReplicaFetch, ReplicaRead};
pub use waiters::{FetchWaiter, WatchGuard};
