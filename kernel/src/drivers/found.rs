//! A virtio device that was found on the bus.

use machine::arch::{interrupt, io_apic};
use virtio_drivers::transport::SomeTransport;

/// A virtio device that no driver has taken yet: its registers and its interrupt pin.
#[derive(Debug)]
pub(super) struct Found {
    /// The device's registers.
    pub(super) transport: SomeTransport<'static>,
    /// The number of the device's interrupt pin.
    pub(super) gsi: u32,
}

impl Found {
    /// Makes the device's interrupts call `function` with `argument`. Returns `false` if no
    /// interrupt vector is left, or the pin cannot be routed.
    pub(super) fn connect(&self, function: fn(usize), argument: usize) -> bool {
        interrupt::register(self.gsi, function, argument)
            .is_some_and(|vector| io_apic::route(self.gsi, vector))
    }
}
