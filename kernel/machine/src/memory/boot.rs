//! Builds an allocator, a memmap and a heap from the machine's ranges of RAM.
//!
//! The allocator's metadata and the memmap are carved out of RAM. They must be zero, and they are:
//! the host gives zeroed memory, and places where firmware has written are avoided. So no work here
//! is proportional to the size of RAM: a guest of 64 GiB starts in the resident memory of one of 1
//! GiB.

use crate::arch::header::HEADER;
use crate::arch::pte::{ACCESSED, ADDRESS, DIRTY, GLOBAL, LARGE, NO_EXECUTE, PRESENT, WRITABLE};
use crate::arch::{BootInfo, MEMMAP_BASE, PhysRange, phys_to_virt};
use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use ebb_mm::{
    Allocator, Config, CpuCache, Events, FRAME_SIZE, Frame, FrameRange, ZoneConfig, ZoneKind,
    metadata_layout, min_free_kbytes,
};

use super::memmap::{self, DESCRIPTOR_BYTES};
use super::tables;
use ebb_wire::header::memmap as wire;

/// 2 MiB, a page of the memmap's mapping.
const LARGE_PAGE: u64 = 2 << 20;
/// RAM whose descriptors fill one large page: 128 MiB.
const RAM_PER_LARGE_PAGE: u64 = LARGE_PAGE / DESCRIPTOR_BYTES * FRAME_SIZE as u64;
/// The end of the RAM that is used. The descriptors of RAM beyond it would need a second top-level
/// entry.
const RAM_LIMIT: u64 = 512 << 30 << 6;
/// The most ranges of RAM that are used. Further ones stay unused, with a message. QEMU gives two
/// or three.
const MAX_RANGES: usize = 16;
/// The address at which the zone `Dma32` ends and the zone `Normal` begins.
const DMA32_END: u64 = 1 << 32;
/// The number of bytes that SeaBIOS leaves for its tables, above its scratch memory.
const FIRMWARE_SKIPS: u64 = 16 << 20;
/// The most bytes of SeaBIOS's scratch memory. SeaBIOS uses 124 KiB of it if there is no option
/// ROM.
const FIRMWARE_SCRATCH: u64 = 4 << 20;
/// The end of the memory that firmware, boot loader and the start of other CPUs use.
const LOW_END: u64 = 1 << 20;
/// The end of the memory that firmware uses if it moves its work above [`LOW_END`].
const FIRMWARE_END: u64 = 16 << 20;

const ACCESSED_DIRTY: u64 = ACCESSED | DIRTY;

/// A short list of ranges of frames.
#[derive(Copy, Clone)]
struct Ranges {
    list: [FrameRange; MAX_RANGES],
    len: usize,
}

impl Ranges {
    const fn new() -> Self {
        Self {
            list: [FrameRange::new(Frame::new(0), 0); MAX_RANGES],
            len: 0,
        }
    }

    /// Adds the whole frames of `start..end`. If the list is full, these frames stay unused, and a
    /// message is printed.
    fn push(&mut self, start: u64, end: u64) {
        let range = FrameRange::inside(start, end.saturating_sub(start));
        if range.is_empty() {
            return;
        }
        if let Some(slot) = self.list.get_mut(self.len) {
            *slot = range;
            self.len += 1;
        } else {
            crate::console!("memory: RAM range {start:#x}..{end:#x} is one too many, left unused");
        }
    }

    fn as_slice(&self) -> &[FrameRange] {
        &self.list[..self.len]
    }

    /// Returns the parts of the ranges within `low..high`, without `hole`.
    fn part(&self, low: u64, high: u64, hole: PhysRange) -> Self {
        let mut part = Self::new();
        for range in self.as_slice() {
            let start = range.start.address().max(low);
            let end = range.end().address().min(high);
            part.push(start, end.min(hole.start.max(start)));
            part.push(start.max(hole.end.min(end)), end);
        }
        part
    }
}

/// The sizes of the parts carved out of RAM, in bytes.
struct Carving {
    memmap: u64,
    directories: u64,
    metadata: Layout,
}

impl Carving {
    fn of(ram: &Ranges, metadata: Layout) -> Self {
        let (mut large_pages, mut directories) = (0, 0);
        each_unit(ram, RAM_PER_LARGE_PAGE, |_| large_pages += 1);
        each_unit(ram, RAM_PER_LARGE_PAGE * 512, |_| directories += 1);
        Self {
            memmap: large_pages * LARGE_PAGE,
            directories: directories + 1,
            metadata,
        }
    }

    fn bytes(&self) -> u64 {
        self.memmap
            + (self.directories << 12)
            + (self.metadata.size() as u64).next_multiple_of(FRAME_SIZE as u64)
    }

