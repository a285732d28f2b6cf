//! A small async Kafka client: used by the operator, the command line and tests.
//!
//! [`Connection`] is one TCP connection; [`Client`] knows the brokers and keeps a connection to each; [`Admin`] administers.
//! What must always hold: every wait has a bound ([`ClientConfig`]), no answer is matched to another request, and a broker's refusal
//! keeps its code and its words ([`Refused`]).

pub mod admin;
mod client;
mod config;
mod connection;
mod error;

pub use admin::{Admin, TopicPartition};
pub use client::Client;
pub use config::ClientConfig;
pub use connection::Connection;
pub use error::{ConnectError, Refused, RequestError};
