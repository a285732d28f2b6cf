//! One partition's log on disk; blocking I/O, no network, no async.
