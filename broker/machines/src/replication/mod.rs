//! Decisions of replication: one partition on one broker, as [`Replica::step`]: an event and the time give effects. No clock, no I/O.
//!
//! What must hold: the high watermark never goes back while one leader leads; it counts every replica that is, or may already be, in the
//! ISR of the metadata; nothing of a leader epoch other than the present one is believed; a follower cuts its log only where the leader's
//! epochs say so. What the words mean: `docs/internals/replication.md`.

mod events;
mod follower;
mod leader;
mod replica;
mod settings;
#[cfg(test)]
mod tests;

pub use events::{Effects, EpochEnd, Event, IsrAnswer, IsrProposal};
pub use follower::Follower;
pub use leader::{Leader, Progress};
pub use replica::{Replica, RoleKind};
pub use settings::{CommitRule, Mutation, Settings};
