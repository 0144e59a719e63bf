//! The guest's RAM: a file that `ebb` makes, and that both `ebb` and QEMU map.
//!
//! The guest writes this memory while `ebb` reads it. So `ebb` reads it through atomics only,
//! checks each address against the size of the RAM, and trusts no value in it.

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

/// A guest-physical address in bytes.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct GuestAddress(pub(crate) u64);

impl GuestAddress {
    /// Returns the address `bytes` higher, or `None` if that overflows. The result may be outside
    /// of RAM.
    pub(crate) fn checked_add(self, bytes: u64) -> Option<Self> {
        self.0.checked_add(bytes).map(Self)
    }
}

/// The guest-physical address from which RAM continues if it does not fit below the devices.
const HIGH: u64 = 4 << 30;

/// [`HUGE_PAGE`] as a `usize`, to step through ranges.
const HUGE_STEP: usize = 2 << 20;
const _: () = assert!(HUGE_STEP as u64 == HUGE_PAGE);

/// The mapping between guest-physical addresses and offsets in the RAM file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Layout {
    /// Bytes of RAM from address 0 on. The rest starts at [`HIGH`].
    low: u64,
    /// Bytes of RAM in total.
    size: u64,
}

impl Layout {
    /// Returns the layout that QEMU gives `machine` with `size` bytes of RAM.
    fn new(machine: Machine, size: u64) -> Self {
        let low = match machine {
            // hw/i386/microvm.c: MICROVM_MAX_BELOW_4G
            Machine::Microvm => size.min(0xc000_0000),
            // hw/i386/pc_q35.c: the hole for devices starts lower as soon as RAM reaches it, so
            // that the part above 4 GiB is aligned to 1 GiB.
            Machine::Q35 if size >= 0xb000_0000 => 0x8000_0000,
            Machine::Q35 => size,
        };
        Self { low, size }
    }

    /// Returns the file offset of the `len` bytes at `address`. Returns `None` if they are not all
    /// RAM or not contiguous in the file.
    fn offset(self, address: GuestAddress, len: u64) -> Option<u64> {
        let end = address.0.checked_add(len)?;
        if end <= self.low {
            return Some(address.0);
        }
        let start = address.0.checked_sub(HIGH)?.checked_add(self.low)?;
        (start.checked_add(len)? <= self.size).then_some(start)
    }
}

/// A contiguous range of guest-physical RAM.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Region {
    pub(crate) start: GuestAddress,
    pub(crate) bytes: u64,
}

/// The guest's RAM file, shared with QEMU and mapped read-only in this process.
#[derive(Debug)]
pub(crate) struct GuestRam {
    fd: OwnedFd,
    backing: Backing,
    layout: Layout,
    base: NonNull<u8>,
    /// The length of the mapping in bytes, at least the size of RAM.
    len: usize,
    /// The protection from SIGBUS. `drop` sets this to `None` before it unmaps.
    watched: Option<Watched>,
    /// References to pages that keep parts of the RAM in base pages.
    pins: Pins,
    /// The ranges of file offsets that are kept in base pages.
    kept: Vec<Range<u64>>,
}

// SAFETY: this value owns the mapping until it is dropped. The mapping is never written through
// `base`, and is read through atomics only.
unsafe impl Send for GuestRam {}
// SAFETY: shared access only hands out `&AtomicU32` and `&AtomicU64`, and the mapping is never
// written through `base`.
unsafe impl Sync for GuestRam {}

impl GuestRam {
    /// Makes `size` bytes of RAM in base pages, for tests. No page is resident yet. `size` is a
    /// multiple of the page size. Fails if the kernel refuses.
    #[cfg(test)]
    pub(crate) fn new(machine: Machine, size: u64) -> Result<Self, Errno> {
        Self::made_by(&RamMaker::base(), machine, size)
    }

