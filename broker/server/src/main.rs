//! The `forebay-broker` program.

fn main() {}
