//! Drivers of the virtio devices, and what the kernel and the host exchange by them.

#![allow(clippy::cast_possible_truncation, reason = "usize has 64 bits here")]

pub mod balloon;
pub mod control;
mod discovery;
pub mod disk;
mod found;
pub mod give_back;
mod hal;
pub mod hint;
mod input;
mod output;
mod pci;
pub mod port;
mod reclaim;
pub mod root;
pub mod volume;

use ebb_wire::boot::{EMPTY, STDIN};
use machine::arch::BootInfo;

/// Finds the devices and initializes their drivers. Their threads start with [`start_threads`].
pub fn init(boot: &BootInfo) {
    discovery::run();
    if boot.option(STDIN) == Some(EMPTY) {
        port::stdio().set_end(0);
    }
    if let Some(number) = boot.option(ebb_wire::root::PARAMETER) {
        port::set_root(number.parse().unwrap_or(usize::MAX));
        root::note();
    }
    if let Some(number) = boot.option(ebb_wire::volume::PARAMETER) {
        port::set_root(number.parse().unwrap_or(usize::MAX));
    }
}

/// Starts the kernel threads that serve devices. Call this once tasks can be created. The threads
/// call `signal` with the host's signals to the program, and `drop_caches` if the host requests the
/// memory of clean pages of files.
pub fn start_threads(signal: fn(u32), drop_caches: fn()) {
    reclaim::prepare(drop_caches);
    control::start(signal);
    balloon::start();
    give_back::start();
}
