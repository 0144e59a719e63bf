//! Devices.

#![allow(clippy::cast_possible_truncation, reason = "usize has 64 bits here")]

pub mod balloon;
pub mod control;
mod discovery;
pub mod disk;
mod found;
mod hal;
mod input;
mod output;
mod pci;
pub mod port;
pub mod report;

use machine::arch::BootInfo;

/// Finds the devices. Their threads start with [`start_threads`].
pub fn init(boot: &BootInfo) {
    discovery::run();
    if boot.option("ebb.stdin") == Some("empty") {
        port::stdio().set_end(0);
    }
}

/// Starts the kernel threads that serve devices; when tasks can be made. `signal` is called with the
/// signals that the host sends to the program.
pub fn start_threads(signal: fn(u32)) {
    control::start(signal);
    balloon::start();
    report::start();
}
