//! One partition: its log, its replication machine and its waiters.
