//! The pools of huge pages (`hugetlb`): pages of 2 MiB and of 1 GiB that are set aside, reserved
//! (*promised*) and allocated as wholes.
//!
//! A page of a pool has no separate descriptors: all of them have `Kind::HugePage` and lie in one
//! page of memory that all huge pages share (`vmemmap`). The side table (`side`) has the page's
//! references and its state. If this optimization is switched off, each descriptor is written.

mod blocks;
mod page;
mod pool;
mod report;
mod resize;
mod show;
mod side;
mod size;

pub use blocks::{optimized, relieve, stays_in_gib};
pub use page::{HugePage, get_reference, page_of, references, release};
pub use pool::Counts;
pub use report::{has_reports, report};
pub use resize::{demote, reserve, resize, unreserve};
pub(super) use show::show_counts;
pub use size::PageSize;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pool::pool;

/// Whether the descriptors of pages are given up: `hugetlb_free_vmemmap=`,
/// `vm.hugetlb_optimize_vmemmap`.
static OPTIMIZE: AtomicBool = AtomicBool::new(true);
/// Whether programs that name no page size get pages of 1 GiB: `default_hugepagesz=`.
static GIGANTIC_BY_DEFAULT: AtomicBool = AtomicBool::new(false);
/// The number of huge pages that were allocated for a pool, and the number of failed attempts.
static MADE: AtomicU64 = AtomicU64::new(0);
static NOT_MADE: AtomicU64 = AtomicU64::new(0);

/// Returns the present counters of the pool of pages of `size`.
pub fn counts(size: PageSize) -> Counts {
    pool(size).lock().counts
}

/// Returns the number of huge pages that were allocated for pools, and the number of failed
/// attempts (`htlb_buddy_alloc_success` and `htlb_buddy_alloc_fail`).
pub fn requests() -> (u64, u64) {
    (
        MADE.load(Ordering::Relaxed),
        NOT_MADE.load(Ordering::Relaxed),
    )
}

/// Returns whether the memory of the descriptors of pages that join a pool is freed
/// (`vm.hugetlb_optimize_vmemmap`).
pub fn optimizes() -> bool {
    OPTIMIZE.load(Ordering::Relaxed)
}

/// Frees the memory of the descriptors of pages that join a pool from now on if `optimize` is set.
/// Otherwise these descriptors stay. Pages that are in a pool already do not change.
pub fn set_optimize(optimize: bool) {
    OPTIMIZE.store(optimize, Ordering::Relaxed);
}

/// Limits the surplus pages of the pool of pages of `size` to `pages`. Surplus pages above the
/// limit stay until they are freed.
pub fn set_overcommit(size: PageSize, pages: u64) {
    pool(size).lock().counts.overcommit = pages;
}

/// Returns the size of the huge pages that programs get if they name no size.
pub fn default_size() -> PageSize {
    if GIGANTIC_BY_DEFAULT.load(Ordering::Relaxed) {
        PageSize::Gib1
    } else {
        PageSize::Mib2
    }
}

/// Makes `size` the size of the huge pages that programs get if they name no size. Called at boot.
pub fn set_default_size(size: PageSize) {
    GIGANTIC_BY_DEFAULT.store(size == PageSize::Gib1, Ordering::Relaxed);
}
