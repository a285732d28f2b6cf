//! BrokerConfig and topic configuration: what the operator writes and the broker reads.
