//! The ConsumerProfile solver: pure, from a workload to client settings and verdicts.
