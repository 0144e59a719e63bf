//! PCI configuration space by the I/O ports 0xcf8 and 0xcfc, and the interrupt pins of a q35.

use crate::arch::cpu::{inl, outl};
use virtio_drivers::transport::pci::bus::{ConfigurationAccess, DeviceFunction};

const ADDRESS: u16 = 0xcf8;
const DATA: u16 = 0xcfc;
const ENABLE: u32 = 1 << 31;

/// Access to the configuration space by I/O ports. Only one CPU discovers devices, so no other
/// access comes between the writes to the two ports.
#[derive(Debug)]
pub(super) struct ConfigPorts;

fn select(function: DeviceFunction, register: u8) {
    let address = ENABLE
        | u32::from(function.bus) << 16
        | u32::from(function.device) << 11
        | u32::from(function.function) << 8
        | u32::from(register & 0xfc);
    // SAFETY: selects a register of the configuration space.
    unsafe { outl(ADDRESS, address) };
}

impl ConfigurationAccess for ConfigPorts {
    fn read_word(&self, function: DeviceFunction, register: u8) -> u32 {
        select(function, register);
        // SAFETY: reading configuration changes nothing.
        unsafe { inl(DATA) }
    }

    fn write_word(&mut self, function: DeviceFunction, register: u8, data: u32) {
        select(function, register);
        // SAFETY: the virtio drivers write commands and BARs of devices that they own.
        unsafe { outl(DATA, data) };
    }

    unsafe fn unsafe_clone(&self) -> Self {
        Self
    }
}

/// Returns whether the machine has PCI, by a check that the address port keeps a written value.
pub(super) fn is_present() -> bool {
    // SAFETY: without PCI nothing answers at the port.
    unsafe {
        outl(ADDRESS, ENABLE);
        inl(ADDRESS) == ENABLE
    }
}

/// Returns the number of the interrupt pin of `function` on QEMU's q35. The ICH9 there swizzles the
/// pins of the root bus over the lines E to H, which are the I/O APIC's pins 20 to 23.
pub(super) fn interrupt_gsi(function: DeviceFunction) -> u32 {
    const INTERRUPT: u8 = 0x3c;
    let pin = ConfigPorts.read_word(function, INTERRUPT) >> 8 & 0xff;
    let swizzled = u32::from(function.device) + pin.saturating_sub(1);
    20 + swizzled % 4
}
