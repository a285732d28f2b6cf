//! The shell: sockets, handlers, tasks, metrics.
