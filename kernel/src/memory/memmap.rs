//! The memmap: one descriptor of 64 bytes for each frame, virtually contiguous.
//!
//! The array is mapped with 2 MiB pages over carved-out RAM that nobody has touched. The
//! descriptor of a free frame is all zero, so a descriptor whose frame was never used costs the
//! host nothing, and whole pages of them go back to the host together with the frames.

use super::percpu::{self, Count};
use crate::arch::{MEMMAP_BASE, phys_to_virt};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use ebb_mm::{Frame, FrameRange, Order};

/// Bytes of a descriptor.
pub(crate) const DESCRIPTOR_BYTES: u64 = 64;
/// Frames whose descriptors fill a page.
pub(crate) const FRAMES_PER_PAGE: u64 = 4096 / DESCRIPTOR_BYTES;

/// Who owns a frame. 0 is left to free frames.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Private memory of programs.
    Anonymous = 1,
    /// Pages of files and of shared memory.
    File = 2,
    /// Page tables of address spaces.
    PageTable = 3,
    /// Heap objects of one size class.
    Slab = 4,
    /// A heap object of whole frames.
    Large = 5,
    /// A kernel stack.
    Stack = 6,
    /// Other kernel memory.
    Kernel = 7,
}

impl Kind {
    /// The counter that counts frames of this kind.
    pub(crate) const fn count(self) -> Count {
        match self {
            Self::Anonymous => Count::AnonymousFrames,
            Self::File => Count::FileFrames,
            Self::PageTable => Count::PageTableFrames,
            Self::Slab | Self::Large => Count::SlabFrames,
            Self::Stack => Count::StackFrames,
            Self::Kernel => Count::KernelFrames,
        }
    }
}

/// What the kernel knows of a frame in use. All zero while it is free.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Descriptor {
    /// Who holds the frame: page-table entries, files, the kernel. 0: it is free, or not the first
    /// frame of its block.
    pub(super) references: AtomicU32,
    /// A [`Kind`]; 0: free.
    kind: AtomicU8,
    /// The order of the block that starts here.
    order: AtomicU8,
    /// Slabs: the size class.
    pub(super) class: AtomicU16,
    /// Slabs: the state of the objects, see `slab::Objects`.
    pub(super) objects: AtomicU64,
    /// Slabs: the next and the previous slab with room, as frame numbers; 0: none.
    pub(super) next: AtomicU64,
    pub(super) previous: AtomicU64,
    /// Room for the reverse mapping: whose page this is, and which of theirs.
    _owner: AtomicU64,
    _index: AtomicU64,
    _room: [AtomicU64; 2],
}

const _: () = assert!(size_of::<Descriptor>() as u64 == DESCRIPTOR_BYTES);

impl Descriptor {
    /// The descriptor of a frame of RAM.
    #[inline]
    pub(crate) fn of(frame: Frame) -> NonNull<Self> {
        let address = MEMMAP_BASE + frame.number() * DESCRIPTOR_BYTES;
        // SAFETY: MEMMAP_BASE is not 0 and the sum does not wrap: frame numbers have 34 bits.
        unsafe { NonNull::new_unchecked(address as *mut Self) }
    }

