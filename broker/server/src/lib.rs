//! The shell of the broker: sockets, handlers, disk threads, tasks, metrics. Decisions live in the crates below it.
//!
//! Read in the order of a request: `net` cuts frames and keeps order, `handlers` (one file per API) answer, `partitions`
//! knows what is open, `replication` copies what other brokers lead, `io` has the threads that touch disks; `broker.rs` says what there is and in which order it starts
//! and stops.

pub mod program;
mod run;

mod absent;
pub mod broker;
mod controller;
mod coordinators;
mod follow;
mod handlers;
mod io;
mod lifecycle;
mod log_dirs;
mod metadata;
pub mod metrics;
mod moves;
mod net;
mod partitions;
mod quorum;
mod rack;
mod replication;
mod status;

pub use run::{Started, run};
