//! Stories that nothing else may run beside: they take nodes or the operator away. Each runs clients from before the disturbance to
//! after it, prints what was acknowledged and the longest gap of each stage, and ends with their account.
//!
//! `cargo xtask e2e --all` runs them, one after the other, after the others; with a NAME, those whose name contains it.

mod brokers;
mod disks;
mod disturbances;
mod disturbed;
mod listeners;
mod nodes;
mod operator;
