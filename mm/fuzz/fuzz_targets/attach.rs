//! Reads and changes tampered metadata from outside, as an attached host does:
//!
//!     cd mm && cargo +nightly fuzz run attach
//!
//! The same code runs with random input in `cargo test -p ebb-mm --test all attach`. Memory that it
//! must not touch is behind a page that ends the program.
#![no_main]

#[path = "../../tests/attach/exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|input: &[u8]| exercise::exercise(input));