    /// The same as a reference.
    #[inline]
    pub(crate) fn get(frame: Frame) -> &'static Self {
        // SAFETY: descriptors of RAM are mapped for good (`boot`), zero is a valid value, and all
        // fields are atomic.
        unsafe { Self::of(frame).as_ref() }
    }

    /// The frame that a descriptor belongs to.
    #[inline]
    pub(crate) fn frame(this: NonNull<Self>) -> Frame {
        Frame::new((this.as_ptr() as u64 - MEMMAP_BASE) / DESCRIPTOR_BYTES)
    }

    /// Marks the first frame of a new block: one reference, this kind.
    #[inline]
    pub(crate) fn take(&self, kind: Kind, order: Order) {
        debug_assert_eq!(
            self.references.load(Ordering::Relaxed),
            0,
            "a free frame is in use"
        );
        // Relaxed: the frame belongs to this CPU alone until its address is handed on, and that
        // publishes these stores too.
        self.kind.store(kind as u8, Ordering::Relaxed);
        if order != Order::BASE {
            self.order.store(order.get(), Ordering::Relaxed);
        }
        self.references.store(1, Ordering::Relaxed);
    }

    /// Makes the descriptor zero again, as the frame is about to be freed.
    #[inline]
    pub(crate) fn clear(&self) {
        // Relaxed: as in `take`; nobody else refers to the frame.
        self.references.store(0, Ordering::Relaxed);
        self.kind.store(0, Ordering::Relaxed);
        self.order.store(0, Ordering::Relaxed);
    }

    /// Clears what slabs use besides.
    pub(super) fn clear_slab(&self) {
        self.class.store(0, Ordering::Relaxed);
        self.objects.store(0, Ordering::Relaxed);
        self.next.store(0, Ordering::Relaxed);
        self.previous.store(0, Ordering::Relaxed);
        self.clear();
    }

    /// The kind, `None` for a free frame.
    #[inline]
    pub(crate) fn kind(&self) -> Option<Kind> {
        // Relaxed: asked by holders of the frame, who got it after `take`.
        Some(match self.kind.load(Ordering::Relaxed) {
            1 => Kind::Anonymous,
            2 => Kind::File,
            3 => Kind::PageTable,
            4 => Kind::Slab,
            5 => Kind::Large,
            6 => Kind::Stack,
            7 => Kind::Kernel,
            _ => return None,
        })
    }

    /// The order of the block that starts here.
    pub(crate) fn order(&self) -> Order {
        Order::new(self.order.load(Ordering::Relaxed)).unwrap_or(Order::BASE)
    }

    /// References at this moment.
    #[inline]
    pub(crate) fn references(&self) -> u32 {
        // Acquire: pairs with the Release of `put`: who sees itself alone sees what the others did
        // with the frame.
        self.references.load(Ordering::Acquire)
    }

    /// One more reference; the caller holds one.
    #[inline]
    pub(crate) fn get_reference(&self) {
        // Relaxed: a new reference is made from one that exists, which keeps the frame.
        let before = self.references.fetch_add(1, Ordering::Relaxed);
        assert!(
            before != 0 && before < u32::MAX / 2,
            "reference count {before}"
        );
    }

    /// One reference less; true: it was the last, and the frame is the caller's to free.
    #[inline]
    pub(crate) fn put(&self) -> bool {
        // A sole owner cannot lose the count to others: nobody can make a reference from none.
        // Acquire: pairs with the Release below.
        if self.references.load(Ordering::Acquire) == 1 {
            return true;
        }
        // Release: what we did with the frame comes before its reuse; the fence pairs with it.
        if self.references.fetch_sub(1, Ordering::Release) != 1 {
            return false;
        }
        core::sync::atomic::fence(Ordering::Acquire);
        true
    }
}

/// Drops one reference to the block that starts at `frame`; frees it with the last.
#[inline]
pub(crate) fn release(frame: Frame) {
    let descriptor = Descriptor::get(frame);
    if descriptor.put() {
        free_block(frame, descriptor);
    }
}

/// Frees a block whose last reference is gone.
#[inline]
pub(crate) fn free_block(frame: Frame, descriptor: &Descriptor) {
    let kind = descriptor.kind();
    let order = descriptor.order();
    descriptor.clear();
    if let Some(kind) = kind {
        percpu::subtract(kind.count(), order.frames());
    }
    percpu::free(frame, order);
}

/// The whole pages of the memmap that describe nothing but frames of `block`, as frames that
/// hold them. Empty for less than 64 frames.
pub(crate) fn descriptor_pages(block: FrameRange) -> Option<FrameRange> {
    let first = block.start.number().div_ceil(FRAMES_PER_PAGE);
    let end = block.end().number() / FRAMES_PER_PAGE;
    if first >= end {
        return None;
    }
    // The memmap's 2 MiB pages are contiguous in physical memory for 2 MiB of descriptors only.
    let address = super::boot::memmap_physical(first * 4096)?;
    let last = super::boot::memmap_physical((end - 1) * 4096)?;
    (last - address == (end - 1 - first) * 4096)
        .then(|| FrameRange::new(Frame::containing(address), end - first))
}

/// A frame's first byte in the physmap.
#[inline]
pub(crate) fn frame_ptr(frame: Frame) -> *mut u8 {
    phys_to_virt(frame.address())
}
