//! The parts of an address space that a core file contains.

#![expect(unsafe_code, reason = "pages are read by their frames")]

use super::entry::{REGION, ZERO, frame_of, index};
use super::pagetable::Region;
use super::space::PAGE;
use super::trial::table_of;
use super::{AddressSpace, VmaFlags, VmaInfo};
use bitflags::bitflags;
use core::ops::Range;
use core::sync::atomic::Ordering;
use ebb_mm::Frame;
use machine::memory::PAGE_SIZE;
use machine::memory::memmap::frame_ptr;

bitflags! {
    /// Kinds of memory, with the bits of Linux's `/proc/PID/coredump_filter`.
    #[derive(Copy, Clone, Debug, PartialEq, Eq)]
    pub struct CoreFilter: u32 {
        /// Private anonymous memory, and written pages of private file mappings.
        const ANON_PRIVATE = 1;
        /// Shared mappings of files without a name.
        const ANON_SHARED = 1 << 1;
        /// Private mappings of files.
        const MAPPED_PRIVATE = 1 << 2;
        /// Shared mappings of files.
        const MAPPED_SHARED = 1 << 3;
        /// The first page of a program's file.
        const ELF_HEADERS = 1 << 4;
        /// Private huge pages of the pool.
        const POOL_PRIVATE = 1 << 5;
        /// Shared huge pages of the pool.
        const POOL_SHARED = 1 << 6;
    }
}

impl CoreFilter {
    /// The default, as on Linux.
    pub const USUAL: Self = Self::ANON_PRIVATE
        .union(Self::ANON_SHARED)
        .union(Self::ELF_HEADERS)
        .union(Self::POOL_PRIVATE);
}

/// The result of [`AddressSpace::copy_present`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The address of the first copied page, or `next` if no page was found.
    pub at: u64,
    /// The size of the copied pages in bytes; 0 if no page was found.
    pub bytes: usize,
    /// The end of the searched part. There are no further pages before this address.
    pub next: u64,
}

/// A copy of adjacent pages in progress.
struct Copying<'a> {
    to: &'a mut [u8],
    at: u64,
    bytes: usize,
}

impl Copying<'_> {
    /// Copies the pages from `at` to `end`, whose frames `frame` returns, and advances `at`. Skips
    /// pages without a frame until the first page was copied. Returns whether `at` reached `end`.
    fn take_all(&mut self, at: &mut u64, end: u64, frame: impl Fn(u64) -> Option<Frame>) -> bool {
        while *at < end {
            let goes_on = match frame(*at) {
                Some(frame) => self.take(*at, frame),
                None => self.bytes == 0,
            };
            if !goes_on {
                return false;
            }
            *at += PAGE;
        }
        true
    }

    /// Copies the page at `address`, which follows the pages copied before. Returns `false` if
    /// there is no room for it.
    fn take(&mut self, address: u64, frame: Frame) -> bool {
        if self.bytes == 0 {
            self.at = address;
        }
        let Some(to) = self.to.get_mut(self.bytes..self.bytes + PAGE_SIZE) else {
            return false;
        };
        let from = frame_ptr(frame).cast_const().cast::<u8>();
        // SAFETY: an entry keeps the frame, and the space's lock the entry. Other threads may write
        // to it at the same time, as to any memory that a call reads.
        unsafe { core::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), PAGE_SIZE) };
        self.bytes += PAGE_SIZE;
        true
    }
}

impl AddressSpace {
    /// Returns the number of bytes of `area`, from its first address on, that go into a core file.
    /// `filter` names the wanted kinds of memory. Returns 0 if the area is not wanted.
    pub fn core_bytes(&self, area: &VmaInfo, filter: CoreFilter) -> u64 {
        let whole = area.end - area.start;
        let if_wanted = |kind: CoreFilter| if filter.intersects(kind) { whole } else { 0 };
        let shared = area.flags.contains(VmaFlags::SHARED);
        if area.flags.contains(VmaFlags::DONT_DUMP) {
            return 0;
        }
        if area.flags.contains(VmaFlags::HUGETLB) {
            return if_wanted(if shared {
                CoreFilter::POOL_SHARED
            } else {
                CoreFilter::POOL_PRIVATE
            });
        }
        if shared {
            let nameless = area
                .file
                .as_ref()
                .is_none_or(|file| file.path.ends_with(b" (deleted)"));
            return if_wanted(if nameless {
                CoreFilter::ANON_SHARED
            } else {
                CoreFilter::MAPPED_SHARED
            });
        }
        let [written, ..] = self.resident(area.start..area.end);
        if written != 0 && filter.contains(CoreFilter::ANON_PRIVATE) {
            return whole;
        }
        if area.file.is_none() {
            return 0;
        }
        if filter.contains(CoreFilter::MAPPED_PRIVATE) {
            return whole;
        }
        let mut magic = [0; 4];
        let is_front = area.offset == 0 && area.flags.contains(VmaFlags::READ);
        if is_front
            && filter.contains(CoreFilter::ELF_HEADERS)
            && self.read_bytes(area.start, &mut magic).is_ok()
            && magic == *b"\x7fELF"
        {
            return PAGE;
        }
        0
    }

    /// Copies the first run of present pages in `range` into `to`, whose length is a multiple of
    /// the page size. A page is present if its entry refers to a frame other than the shared frame
    /// of zeros. So pages of anonymous memory without a store are not present. The search may pass
    /// many tables, so a call may end before it has found a page.
    pub fn copy_present(&self, range: Range<u64>, to: &mut [u8]) -> Found {
        /// Tables that are looked at under one hold of the lock.
        const TABLES: usize = 8;
        let mut copying = Copying {
            to,
            at: 0,
            bytes: 0,
        };
        let mut at = range.start;
        let state = self.state.lock();
        for _ in 0..TABLES {
            if at >= range.end {
                break;
            }
            let end = range.end.min((at / REGION + 1) * REGION);
            // Relaxed (all): under the space's lock.
            let done = match state.tables.region(at) {
                Region::AbsentUntil(next) => {
                    let passed = copying.bytes == 0;
                    at = if passed { next.min(range.end) } else { at };
                    passed
                }
                Region::Table(table) => copying.take_all(&mut at, end, |address| {
                    let entry = table[index(address, 0)].load(Ordering::Relaxed);
                    (entry != 0 && entry & ZERO == 0).then(|| frame_of(entry))
                }),
                Region::Trial(slot) => {
                    let table = table_of(slot);
                    copying.take_all(&mut at, end, |address| {
                        let entry = table[index(address, 0)].load(Ordering::Relaxed);
                        (entry != 0).then(|| frame_of(entry))
                    })
                }
                Region::Huge(slot, span) => {
                    let entry = slot.load();
                    copying.take_all(&mut at, end, |address| {
                        let first = (entry & ZERO == 0).then(|| frame_of(entry));
                        first.map(|first| first.offset(address % span / PAGE))
                    })
                }
            };
            if !done {
                break;
            }
        }
        Found {
            at: if copying.bytes == 0 { at } else { copying.at },
            bytes: copying.bytes,
            next: at,
        }
    }
}
