//! Descriptor chains as a hostile guest would make them. `make fuzz` runs it.
//!
//! The same runs with random input in `cargo test -p ebb-blk --test request`.
#![no_main]

#[path = "../../tests/request/exercise.rs"]
#[allow(dead_code, reason = "seeds are written by another program")]
mod exercise;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    exercise::exercise(input);
});
