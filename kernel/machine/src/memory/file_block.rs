//! Huge blocks of files in memory.
//!
//! A file has the frames of such a block one by one, each with a descriptor of its own. So
//! truncation, moves, and references by calls and devices are the same as for other frames. The
//! file records that the frames are neighbours, and so does a page-table entry that maps all of
//! them, with a reference to each.

use super::allocator;
use super::frame::FrameRef;
use super::huge::{FRAMES, clear};
use super::memmap::{Descriptor, Kind};
use super::percpu::{self, Count};
use core::sync::atomic::{AtomicU8, Ordering};
use ebb_mm::{AllocError, Frame, FreeBatch, Mobility, Order, Request, Reserve};
use logic::errno::Errno;

/// A block of zeros that no file has yet.
#[derive(Debug)]
pub struct FileBlock(Frame);

impl FileBlock {
    /// Allocates one, unless that needs the memory's reserve. Does not wait for memory. Other
    /// threads may run while it clears the block.
    pub fn try_new() -> Result<Self, AllocError> {
        let request = Request::new(Order::PAGEBLOCK, Mobility::Movable).reserve(Reserve::Keep);
        let (frame, contents) = percpu::this().allocate_known(request)?;
        let block = Self(frame);
        clear(frame, contents);
        Ok(block)
    }

    /// Its frames, in order, each with one reference.
    pub fn into_frames(self) -> impl Iterator<Item = FrameRef> {
        let block = self.0;
        core::mem::forget(self);
        allocator().split(block, Order::PAGEBLOCK, Order::BASE);
        (0..FRAMES).map(move |index| {
            // SAFETY: the frame belongs to the block, which belongs to the caller alone and is not
            // used yet.
            unsafe { FrameRef::of_file(block.offset(index)) }
        })
    }
}

impl Drop for FileBlock {
    fn drop(&mut self) {
        percpu::free(self.0, Order::PAGEBLOCK);
    }
}

/// One more reference to each frame of a block; the caller keeps those from going that there are.
pub fn share(block: Frame) {
    for index in 0..FRAMES {
        Descriptor::get(block.offset(index)).get_reference();
    }
}

/// Drops one reference to each of some frames of files, and frees those without further references
/// together.
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

/// One reference less to each frame of a block that an entry maps.
pub fn release(block: Frame) {
    release_all((0..FRAMES).map(|index| block.offset(index)));
}

/// Drops pages that a file in memory had.
pub fn drop_pages(pages: &mut [Option<FrameRef>]) {
    let held = pages.iter_mut().filter_map(Option::take);
    release_all(held.map(FrameRef::into_counted));
}

/// Counts frames of files that are whole huge blocks (`ShmemHugePages`).
pub fn count_whole(change: i64) {
    percpu::add(Count::SharedHuge, change.cast_unsigned());
}

/// Counts an entry that maps a block, and has its references. `ShmemPmdMapped` counts each block
/// once.
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

/// Notes that an entry maps a block no more, or by pages; its references are there still.
pub fn unmap(block: Frame) {
    if Descriptor::get(block)
        .objects
        .fetch_sub(1, Ordering::Relaxed)
        == 1
    {
        percpu::subtract(Count::SharedHugeMapped, FRAMES);
    }
}

/// The files in memory that get huge blocks: `/sys/kernel/mm/transparent_hugepage/shmem_enabled`,
/// and `huge=` of tmpfs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SharedPolicy {
    /// Wherever a page is missing and 2 MiB around it are.
    Always,
    /// The same where the file reaches beyond the block, and where it is asked for.
    WithinSize,
    /// Where it is asked for (`MADV_HUGEPAGE`).
    Advise,
    /// Nowhere.
    Never,
    /// None, regardless of file systems' options.
    Deny,
    /// All, regardless of file systems' options.
    Force,
}

impl SharedPolicy {
    /// All, in the order in which Linux shows them.
    pub const ALL: [Self; 6] = [
        Self::Always,
        Self::WithinSize,
        Self::Advise,
        Self::Never,
        Self::Deny,
        Self::Force,
    ];

    /// Linux's word for it.
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

    /// That of a name.
    pub fn named(name: &[u8]) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|policy| policy.name().as_bytes() == name)
    }

    /// That of a number, as [`SharedPolicyCell`] has it.
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

/// A policy that can be changed.
#[derive(Debug)]
pub struct SharedPolicyCell(AtomicU8);

impl SharedPolicyCell {
    /// One that says so.
    pub const fn new(policy: SharedPolicy) -> Self {
        Self(AtomicU8::new(policy as u8))
    }

    /// Returns the policy.
    #[inline]
    pub fn get(&self) -> SharedPolicy {
        // Relaxed (both): a value of its own, read when it is needed.
        SharedPolicy::of(self.0.load(Ordering::Relaxed))
    }

    /// Has it say something else.
    pub fn set(&self, policy: SharedPolicy) {
        self.0.store(policy as u8, Ordering::Relaxed);
    }
}

/// What holds for memory that no file system was mounted for.
pub static SHARED: SharedPolicyCell = SharedPolicyCell::new(SharedPolicy::Never);

/// What holds where a file system says `own`: the word for all comes first.
#[inline]
pub fn in_effect(own: SharedPolicy) -> SharedPolicy {
    match SHARED.get() {
        strong @ (SharedPolicy::Deny | SharedPolicy::Force) => strong,
        _ => own,
    }
}

/// Sets the policy of nameless memory by its name.
///
/// # Errors
/// `EINVAL` for a name that none has.
pub fn set_shared_policy(name: &str) -> Result<(), Errno> {
    SHARED.set(SharedPolicy::named(name.as_bytes()).ok_or(Errno::EINVAL)?);
    Ok(())
}
