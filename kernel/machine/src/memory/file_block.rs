//! Huge blocks of files in memory (tmpfs and shared memory).
//!
//! A file owns the frames of such a block one by one, and each has its own descriptor. So
//! truncation, moves, and references by system calls and devices are the same as for other frames.
//! The file records that the frames form a block. A page-table entry that maps the whole block
//! holds a reference to each frame.

use super::allocator;
use super::frame::FrameRef;
use super::huge::{FRAMES, clear};
use super::memmap::{Descriptor, Kind};
use super::percpu::{self, Count};
use core::sync::atomic::{AtomicU8, Ordering};
use ebb_mm::{AllocError, Frame, FreeBatch, Mobility, Order, Request, Reserve};
use logic::errno::Errno;

/// A huge block of zeros that belongs to no file yet. Dropping it frees the block.
#[derive(Debug)]
pub struct FileBlock(Frame);

impl FileBlock {
    /// Allocates a huge block of zeros. Does not wait for memory, but other threads may run while
    /// it clears the block, so the caller holds no spin lock.
    ///
    /// # Errors
    /// [`AllocError`] if no block is free above the memory's reserve.
    pub fn try_new() -> Result<Self, AllocError> {
        let request = Request::new(Order::PAGEBLOCK, Mobility::Movable).reserve(Reserve::Keep);
        let (frame, contents) = percpu::this().allocate_known(request)?;
        let block = Self(frame);
        clear(frame, contents);
        Ok(block)
    }

    /// Splits the block, and returns its frames in order, each with one reference. The caller must
    /// consume the whole iterator: frames that it does not return are never freed.
    pub fn into_frames(self) -> impl Iterator<Item = FrameRef> {
        let block = self.0;
        core::mem::forget(self);
        allocator().split(block, Order::PAGEBLOCK, Order::BASE);
        (0..FRAMES).map(move |index| {
            // SAFETY: the frame belongs to the block, which belongs to the caller alone and is not
            // used yet.
            unsafe { FrameRef::from_allocated(block.offset(index), Kind::File) }
        })
    }
}

impl Drop for FileBlock {
    fn drop(&mut self) {
        percpu::free(self.0, Order::PAGEBLOCK);
    }
}

/// Adds one reference to each frame of the huge block that begins with `block`. The caller ensures
/// that each frame keeps a reference during the call.
pub fn share(block: Frame) {
    for index in 0..FRAMES {
        Descriptor::get(block.offset(index)).get_reference();
    }
}

/// Drops one reference to each of `frames`, which are frames of files. Frees the ones without
/// further references together.
fn release_all(frames: impl Iterator<Item = Frame>) {
    let this = percpu::this();
    let mut batch = FreeBatch::new();
    let mut freed = 0;
    for frame in frames {
        let descriptor = Descriptor::get(frame);
        debug_assert_eq!(descriptor.kind(), Some(Kind::File));
        if descriptor.put() {
            descriptor.clear();
            this.free_in(allocator(), &mut batch, frame);
            freed += 1;
        }
    }
    this.finish(batch);
    this.subtract(Kind::File.count(), freed);
    this.add(Count::Freed, freed);
}

/// Drops one reference to each frame of the huge block that begins with `block`, for a page-table
/// entry that mapped it. Frees the frames without further references.
pub fn release(block: Frame) {
    release_all((0..FRAMES).map(|index| block.offset(index)));
}

/// Drops the references in `pages`, which a file in memory held, and leaves `None` there. Frees the
/// frames without further references.
pub fn drop_pages(pages: &mut [Option<FrameRef>]) {
    let held = pages.iter_mut().filter_map(Option::take);
    release_all(held.map(FrameRef::into_counted));
}

/// Adds `change` to the number of frames in whole huge blocks of files (`ShmemHugePages`).
pub fn count_whole(change: i64) {
    percpu::add(Count::SharedHuge, change.cast_unsigned());
}

