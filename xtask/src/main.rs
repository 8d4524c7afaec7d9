//! The chores of the project: `cargo xtask`.

fn main() {}
