//! Bytes and messages of the Kafka protocol; no I/O.
//!
//! `types` are the small values, `primitives` reads and writes the wire's encodings, `messages` (generated) has a module per API,
//! `frame` puts a header before a message and a size before both, `records` reads and writes record batches. Nothing here trusts a
//! length: every read is bounded by the bytes that are there, and no input makes it panic.

pub mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(test)]
mod golden;
mod message;
pub mod messages;
pub mod primitives;
pub mod records;
pub mod types;
