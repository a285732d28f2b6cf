//! What the broker says about itself to Prometheus, and the HTTP server that says it.

pub mod catalog;
pub(crate) mod cluster;
pub(crate) mod counters;
mod groups;
pub(crate) mod http;
pub(crate) mod load;
pub(crate) mod process;
mod quorum;
pub(crate) mod scrape;

pub(crate) use counters::{Metrics, TopicMetrics};
