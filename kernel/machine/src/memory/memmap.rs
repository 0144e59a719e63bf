//! The memmap: an array with a descriptor of 64 bytes for each frame, virtually contiguous.
//!
//! The array is mapped with 2 MiB pages over untouched RAM carved out at boot, except for the parts
//! that `vmemmap` has given up. The descriptor of a free frame is all zero. So a descriptor whose
//! frame was never used costs the host no memory, and whole pages of descriptors go back to the
//! host together with their frames.

use super::percpu::{self, Count};
use super::tables;
use crate::arch::{MEMMAP_BASE, phys_to_virt};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering, fence};
use ebb_mm::{Frame, FrameRange, Order};

/// The size of a descriptor in bytes.
pub const DESCRIPTOR_BYTES: u64 = 64;
/// The number of frames whose descriptors fill one page.
pub const FRAMES_PER_PAGE: u64 = 4096 / DESCRIPTOR_BYTES;

/// The number of the frame after the last one that has a descriptor.
static END: AtomicU64 = AtomicU64::new(0);

/// Returns the frame after the last frame that has a descriptor.
pub(super) fn end() -> Frame {
    // Relaxed: set once, at boot.
    Frame::new(END.load(Ordering::Relaxed))
}

/// Sets the number of the frame that [`end`] returns to `end`. Called once, at boot.
pub(super) fn set_end(end: u64) {
    END.store(end, Ordering::Relaxed);
}

/// The use of an allocated frame. In a descriptor, 0 stands for a free frame.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Private memory of programs.
    Anonymous = 1,
    /// Pages of files and of shared memory.
    File = 2,
    /// Page tables of address spaces.
    PageTable = 3,
    /// Heap objects of one size class.
    Slab = 4,
    /// A heap object that occupies whole frames.
    Large = 5,
    /// A kernel stack.
    Stack = 6,
    /// Other kernel memory.
    Kernel = 7,
    /// Memory of the memmap itself: parts that were given up and then restored (`vmemmap`).
    Memmap = 8,
    /// A part of a huge page of a pool, whose state is elsewhere (`hugetlb`). All descriptors of
    /// such a page contain only this kind.
    HugePage = 9,
    /// A page of the balloon (`ballooned`).
    Balloon = 10,
}

impl Kind {
    /// Returns the counter for frames of this kind.
    pub const fn count(self) -> Count {
        match self {
            Self::Anonymous => Count::AnonymousFrames,
            Self::File => Count::FileFrames,
            Self::PageTable => Count::PageTableFrames,
            Self::Slab | Self::Large => Count::SlabFrames,
            Self::Stack => Count::StackFrames,
            Self::Kernel => Count::KernelFrames,
            Self::Memmap => Count::MemmapFrames,
            Self::HugePage => Count::HugetlbFrames,
            Self::Balloon => Count::BalloonFrames,
        }
    }
}

/// The kernel's record of a frame in use. All zero while the frame is free.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Descriptor {
    /// In one word, so that a frame with one owner is taken and freed by one store:
    ///
    /// | bits | |
    /// |---|---|
    /// | 0–31 | references: page-table entries, files, the kernel; 0: free, or inside of a block |
    /// | 32–39 | a [`Kind`]; 0: free |
    /// | 40–47 | the order of the block that starts here |
    /// | 48–63 | slabs: CPU, size class (`heap`); bit 48 of a huge block: it is being parted |
    pub(super) head: AtomicU64,
    /// Slabs: the state of the objects, see `slab::Objects`. First frames of huge blocks of files:
    /// the number of page-table entries that map the block.
    pub(super) objects: AtomicU64,
    /// Slabs: the next slab with room, as a frame number; 0 if there is none. Page tables in
    /// reserve: the next table in the list. Pages of the balloon: see `ballooned`.
    pub(super) next: AtomicU64,
    /// Slabs: the previous slab with room, as a frame number; 0 if there is none. Pages of the
    /// balloon: see `ballooned`.
    pub(super) previous: AtomicU64,
    /// Private memory and page tables: the owner and address of the page, as the address spaces
    /// write it. Pages of files: the owner and index, as `vm::Name` writes it. Pages of the
    /// balloon: see `ballooned`.
    owner: AtomicU64,
    _room: [AtomicU64; 3],
}

const _: () = assert!(size_of::<Descriptor>() as u64 == DESCRIPTOR_BYTES);

/// Returns the head of a block of `kind` and `order` with one reference.
pub(super) const fn new_head(kind: Kind, order: Order) -> u64 {
    1 | (kind as u64) << 32 | (order.get() as u64) << 40
}

/// The head of every frame of a huge page of the pool.
pub(super) const HUGE_PAGE_HEAD: u64 = (Kind::HugePage as u64) << 32;

/// Returns the number of references in `head`.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low half holds them")]
pub(super) const fn references_in(head: u64) -> u32 {
    head as u32
}

