//! The metadata quorum: openraft behind this folder, and nowhere else.
//!
//! Read `node` for what a broker's part in it consists of; `log_store`, `state_machine`, `snapshot` are what is on disk; `network` and
//! `server` the two ends of calls between brokers; `members` says who belongs to it, `failover` who follows a leader that is gone,
//! `hung` what a broker does whose disk hangs.

mod asker;
mod ballast;
mod entry;
mod failover;
mod frames;
mod hung;
mod link;
mod log_store;
mod members;
mod network;
mod node;
mod peers;
mod protocol;
mod quorum_state;
mod server;
mod snapshot;
mod state_machine;
mod status;
mod types;

pub(crate) use asker::{AskError, Asker, OwnChannel};
pub(crate) use node::{OpenQuorum, OpenQuorumError, ProposeError, Quorum};
pub(crate) use protocol::{ControllerReply, ControllerRequest, Leadership};
pub(crate) use server::{Caller, Controller, serve};
pub(crate) use status::{MemberStatus, QuorumStatus};
pub(crate) use types::{Address, Change};

#[cfg(test)]
mod store_tests;
