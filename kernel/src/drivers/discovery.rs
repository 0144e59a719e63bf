//! Finds the virtio devices: eight register windows on a microvm, PCI on a q35.
//!
//! The host fixes the order of the devices on the bus, by which the drivers tell devices of one
//! kind apart. The consoles are those for stdio, stderr and control, then, if the host has them,
//! those for files and for the host's tree. The first disk is `vda`.

#![expect(unsafe_code, reason = "registers are mapped")]

use super::found::Found;
use super::hal::Machine;
use super::pci::{self, ConfigPorts};
use super::{balloon, disk, port};
use core::ptr::NonNull;
use machine::arch::map_device;
use virtio_drivers::transport::mmio::MmioTransport;
use virtio_drivers::transport::pci::PciTransport;
use virtio_drivers::transport::pci::bus::{Command, PciRoot};
use virtio_drivers::transport::pci::virtio_device_type;
use virtio_drivers::transport::{DeviceType, Transport};

/// Physical address of the first virtio window of QEMU's microvm.
const WINDOWS: u64 = 0xfeb0_0000;
/// The number of windows.
const WINDOW_COUNT: u32 = 8;
/// Size in bytes of a window.
const WINDOW_BYTES: usize = 0x200;
/// The interrupt pin of the first window if ACPI is on.
const FIRST_GSI: u32 = 16;

/// Finds all devices and hands each to its driver.
pub(super) fn run() {
    if pci::is_present() {
        on_pci();
    } else {
        on_windows();
    }
}

fn hand_over(found: Found) {
    match found.transport.device_type() {
        DeviceType::Console => port::add(found),
        DeviceType::Block => disk::add(found),
        DeviceType::MemoryBalloon => balloon::add(found),
        other => machine::console!("virtio device {other:?} has no driver here"),
    }
}

fn on_windows() {
    let windows = map_device(WINDOWS, WINDOW_BYTES * WINDOW_COUNT as usize);
    for index in 0..WINDOW_COUNT {
        let Some(window) = NonNull::new(windows.wrapping_add(index as usize * WINDOW_BYTES)) else {
            return;
        };
        // SAFETY: a microvm has a window there; the mapping is for good, and the window is handed
        // out once. Where there is none, the magic is wrong.
        let transport = unsafe { MmioTransport::new(window.cast(), WINDOW_BYTES) };
        if let Ok(transport) = transport {
            hand_over(Found {
                transport: transport.into(),
                gsi: FIRST_GSI + index,
            });
        }
    }
}

fn on_pci() {
    let mut root = PciRoot::new(ConfigPorts);
    let bus = PciRoot::new(ConfigPorts);
    for (function, info) in bus.enumerate_bus(0) {
        if virtio_device_type(&info).is_none() {
            continue;
        }
        let (_, command) = root.get_status_command(function);
        let wanted = command | Command::MEMORY_SPACE | Command::BUS_MASTER;
        root.set_command(function, wanted & !Command::INTERRUPT_DISABLE);
        match PciTransport::new::<Machine, _>(&mut root, function) {
            Ok(transport) => {
                let gsi = pci::interrupt_gsi(function);
                hand_over(Found {
                    transport: transport.into(),
                    gsi,
                });
            }
            Err(error) => machine::console!("virtio device at PCI {function}: {error}"),
        }
    }
}
