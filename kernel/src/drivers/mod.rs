//! Drivers of the virtio devices, and what the kernel and the host exchange by them.

#![allow(clippy::cast_possible_truncation, reason = "usize has 64 bits here")]

pub mod balloon;
pub mod control;
pub mod disk;
pub mod give_back;
pub mod hint;
pub mod port;
mod reclaim;
pub mod root;
pub mod volume;

use ebb_wire::boot::{EMPTY, STDIN};
use machine::arch::BootInfo;
use machine::virtio::found::{self, Found};
use virtio_drivers::transport::DeviceType;

/// Finds the devices and initializes their drivers. Their threads start with [`start_threads`].
pub fn init(boot: &BootInfo) {
    found::each(hand_over);
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

/// Hands a device to its driver. The host fixes the order of the devices on the bus, by which the
/// drivers tell devices of one kind apart. The consoles are those for stdio, stderr and control,
/// then, if the host has them, those for files and for the host's tree. The first disk is `vda`.
fn hand_over(device: Found) {
    match device.kind() {
        DeviceType::Console => port::add(device),
        DeviceType::Block => disk::add(device),
        DeviceType::MemoryBalloon => balloon::add(device),
        other => machine::console!("virtio device {other:?} has no driver here"),
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
