//! Stories that nothing else may run beside: they take nodes or the operator away. Each runs clients from before the disturbance to
//! after it, and ends with their account.
//!
//! `cargo xtask e2e --all` runs them, one after the other, after the others; with a NAME, those whose name contains it.

mod brokers;
mod disturbed;
mod nodes;
mod operator;
