//! Tests that run Linux programs natively and in a guest. The results must be equal.
//!
//! The C and Rust sources and the shell scripts are in `tests/programs` and are built here. So
//! these tests need gcc with static libraries, rustc, busybox and QEMU. If one is missing, a test
//! fails with the name of its package, and no test is skipped.

mod alike;
mod balloon;
mod bytes;
mod compaction;
mod compaction_rule;
mod difference;
mod ebb;
mod experiments;
mod hardening;
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
mod pressure;
mod programs;
mod promises;
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
