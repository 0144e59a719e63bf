//! Devices.

#![allow(clippy::cast_possible_truncation, reason = "usize has 64 bits here")]

pub mod balloon;
pub mod control;
mod discovery;
pub mod disk;
mod hal;
mod input;
mod output;
mod pci;
pub mod port;

use crate::arch::BootInfo;
use ebb_wire::boot::{EMPTY, STDIN};

/// Finds the devices. Their threads start with [`start_threads`].
pub fn init(boot: &BootInfo) {
    discovery::run();
    if boot.option(STDIN) == Some(EMPTY) {
        port::stdio().set_end(0);
    }
}

/// Starts the kernel threads that serve devices; when tasks can be made.
pub fn start_threads() {
    control::start();
    balloon::start();
}
