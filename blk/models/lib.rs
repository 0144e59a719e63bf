//! The parts of `ebb-blk` whose interleavings loom explores, on loom's atomics.

#[cfg(test)]
#[path = "../src/pressure/latest.rs"]
mod latest;
#[path = "../src/time.rs"]
pub mod time;
