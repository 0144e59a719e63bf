//! `ebb`: runs ordinary Linux programs in small VMs.
fn main() {}
