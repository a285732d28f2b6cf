//! A whole broker in this process (or, where it is killed, in its own), spoken to over TCP. One file per behaviour.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod group_client;
mod harness;
mod mounts;

mod acks;
mod bad_input;
mod cluster;
mod configs;
mod connections;
mod crash;
mod create_topics;
mod damage;
mod delete_topics;
mod every_version;
mod failed_disk;
mod fetch_sessions;
mod full_disk;
mod group_members;
mod group_offsets;
mod hostile;
mod idempotence;
mod limits;
mod long_poll;
mod membership;
mod metadata;
mod moving;
mod offsets;
mod operations;
mod pipelining;
mod quorum;
mod repeated;
mod replica_fetch;
mod replicated;
mod restart;
mod retention;
