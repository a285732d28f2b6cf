//! What the broker says about itself to Prometheus, and the HTTP server that says it.

pub mod catalog;
pub(crate) mod counters;
pub(crate) mod process;

pub(crate) use counters::Metrics;
