//! Huge blocks: 2 MiB of private memory that page tables map by one entry.
//!
//! The descriptor of a block's first frame counts for the whole block, and those of the others stay
//! zero, so mapping, sharing and freeing a block costs one word rather than 512. If a single frame
//! is needed (pages of the block get different owners, or a page is pinned), the block is *parted*:
//! each frame gets a descriptor of its own with the block's number of references. From then on each
//! reference to the block is one to each of its frames.
//!
//! Parting needs no lock of the spaces that share the block: while it lasts, `PARTING` in the head
//! keeps them from counting.

use super::allocator;
use super::clear::clear_frames;
use super::memmap::{self, Descriptor, Kind, new_head, references_in};
use super::percpu::{self, Count};

use crate::arch::ipi;
use core::sync::atomic::{AtomicU8, Ordering};
use ebb_mm::{
    AllocError, Contents, FRAME_SIZE, Frame, FreeBatch, Mobility, Order, Request, Reserve,
};
use logic::errno::Errno;

/// Frames in a block.
pub const FRAMES: u64 = Order::PAGEBLOCK.frames();
/// In a head: the other frames' descriptors are being written.
const PARTING: u64 = 1 << 48;
/// In a head: the kind and the order of a block that is not parted.
const SHAPE: u64 = 0xffff << 32;

/// Clears a block unless `contents` says that it is zero. The caller has just allocated it, and
/// holds no spin lock, since other threads may run during the call.
pub(super) fn clear(block: Frame, contents: Contents) {
    if contents != Contents::NeverUsed {
        // SAFETY: the caller has just allocated the block, and is its only user.
        unsafe { clear_frames(block, FRAMES) };
    }
}

/// A reference to a huge block.
#[derive(Debug)]
pub struct HugeFrame(Frame);

impl HugeFrame {
    /// Allocates a zeroed block, unless that needs the memory's reserve. Does not wait for memory.
    /// Other threads may run while it clears the block.
    pub fn try_new() -> Result<Self, AllocError> {
        let request = Request::new(Order::PAGEBLOCK, Mobility::Movable).reserve(Reserve::Keep);
        let this = percpu::this();
        let (frame, contents) = this.allocate_known(request)?;
        this.add(Count::AnonymousFrames, FRAMES);
        this.add(Count::HugeFrames, FRAMES);
        Descriptor::get(frame).take(Kind::Anonymous, Order::PAGEBLOCK);
        let block = Self(frame);
        clear(frame, contents);
        Ok(block)
    }

    /// The first frame of the block.
    pub fn frame(&self) -> Frame {
        self.0
    }

    /// Gives the reference up without dropping it: a page-table entry holds it.
    pub fn into_counted(self) -> Frame {
        let frame = self.0;
        core::mem::forget(self);
        frame
    }
}

impl Drop for HugeFrame {
    fn drop(&mut self) {
        release(self.0);
    }
}

/// Returns the head of a block, once it is not being parted.
fn settled(descriptor: &Descriptor) -> u64 {
    loop {
        // Acquire: pairs with the Release at the end of `part`, and with `release`: who sees itself
        // alone sees what the others did with the block.
        let head = descriptor.head.load(Ordering::Acquire);
        if head & PARTING == 0 {
            return head;
        }
        ipi::poll_mailbox();
        core::hint::spin_loop();
    }
}

const fn is_whole(head: u64) -> bool {
    head & SHAPE == new_head(Kind::Anonymous, Order::PAGEBLOCK) & SHAPE
}

