//! The I/O APICs, which send the interrupts of device pins to CPUs.

use super::acpi::Machine;
use super::paging::map_device;
use super::spin::SpinLock;
use super::{apic, percpu};

/// The most I/O APICs that are used.
const MAX: usize = 4;
const WINDOW: usize = 0x10;
const VERSION: u32 = 1;
const FIRST_ENTRY: u32 = 0x10;
const MASKED: u32 = 1 << 16;
const LEVEL: u32 = 1 << 15;

#[derive(Copy, Clone)]
struct Unit {
    registers: usize,
    first_gsi: u32,
    pins: u32,
}

static UNITS: SpinLock<[Unit; MAX]> = SpinLock::new(
    [Unit {
        registers: 0,
        first_gsi: 0,
        pins: 0,
    }; MAX],
);

impl Unit {
    fn read(&self, register: u32) -> u32 {
        let at = self.registers as *mut u32;
        // SAFETY: mapped registers; the lock keeps select and window together.
        unsafe {
            at.write_volatile(register);
            at.byte_add(WINDOW).read_volatile()
        }
    }

    fn write(&self, register: u32, value: u32) {
        let at = self.registers as *mut u32;
        // SAFETY: as in `read`.
        unsafe {
            at.write_volatile(register);
            at.byte_add(WINDOW).write_volatile(value);
        }
    }
}

/// Maps the registers of the I/O APICs of `machine`, and masks all their pins.
pub(super) fn init(machine: &Machine) {
    let mut units = UNITS.lock();
    for (unit, found) in units.iter_mut().zip(machine.io_apics()) {
        unit.registers = map_device(u64::from(found.address), 0x20) as usize;
        unit.first_gsi = found.first_gsi;
        unit.pins = (unit.read(VERSION) >> 16 & 0xff) + 1;
        for pin in 0..unit.pins {
            unit.write(FIRST_ENTRY + 2 * pin, MASKED);
        }
    }
}

/// Makes the pin with number `gsi` interrupt the first CPU with `vector` while the pin is active
/// (level-triggered). Returns `false` if no I/O APIC has this pin.
pub fn route(gsi: u32, vector: u8) -> bool {
    let destination = percpu::apic_id(0).unwrap_or_else(apic::id);
    let units = UNITS.lock();
    for unit in units.iter().filter(|unit| unit.registers != 0) {
        if let Some(pin) = gsi.checked_sub(unit.first_gsi)
            && pin < unit.pins
        {
            unit.write(FIRST_ENTRY + 2 * pin + 1, destination << 24);
            unit.write(FIRST_ENTRY + 2 * pin, u32::from(vector) | LEVEL);
            return true;
        }
    }
    false
}
