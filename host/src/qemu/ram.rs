//! The guest's RAM: a file of ours that QEMU maps too.
//!
//! The guest writes this memory while we read it. So it is only ever read through atomics, each
//! address is checked against the size that we gave, and every value is an allegation.

use super::pins::Pins;
use super::ram_file::{Backing, HUGE_PAGE, RamMaker};
use super::sigbus::{self, Watched};
use crate::machine::Machine;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A guest-physical address.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct GuestAddress(pub(crate) u64);

impl GuestAddress {
    /// The address `bytes` further on, unless that overflows.
    pub(crate) fn checked_add(self, bytes: u64) -> Option<Self> {
        self.0.checked_add(bytes).map(Self)
    }
}

/// Where the part of RAM that does not fit below the devices begins.
const HIGH: u64 = 4 << 30;

/// [`HUGE_PAGE`], as a step of ranges.
const HUGE_STEP: usize = 2 << 20;
const _: () = assert!(HUGE_STEP as u64 == HUGE_PAGE);

/// Which guest-physical addresses the bytes of the RAM file have.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Layout {
    /// Bytes from address 0 up; the rest stands from [`HIGH`] up.
    low: u64,
    size: u64,
}

impl Layout {
    /// The split that QEMU's machine makes for `size` bytes.
    fn new(machine: Machine, size: u64) -> Self {
        let low = match machine {
            // hw/i386/microvm.c: MICROVM_MAX_BELOW_4G
            Machine::Microvm => size.min(0xc000_0000),
            // hw/i386/pc_q35.c: the hole starts lower as soon as RAM reaches it, so that what
            // stands above 4 GiB is aligned to 1 GiB.
            Machine::Q35 if size >= 0xb000_0000 => 0x8000_0000,
            Machine::Q35 => size,
        };
        Self { low, size }
    }

    /// Where in the file `len` bytes from `address` stand, if they are RAM and contiguous.
    fn offset(self, address: GuestAddress, len: u64) -> Option<u64> {
        let end = address.0.checked_add(len)?;
        if end <= self.low {
            return Some(address.0);
        }
        let start = address.0.checked_sub(HIGH)?.checked_add(self.low)?;
        (start.checked_add(len)? <= self.size).then_some(start)
    }
}

/// Guest-physical memory without a hole.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Region {
    pub(crate) start: GuestAddress,
    pub(crate) bytes: u64,
}

/// The guest's RAM, shared with QEMU, mapped here for reading.
#[derive(Debug)]
pub(crate) struct GuestRam {
    fd: OwnedFd,
    backing: Backing,
    layout: Layout,
    base: NonNull<u8>,
    len: usize,
    /// Dropped by hand, before the mapping goes.
    watched: Option<Watched>,
    /// Pages by which parts of it stay in base pages.
    pins: Pins,
    /// Where in the file these parts are.
    kept: Vec<Range<u64>>,
}

// SAFETY: the mapping belongs to this value alone until it is dropped, is never written through
// `base`, and is read through atomics only.
unsafe impl Send for GuestRam {}
// SAFETY: as for `Send`: shared access gives out shared atomics only.
unsafe impl Sync for GuestRam {}

impl GuestRam {
    /// `size` bytes of RAM in base pages, none of them resident yet. `size` is a multiple of the page size.
    #[cfg(test)]
    pub(crate) fn new(machine: Machine, size: u64) -> Result<Self, Errno> {
        Self::made_by(&RamMaker::base(), machine, size)
    }