/// Counts a page-table entry that maps the huge block `block` as a whole. The entry holds a
/// reference to each frame already, and this adds none. `ShmemPmdMapped` counts each block once,
/// regardless of the number of entries that map it.
pub fn map(block: Frame) {
    // Relaxed (both): a count that orders nothing.
    if Descriptor::get(block)
        .objects
        .fetch_add(1, Ordering::Relaxed)
        == 0
    {
        percpu::add(Count::SharedHugeMapped, FRAMES);
    }
    percpu::add(Count::SharedHugeMaps, 1);
}

/// Uncounts a page-table entry that mapped the huge block `block` as a whole. The entry no longer
/// exists, or maps the frames one by one from now on. The references to the frames do not change.
pub fn unmap(block: Frame) {
    if Descriptor::get(block)
        .objects
        .fetch_sub(1, Ordering::Relaxed)
        == 1
    {
        percpu::subtract(Count::SharedHugeMapped, FRAMES);
    }
}

/// Which files in memory get huge blocks
/// (`/sys/kernel/mm/transparent_hugepage/shmem_enabled`, and the option `huge=` of tmpfs).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SharedPolicy {
    /// All files, at a fault in a region of 2 MiB without pages.
    Always,
    /// Files that cover the whole region, and mappings with `MADV_HUGEPAGE`.
    WithinSize,
    /// Only mappings with `MADV_HUGEPAGE`.
    Advise,
    /// No files.
    Never,
    /// No files, regardless of the options of file systems.
    Deny,
    /// All files, regardless of the options of file systems.
    Force,
}

impl SharedPolicy {
    /// All policies, in the order in which Linux shows them.
    pub const ALL: [Self; 6] = [
        Self::Always,
        Self::WithinSize,
        Self::Advise,
        Self::Never,
        Self::Deny,
        Self::Force,
    ];

    /// Returns Linux's word for the policy.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::WithinSize => "within_size",
            Self::Advise => "advise",
            Self::Never => "never",
            Self::Deny => "deny",
            Self::Force => "force",
        }
    }

    /// Returns the policy that Linux calls `name`, or `None` if no policy has this name.
    pub fn named(name: &[u8]) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|policy| policy.name().as_bytes() == name)
    }

    /// Returns the policy with this `number` in a [`SharedPolicyCell`].
    const fn of(number: u8) -> Self {
        match number {
            0 => Self::Always,
            1 => Self::WithinSize,
            2 => Self::Advise,
            4 => Self::Deny,
            5 => Self::Force,
            _ => Self::Never,
        }
    }
}

/// A policy that can be changed at any time.
#[derive(Debug)]
pub struct SharedPolicyCell(AtomicU8);

impl SharedPolicyCell {
    /// Makes a cell that holds `policy`.
    pub const fn new(policy: SharedPolicy) -> Self {
        Self(AtomicU8::new(policy as u8))
    }

    /// Returns the policy in the cell.
    #[inline]
    pub fn get(&self) -> SharedPolicy {
        // Relaxed (both): a value of its own, read when it is needed.
        SharedPolicy::of(self.0.load(Ordering::Relaxed))
    }

    /// Replaces the policy in the cell by `policy`.
    pub fn set(&self, policy: SharedPolicy) {
        self.0.store(policy as u8, Ordering::Relaxed);
    }
}

/// The policy for files without a mounted file system: shared memory, and files without a name.
pub static SHARED: SharedPolicyCell = SharedPolicyCell::new(SharedPolicy::Never);

/// Returns the policy in effect for a file system with policy `own`. That is the policy in
/// [`SHARED`] if it is `Deny` or `Force`, and `own` otherwise.
#[inline]
pub fn in_effect(own: SharedPolicy) -> SharedPolicy {
    match SHARED.get() {
        strong @ (SharedPolicy::Deny | SharedPolicy::Force) => strong,
        _ => own,
    }
}

/// Sets [`SHARED`] to the policy that Linux calls `name`.
///
/// # Errors
/// `EINVAL` if no policy has this name.
pub fn set_shared_policy(name: &str) -> Result<(), Errno> {
    SHARED.set(SharedPolicy::named(name.as_bytes()).ok_or(Errno::EINVAL)?);
    Ok(())
}