    /// Makes `size` bytes of RAM in a file of `maker`, maps it read-only, and protects the mapping
    /// from SIGBUS. No page is resident yet. `size` is a multiple of the page size. `machine`
    /// decides where RAM is in guest-physical memory.
    ///
    /// # Errors
    /// The kernel's; `ENOMEM` if its pool has fewer huge pages than the guest needs, or too many
    /// mappings are protected.
    pub(crate) fn made_by(maker: &RamMaker, machine: Machine, size: u64) -> Result<Self, Errno> {
        let fd = maker.file(size)?;
        let backing = maker.backing();
        let mut len = usize::try_from(size).map_err(|_| Errno::OVERFLOW)?;
        let mut flags = MapFlags::SHARED | MapFlags::NORESERVE;
        if backing == Backing::Pool {
            // Without `NORESERVE` the kernel reserves all huge pages of the pool now, so that no
            // page is missing when the guest touches it.
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
            // Without huge pages, a read of a word in a hole costs one base page and not 2 MiB.
            //
            // SAFETY: this value owns the mapping, and this advice changes no contents.
            let _ = unsafe { rustix::mm::madvise(address, len, Advice::LinuxNoHugepage) };
        }
        Ok(ram)
    }

    /// Keeps each block of 2 MiB that overlaps the `bytes` bytes from `offset` of the RAM file in
    /// base pages, so that using a part of a block does not cost a whole huge page. The range is
    /// cut at the end of RAM.
    ///
    /// The first base page of each block becomes resident and is pinned, so the host never builds a
    /// huge page of the block. Blocks whose page cannot be pinned are kept only until the host
    /// joins their pages.
    pub(crate) fn keep_in_base_pages(&mut self, offset: u64, bytes: u64) {
        let end = offset.saturating_add(bytes).min(self.layout.size);
        let first = (offset - offset % HUGE_PAGE..end).step_by(HUGE_STEP);
        let pages = first.filter_map(|at| usize::try_from(at).ok()).map(|at| {
            // SAFETY: `at` is below the size of RAM, and the mapping is at least that long.
            let page = unsafe { self.base.add(at) };
            // SAFETY: the page is inside the mapping. The byte may change at any time, and is not
            // used.
            unsafe { page.read_volatile() };
            page
        });
        let pages: Vec<_> = pages.collect();
        // SAFETY: the pages are in the mapping, which is readable. A failure is harmless: the
        // blocks are base pages until the host joins them.
        let _ = unsafe { self.pins.hold(&pages) };
        self.kept.push(offset..end);
    }

    /// Returns whether the host backs the 2 MiB block around the guest-physical `address` with one
    /// huge page. Punching a part of such a block would split the huge page.
    ///
    /// Returns `false` if `address` is not RAM, RAM is in base pages, or the block is kept in base
    /// pages. The answer is not exact: if the host had no huge page, a block for which this returns
    /// `true` may be in base pages.
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

    /// Returns whether `offset` of the RAM file is the start of a block that
    /// [`Self::keep_in_base_pages`] keeps in base pages. The page there is resident even if the
    /// guest has not used it.
    pub(crate) fn is_first_of_kept(&self, offset: u64) -> bool {
        let block = offset..offset.saturating_add(HUGE_PAGE);
        let touches = |kept: &Range<u64>| kept.start < block.end && block.start < kept.end;
        offset.is_multiple_of(HUGE_PAGE) && self.kept.iter().any(touches)
    }

    /// Returns the kind of file and pages that the host backs this RAM with.
    pub(crate) fn backing(&self) -> Backing {
        self.backing
    }

    /// Returns the descriptor of the RAM file. QEMU inherits a duplicate.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the size of the guest's RAM in bytes, as it was made. It does not depend on anything
    /// the guest says.
    pub(crate) fn bytes(&self) -> u64 {
        self.layout.size
    }

    /// Returns the size of the guest's RAM in frames of 4 KiB.
    pub(crate) fn frames(&self) -> u64 {
        self.bytes() / ebb_mm::FRAME_SIZE as u64
    }

    /// Returns the bytes of the guest's RAM that are resident on the host now, exact to the page.
    /// Fails with the kernel's error if `fstat` fails.
    pub(crate) fn resident_bytes(&self) -> Result<u64, Errno> {
        let stat = rustix::fs::fstat(&self.fd)?;
        Ok(u64::try_from(stat.st_blocks).unwrap_or(0) * 512)
    }

