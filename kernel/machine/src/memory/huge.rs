//! Huge blocks: 2 MiB of private memory that page tables map by one entry.
//!
//! The descriptor of a block's first frame counts for the whole block, and those of the others stay
//! zero. So mapping, sharing and freeing a block costs one word rather than 512. If a single frame
//! is needed (pages of the block get different owners, or a page is pinned), the block is *parted*:
//! each frame gets its own descriptor with the block's number of references. From then on each
//! reference to the block is one to each of its frames.
//!
//! Parting needs no lock of the address spaces that share the block. While it lasts, `PARTING` in
//! the head keeps them from changing the count.

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

/// The number of frames in a huge block.
pub const FRAMES: u64 = Order::PAGEBLOCK.frames();
/// In a head: the other frames' descriptors are being written.
const PARTING: u64 = 1 << 48;
/// In a head: the kind and the order of a block that is not parted.
const SHAPE: u64 = 0xffff << 32;

/// Fills the huge block that begins with `block` with zeros, unless `contents` says that it is
/// zero. The caller has just allocated the block, and holds no spin lock, since other threads may
/// run during the call.
pub(super) fn clear(block: Frame, contents: Contents) {
    if contents != Contents::NeverUsed {
        // SAFETY: the caller has just allocated the block, and is its only user.
        unsafe { clear_frames(block, FRAMES) };
    }
}

/// A counted reference to a huge block of private memory. Dropping the last reference frees the
/// block.
#[derive(Debug)]
pub struct HugeFrame(Frame);

impl HugeFrame {
    /// Allocates a huge block of zeros. Does not wait for memory, but other threads may run while
    /// it clears the block, so the caller holds no spin lock.
    ///
    /// # Errors
    /// [`AllocError`] if no block is free above the memory's reserve.
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

    /// Returns the first frame of the block.
    pub fn frame(&self) -> Frame {
        self.0
    }

    /// Returns the first frame without dropping the reference, which a page-table entry then holds.
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

/// Returns the head of the block whose first frame has the descriptor `descriptor`. Waits while the
/// block is being parted.
fn settled(descriptor: &Descriptor) -> u64 {
    loop {
        // Acquire: pairs with the Release at the end of `part`, and with `release`. So a caller
        // that finds its own reference to be the only one sees what other holders did with the
        // block.
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

/// Replaces the head of a block by the result of `change`, which gets the old head, and returns
/// `true`. `descriptor` is that of the block's first frame. Waits while the block is being parted.
/// Returns `false`, and changes nothing, if it is parted.
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

/// Returns whether the caller's reference to the block that begins with `frame` is the only one.
/// Always returns `false` if the block was split into frames ([`part`]).
pub fn is_own(frame: Frame) -> bool {
    let head = settled(Descriptor::get(frame));
    is_whole(head) && references_in(head) == 1
}

/// Adds one reference to the block that begins with `frame`. If the block was split ([`part`]),
/// adds one reference to each of its frames. The caller holds a reference already.
///
/// # Panics
/// If the number of references is close to overflow.
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

/// Splits the block that begins with `frame`, so that each of its frames has its own descriptor and
/// the block's number of references. The caller holds a reference. Does nothing if the block is
/// split already.
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

/// A set of frames of a huge block: one bit for each, from the lowest bit of the first word on.
pub type FrameSet = [u64; (FRAMES / 64) as usize];

/// Returns the indexes of the frames in `set`, or with `wanted` `false` of those that are not in
/// it.
fn frames_in(set: &FrameSet, wanted: bool) -> impl Iterator<Item = u64> + '_ {
    (0..FRAMES)
        .filter(move |&index| (set[(index / 64) as usize] >> (index % 64) & 1 != 0) == wanted)
}

/// Splits the block that begins with `frame` like [`part`], but only the frames in `kept` get a
/// descriptor. The caller holds the only reference to the block, and afterwards one to each frame
/// in `kept`. The caller must free the other frames with [`free_rest`].
///
/// # Panics
/// If the block has other references.
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

/// Frees those frames of the block that begins with `frame` that are not in `kept`. The block was
/// split by [`keep`] with the same `kept`. No page table and no TLB may map the frames any more.
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

/// Drops one reference to the block that begins with `frame`. If the block was split ([`part`]),
/// drops one reference to each of its frames. Frees the frames without further references.
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

/// Which areas of private memory get huge blocks
/// (`/sys/kernel/mm/transparent_hugepage/enabled`).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Policy {
    /// All areas without `MADV_NOHUGEPAGE`.
    Always,
    /// Areas with `MADV_HUGEPAGE`.
    Madvise,
    /// No areas.
    Never,
}

impl Policy {
    /// All policies, in the order in which Linux shows them.
    pub const ALL: [Self; 3] = [Self::Always, Self::Madvise, Self::Never];

