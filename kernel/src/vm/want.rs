//! What a page is resolved for, and the rights that its entry gets.

use super::VmaFlags;
use super::entry::{ACCESSED, DIRTY, NO_EXECUTE, PRESENT, USER, WRITABLE};

/// What the caller of `AddressSpace::resolve` wants.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Want {
    /// The page mapped.
    Mapped,
    /// A reference to the frame.
    Pinned,
    /// A reference to the frame, writable even where the program may not write.
    Forced,
}

/// The flags of entries of an area, without the right to store.
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

/// The right to store, where an area gives it.
pub(super) fn store_flags(flags: VmaFlags) -> u64 {
    if flags.contains(VmaFlags::WRITE) {
        WRITABLE | DIRTY
    } else {
        0
    }
}
