//! The `forebay-operator` program: arguments, logs, runtime.

use clap::Parser;
use tracing_subscriber::EnvFilter;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // A log that cannot be written is no reason to panic: internal errors would be told by `eprintln!`.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(std::io::stderr);
    log.log_internal_errors(false).init();
    forebay_operator::program(forebay_operator::Program::parse()).await
}
