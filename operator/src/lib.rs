//! The operator. Each kind has the same four files: `mod` (the pipeline), `observe` (all reads), `plan` (pure: spec,
//! observed, now → actions and status), `apply` (does the actions, decides nothing).
//!
//! - `args`, `run`: the program: arguments, leader election, one controller per kind and namespace, shutdown.
//! - `context`: what every reconcile may use.
//! - `node_settings`: another program of the same image, privileged and opt-in: kernel settings of a node.
//! - `kube`: the only writer to Kubernetes. `kafka`: the only way to brokers.
//!
//! What must always hold: converged input makes no write and no change on a broker; the condition `Ready` exists after
//! the first reconcile and carries the generation that it judges.

#[cfg(test)]
mod api_tests;
mod args;
mod backoff;
mod check;
mod cluster;
mod consumer_profile;
mod context;
#[cfg(test)]
mod disk_removal_tests;
mod http;
mod kafka;
mod kube;
mod lease;
mod metrics;
pub mod node_settings;
mod reconcile;
#[cfg(test)]
mod refused_tests;
mod run;
mod settings;
mod stores;
mod topic;

pub use args::{Args, Program, Work};
pub use run::{program, run};