    /// Returns the lowest place in the highest range of `ram` with room that is aligned for the
    /// memmap and overlaps no range of `taken`. Low, because allocations begin there, so the memory
    /// above stays whole for pages of 1 GiB. Returns `None` if no range has room.
    fn place(&self, ram: &Ranges, taken: &[PhysRange]) -> Option<PhysRange> {
        let mut places = ram.as_slice().iter().rev();
        places.find_map(|range| self.place_in(range, taken))
    }

    fn place_in(&self, range: &FrameRange, taken: &[PhysRange]) -> Option<PhysRange> {
        let mut start = range.start.address().max(FIRMWARE_END);
        loop {
            start = start.next_multiple_of(LARGE_PAGE);
            let end = start + self.bytes();
            if end > range.end().address() {
                return None;
            }
            // Each turn leaves one that is taken behind.
            match taken.iter().find(|t| t.start < end && start < t.end) {
                Some(hit) => start = hit.end,
                None => return Some(PhysRange { start, end }),
            }
        }
    }
}

/// Returns the range of `ram` where SeaBIOS works while it boots a machine, and which it later
/// reports as free without clearing it: downwards from 16 MiB below the end of RAM under 4 GiB.
fn firmware_scratch(ram: &Ranges) -> PhysRange {
    let below_4g = |range: &&FrameRange| range.end().address() <= DMA32_END;
    let last = ram.as_slice().iter().rfind(below_4g);
    // The part that it keeps, at the very end, is not in the range any more.
    let end = last.map_or(0, |last| last.end().address().next_multiple_of(1 << 20));
    PhysRange {
        start: end.saturating_sub(FIRMWARE_SKIPS + FIRMWARE_SCRATCH),
        end: end.saturating_sub(FIRMWARE_SKIPS),
    }
}

/// Divides the physical address space into units of `unit` bytes. Calls `each` with the number of
/// every unit that contains a part of `ram`, once, in ascending order.
fn each_unit(ram: &Ranges, unit: u64, mut each: impl FnMut(u64)) {
    let mut next = 0;
    for range in ram.as_slice() {
        let last = (range.end().address() - 1) / unit;
        for number in next.max(range.start.address() / unit)..=last {
            each(number);
        }
        next = next.max(last + 1);
    }
}