/// Changes the head of a block that is not parted; false: it is.
fn change_whole(descriptor: &Descriptor, mut change: impl FnMut(u64) -> u64) -> bool {
    loop {
        let head = settled(descriptor);
        if !is_whole(head) {
            return false;
        }
        // AcqRel: as in `settled`. A failure means that another CPU counted, so the number of
        // retries is bounded by the number of references.
        let exchanged = descriptor.head.compare_exchange_weak(
            head,
            change(head),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if exchanged.is_ok() {
            return true;
        }
    }
}

/// Whether the holder of a reference is the only one. A parted block may be the holder's alone all
/// the same.
pub fn is_own(frame: Frame) -> bool {
    let head = settled(Descriptor::get(frame));
    is_whole(head) && references_in(head) == 1
}

/// One more reference to the block; the caller holds one.
pub fn get_reference(frame: Frame) {
    let whole = change_whole(Descriptor::get(frame), |head| {
        assert!(
            references_in(head) < u32::MAX / 2,
            "references to a huge block"
        );
        head + 1
    });
    if !whole {
        for index in 0..FRAMES {
            Descriptor::get(frame.offset(index)).get_reference();
        }
    }
}

/// Gives each frame of the block its own descriptor; the caller holds a reference.
pub fn part(frame: Frame) {
    let descriptor = Descriptor::get(frame);
    let mut references = 0;
    let parting = change_whole(descriptor, |head| {
        references = references_in(head);
        head | PARTING
    });
    if !parting {
        return;
    }
    debug_assert_ne!(references, 0, "a free huge block is parted");
    let head = (new_head(Kind::Anonymous, Order::BASE) & SHAPE) | u64::from(references);
    let owner = descriptor.owner();
    for index in 1..FRAMES {
        let other = Descriptor::get(frame.offset(index));
        debug_assert_eq!(other.head.load(Ordering::Relaxed), 0);
        if owner != 0 {
            // The address of the page is a part of it.
            other.set_owner(owner + index * FRAME_SIZE as u64);
        }
        // Relaxed: the Release below publishes it.
        other.head.store(head, Ordering::Relaxed);
    }
    allocator().split(frame, Order::PAGEBLOCK, Order::BASE);
    percpu::subtract(Count::HugeFrames, FRAMES);
    percpu::add(Count::HugeParted, 1);
    // Release: pairs with `settled`.
    descriptor.head.store(head, Ordering::Release);
}

/// A bit for each frame of a block, from the lowest of the first word on.
pub type FrameSet = [u64; (FRAMES / 64) as usize];

/// The frames of a set, or with `wanted` false those that are not in it.
fn frames_in(set: &FrameSet, wanted: bool) -> impl Iterator<Item = u64> + '_ {
    (0..FRAMES)
        .filter(move |&index| (set[(index / 64) as usize] >> (index % 64) & 1 != 0) == wanted)
}

/// Gives each frame of a set a descriptor of its own. The caller has the only reference to the
/// block, and from then on one to each frame of the set. The other frames must go to the allocator
/// by [`free_rest`].
pub fn keep(frame: Frame, kept: &FrameSet) {
    assert!(
        is_own(frame),
        "a huge block that others have is taken apart"
    );
    let descriptor = Descriptor::get(frame);
    let owner = descriptor.owner();
    let head = new_head(Kind::Anonymous, Order::BASE);
    for index in frames_in(kept, true).filter(|&index| index != 0) {
        let other = Descriptor::get(frame.offset(index));
        debug_assert_eq!(other.head.load(Ordering::Relaxed), 0);
        if owner != 0 {
            other.set_owner(owner + index * FRAME_SIZE as u64);
        }
        // Relaxed: until now the frame is reached under the lock of its page tables alone.
        other.head.store(head, Ordering::Relaxed);
    }
    allocator().split(frame, Order::PAGEBLOCK, Order::BASE);
    percpu::subtract(Count::HugeFrames, FRAMES);
    percpu::add(Count::HugeParted, 1);
    if kept[0] & 1 == 0 {
        descriptor.clear();
    } else {
        // Release: as in `part`.
        descriptor.head.store(head, Ordering::Release);
    }
}

/// Frees the frames of a block that [`keep`] has not kept. They are in no page table and no TLB.
pub fn free_rest(frame: Frame, kept: &FrameSet) {
    let this = percpu::this();
    let mut batch = FreeBatch::new();
    let mut freed = 0;
    for index in frames_in(kept, false) {
        this.free_in(allocator(), &mut batch, frame.offset(index));
        freed += 1;
    }
    this.finish(batch);
    this.subtract(Count::AnonymousFrames, freed);
    this.add(Count::Freed, freed);
}

