//! The command line: exit codes, nothing else.
fn main() {}
