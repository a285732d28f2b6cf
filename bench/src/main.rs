//! Measurements: `cargo xtask bench --help`.

fn main() {}
