//! Decisions only: metadata records to image, groups, producers; no clock, no I/O.

pub mod groups;
pub mod metadata;
pub mod replication;
