//! The pools of huge pages (`hugetlb`): pages of 2 MiB and of 1 GiB that are set aside, reserved
//! (*promised*) and allocated as wholes.
//!
//! A page of a pool has no descriptors of its own: all of them have `Kind::HugePage`, and lie in
//! one page of memory that all huge pages share (`vmemmap`). The side table (`side`) has its
//! references and its state. With the exchange switched off, each descriptor is written.

mod blocks;
mod page;
mod pool;
mod report;
mod resize;
mod show;
mod side;
mod size;

pub use blocks::{optimized, relieve};
pub use page::{HugePage, get_reference, page_of, references, release};
pub use pool::Counts;
pub use report::{has_reports, report};
pub use resize::{demote, reserve, resize, unreserve};
pub(super) use show::show_counts;
pub use size::PageSize;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pool::pool;

/// Whether descriptors are given up: `hugetlb_free_vmemmap=`, `vm.hugetlb_optimize_vmemmap`.
static OPTIMIZE: AtomicBool = AtomicBool::new(true);
/// Whether programs that name no size get pages of 1 GiB: `default_hugepagesz=`.
static GIGANTIC_BY_DEFAULT: AtomicBool = AtomicBool::new(false);
/// Requests for a huge page that succeeded, and that failed.
static MADE: AtomicU64 = AtomicU64::new(0);
static NOT_MADE: AtomicU64 = AtomicU64::new(0);

/// The counters of a pool at this moment.
pub fn counts(size: PageSize) -> Counts {
    pool(size).lock().counts
}

/// Requests for a huge page that succeeded, and that failed: `htlb_buddy_alloc_{success,fail}`.
pub fn requests() -> (u64, u64) {
    (
        MADE.load(Ordering::Relaxed),
        NOT_MADE.load(Ordering::Relaxed),
    )
}

/// Whether the descriptors of pages that join a pool are given up.
pub fn optimizes() -> bool {
    OPTIMIZE.load(Ordering::Relaxed)
}

/// Sets that; pages that are in a pool stay as they are.
pub fn set_optimize(optimize: bool) {
    OPTIMIZE.store(optimize, Ordering::Relaxed);
}

/// Sets how many surplus pages may be made.
pub fn set_overcommit(size: PageSize, pages: u64) {
    pool(size).lock().counts.overcommit = pages;
}

/// The size of the pages that programs get who name none.
pub fn default_size() -> PageSize {
    if GIGANTIC_BY_DEFAULT.load(Ordering::Relaxed) {
        PageSize::Gib1
    } else {
        PageSize::Mib2
    }
}

/// Sets it; at boot.
pub fn set_default_size(size: PageSize) {
    GIGANTIC_BY_DEFAULT.store(size == PageSize::Gib1, Ordering::Relaxed);
}
