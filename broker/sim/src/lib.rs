//! Whole clusters in one thread, from a seed: the partitions, logs and decisions that brokers run, under faults.
//!
//! What runs is the code that brokers run: `Partition` with its log on files, the replication machine, the metadata's records and its
//! rules of election. What is simulated: clocks, network, processes, the power of the disks, and one controller in the quorum's place.
//! Same seed, same trace. Which faults there are, and what is checked: `docs/internals/replication.md`.

mod broker;
mod clients;
mod controller;
mod hosting;
mod message;
mod nemesis;
mod random;
mod shadow;
mod world;

pub use forebay_broker_machines::replication::Mutation;
pub use world::{Options, Report, run};
