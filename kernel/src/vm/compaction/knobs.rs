//! Linux's knobs of compaction, but for that of `kcompactd`.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ebb_mm::Order;
use logic::errno::Errno;
use machine::memory::allocator;

/// The threshold at which the plan alone decides.
const OWN_THRESHOLD: u64 = 500;

// Relaxed (all): values of their own.
static EXTFRAG_THRESHOLD: AtomicU64 = AtomicU64::new(OWN_THRESHOLD);
static UNEVICTABLE_ALLOWED: AtomicBool = AtomicBool::new(true);

/// `vm.extfrag_threshold`.
pub(crate) fn extfrag_threshold() -> u64 {
    EXTFRAG_THRESHOLD.load(Ordering::Relaxed)
}

/// Sets it.
///
/// # Errors
/// `EINVAL` above 1000.
pub(crate) fn set_extfrag_threshold(value: u64) -> Result<(), Errno> {
    if value > 1000 {
        return Err(Errno::EINVAL);
    }
    EXTFRAG_THRESHOLD.store(value, Ordering::Relaxed);
    Ok(())
}

/// Returns whether the fragmentation of a zone, by Linux's index for a huge page, justifies a
/// task's wait for compaction. At the default this returns `true` without computing the index,
/// since the plan of a block says whether it can be emptied, and by how many copies.
pub(super) fn is_fragmented(zone: usize) -> bool {
    let threshold = extfrag_threshold();
    if threshold == OWN_THRESHOLD {
        return true;
    }
    let areas = allocator().free_areas(zone);
    let index = areas.fragmentation_index(Order::PAGEBLOCK);
    // Below zero there is a block.
    u64::try_from(index).is_ok_and(|index| index > threshold)
}

/// `vm.compact_unevictable_allowed`.
pub(crate) fn unevictable_allowed() -> bool {
    UNEVICTABLE_ALLOWED.load(Ordering::Relaxed)
}

/// Sets it.
///
/// # Errors
/// `EINVAL` above 1.
pub(crate) fn set_unevictable_allowed(value: u64) -> Result<(), Errno> {
    if value > 1 {
        return Err(Errno::EINVAL);
    }
    UNEVICTABLE_ALLOWED.store(value == 1, Ordering::Relaxed);
    Ok(())
}
