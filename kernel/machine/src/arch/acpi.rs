//! Reads the CPUs and I/O APICs of the machine from ACPI's MADT. AML is not interpreted.

use super::cpuset::MAX_CPUS;
use super::layout::phys_to_virt;
use super::paging;

/// The most I/O APICs that are used. Further ones are ignored.
const MAX_IO_APICS: usize = 4;
/// The most tables that are examined. Further ones are ignored.
const MAX_TABLES: usize = 64;
/// The most entries of the MADT that are examined. Further ones are ignored.
const MAX_ENTRIES: usize = 1024;

/// An I/O APIC, as the MADT describes it.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct IoApic {
    /// Physical address of its registers.
    pub(super) address: u32,
    /// The global system interrupt (GSI) number of its first pin.
    pub(super) first_gsi: u32,
}

/// The CPUs and I/O APICs that ACPI's MADT lists, as far as the kernel uses them.
#[derive(Copy, Clone, Debug)]
pub(super) struct Machine {
    apic_ids: [u32; MAX_CPUS],
    cpus: usize,
    io_apics: [IoApic; MAX_IO_APICS],
    io_apic_count: usize,
}

impl Machine {
    /// Makes the values for a machine without a MADT: no list of CPUs, and one I/O APIC at its
    /// usual address.
    fn plain() -> Self {
        let mut io_apics = [IoApic::default(); MAX_IO_APICS];
        io_apics[0] = IoApic {
            address: 0xfec0_0000,
            first_gsi: 0,
        };
        Self {
            apic_ids: [0; MAX_CPUS],
            cpus: 0,
            io_apics,
            io_apic_count: 1,
        }
    }

    /// Returns the APIC IDs of all CPUs that can be started, including the running one. The slice
    /// is empty if the machine has no MADT.
    pub(super) fn apic_ids(&self) -> &[u32] {
        &self.apic_ids[..self.cpus]
    }

    /// Returns the I/O APICs that the kernel uses. There is at least one, even if the machine has
    /// no MADT.
    pub(super) fn io_apics(&self) -> &[IoApic] {
        &self.io_apics[..self.io_apic_count]
    }

    fn add_cpu(&mut self, apic_id: u32, flags: u32) {
        const ENABLED: u32 = 1;
        if flags & ENABLED == 0 || self.apic_ids().contains(&apic_id) {
            return;
        }
        if self.cpus == MAX_CPUS {
            crate::console!("CPU with APIC {apic_id} left alone: at most {MAX_CPUS} are used");
            return;
        }
        self.apic_ids[self.cpus] = apic_id;
        self.cpus += 1;
    }
}

/// Returns `len` bytes of firmware memory at physical address `address`. Returns `None` if they are
/// not all in the low part of the physmap, or if `address` is 0.
fn bytes(address: u64, len: usize) -> Option<&'static [u8]> {
    let end = address.checked_add(len as u64)?;
    if address == 0 || end > paging::low_mapped_end() {
        return None;
    }
    // SAFETY: below the end of low memory everything is in the physmap, and firmware tables lie
    // outside of the RAM that the kernel uses.
    Some(unsafe { core::slice::from_raw_parts(phys_to_virt(address), len) })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns the ACPI table at `address`, header included. Returns `None` if its length or checksum
/// is wrong.
fn table(address: u64) -> Option<&'static [u8]> {
    const HEADER_BYTES: usize = 36;
    const MAX_TABLE_BYTES: usize = 1 << 20;
    let length = u32_at(bytes(address, HEADER_BYTES)?, 4)? as usize;
    if !(HEADER_BYTES..=MAX_TABLE_BYTES).contains(&length) {
        return None;
    }
    let table = bytes(address, length)?;
    let sum = table.iter().fold(0u8, |sum, &byte| sum.wrapping_add(byte));
    (sum == 0).then_some(table)
}

/// Returns the first valid ACPI table that has this `signature`. `rsdp` is the physical address of
/// ACPI's root pointer. Returns `None` if there is no such table, or if the root pointer or the
/// list of tables is invalid.
fn find(rsdp: u64, signature: &[u8; 4]) -> Option<&'static [u8]> {
    let root = bytes(rsdp, 20)?;
    if root.first_chunk() != Some(b"RSD PTR ") {
        return None;
    }
    let extended = if root[15] >= 2 {
        u64_at(bytes(rsdp, 36)?, 24)?
    } else {
        0
    };
    let (list, width) = match extended {
        0 => (table(u64::from(u32_at(root, 16)?))?, 4),
        address => (table(address)?, 8),
    };
    let entries = list.get(36..)?;
    for entry in entries.chunks_exact(width).take(MAX_TABLES) {
        let address = if width == 8 {
            u64_at(entry, 0)?
        } else {
            u64::from(u32_at(entry, 0)?)
        };
        if let Some(found) = table(address)
            && found.first_chunk() == Some(signature)
        {
            return Some(found);
        }
    }
    None
}

/// Reads the MADT. `rsdp` is the physical address of ACPI's root pointer. Without a valid MADT,
/// returns the defaults: no list of CPUs, and one I/O APIC at its usual address.
pub(super) fn read(rsdp: Option<u64>) -> Machine {
    const LOCAL_APIC: u8 = 0;
    const IO_APIC: u8 = 1;
    const LOCAL_X2APIC: u8 = 9;
    let mut machine = Machine::plain();
    let Some(madt) = rsdp.and_then(|rsdp| find(rsdp, b"APIC")) else {
        return machine;
    };
    let mut rest = madt.get(44..).unwrap_or(&[]);
    let mut io_apics = 0;
    for _ in 0..MAX_ENTRIES {
        let [kind, length, ..] = *rest else { break };
        let Some((entry, next)) = rest.split_at_checked(usize::from(length).max(2)) else {
            break;
        };
        rest = next;
        match (kind, entry.len()) {
            (LOCAL_APIC, 8..) => {
                machine.add_cpu(u32::from(entry[3]), u32_at(entry, 4).unwrap_or(0));
            }
            (LOCAL_X2APIC, 16..) => {
                machine.add_cpu(u32_at(entry, 4).unwrap_or(0), u32_at(entry, 8).unwrap_or(0));
            }
            (IO_APIC, 12..) if io_apics < MAX_IO_APICS => {
                machine.io_apics[io_apics] = IoApic {
                    address: u32_at(entry, 4).unwrap_or(0),
                    first_gsi: u32_at(entry, 8).unwrap_or(0),
                };
                io_apics += 1;
            }
            _ => {}
        }
    }
    machine.io_apic_count = io_apics.max(1);
    machine
}
