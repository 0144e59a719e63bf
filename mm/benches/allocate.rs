//! What an allocation and a free cost.
fn main() {}
