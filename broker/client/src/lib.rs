//! A small async Kafka client: used by the operator, the command line and tests.
