//! Builds the kernel's own page tables, once.

use super::layout::PhysRange;
use super::pte;
use crate::arch::cpu;
use crate::arch::features::{self, Feature};
use crate::arch::layout::{DEVICE_BASE, DEVICE_SIZE, KERNEL_BASE, PHYSMAP_BASE, PHYSMAP_SIZE};
use core::sync::atomic::{AtomicU64, Ordering};

const PAGE: u64 = 4096;
const LARGE: u64 = 1 << 21;
const HUGE: u64 = 1 << 30;
const ENTRIES: usize = 512;

unsafe extern "C" {
    static kernel_start: u8;
    static kernel_rodata_start: u8;
    static kernel_data_start: u8;
    static kernel_end: u8;
    static boot_stack_guard: u8;
    static kernel_root: AtomicU64;
}

/// The address of a linker symbol.
macro_rules! address {
    ($symbol:ident) => {
        // The linker defines it; only its address is taken.
        (&raw const $symbol) as u64
    };
}

/// Returns the physical range of the kernel image.
pub(super) fn image() -> PhysRange {
    PhysRange {
        start: address!(kernel_start) - KERNEL_BASE,
        end: address!(kernel_end) - KERNEL_BASE,
    }
}

/// Returns the physical range of the kernel's code.
pub(super) fn code() -> PhysRange {
    PhysRange {
        start: address!(kernel_start) - KERNEL_BASE,
        end: address!(kernel_rodata_start) - KERNEL_BASE,
    }
}

/// Returns the physical address of the top-level page table. All address spaces share its upper
/// half.
pub(super) fn root() -> u64 {
    // SAFETY: defined by the entry code. Relaxed: written once before other CPUs start.
    unsafe { kernel_root.load(Ordering::Relaxed) }
}

/// The physical address of the last-level table that maps device registers.
static DEVICE_TABLE: AtomicU64 = AtomicU64::new(0);
/// The value of [`low_mapped_end`].
static LOW_MAPPED_END: AtomicU64 = AtomicU64::new(0);

/// Returns the end of the part of the physmap that is mapped from physical address 0 on, without
/// holes, below 4 GiB.
pub(super) fn low_mapped_end() -> u64 {
    // Relaxed: written once, before other CPUs start.
    LOW_MAPPED_END.load(Ordering::Relaxed)
}

/// The numbers of pages of 2 MiB and of 1 GiB that map the physmap.
static PHYSMAP_PAGES: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Returns the number of bytes of the physmap that pages of 2 MiB map, and the number that pages of
/// 1 GiB map. The physmap has no pages of 4 KiB.
pub fn physmap_bytes() -> [u64; 2] {
    // Relaxed: written before other CPUs start.
    let pages = |level: usize| PHYSMAP_PAGES[level].load(Ordering::Relaxed);
    [pages(0) * LARGE, pages(1) * HUGE]
}

/// The number of pages of the device window that are in use.
static DEVICE_PAGES: AtomicU64 = AtomicU64::new(0);

/// Allocates pages behind the kernel image, for page tables only.
#[derive(Debug)]
pub(super) struct Carver {
    next: u64,
    end: u64,
}

impl Carver {
    /// Makes an allocator of the pages between the end of the image and physical address `end`.
    pub(super) fn new(end: u64) -> Self {
        Self {
            next: image().end,
            end,
        }
    }

    /// Returns the physical address after the last allocated page.
    pub(super) fn taken_end(&self) -> u64 {
        self.next
    }

    /// Allocates a zeroed page and returns its physical address. Panics if there is none left.
    fn table(&mut self) -> u64 {
        let page = self.next;
        assert!(
            page + PAGE <= self.end,
            "no RAM behind the kernel image for its page tables"
        );
        self.next += PAGE;
        // SAFETY: unused RAM, mapped one to one by the early tables.
        unsafe { core::ptr::write_bytes(page as *mut u64, 0, ENTRIES) };
        page
    }

    /// Returns the table that entry `index` of `table` leads to. Makes one if the entry is empty.
    fn below(&mut self, table: u64, index: usize) -> u64 {
        let slot = (table as *mut u64).wrapping_add(index);
        // SAFETY: `table` came from `self.table()` and index is below 512.
        unsafe {
            if *slot & pte::PRESENT == 0 {
                *slot = self.table() | pte::PRESENT | pte::WRITABLE;
            }
            *slot & pte::ADDRESS
        }
    }

    fn set(&mut self, table: u64, index: usize, entry: u64) {
        // SAFETY: as in `below`.
        unsafe { *(table as *mut u64).wrapping_add(index) = entry };
    }
}

/// Returns the index of `address` in a table of `level`, 3 (top) to 0.
const fn index(address: u64, level: u32) -> usize {
    (address >> (12 + 9 * level)) as usize & (ENTRIES - 1)
}

