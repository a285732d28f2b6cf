//! Bytes and messages of the Kafka protocol; no I/O.
