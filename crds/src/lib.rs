//! The API: Cluster, Topic and ConsumerProfile, their conditions and reasons.
