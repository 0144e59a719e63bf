//! Requests as a hostile Xen front-end would make them:
//!
//!     cd blk && cargo +nightly fuzz run blkif
//!
//! The same runs with random input in `cargo test -p ebb-blk --test xen_request`.
#![no_main]

#[path = "../../tests/request/blkif.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|input: &[u8]| exercise::exercise(input));