    /// `size` bytes of RAM from `maker`, none of them resident yet. `size` is a multiple of the page size.
    ///
    /// # Errors
    /// The kernel's; `ENOMEM` if its pool has fewer huge pages than the guest needs.
    pub(crate) fn made_by(maker: &RamMaker, machine: Machine, size: u64) -> Result<Self, Errno> {
        let fd = maker.file(size)?;
        let backing = maker.backing();
        let mut len = usize::try_from(size).map_err(|_| Errno::OVERFLOW)?;
        let mut flags = MapFlags::SHARED | MapFlags::NORESERVE;
        if backing == Backing::Pool {
            // Reserves all pages, so that none is missing when the guest touches it.
            flags -= MapFlags::NORESERVE;
            let huge = usize::try_from(HUGE_PAGE).map_err(|_| Errno::OVERFLOW)?;
            len = len.next_multiple_of(huge);
        }
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let address =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ, flags, &fd, 0)? };
        let base = NonNull::new(address.cast::<u8>()).ok_or(Errno::NOMEM)?;
        let mut ram = Self {
            fd,
            backing,
            layout: Layout::new(machine, size),
            base,
            len,
            watched: None,
            pins: Pins::default(),
            kept: Vec::new(),
        };
        ram.watched = Some(sigbus::watch(base.addr().get(), len)?);
        if matches!(backing, Backing::Huge | Backing::Advised) {
            // A word that is read where nothing is costs a base page, not a huge one.
            // SAFETY: the mapping is ours, and no advice of this kind changes what is in it.
            let _ = unsafe { rustix::mm::madvise(address, len, Advice::LinuxNoHugepage) };
        }
        Ok(ram)
    }

    /// Has the blocks of 2 MiB that `bytes` from `offset` of the file on touch stay in base pages, so that a
    /// part of one does not cost a whole huge page. The first base page of each becomes resident and is held: the
    /// host makes no huge page of such a block, now or later.
    pub(crate) fn keep_in_base_pages(&mut self, offset: u64, bytes: u64) {
        let end = offset.saturating_add(bytes).min(self.layout.size);
        let first = (offset - offset % HUGE_PAGE..end).step_by(HUGE_STEP);
        let pages = first.filter_map(|at| usize::try_from(at).ok()).map(|at| {
            // SAFETY: `at` is below the size of RAM, which is the length of the mapping at least.
            let page = unsafe { self.base.add(at) };
            // SAFETY: inside the mapping. The byte may change at any time, and is not used.
            unsafe { page.read_volatile() };
            page
        });
        let pages: Vec<_> = pages.collect();
        // SAFETY: the pages are in the mapping, which may be read. Blocks whose page cannot be held are base pages
        // until the host joins them.
        let _ = unsafe { self.pins.hold(&pages) };
        self.kept.push(offset..end);
    }

    /// Returns whether the block of 2 MiB around `address` is in one huge page, as far as the host had one: to
    /// punch a part of it would split that.
    pub(crate) fn is_one_page(&self, address: GuestAddress) -> bool {
        let Some(offset) = self.file_offset(address, 1) else {
            return false;
        };
        let inside = |kept: &Range<u64>| {
            let (start, end) = (kept.start / HUGE_PAGE, kept.end.div_ceil(HUGE_PAGE));
            (start..end).contains(&(offset / HUGE_PAGE))
        };
        self.backing.is_huge() && !self.kept.iter().any(inside)
    }

    /// Whether the page at `offset` of the file is resident for no other reason than that the block around it is kept
    /// in base pages, as far as the host knows.
    pub(crate) fn is_first_of_kept(&self, offset: u64) -> bool {
        let block = offset..offset.saturating_add(HUGE_PAGE);
        let touches = |kept: &Range<u64>| kept.start < block.end && block.start < kept.end;
        offset.is_multiple_of(HUGE_PAGE) && self.kept.iter().any(touches)
    }

    /// What the host keeps it in.
    pub(crate) fn backing(&self) -> Backing {
        self.backing
    }

    /// The file itself, for QEMU.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// What the guest was given: whatever it says, it has no more.
    pub(crate) fn bytes(&self) -> u64 {
        self.layout.size
    }

    /// The same in frames of 4 KiB.
    pub(crate) fn frames(&self) -> u64 {
        self.bytes() / ebb_mm::FRAME_SIZE as u64
    }

    /// Bytes of the host's memory that the guest's RAM holds now, exact to the page.
    pub(crate) fn resident_bytes(&self) -> Result<u64, Errno> {
        let stat = rustix::fs::fstat(&self.fd)?;
        Ok(u64::try_from(stat.st_blocks).unwrap_or(0) * 512)
    }

    /// Where in the file so many bytes stand, if RAM has them all without a hole.
    pub(crate) fn file_offset(&self, address: GuestAddress, bytes: u64) -> Option<u64> {
        self.layout.offset(address, bytes)
    }

    /// Drops what the host holds of these bytes: they are zero from here on.
    ///
    /// # Errors
    /// `EINVAL` if RAM does not have them all, and what the host says.
    pub(crate) fn punch(&self, address: GuestAddress, bytes: u64) -> Result<(), Errno> {
        let offset = self.layout.offset(address, bytes).ok_or(Errno::INVAL)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        loop {
            // Bounded by the signals that come meanwhile.
            match rustix::fs::fallocate(&self.fd, flags, offset, bytes) {
                Err(Errno::INTR) => {}
                done => return done,
            }
        }
    }

    /// Where RAM is, upwards; the file has the regions in this order without a gap.
    pub(crate) fn regions(&self) -> Vec<Region> {
        let Layout { low, size } = self.layout;
        let high = size.saturating_sub(low);
        [(0, low), (HIGH, high)]
            .into_iter()
            .filter(|(_, bytes)| *bytes > 0)
            .map(|(start, bytes)| Region {
                start: GuestAddress(start),
                bytes,
            })
            .collect()
    }

    /// Where in the file the part of RAM below 4 GiB ends.
    pub(super) fn low_bytes(&self) -> u64 {
        self.layout.low
    }

    /// Copies from `address` on, if RAM has it all. Unlike a load through the mapping this makes
    /// nothing resident.
    pub(crate) fn read_at(&self, address: GuestAddress, bytes: &mut [u8]) -> Option<()> {
        let mut offset = self
            .layout
            .offset(address, u64::try_from(bytes.len()).ok()?)?;
        let mut rest = bytes;
        while !rest.is_empty() {
            match rustix::io::pread(&self.fd, &mut *rest, offset) {
                Ok(0) => return None,
                Ok(count) => {
                    offset += u64::try_from(count).ok()?;
                    rest = &mut rest[count..];
                }
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        Some(())
    }

    /// The 32-bit word at `address`, if RAM has it there.
    pub(crate) fn atomic_u32(&self, address: GuestAddress) -> Option<&AtomicU32> {
        let word = self.checked(address, size_of::<AtomicU32>(), align_of::<AtomicU32>())?;
        // SAFETY: `checked` put the word inside the mapping, aligned; the mapping lives as long as
        // `self`. The guest writes it with aligned stores, which agree with atomic loads, and we
        // never store.
        Some(unsafe { word.cast::<AtomicU32>().as_ref() })
    }

    /// The 64-bit word at `address`, if RAM has it there.
    pub(crate) fn atomic_u64(&self, address: GuestAddress) -> Option<&AtomicU64> {
        let word = self.checked(address, size_of::<AtomicU64>(), align_of::<AtomicU64>())?;
        // SAFETY: as in `atomic_u32`.
        Some(unsafe { word.cast::<AtomicU64>().as_ref() })
    }

    fn checked(&self, address: GuestAddress, len: usize, align: usize) -> Option<NonNull<u8>> {
        let offset = self.layout.offset(address, u64::try_from(len).ok()?)?;
        let offset = usize::try_from(offset).ok()?;
        if !offset.is_multiple_of(align) || offset.checked_add(len)? > self.len {
            return None;
        }
        // SAFETY: `offset + len <= self.len`, the length of the one mapping at `base`.
        Some(unsafe { self.base.add(offset) })
    }
}

impl Drop for GuestRam {
    fn drop(&mut self) {
        self.watched = None;
        // SAFETY: the mapping was made by `made_by` with this length, and no reference into it
        // outlives `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
        debug_assert!(unmapped.is_ok(), "the mapping is ours");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn layout_knows_the_hole() {
        let small = Layout::new(Machine::Microvm, 1 << 30);
        assert_eq!(small.offset(GuestAddress(0x20_0000), 4096), Some(0x20_0000));
        assert_eq!(
            small.offset(GuestAddress((1 << 30) - 8), 8),
            Some((1 << 30) - 8)
        );
        assert_eq!(small.offset(GuestAddress((1 << 30) - 8), 16), None);
        assert_eq!(small.offset(GuestAddress(HIGH), 8), None);
        assert_eq!(small.offset(GuestAddress(u64::MAX), 8), None);

        let large = Layout::new(Machine::Microvm, 5 << 30);
        assert_eq!(large.offset(GuestAddress(0xc000_0000), 8), None);
        assert_eq!(large.offset(GuestAddress(0xbfff_fffc), 8), None);
        assert_eq!(large.offset(GuestAddress(HIGH), 8), Some(0xc000_0000));
        assert_eq!(
            large.offset(GuestAddress(HIGH + (2 << 30) - 8), 8),
            Some((5 << 30) - 8)
        );
        assert_eq!(large.offset(GuestAddress(HIGH + (2 << 30)), 8), None);

        assert_eq!(Layout::new(Machine::Q35, 0xb000_0000).low, 0x8000_0000);
        assert_eq!(Layout::new(Machine::Q35, 0x9000_0000).low, 0x9000_0000);
    }

    #[test]
    fn words_are_read_where_they_stand() {
        let ram = GuestRam::new(Machine::Microvm, 1 << 20).unwrap();
        rustix::io::pwrite(ram.fd(), &0x1122_3344_5566_7788u64.to_le_bytes(), 4096).unwrap();
        let word = ram.atomic_u64(GuestAddress(4096)).unwrap();
        assert_eq!(word.load(Relaxed), 0x1122_3344_5566_7788);
        assert_eq!(
            ram.atomic_u32(GuestAddress(4100)).unwrap().load(Relaxed),
            0x1122_3344
        );
        assert!(ram.atomic_u64(GuestAddress(4097)).is_none());
        assert!(ram.atomic_u64(GuestAddress(1 << 20)).is_none());
        assert_eq!(ram.resident_bytes().unwrap(), 4096);
    }
}
