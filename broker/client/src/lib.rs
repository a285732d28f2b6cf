//! A small async Kafka client: used by the operator, the command line and tests.
//!
//! [`Connection`] is one TCP connection; [`Client`] knows the brokers and keeps a connection to each; [`Admin`] administers;
//! [`Producer`], [`Consumer`] and [`GroupConsumer`] move records, one batch or poll at a time.
//! What must always hold: every wait has a bound ([`ClientConfig`]), no answer is matched to another request, and a broker's refusal
//! keeps its code and its words ([`Refused`]).

pub mod admin;
mod client;
mod config;
mod connection;
mod consumer;
mod error;
mod group;
mod producer;

pub use admin::{Admin, TopicPartition};
pub use client::Client;
pub use config::ClientConfig;
pub use connection::Connection;
pub use consumer::{ConsumeError, Consumed, Consumer, FetchConfig};
pub use error::{ConnectError, Refused, RequestError};
pub use forebay_broker_wire::records::{Compression, NewRecord};
pub use forebay_broker_wire::types;
pub use group::{GroupConfig, GroupConsumer};
pub use producer::{Acks, ProduceError, Producer, ProducerConfig, partition_for_key};