impl Descriptor {
    /// Returns a pointer to the descriptor of `frame`, which must be RAM.
    #[inline]
    pub fn of(frame: Frame) -> NonNull<Self> {
        let address = MEMMAP_BASE + frame.number() * DESCRIPTOR_BYTES;
        // SAFETY: MEMMAP_BASE is not 0 and the sum does not wrap: frame numbers have 34 bits.
        unsafe { NonNull::new_unchecked(address as *mut Self) }
    }

    /// Returns the descriptor of `frame`, which must be RAM.
    #[inline]
    pub fn get(frame: Frame) -> &'static Self {
        // SAFETY: descriptors of RAM are mapped for good (`boot`), zero is a valid value, and all
        // fields are atomic.
        unsafe { Self::of(frame).as_ref() }
    }

    /// Returns the frame that the descriptor `this` describes.
    #[inline]
    pub fn frame(this: NonNull<Self>) -> Frame {
        Frame::new((this.as_ptr() as u64 - MEMMAP_BASE) / DESCRIPTOR_BYTES)
    }

    /// Marks this frame as the first of a new block of `kind` and `order`, with one reference. The
    /// caller has just allocated the block.
    #[inline]
    pub fn take(&self, kind: Kind, order: Order) {
        debug_assert_eq!(
            self.head.load(Ordering::Relaxed),
            0,
            "a free frame is in use"
        );
        // Relaxed: the frame belongs to this CPU alone until its address is handed on, and that
        // publishes this store too.
        self.head.store(new_head(kind, order), Ordering::Relaxed);
    }

    /// Sets the head and the owner in this descriptor to zero, because the frame is about to be
    /// freed.
    #[inline]
    pub fn clear(&self) {
        // Relaxed: as in `take`; the frame has no other reference.
        self.head.store(0, Ordering::Relaxed);
        self.owner.store(0, Ordering::Relaxed);
    }

    /// Records the owner of the page of private memory, or of the page table, in this frame.
    /// `owner` contains the address space and the address of the page, in the form in which address
    /// spaces encode both. The caller holds a reference to the frame.
    #[inline]
    pub fn set_owner(&self, owner: u64) {
        // Relaxed (both): a user of the value checks the page tables, under their lock.
        self.owner.store(owner, Ordering::Relaxed);
    }

    /// Returns the value that [`Self::set_owner`] recorded; 0 if there is none. If the caller holds
    /// no reference to the frame, the value may be out of date.
    #[inline]
    pub fn owner(&self) -> u64 {
        self.owner.load(Ordering::Relaxed)
    }

    /// Returns whether this is a single frame of private memory with exactly `references`
    /// references. If the caller holds no reference to the frame, the answer may be out of date.
    #[inline]
    pub fn is_anonymous(&self, references: u32) -> bool {
        // Acquire: as in `references`.
        let head = self.head.load(Ordering::Acquire);
        head == (new_head(Kind::Anonymous, Order::BASE) - 1) | u64::from(references)
    }

    /// Clears the descriptor if the frame is a single frame of private memory and the caller's
    /// reference is the only one. Returns `true` then, and the caller frees the frame. Otherwise
    /// changes nothing and returns `false`.
    #[inline]
    pub fn clear_own_anonymous(&self) -> bool {
        // Acquire: as in `put`.
        let own = self.head.load(Ordering::Acquire) == new_head(Kind::Anonymous, Order::BASE);
        if own {
            self.clear();
        }
        own
    }

    /// Records the CPU and size class of a new slab, encoded by `heap` as `class`.
    pub(super) fn set_class(&self, class: u16) {
        // Relaxed: only its maker uses the slab yet.
        let head = self.head.load(Ordering::Relaxed);
        self.head
            .store(head | u64::from(class) << 48, Ordering::Relaxed);
    }

    /// Returns the value that [`Self::set_class`] recorded.
    pub(super) fn class(&self) -> usize {
        // Relaxed: set before the first object of the slab was handed out.
        usize::from((self.head.load(Ordering::Relaxed) >> 48) as u16)
    }

    /// Sets the descriptor of a slab to zero, because its frame is about to be freed.
    pub(super) fn clear_slab(&self) {
        self.objects.store(0, Ordering::Relaxed);
        self.next.store(0, Ordering::Relaxed);
        self.previous.store(0, Ordering::Relaxed);
        self.clear();
    }

    /// Records `next` as the page table after this one in a list of page tables in reserve. `None`
    /// ends the list.
    pub fn set_next(&self, next: Option<Frame>) {
        // Relaxed: the list has a lock.
        let number = next.map_or(0, Frame::number);
        self.next.store(number, Ordering::Relaxed);
    }

    /// Returns the page table that [`Self::set_next`] recorded, or `None` if this one is the last.
    pub fn next(&self) -> Option<Frame> {
        let number = self.next.load(Ordering::Relaxed);
        (number != 0).then(|| Frame::new(number))
    }

    /// Returns the page table that [`Self::set_next`] recorded, or `None` if this one is the last,
    /// and clears the record. The descriptor of a free frame must be all zero.
    pub fn take_next(&self) -> Option<Frame> {
        let next = self.next();
        self.next.store(0, Ordering::Relaxed);
        next
    }

    /// Returns the use of the frame, or `None` if it is free or inside of a block.
    #[inline]
    pub fn kind(&self) -> Option<Kind> {
        // Relaxed: asked by holders of the frame, who got it after `take`.
        Some(match self.head.load(Ordering::Relaxed) >> 32 & 0xff {
            1 => Kind::Anonymous,
            2 => Kind::File,
            3 => Kind::PageTable,
            4 => Kind::Slab,
            5 => Kind::Large,
            6 => Kind::Stack,
            7 => Kind::Kernel,
            8 => Kind::Memmap,
            9 => Kind::HugePage,
            10 => Kind::Balloon,
            _ => return None,
        })
    }

    /// Returns the order of the block that starts with this frame.
    pub fn order(&self) -> Order {
        let order = self.head.load(Ordering::Relaxed) >> 40 & 0xff;
        Order::all()
            .find(|o| u64::from(o.get()) == order)
            .unwrap_or(Order::BASE)
    }

    /// Returns the present number of references to the block that starts with this frame.
    #[inline]
    pub fn references(&self) -> u32 {
        // Acquire: pairs with the Release of `put`. So a caller that finds its own reference to be
        // the only one sees what other holders did with the frame.
        references_in(self.head.load(Ordering::Acquire))
    }

    /// Returns whether the frame is part of a huge page of a pool, whose other state is in
    /// `hugetlb`. If the caller holds no reference to the frame, the answer may be out of date.
    #[inline]
    pub fn is_huge_page(&self) -> bool {
        // Relaxed: the descriptor of a page that is in use does not change.
        self.head.load(Ordering::Relaxed) == HUGE_PAGE_HEAD
    }

    /// Adds one reference to the block that starts with this frame. The caller holds a reference
    /// already.
    ///
    /// # Panics
    /// If the block has no references, or their number is close to overflow.
    #[inline]
    pub fn get_reference(&self) {
        // Relaxed: a new reference is made from one that exists, which keeps the frame.
        let before = references_in(self.head.fetch_add(1, Ordering::Relaxed));
        assert!(
            before != 0 && before < u32::MAX / 2,
            "reference count {before}"
        );
    }

    /// Drops one reference to the block. Returns `true` if it was the last one. The count is then
    /// unspecified, and the caller frees the block. Returns `false` if the block has other
    /// references.
    #[inline]
    pub fn put(&self) -> bool {
        // The count of a sole owner cannot change: a new reference needs an existing one.
        // Acquire: pairs with the Release below.
        if self.references() == 1 {
            return true;
        }
        // Release: what we did with the frame comes before its reuse; the fence pairs with it.
        if references_in(self.head.fetch_sub(1, Ordering::Release)) != 1 {
            return false;
        }
        fence(Ordering::Acquire);
        true
    }
}

