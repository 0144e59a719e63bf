//! What a page is resolved for, and the rights that its entry gets.

use super::VmaFlags;
use super::entry::{ACCESSED, DIRTY, NO_EXECUTE, PRESENT, USER, WRITABLE};

/// The result that the caller of `AddressSpace::resolve` wants.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Want {
    /// The page is mapped.
    Mapped,
    /// The caller gets a reference to the frame.
    Pinned,
    /// The caller gets a reference to the frame, which it may write even where the program may not.
    Forced,
}

/// Returns the flags of the entries of an area with `flags`, without the right to store.
pub(super) fn entry_flags(flags: VmaFlags) -> u64 {
    let present = if flags.intersects(VmaFlags::RIGHTS) {
        PRESENT
    } else {
        0
    };
    let execute = if flags.contains(VmaFlags::EXEC) {
        0
    } else {
        NO_EXECUTE
    };
    USER | ACCESSED | present | execute
}

/// Returns the bits for the right to store, or 0 if the area does not give it.
pub(super) fn store_flags(flags: VmaFlags) -> u64 {
    if flags.contains(VmaFlags::WRITE) {
        WRITABLE | DIRTY
    } else {
        0
    }
}
