//! The project's own tasks: `cargo xtask --help`.

fn main() {}
