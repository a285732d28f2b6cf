//! The `forebay-broker` program. Everything is in the library, because `forebay broker` is the same program.

use clap::Parser;
use forebay_broker_server::program::{self, Arguments};

/// Small and fast with many threads, and gives freed memory back: the rest of the RAM belongs to the page cache.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    program::main(&Arguments::parse())
}
