//! The threads that touch disks: appends (`append.rs`), background flushes (`flusher.rs`), cold reads (`warm.rs`) and
//! upkeep (`maintenance.rs`); and one that sees disks that hang (`watchdog.rs`) or are full (`room.rs`). The network threads hand work over here and await its result; only appends that need not wait for
//! the disk they do themselves (`pace.rs`).

pub(crate) mod append;
pub(crate) mod busy;
pub(crate) mod commit;
pub(crate) mod flusher;
pub(crate) mod maintenance;
pub(crate) mod pace;
mod recompress;
pub(crate) mod room;
pub(crate) mod stop_on_panic;
pub(crate) mod warm;
pub(crate) mod watchdog;
