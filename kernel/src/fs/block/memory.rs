//! The memory of the caches: how it is limited, and how pages are dropped.

use super::cache::Choice;
use super::writeback;
use machine::arch::clock::{self, Nanos};
use machine::memory::{self, stats};

/// The number of pages that are dropped at a time.
const BATCH: u64 = 256;
/// The number of pages that are looked at for each page to drop, before use counts are ignored.
const LOOKS_A_PAGE: u64 = 16;
/// How long an allocation waits for dirty pages to be written, before a process is killed.
const PATIENCE: Nanos = Nanos::from_secs(1);

/// Drops old pages of all caches if memory is short for `wanted` new pages. At least `wanted` pages
/// are dropped if there are enough. So the caches use only memory that is free otherwise, and other
/// allocations never wait for them.
pub(super) fn make_room(wanted: u64) {
    if memory::is_short(wanted) {
        shrink(wanted.max(BATCH / 4));
    }
}

/// Drops up to `wanted` clean pages of all caches, first those that were not used often lately.
/// Returns the number of dropped pages.
pub(super) fn shrink(wanted: u64) -> u64 {
    let mut dropped = 0;
    let some = wanted * LOOKS_A_PAGE;
    for (choice, looks) in [
        (Choice::Unused, some),
        (Choice::Unused, some),
        (Choice::Unheld, u64::MAX),
    ] {
        for cache in super::caches::caches() {
            if dropped >= wanted {
                return dropped;
            }
            dropped += cache.reclaim(choice, wanted - dropped, looks);
        }
    }
    dropped
}

/// Helps an allocation that found no memory: drops cached pages, or waits for dirty ones to be
/// written. Returns `true` if the allocation may succeed now. The caller holds no spin lock.
pub fn relieve() -> bool {
    if stats::disk_pages() == 0 {
        return false;
    }
    if shrink(BATCH) > 0 {
        return true;
    }
    // Pages that programs only read can be unmapped and read again.
    for cache in super::caches::caches() {
        if let Some(view) = cache.readers.get()
            && view.mappings().is_used()
        {
            view.mappings().invalidate(&**view, super::cache::ALL);
        }
    }
    if shrink(BATCH) > 0 {
        return true;
    }
    writeback::wait_for_progress(clock::now().saturating_add(PATIENCE))
}

/// Drops every clean page without other references (`vm.drop_caches`).
pub fn drop_all() {
    for cache in super::caches::caches() {
        cache.drop_clean(super::cache::ALL, Choice::Unheld, u64::MAX, u64::MAX);
    }
}