/// Drops one reference to the block that starts with `frame`. If it was the last one, frees the
/// block.
#[inline]
pub fn release(frame: Frame) {
    let descriptor = Descriptor::get(frame);
    if descriptor.put() {
        free_block(frame, descriptor);
    }
}

/// Frees the block that starts with `frame`, whose last reference was dropped. `descriptor` is that
/// of `frame`.
#[inline]
pub fn free_block(frame: Frame, descriptor: &Descriptor) {
    let kind = descriptor.kind();
    let order = descriptor.order();
    descriptor.clear();
    if let Some(kind) = kind {
        percpu::subtract(kind.count(), order.frames());
    }
    percpu::free(frame, order);
}

/// Returns an iterator over the memory of the memmap pages that describe only frames of `block`,
/// in contiguous ranges of frames. The caller must own all of `block` until the iterator is
/// dropped, and the frames of `block` must be free. A block of less than 64 frames has no such
/// page.
pub(super) fn descriptor_pages(block: FrameRange) -> impl Iterator<Item = FrameRange> {
    let mut page = block.start.number().div_ceil(FRAMES_PER_PAGE);
    let end = block.end().number() / FRAMES_PER_PAGE;
    core::iter::from_fn(move || {
        let (start, mut known) = next_run(page, end)?;
        page += known;
        // Bounded by the pages: each turn knows of one more at least.
        while let Some((next, more)) = next_run(page, end)
            && next == start.offset(known)
        {
            known += more;
            page += more;
        }
        Some(FrameRange::new(start, known))
    })
}

/// Returns the frame of page number `page` of the memmap, and the number of pages from there on
/// that the same entry maps, up to page number `end`. Returns `None` at the end, and if the memmap
/// has no memory there.
fn next_run(page: u64, end: u64) -> Option<(Frame, u64)> {
    if page >= end {
        return None;
    }
    let (address, bytes) = tables::memmap_run(page * 4096)?;
    Some((Frame::containing(address), (bytes / 4096).min(end - page)))
}

/// Returns the address of the first byte of `frame` in the physmap.
#[inline]
pub fn frame_ptr(frame: Frame) -> *mut u8 {
    phys_to_virt(frame.address())
}
