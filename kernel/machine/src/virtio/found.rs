//! Finds the virtio devices: eight register windows on a microvm, PCI on a q35.

use super::hal::Platform;
use super::pci::{self, ConfigPorts};
use crate::arch::{interrupt, io_apic, map_device};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use virtio_drivers::transport::mmio::MmioTransport;
use virtio_drivers::transport::pci::PciTransport;
use virtio_drivers::transport::pci::bus::{Command, PciRoot};
use virtio_drivers::transport::pci::virtio_device_type;
use virtio_drivers::transport::{DeviceType, SomeTransport, Transport};

/// Physical address of the first virtio window of QEMU's microvm.
const WINDOWS: u64 = 0xfeb0_0000;
/// The number of windows.
const WINDOW_COUNT: u32 = 8;
/// Size in bytes of a window.
const WINDOW_BYTES: usize = 0x200;
/// The interrupt pin of the first window if ACPI is on.
const FIRST_GSI: u32 = 16;

/// A virtio device that no driver has taken yet: its registers and its interrupt pin.
#[derive(Debug)]
pub struct Found {
    /// The device's registers.
    pub transport: SomeTransport<'static>,
    /// The number of the device's interrupt pin.
    gsi: u32,
}

impl Found {
    /// Returns the kind of the device.
    pub fn kind(&self) -> DeviceType {
        self.transport.device_type()
    }

    /// Makes the device's interrupts call `function` with `argument`. Returns `false` if no
    /// interrupt vector is left, or the pin cannot be routed.
    pub fn connect(&self, function: fn(usize), argument: usize) -> bool {
        interrupt::register(self.gsi, function, argument)
            .is_some_and(|vector| io_apic::route(self.gsi, vector))
    }
}

/// Whether [`each`] was called.
static FOUND: AtomicBool = AtomicBool::new(false);

/// Finds all devices and calls `take` with each, in their order on the bus.
///
/// # Panics
/// If it was called before: each device is handed out once.
pub fn each(take: impl FnMut(Found)) {
    // Relaxed: the first CPU calls it.
    let before = FOUND.swap(true, Ordering::Relaxed);
    assert!(!before, "devices are found once");
    if pci::is_present() {
        on_pci(take);
    } else {
        on_windows(take);
    }
}

fn on_windows(mut take: impl FnMut(Found)) {
    let windows = map_device(WINDOWS, WINDOW_BYTES * WINDOW_COUNT as usize);
    for index in 0..WINDOW_COUNT {
        let Some(window) = NonNull::new(windows.wrapping_add(index as usize * WINDOW_BYTES)) else {
            return;
        };
        // SAFETY: a microvm has a window there; the mapping is for good, and the window is handed
        // out once. Where there is none, the magic is wrong.
        let transport = unsafe { MmioTransport::new(window.cast(), WINDOW_BYTES) };
        if let Ok(transport) = transport {
            take(Found {
                transport: transport.into(),
                gsi: FIRST_GSI + index,
            });
        }
    }
}

fn on_pci(mut take: impl FnMut(Found)) {
    let mut root = PciRoot::new(ConfigPorts);
    let bus = PciRoot::new(ConfigPorts);
    for (function, info) in bus.enumerate_bus(0) {
        if virtio_device_type(&info).is_none() {
            continue;
        }
        let (_, command) = root.get_status_command(function);
        let wanted = command | Command::MEMORY_SPACE | Command::BUS_MASTER;
        root.set_command(function, wanted & !Command::INTERRUPT_DISABLE);
        match PciTransport::new::<Platform, _>(&mut root, function) {
            Ok(transport) => {
                let gsi = pci::interrupt_gsi(function);
                take(Found {
                    transport: transport.into(),
                    gsi,
                });
            }
            Err(error) => crate::console!("virtio device at PCI {function}: {error}"),
        }
    }
}