/// Drops one reference to the block, and frees the frames without further references.
pub fn release(frame: Frame) {
    let descriptor = Descriptor::get(frame);
    let mut last = false;
    let whole = change_whole(descriptor, |head| {
        last = references_in(head) == 1;
        // The last holder frees the block below: no other CPU can count any more.
        if last { head } else { head - 1 }
    });
    if !whole {
        for index in 0..FRAMES {
            memmap::release(frame.offset(index));
        }
    } else if last {
        percpu::subtract(Count::HugeFrames, FRAMES);
        memmap::free_block(frame, descriptor);
    }
}

/// Where huge blocks are mapped: `/sys/kernel/mm/transparent_hugepage/enabled`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Policy {
    /// In every area that does not decline (`MADV_NOHUGEPAGE`).
    Always,
    /// In areas that ask (`MADV_HUGEPAGE`).
    Madvise,
    /// Nowhere.
    Never,
}

impl Policy {
    /// All, in the order in which Linux shows them.
    pub const ALL: [Self; 3] = [Self::Always, Self::Madvise, Self::Never];

    /// Linux's word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Madvise => "madvise",
            Self::Never => "never",
        }
    }
}

// Relaxed, here and below: a value of its own, read when it is needed.
static POLICY: AtomicU8 = AtomicU8::new(Policy::Always as u8);

/// The policy.
pub fn policy() -> Policy {
    match POLICY.load(Ordering::Relaxed) {
        0 => Policy::Always,
        1 => Policy::Madvise,
        _ => Policy::Never,
    }
}

/// What a fault does that would be served by a huge page, where there is no block:
/// `/sys/kernel/mm/transparent_hugepage/defrag`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Defrag {
    /// It has a block emptied, and waits.
    Always,
    /// It has one emptied in the background, and takes pages.
    Defer,
    /// The first where the area asks for huge pages, the second elsewhere.
    DeferMadvise,
    /// The first where the area asks, nothing elsewhere.
    Madvise,
    /// Nothing.
    Never,
}

/// What a fault does for a block.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Effort {
    /// It has one emptied.
    Direct,
    /// It has one emptied in the background.
    Background,
    /// Nothing.
    None,
}

impl Defrag {
    /// All, in the order in which Linux shows them.
    pub const ALL: [Self; 5] = [
        Self::Always,
        Self::Defer,
        Self::DeferMadvise,
        Self::Madvise,
        Self::Never,
    ];

    /// Linux's word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Defer => "defer",
            Self::DeferMadvise => "defer+madvise",
            Self::Madvise => "madvise",
            Self::Never => "never",
        }
    }

    /// What a fault does, of an area that `asks` for huge pages or does not.
    pub const fn effort(self, asks: bool) -> Effort {
        match (self, asks) {
            (Self::Always, _) | (Self::DeferMadvise | Self::Madvise, true) => Effort::Direct,
            (Self::Defer, _) | (Self::DeferMadvise, false) => Effort::Background,
            (Self::Madvise, false) | (Self::Never, _) => Effort::None,
        }
    }
}

static DEFRAG: AtomicU8 = AtomicU8::new(Defrag::Madvise as u8);

/// What faults do.
pub fn defrag() -> Defrag {
    let value = DEFRAG.load(Ordering::Relaxed);
    Defrag::ALL
        .into_iter()
        .find(|&defrag| defrag as u8 == value)
        .unwrap_or(Defrag::Madvise)
}

/// Sets that by its name.
///
/// # Errors
/// `EINVAL` for a name that none has.
pub fn set_defrag(name: &str) -> Result<(), Errno> {
    let defrag = Defrag::ALL.into_iter().find(|defrag| defrag.name() == name);
    DEFRAG.store(defrag.ok_or(Errno::EINVAL)? as u8, Ordering::Relaxed);
    Ok(())
}

/// Sets the policy by its name.
///
/// # Errors
/// `EINVAL` for a name that none has.
pub fn set_policy(name: &str) -> Result<(), Errno> {
    let policy = Policy::ALL.into_iter().find(|policy| policy.name() == name);
    POLICY.store(policy.ok_or(Errno::EINVAL)? as u8, Ordering::Relaxed);
    Ok(())
}
