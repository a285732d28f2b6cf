//! Coordinators: they decide in a machine (`forebay_broker_machines`), and what they decide is a record in an internal
//! topic before anyone is answered.
//!
//! `groups` is what handlers talk to; `shard` runs one machine over one partition; `log` reads and appends its records,
//! in the form that `group_records` gives them; `placement` says which partition a group belongs to.

mod clock;
mod group_records;
mod groups;
mod log;
mod placement;
mod shard;

pub(crate) use groups::{GroupCoordinator, Unavailable};
pub(crate) use placement::partition_for;