/// Builds the final page tables in pages of `carver`, and switches to them. Afterwards the first
/// GiB is no longer mapped one to one. `ram` are the ranges of RAM, and `low_end` is the end of RAM
/// below 4 GiB.
///
/// # Safety
/// Called once, on the early page tables, with the stack in the kernel image.
pub(super) unsafe fn build(carver: &mut Carver, ram: &[PhysRange], low_end: u64) {
    let top = carver.table();
    map_image(carver, top);
    map_physmap(carver, top, 0, low_end);
    LOW_MAPPED_END.store(low_end.next_multiple_of(LARGE), Ordering::Relaxed);
    for range in ram.iter().filter(|r| r.end > low_end) {
        assert!(
            range.end <= PHYSMAP_SIZE,
            "RAM at {:#x} is out of reach",
            range.end
        );
        map_physmap(carver, top, range.start.max(low_end), range.end);
    }
    let mut table = top;
    for level in (1..=3).rev() {
        table = carver.below(table, index(DEVICE_BASE, level));
    }
    // Relaxed: other CPUs start later.
    DEVICE_TABLE.store(table, Ordering::Relaxed);
    // SAFETY: the new tables map the image, where code and stack are.
    unsafe {
        kernel_root.store(top, Ordering::Relaxed);
        cpu::write_cr3(top);
    }
}

fn map_image(carver: &mut Carver, top: u64) {
    let guard = address!(boot_stack_guard);
    let mut page = address!(kernel_start);
    while page < address!(kernel_end) {
        let protection = if page < address!(kernel_rodata_start) {
            0
        } else if page < address!(kernel_data_start) {
            pte::NO_EXECUTE
        } else {
            pte::NO_EXECUTE | pte::WRITABLE
        };
        let mut table = top;
        for level in (1..=3).rev() {
            table = carver.below(table, index(page, level));
        }
        if page != guard {
            let entry = (page - KERNEL_BASE) | pte::PRESENT | pte::GLOBAL | protection;
            carver.set(table, index(page, 0), entry);
        }
        page += PAGE;
    }
}

/// Maps the physical range from `start` to `end`, extended to multiples of 2 MiB, in the physmap.
/// Uses pages of 1 GiB where they fit. `top` is the root of the page tables, and new tables come
/// from `carver`.
fn map_physmap(carver: &mut Carver, top: u64, start: u64, end: u64) {
    let flags = pte::PRESENT | pte::WRITABLE | pte::LARGE | pte::GLOBAL | pte::NO_EXECUTE;
    let huge = features::has(Feature::GibPages);
    let mut at = start / LARGE * LARGE;
    while at < end {
        let directory_pointers = carver.below(top, index(PHYSMAP_BASE + at, 3));
        if huge && at.is_multiple_of(HUGE) && at + HUGE <= end {
            carver.set(directory_pointers, index(PHYSMAP_BASE + at, 2), at | flags);
            PHYSMAP_PAGES[1].fetch_add(1, Ordering::Relaxed);
            at += HUGE;
        } else {
            let directory = carver.below(directory_pointers, index(PHYSMAP_BASE + at, 2));
            carver.set(directory, index(PHYSMAP_BASE + at, 1), at | flags);
            PHYSMAP_PAGES[0].fetch_add(1, Ordering::Relaxed);
            at += LARGE;
        }
    }
}

/// Maps `bytes` bytes of device registers at physical address `phys`, uncached, and returns their
/// virtual address. The mapping is never removed.
///
/// # Panics
/// If the window of 512 pages is full. Devices are found at boot, and there are few.
pub fn map_device(phys: u64, bytes: usize) -> *mut u8 {
    let first = phys / PAGE * PAGE;
    let pages = (phys + bytes as u64 - first).div_ceil(PAGE);
    // Relaxed: devices are found by one CPU.
    let at = DEVICE_PAGES.fetch_add(pages, Ordering::Relaxed);
    assert!(
        at + pages <= ENTRIES as u64 && at * PAGE < DEVICE_SIZE,
        "no room for device registers"
    );
    let table = crate::arch::phys_to_virt(DEVICE_TABLE.load(Ordering::Relaxed)).cast::<u64>();
    for i in 0..pages {
        let entry = (first + i * PAGE)
            | pte::PRESENT
            | pte::WRITABLE
            | pte::UNCACHED
            | pte::GLOBAL
            | pte::NO_EXECUTE;
        // SAFETY: the table belongs to the window, the index is below 512 and was free.
        unsafe { table.add((at + i) as usize).write_volatile(entry) };
    }
    (DEVICE_BASE + at * PAGE + phys % PAGE) as *mut u8
}
