//! A device that was found.

use machine::arch::{interrupt, io_apic};
use virtio_drivers::transport::SomeTransport;

/// A device on its bus.
#[derive(Debug)]
pub(super) struct Found {
    /// Its registers.
    pub(super) transport: SomeTransport<'static>,
    /// Its interrupt pin.
    pub(super) gsi: u32,
}

impl Found {
    /// Has the device's interrupts call a function. False when there is no way for them.
    pub(super) fn connect(&self, function: fn(usize), argument: usize) -> bool {
        interrupt::register(self.gsi, function, argument)
            .is_some_and(|vector| io_apic::route(self.gsi, vector))
    }
}
