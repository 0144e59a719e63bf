//! Linux programs in guests: each runs natively and in a guest, and what comes out must be equal.
//!
//! The C and Rust sources and the shell scripts stand in `tests/programs`. They are built here, so
//! these tests need gcc with static libraries, rustc, busybox and QEMU; what is missing fails a
//! test with the name of its package, nothing is skipped.

mod alike;
mod balloon;
mod bytes;
mod compaction;
mod difference;
mod ebb;
mod experiments;
mod hinting;
mod hostile;
mod huge;
mod hugetlb;
mod knobs;
mod machines;
mod memory;
mod memory_storm;
mod mounts;
mod native;
mod panic;
mod patch_series;
mod paused;
mod programs;
mod reclaim;
mod root;
#[path = "../parts/scratch.rs"]
#[allow(dead_code, reason = "each test needs a part of it")]
mod scratch;
mod secrets;
mod shared;
mod storms;
mod suite;
mod true_calls;
mod users;
mod volumes;
