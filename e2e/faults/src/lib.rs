//! A network of brokers on one machine that can be cut, in namespaces that go with the program: what the program of this crate and
//! `bench failover` share.

pub mod command;
pub mod namespaces;
pub mod network;
