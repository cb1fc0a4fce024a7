//! The `detml` command.
fn main() {}
