//! Stories on a real cluster with the operator installed. Each has its own namespace, so that they run side by side.
//!
//! `cargo xtask e2e` runs them; `cargo xtask e2e NAME` those whose name contains NAME.

mod disks;
mod examples;
mod in_force;
mod listeners;
mod monitoring;
mod profiles;
mod quickstart;
mod quiet;
mod racks;
mod replicated;
mod topics;
mod tuning_record;
mod waits;
