//! The settings in `/proc/sys/vm` for memory management, and the count of committed memory.

use super::percpu::{self, Count};
use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU64, Ordering};
use ebb_mm::FRAME_SIZE;
use logic::errno::Errno;

// All Relaxed: each is read on its own when it is needed.
static OVERCOMMIT: AtomicU64 = AtomicU64::new(0);
static OVERCOMMIT_RATIO: AtomicI32 = AtomicI32::new(50);
static PANIC_ON_OOM: AtomicU64 = AtomicU64::new(0);
static MAX_MAP_COUNT: AtomicU64 = AtomicU64::new(65530);
/// The number of committed pages of all address spaces.
static COMMITTED: AtomicI64 = AtomicI64::new(0);

/// Returns `vm.overcommit_memory`: 0 refuses only impossible requests, 1 refuses none, 2 refuses
/// those beyond [`commit_limit`].
pub fn overcommit_memory() -> u64 {
    OVERCOMMIT.load(Ordering::Relaxed)
}

/// Sets `vm.overcommit_memory`.
///
/// # Errors
/// `EINVAL` if `value` is not 0, 1 or 2.
pub fn set_overcommit_memory(value: u64) -> Result<(), Errno> {
    if value > 2 {
        return Err(Errno::EINVAL);
    }
    OVERCOMMIT.store(value, Ordering::Relaxed);
    Ok(())
}

/// Returns `vm.panic_on_oom`: if memory is out, 0 kills the largest process, 1 and 2 end the VM.
pub fn panic_on_oom() -> u64 {
    PANIC_ON_OOM.load(Ordering::Relaxed)
}

/// Sets `vm.panic_on_oom`.
///
/// # Errors
/// `EINVAL` if `value` is not 0, 1 or 2.
pub fn set_panic_on_oom(value: u64) -> Result<(), Errno> {
    if value > 2 {
        return Err(Errno::EINVAL);
    }
    PANIC_ON_OOM.store(value, Ordering::Relaxed);
    Ok(())
}

/// Returns `vm.overcommit_ratio`: the part of RAM that programs may commit, in percent.
pub fn overcommit_ratio() -> i32 {
    OVERCOMMIT_RATIO.load(Ordering::Relaxed)
}

/// Sets `vm.overcommit_ratio` to `value` percent. Accepts any value, as Linux does.
pub fn set_overcommit_ratio(value: i32) {
    OVERCOMMIT_RATIO.store(value, Ordering::Relaxed);
}

/// Returns `vm.max_map_count`: the most areas that an address space may have.
pub fn max_map_count() -> u64 {
    MAX_MAP_COUNT.load(Ordering::Relaxed)
}

/// Sets `vm.max_map_count`.
///
/// # Errors
/// `EINVAL` if `value` does not fit Linux's `int`.
pub fn set_max_map_count(value: u64) -> Result<(), Errno> {
    if value > i32::MAX.cast_unsigned().into() {
        return Err(Errno::EINVAL);
    }
    MAX_MAP_COUNT.store(value, Ordering::Relaxed);
    Ok(())
}

/// Returns `vm.min_free_kbytes`: the reserve that the watermarks are computed from, in KiB.
pub fn min_free_kbytes() -> u64 {
    let in_effect = super::allocator().stats().watermarks.min;
    // Relaxed: the reserve has whole frames, and the knob shows the value that was written.
    let asked = MIN_FREE_KBYTES.load(Ordering::Relaxed);
    if asked / (FRAME_SIZE as u64 >> 10) == in_effect && asked != 0 {
        asked
    } else {
        in_effect * (FRAME_SIZE as u64 >> 10)
    }
}

/// The last value written to `vm.min_free_kbytes`; 0 if there is none.
static MIN_FREE_KBYTES: AtomicU64 = AtomicU64::new(0);

/// Sets `vm.min_free_kbytes` to `value` KiB, and updates the watermarks.
///
/// # Errors
/// `EINVAL` if `value` is more than half of RAM.
pub fn set_min_free_kbytes(value: u64) -> Result<(), Errno> {
    let frames = value / (FRAME_SIZE as u64 >> 10);
    if frames > super::allocator().managed_frames() / 2 {
        return Err(Errno::EINVAL);
    }
    super::allocator().set_min_free_frames(frames);
    MIN_FREE_KBYTES.store(value, Ordering::Relaxed);
    Ok(())
}

/// Returns `CommitLimit` of `/proc/meminfo`, in pages. The RAM in pools of huge pages does not
/// count, because the pools have their own limits.
pub fn commit_limit() -> u64 {
    let frames = super::allocator().managed_frames();
    frames
        .saturating_sub(percpu::sum(Count::HugetlbFrames))
        // As on Linux, a negative ratio results in an unreachable limit.
        .wrapping_mul(i64::from(overcommit_ratio()).cast_unsigned())
        / 100
}

/// Returns `Committed_AS` of `/proc/meminfo`, in pages.
pub fn committed() -> u64 {
    COMMITTED.load(Ordering::Relaxed).max(0).cast_unsigned()
}

/// Adds `pages` pages to the committed memory of all address spaces.
///
/// # Errors
/// `ENOMEM` if `vm.overcommit_memory` forbids that. The committed memory does not change then.
pub fn commit(pages: u64) -> Result<(), Errno> {
    match overcommit_memory() {
        0 if pages > super::allocator().managed_frames() => Err(Errno::ENOMEM),
        0 | 1 => {
            COMMITTED.fetch_add(pages.cast_signed(), Ordering::Relaxed);
            Ok(())
        }
        // As on Linux, a request that commits nothing is not refused.
        _ if pages == 0 => Ok(()),
        _ => {
            let limit = commit_limit();
            // Checked and added in one step: of two requests for the last pages, one fails.
            let add = |committed: i64| {
                let sum = committed.max(0).cast_unsigned().saturating_add(pages);
                (sum <= limit).then_some(committed.wrapping_add(pages.cast_signed()))
            };
            COMMITTED
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
                .map(|_| ())
                .map_err(|_| Errno::ENOMEM)
        }
    }
}

/// Subtracts `pages` pages from the committed memory of all address spaces.
pub fn uncommit(pages: u64) {
    COMMITTED.fetch_sub(pages.cast_signed(), Ordering::Relaxed);
}
