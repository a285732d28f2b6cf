//! Decisions of replication: how far a partition's records are safe. No clock, no I/O.

mod leader;

pub use leader::{CommitRule, Follower, Leader};
