//! Linux's knobs of compaction, except that of `kcompactd`.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ebb_mm::{Order, ZoneId};
use logic::errno::Errno;
use machine::memory::allocator;

/// The threshold at which the plan of a block alone decides.
const OWN_THRESHOLD: u64 = 500;

// Relaxed (all): values of their own.
static EXTFRAG_THRESHOLD: AtomicU64 = AtomicU64::new(OWN_THRESHOLD);
static UNEVICTABLE_ALLOWED: AtomicBool = AtomicBool::new(true);

/// Returns `vm.extfrag_threshold`.
pub(crate) fn extfrag_threshold() -> u64 {
    EXTFRAG_THRESHOLD.load(Ordering::Relaxed)
}

/// Sets `vm.extfrag_threshold`.
///
/// # Errors
/// Fails with `EINVAL` if `value` is above 1000.
pub(crate) fn set_extfrag_threshold(value: u64) -> Result<(), Errno> {
    if value > 1000 {
        return Err(Errno::EINVAL);
    }
    EXTFRAG_THRESHOLD.store(value, Ordering::Relaxed);
    Ok(())
}

/// Returns whether a task's wait for compaction is justified by the fragmentation of `zone`, by
/// Linux's index for a huge page. At the default threshold, returns `true` without computing the
/// index, since the plan of a block says whether the block can be emptied, and by how many copies.
pub(super) fn is_fragmented(zone: ZoneId) -> bool {
    let threshold = extfrag_threshold();
    if threshold == OWN_THRESHOLD {
        return true;
    }
    let areas = allocator().free_areas(zone);
    let index = areas.fragmentation_index(Order::PAGEBLOCK);
    // Below zero there is a block.
    u64::try_from(index).is_ok_and(|index| index > threshold)
}

/// Returns `vm.compact_unevictable_allowed`: whether frames of locked memory may move.
pub(crate) fn unevictable_allowed() -> bool {
    UNEVICTABLE_ALLOWED.load(Ordering::Relaxed)
}

/// Sets `vm.compact_unevictable_allowed`. With 1, blocks that could not be emptied are tried again.
///
/// # Errors
/// Fails with `EINVAL` if `value` is above 1.
pub(crate) fn set_unevictable_allowed(value: u64) -> Result<(), Errno> {
    if value > 1 {
        return Err(Errno::EINVAL);
    }
    if !UNEVICTABLE_ALLOWED.swap(value == 1, Ordering::Relaxed) && value == 1 {
        super::daemon::retry();
    }
    Ok(())
}
