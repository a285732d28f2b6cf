//! Sockets: accepting, cutting frames, keeping answers in request order, writing answers without copying what is in files.
//!
//! What must hold: whatever bytes a client sends, at most its own connection ends; the bytes of requests in flight are
//! bounded over all connections; answers leave a connection in the order of its requests. Nothing here knows an API.

pub(crate) mod budget;
mod buffers;
pub(crate) mod connection;
pub(crate) mod frame;
mod in_flight;
pub(crate) mod lines;
pub(crate) mod listener;
mod pace;
pub(crate) mod send;
pub(crate) mod warnings;