    /// Returns Linux's word for the policy.
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

/// Returns the policy for huge blocks of private memory.
pub fn policy() -> Policy {
    match POLICY.load(Ordering::Relaxed) {
        0 => Policy::Always,
        1 => Policy::Madvise,
        _ => Policy::Never,
    }
}

/// The setting that says how a page fault gets a huge block if none is free
/// (`/sys/kernel/mm/transparent_hugepage/defrag`).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Defrag {
    /// It empties a block, and waits for that.
    Always,
    /// It requests that a block be emptied in the background, and uses single pages.
    Defer,
    /// It empties a block for areas with `MADV_HUGEPAGE`, and requests one in the background for
    /// others.
    DeferMadvise,
    /// It empties a block for areas with `MADV_HUGEPAGE`, and uses single pages for others.
    Madvise,
    /// It uses single pages.
    Never,
}

/// What a page fault does to get a huge block if none is free.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Effort {
    /// It empties a block, and waits for that.
    Direct,
    /// It requests that a block be emptied in the background, and does not wait.
    Background,
    /// It does nothing.
    None,
}

impl Defrag {
    /// All settings, in the order in which Linux shows them.
    pub const ALL: [Self; 5] = [
        Self::Always,
        Self::Defer,
        Self::DeferMadvise,
        Self::Madvise,
        Self::Never,
    ];

    /// Returns Linux's word for the setting.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Defer => "defer",
            Self::DeferMadvise => "defer+madvise",
            Self::Madvise => "madvise",
            Self::Never => "never",
        }
    }

    /// Returns how a page fault gets a huge block if none is free, under this setting. `asks` says
    /// whether the area asks for huge pages (`MADV_HUGEPAGE`).
    pub const fn effort(self, asks: bool) -> Effort {
        match (self, asks) {
            (Self::Always, _) | (Self::DeferMadvise | Self::Madvise, true) => Effort::Direct,
            (Self::Defer, _) | (Self::DeferMadvise, false) => Effort::Background,
            (Self::Madvise, false) | (Self::Never, _) => Effort::None,
        }
    }
}

static DEFRAG: AtomicU8 = AtomicU8::new(Defrag::Madvise as u8);

/// Returns the present setting for page faults that need a huge block when none is free.
pub fn defrag() -> Defrag {
    let value = DEFRAG.load(Ordering::Relaxed);
    Defrag::ALL
        .into_iter()
        .find(|&defrag| defrag as u8 == value)
        .unwrap_or(Defrag::Madvise)
}

/// Sets the setting that [`defrag`] returns to the one that Linux calls `name`.
///
/// # Errors
/// `EINVAL` if no setting has this name.
pub fn set_defrag(name: &str) -> Result<(), Errno> {
    let defrag = Defrag::ALL.into_iter().find(|defrag| defrag.name() == name);
    DEFRAG.store(defrag.ok_or(Errno::EINVAL)? as u8, Ordering::Relaxed);
    Ok(())
}

/// Sets the policy that [`policy`] returns to the one that Linux calls `name`.
///
/// # Errors
/// `EINVAL` if no policy has this name.
pub fn set_policy(name: &str) -> Result<(), Errno> {
    let policy = Policy::ALL.into_iter().find(|policy| policy.name() == name);
    POLICY.store(policy.ok_or(Errno::EINVAL)? as u8, Ordering::Relaxed);
    Ok(())
}
