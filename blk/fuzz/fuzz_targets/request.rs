//! Descriptor chains as a hostile guest would make them:
//!
//!     cd blk && cargo +nightly fuzz run request
//!
//! The same runs with random input in `cargo test -p ebb-blk --test request`.
#![no_main]

#[path = "../../tests/request/exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|input: &[u8]| exercise::exercise(input));
