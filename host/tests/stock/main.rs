//! Tests of `ebb run --kernel linux`, the same command with Debian's stock kernel.
//!
//! If that kernel is not available (no apt, no network), these tests print that and do nothing.

mod disks;
#[path = "../parts/dynamic.rs"]
mod dynamic;
mod errors;
mod figures;
mod files;
mod guest;
#[path = "../parts/out.rs"]
mod out;
mod programs;
mod reclaim;
mod root;
#[path = "../parts/guest.rs"]
#[allow(dead_code, reason = "each test needs a part of it")]
mod running;
#[path = "../parts/scratch.rs"]
#[allow(dead_code, reason = "each test needs a part of it")]
mod scratch;
#[path = "../parts/terminal.rs"]
mod screen;
mod signals;
mod streams;
mod terminal;
