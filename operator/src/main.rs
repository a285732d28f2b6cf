//! The `forebay-operator` program.

fn main() {}
