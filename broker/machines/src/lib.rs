//! Decisions only: metadata records to image, groups, producers; no clock, no I/O.

pub mod fetch_sessions;
pub mod groups;
pub mod metadata;
pub mod replication;