/// Calls `act` with the configuration of an allocator for two zones, and returns the result.
/// `dma32` and `normal` are the ranges of the zones. `zeroed` says whether memory that was never
/// used is zero.
fn with_config<T>(
    dma32: &Ranges,
    normal: &Ranges,
    zeroed: bool,
    act: impl FnOnce(&Config<'_>) -> T,
) -> T {
    let low = ZoneConfig {
        kind: ZoneKind::Dma32,
        node: 0,
        ranges: dma32.as_slice(),
    };
    let high = ZoneConfig {
        kind: ZoneKind::Normal,
        node: 0,
        ranges: normal.as_slice(),
    };
    let both = [low, high];
    let zones = match (dma32.len, normal.len) {
        (0, _) => &both[1..],
        (_, 0) => &both[..1],
        _ => &both[..],
    };
    let config = Config::new(zones).with_frame_marks();
    act(&if zeroed {
        config.with_use_marks()
    } else {
        config
    })
}

/// Returns whether all RAM but the boot files was zero when the kernel started. The host says so on
/// the command line in `boot`.
pub(super) fn is_zeroed(boot: &BootInfo) -> bool {
    boot.option(ebb_wire::boot::RAM) == Some(ebb_wire::boot::ZEROED)
}

/// Carves the memmap and the allocator's metadata out of the ranges of RAM in `boot`, builds both,
/// and sets the kernel's allocator. The kernel image and the initramfs are in use from the start.
/// The allocator notifies `events`.
///
/// # Panics
/// If there is too little RAM, or it cannot be managed.
pub(super) fn build(boot: &BootInfo, events: &'static dyn Events) {
    let mut ram = Ranges::new();
    for range in boot.ram {
        ram.push(range.start.max(LOW_END), range.end.min(RAM_LIMIT));
    }
    let nothing = PhysRange::default();
    // Only the maker of the machine knows whether RAM is zero. Firmware leaves its scratch data
    // behind, and a reboot leaves everything.
    let zeroed = is_zeroed(boot);
    let layout = with_config(
        &ram.part(0, DMA32_END, nothing),
        &ram.part(DMA32_END, RAM_LIMIT, nothing),
        zeroed,
        metadata_layout,
    );
    let layout = layout.unwrap_or_else(|e| panic!("the machine's RAM cannot be managed: {e}"));
    let carving = Carving::of(&ram, layout);
    let initrd = boot.initrd.unwrap_or_default();
    let taken = [boot.kernel, initrd];
    // A tiny machine has no room to avoid where firmware may have been.
    let place = carving
        .place(&ram, &[boot.kernel, initrd, firmware_scratch(&ram)])
        .or_else(|| carving.place(&ram, &taken));
    let Some(place) = place else {
        panic!(
            "no room in RAM for {} bytes of descriptors: give the guest more",
            carving.bytes()
        );
    };

    let ends = ram.as_slice().iter().map(|range| range.end().number());
    memmap::set_end(ends.max().unwrap_or(0));
    map_memmap(&ram, &carving, place);
    let metadata = place.start + carving.memmap + (carving.directories << 12);
    // The memmap's own memory is the allocator's, but offline: parts of it come back (`vmemmap`).
    let own = FrameRange::inside(place.start, carving.memmap);
    let hole = PhysRange {
        start: own.end().address(),
        end: place.end,
    };
    let dma32 = ram.part(0, DMA32_END, hole);
    let normal = ram.part(DMA32_END, RAM_LIMIT, hole);
    let allocator = with_config(&dma32, &normal, zeroed, |config| {
        let fits = metadata_layout(config).is_ok_and(|l| l.size() <= layout.size());
        assert!(fits, "the carving grew the metadata");
        let at = NonNull::new(phys_to_virt(metadata)).unwrap_or(NonNull::dangling());
        // SAFETY: the carved-out memory is in the physmap, aligned to a page, large enough
        // (asserted), zero (see above), and has no other user.
        unsafe { Allocator::new(at, config, events) }
    });
    let allocator =
        allocator.unwrap_or_else(|e| panic!("the machine's RAM cannot be managed: {e}"));

    if let Err(error) = allocator.offline(&mut CpuCache::new(), own) {
        panic!("the memmap's memory: {error}");
    }
    super::vmemmap::set_boot_pages(own.frames);
    allocator.set_min_free_frames(min_free_kbytes(allocator.managed_frames()) / 4);
    for range in taken {
        let frames = FrameRange::covering(range.start, range.end - range.start);
        if !frames.is_empty()
            && let Err(error) = allocator.claim(frames)
        {
            panic!("boot memory {:#x}..{:#x}: {error}", range.start, range.end);
        }
    }
    if let Some(initrd) = boot.initrd {
        super::boot_archive::set(initrd);
    }
    super::percpu::publish_counts();
    HEADER.metadata_address.store(metadata, Ordering::Relaxed);
    HEADER
        .metadata_bytes
        .store(layout.size() as u64, Ordering::Relaxed);
    // Release: pairs with the host's Acquire: a count means that the address before it holds.
    HEADER
        .managed_frames
        .store(allocator.managed_frames(), Ordering::Release);
    super::allocator::set(allocator);
}

const _: () = assert!(
    DESCRIPTOR_BYTES == wire::DESCRIPTOR_BYTES
        && LARGE_PAGE == wire::LARGE_PAGE
        && PRESENT == wire::PRESENT
        && LARGE == wire::LARGE
        && ADDRESS == wire::ADDRESS
);

/// Maps the memmap of all frames in `ram`, with large pages, to the memory at `place`. `carving`
/// has the sizes of the parts there: first the memmap, then its page tables.
fn map_memmap(ram: &Ranges, carving: &Carving, place: PhysRange) {
    let root = tables::find_root();
    let tables = place.start + carving.memmap;
    let upper = tables;
    let top_index = (MEMMAP_BASE >> 39) % 512;
    let set = |table: u64, index: u64, value: u64| {
        let slot = phys_to_virt(table + index * size_of::<u64>() as u64).cast::<u64>();
        // SAFETY: the tables are the kernel's own, in the physmap; no other CPU runs, and the
        // addresses below these entries are not used yet.
        unsafe { slot.write_volatile(value) };
    };
    set(root, top_index, upper | PRESENT | WRITABLE | ACCESSED_DIRTY);
    let mut directory = tables;
    each_unit(ram, RAM_PER_LARGE_PAGE * 512, |number| {
        directory += FRAME_SIZE as u64;
        set(
            upper,
            number % 512,
            directory | PRESENT | WRITABLE | ACCESSED_DIRTY,
        );
    });
    let mut page = place.start;
    let (mut directory, mut current) = (tables, u64::MAX);
    let flags = PRESENT | WRITABLE | ACCESSED_DIRTY | LARGE | GLOBAL | NO_EXECUTE;
    each_unit(ram, RAM_PER_LARGE_PAGE, |number| {
        if number / 512 != current {
            current = number / 512;
            directory += FRAME_SIZE as u64;
        }
        set(directory, number % 512, page | flags);
        page += LARGE_PAGE;
    });
    // Relaxed: the host reads it after it has got a block from the allocator, which is created
    // later.
    HEADER.descriptors.store(upper, Ordering::Relaxed);
}
