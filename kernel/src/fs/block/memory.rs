//! The cache and the machine's memory: how many pages there are, and how they are given up.

use super::cache::Choice;
use super::writeback;
use machine::arch::clock::{self, Nanos};
use machine::memory::{self, stats};

/// Pages that are dropped at a time.
const BATCH: u64 = 256;
/// Pages that are looked at for each that is wanted, before no page is spared.
const LOOKS_A_PAGE: u64 = 16;
/// How long who needs memory waits for dirty pages to be written, before somebody is killed.
const PATIENCE: Nanos = Nanos::from_secs(1);

/// Before the caches take so many pages: has them give up as many old ones where memory is short.
/// The caches live of what is left, and others never wait for them.
pub(super) fn make_room(wanted: u64) {
    if memory::is_short(wanted) {
        shrink(wanted.max(BATCH / 4));
    }
}

/// Drops up to `wanted` clean pages; how many.
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

/// For an allocation that found nothing: gives up cached pages, or waits for dirty ones to be
/// written. True when it may help to try again. No spin lock is held.
pub fn relieve() -> bool {
    if stats::disk_pages() == 0 {
        return false;
    }
    if shrink(BATCH) > 0 {
        return true;
    }
    // Pages that programs only look at can be taken from them, and read again.
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

/// Drops every clean page that nobody uses (`vm.drop_caches`).
pub fn drop_all() {
    for cache in super::caches::caches() {
        cache.drop_clean(super::cache::ALL, Choice::Unheld, u64::MAX, u64::MAX);
    }
}
