//! Brokers and the controller: who is there, who can be relied on, who leads.
//!
//! The controller is wherever the metadata quorum's leader is. Every broker keeps a session with it by heartbeats; sessions are in the
//! controller's memory, what follows from them (fenced, unfenced, leaders elsewhere) is metadata.

mod balance;
mod heartbeats;
mod leader;
mod protocol;
mod registration;
mod session_machine;
mod sessions;
mod stopping;

pub(crate) use heartbeats::run as beat;
pub(crate) use leader::run as lead;
pub(crate) use protocol::{Heartbeat, HeartbeatAnswer};
pub(crate) use sessions::Sessions;
pub(crate) use stopping::when_asked;
