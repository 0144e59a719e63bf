//! Copies the values that PVH hands over: `hvm_start_info` of Xen's public
//! `arch-x86/hvm/start_info.h`.
//!
//! They lie in memory that the kernel will soon use otherwise, so they are copied first.

use crate::arch::layout::PhysRange;

/// `hvm_start_info.magic`.
const MAGIC: u32 = 0x336e_c578;
/// The most entries of the memory map that are read. Further entries are ignored.
const MAX_ENTRIES: usize = 64;
/// The most ranges of RAM that are kept. The kernel does not use RAM in further ranges.
pub(super) const MAX_RANGES: usize = 32;
/// The room for the command line in bytes. One byte less than this is kept; the rest is cut off.
pub(super) const MAX_CMDLINE: usize = 4096;
/// The end of the memory that the early page tables map. The structures that are handed over lie
/// below.
const EARLY_LIMIT: u64 = 1 << 30;
/// `hvm_memmap_table_entry.type` of RAM; the numbers are E820's.
const TYPE_RAM: u32 = 1;
/// The lowest address of RAM that the kernel uses. Below are firmware tables and the trampoline.
const LOWEST: u64 = 0x10_0000;
const PAGE: u64 = 4096;

#[derive(Copy, Clone)]
#[repr(C)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    modules_address: u64,
    cmdline_address: u64,
    rsdp_address: u64,
    memmap_address: u64,
    memmap_entries: u32,
    reserved: u32,
}

#[derive(Copy, Clone)]
#[repr(C)]
struct Module {
    address: u64,
    size: u64,
    cmdline_address: u64,
    reserved: u64,
}

#[derive(Copy, Clone)]
#[repr(C)]
struct MemmapEntry {
    address: u64,
    size: u64,
    kind: u32,
    reserved: u32,
}

/// The kernel's copy of the values that the boot loader handed over.
#[derive(Debug)]
pub(super) struct Handover {
    /// The usable ranges of RAM: page-aligned inwards, sorted, disjoint.
    pub(super) ram: [PhysRange; MAX_RANGES],
    /// The number of elements of `ram` that are used.
    pub(super) ranges: usize,
    /// The address after the last byte of RAM below 4 GiB, whether the kernel uses that RAM or not.
    pub(super) low_end: u64,
    /// The physical range of the first module.
    pub(super) initrd: Option<PhysRange>,
    /// The bytes of the command line.
    pub(super) cmdline: [u8; MAX_CMDLINE],
    /// The number of bytes of `cmdline` that are used.
    pub(super) cmdline_len: usize,
    /// The physical address of ACPI's root pointer; 0 if there is none.
    pub(super) rsdp: u64,
}

/// The reason why the values of the boot loader cannot be used.
#[derive(Copy, Clone, Debug)]
#[expect(dead_code, reason = "the values are for the panic message")]
pub(super) enum HandoverError {
    /// There is no start info at the given address, because the magic number there is this one.
    Magic(u32),
    /// The start info has this version, 0, which has no memory map.
    Version(u32),
    /// A structure lies at this address, which is 0 or not mapped by the early page tables.
    OutOfReach(u64),
    /// The memory map has no RAM from 1 MiB up.
    NoRam,
}

/// Reads a value at the physical address `address` through the identity mapping. Fails with
/// [`HandoverError::OutOfReach`] if `address` is 0 or above that mapping.
fn read<T: Copy>(address: u64) -> Result<T, HandoverError> {
    if address == 0 || address >= EARLY_LIMIT - PAGE {
        return Err(HandoverError::OutOfReach(address));
    }
    // SAFETY: the early tables map the first GiB one to one, it is not written at this time, and
    // the types are plain integers.
    Ok(unsafe { (address as *const T).read_unaligned() })
}

impl Handover {
    /// Makes a copy without any values: no RAM, no module, no command line, no root pointer.
    pub(super) const fn empty() -> Self {
        Self {
            ram: [PhysRange { start: 0, end: 0 }; MAX_RANGES],
            ranges: 0,
            low_end: 0,
            initrd: None,
            cmdline: [0; MAX_CMDLINE],
            cmdline_len: 0,
            rsdp: 0,
        }
    }

    /// Copies the values from the start info at physical address `start_info`.
    ///
    /// # Errors
    /// A [`HandoverError`] if the start info is missing or invalid, or has no usable RAM.
    pub(super) fn read(&mut self, start_info: u64) -> Result<(), HandoverError> {
        let info: StartInfo = read(start_info)?;
        if info.magic != MAGIC {
            return Err(HandoverError::Magic(info.magic));
        }
        if info.version == 0 {
            return Err(HandoverError::Version(info.version));
        }
        self.rsdp = info.rsdp_address;
        if info.cmdline_address != 0 {
            for i in 0..MAX_CMDLINE - 1 {
                let byte: u8 = read(info.cmdline_address + i as u64)?;
                // A command line is ASCII; anything else must not make it no `str`.
                match byte {
                    0 => break,
                    0x20..=0x7e => self.cmdline[i] = byte,
                    _ => self.cmdline[i] = b' ',
                }
                self.cmdline_len = i + 1;
            }
        }
        if info.modules > 0 {
            let module: Module = read(info.modules_address)?;
            if module.size > 0 {
                self.initrd = Some(PhysRange {
                    start: module.address,
                    end: module.address.saturating_add(module.size),
                });
            }
        }
        for i in 0..(info.memmap_entries as usize).min(MAX_ENTRIES) {
            let at = info.memmap_address + (i * size_of::<MemmapEntry>()) as u64;
            let entry: MemmapEntry = read(at)?;
            if entry.kind == TYPE_RAM {
                self.add(entry.address, entry.address.saturating_add(entry.size));
            }
        }
        if self.ranges == 0 {
            Err(HandoverError::NoRam)
        } else {
            Ok(())
        }
    }

    fn add(&mut self, start: u64, end: u64) {
        if end <= 1 << 32 {
            self.low_end = self.low_end.max(end.next_multiple_of(PAGE));
        }
        let start = start.max(LOWEST).next_multiple_of(PAGE);
        let end = end / PAGE * PAGE;
        if start >= end || self.ranges == MAX_RANGES {
            return;
        }
        let mut at = self.ranges;
        while at > 0 && self.ram[at - 1].start > start {
            self.ram[at] = self.ram[at - 1];
            at -= 1;
        }
        // Firmware does not overlap its ranges; where it does, the first keeps the memory.
        let floor = if at > 0 { self.ram[at - 1].end } else { 0 };
        let ceiling = if at < self.ranges {
            self.ram[at + 1].start
        } else {
            u64::MAX
        };
        self.ram[at] = PhysRange {
            start: start.max(floor),
            end: end.min(ceiling),
        };
        if self.ram[at].start >= self.ram[at].end {
            self.ram.copy_within(at + 1..self.ranges + 1, at);
            return;
        }
        self.ranges += 1;
    }
}
