//! Unmapped frames on their way to the allocator.
//!
//! Protocol: under the space's lock, entries are cleared and their frames gathered; [`Gather::flush`]
//! has every CPU that may know the old entries drop them; only then [`Gather::free`], without the
//! lock, lets the frames go. One flush serves a whole batch.

use super::pagetable::{FILE, SHMEM, ZERO, frame_of};
use super::tlb;
use crate::arch::CpuSet;
use crate::memory::memmap;
use crate::memory::percpu::{self, Count};
use core::mem::MaybeUninit;
use core::ops::Range;
use ebb_mm::Frame;

/// Frames in a batch: one page of stack.
const CAPACITY: usize = 510;

/// A batch.
pub(super) struct Gather {
    len: usize,
    frames: [MaybeUninit<Frame>; CAPACITY],
    /// Pages taken out, by kind: anonymous, file, shared memory.
    pub(super) pages: [u64; 3],
    /// Something was taken out that a TLB may know.
    any: bool,
}

/// The index of an entry's kind in [`Gather::pages`].
#[inline]
pub(super) fn kind_index(entry: u64) -> usize {
    // FILE and SHMEM are never set together.
    ((entry / FILE) % 4) as usize
}

const _: () = assert!(SHMEM == FILE << 1);

impl Gather {
    pub(super) const fn new() -> Self {
        Self {
            len: 0,
            frames: [const { MaybeUninit::uninit() }; CAPACITY],
            pages: [0; 3],
            any: false,
        }
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.len == CAPACITY
    }

    #[inline]
    fn push(&mut self, frame: Frame) {
        self.frames[self.len].write(frame);
        self.len += 1;
    }

    /// Takes over the reference of a last-level entry.
    #[inline]
    pub(super) fn page(&mut self, entry: u64) {
        self.any = true;
        if entry & ZERO == 0 {
            self.pages[kind_index(entry)] += 1;
            self.push(frame_of(entry));
        }
    }

    /// Takes over a page table.
    pub(super) fn table(&mut self, frame: Frame) {
        self.any = true;
        self.push(frame);
    }

    /// Makes all CPUs forget the entries.
    pub(super) fn flush(&mut self, cpus: &CpuSet, range: Range<u64>) {
        if core::mem::take(&mut self.any) {
            tlb::flush(cpus, range);
        }
    }

    /// Drops the frames' references; flushed before.
    pub(super) fn free(&mut self) {
        debug_assert!(!self.any, "frames are freed that a TLB may know");
        for frame in &self.frames[..core::mem::take(&mut self.len)] {
            // SAFETY: the first `len` are initialised.
            memmap::release(unsafe { frame.assume_init() });
        }
        let mapped = self.pages[1] + self.pages[2];
        if mapped != 0 {
            percpu::subtract(Count::MappedFile, mapped);
        }
        self.pages = [0; 3];
        percpu::drain_if_asked();
    }
}
