//! The `opledger` program.

fn main() {}
