//! The `forebay` program.

/// Small and fast for the broker that this program also is.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    forebay_cli::main()
}