    /// Returns the offset in the RAM file of the `bytes` bytes at the guest-physical `address`.
    /// Returns `None` if they are not all RAM or not contiguous in the file.
    pub(crate) fn file_offset(&self, address: GuestAddress, bytes: u64) -> Option<u64> {
        self.layout.offset(address, bytes)
    }

    /// Punches a hole over the `bytes` bytes at the guest-physical `address`: the host's memory for
    /// them is freed, and they read as zeros. Of a page that is only partly in the range, the host
    /// clears that part and frees nothing.
    ///
    /// # Errors
    /// `EINVAL` if they are not all RAM, not contiguous in the file, or `bytes` is 0; else the
    /// kernel's of `fallocate`.
    pub(crate) fn punch(&self, address: GuestAddress, bytes: u64) -> Result<(), Errno> {
        let offset = self.layout.offset(address, bytes).ok_or(Errno::INVAL)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        loop {
            // The number of retries is bounded by the number of signals that arrive.
            match rustix::fs::fallocate(&self.fd, flags, offset, bytes) {
                Err(Errno::INTR) => {}
                done => return done,
            }
        }
    }

    /// Returns the one or two ranges of guest-physical RAM in ascending order. In the file they
    /// follow each other without a gap.
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

    /// Returns the bytes of RAM below 4 GiB. RAM above 4 GiB starts at this offset in the file.
    pub(super) fn low_bytes(&self) -> u64 {
        self.layout.low
    }

    /// Copies guest memory from `address` on into `bytes` and fills it. Returns `None` if the range
    /// is not all RAM, not contiguous in the file, or cannot be read; `bytes` may be partly changed
    /// then.
    ///
    /// Unlike a load through the mapping, this makes no page resident.
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

    /// Returns the 32-bit word at the guest-physical `address`, which the guest may change at any
    /// time. Returns `None` if the address is not RAM or not a multiple of 4. Never store to the
    /// word, since the mapping is read-only.
    pub(crate) fn atomic_u32(&self, address: GuestAddress) -> Option<&AtomicU32> {
        let word = self.checked(address, size_of::<AtomicU32>(), align_of::<AtomicU32>())?;
        // SAFETY: `checked` ensures that the word is aligned and inside the mapping, which lives as
        // long as `self`. The guest writes the word with aligned stores, which are compatible with
        // atomic loads, and this process never stores to it.
        Some(unsafe { word.cast::<AtomicU32>().as_ref() })
    }

    /// Returns the 64-bit word at the guest-physical `address`, which the guest may change at any
    /// time. Returns `None` if the address is not RAM or not a multiple of 8. Never store to the
    /// word, since the mapping is read-only.
    pub(crate) fn atomic_u64(&self, address: GuestAddress) -> Option<&AtomicU64> {
        let word = self.checked(address, size_of::<AtomicU64>(), align_of::<AtomicU64>())?;
        // SAFETY: `checked` ensures that the word is aligned and inside the mapping, which lives as
        // long as `self`. This process never stores to it.
        Some(unsafe { word.cast::<AtomicU64>().as_ref() })
    }

    /// Returns a pointer to the `len` bytes at `address` in the mapping. Returns `None` if they are
    /// not all RAM or not aligned to `align`.
    fn checked(&self, address: GuestAddress, len: usize, align: usize) -> Option<NonNull<u8>> {
        let offset = self.layout.offset(address, u64::try_from(len).ok()?)?;
        let offset = usize::try_from(offset).ok()?;
        if !offset.is_multiple_of(align) || offset.checked_add(len)? > self.len {
            return None;
        }
        // SAFETY: `offset + len <= self.len`, the length of the mapping at `base`.
        Some(unsafe { self.base.add(offset) })
    }
}

impl Drop for GuestRam {
    fn drop(&mut self) {
        self.watched = None;
        // SAFETY: `made_by` made the mapping with this length, and no reference into it outlives
        // `self`.
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
