//! Removes stale translations from the TLBs.

use core::ops::Range;
use core::sync::atomic::{Ordering, fence};
use machine::arch::ipi::{self, FlushRequest};
use machine::arch::{CpuSet, cpu, cpu_id};

/// The most pages whose translations are dropped one by one. For more pages, dropping all
/// translations takes less time.
const SINGLE_PAGES: u64 = 32;

/// Makes every CPU of the set drop its translations of `range`, and waits until all have done so.
pub(super) fn flush(cpus: &CpuSet, range: Range<u64>) {
    // Entries were changed before this; a CPU that enters the set later (`activate`, SeqCst) loads
    // CR3 after it and so sees them. One that is in it already is seen here.
    fence(Ordering::SeqCst);
    let mask = cpus.mask();
    let own = 1 << cpu_id();
    let pages = (range.end - range.start).div_ceil(4096);
    if mask & own != 0 {
        if pages <= SINGLE_PAGES {
            for page in 0..pages {
                cpu::invlpg(range.start + page * 4096);
            }
        } else {
            cpu::flush_tlb_all();
        }
    }
    let others = mask & !own;
    if others != 0 {
        let request = if pages <= SINGLE_PAGES {
            FlushRequest::Range {
                start: range.start,
                pages,
            }
        } else {
            FlushRequest::All
        };
        ipi::flush_tlb(&CpuSet::from_mask(others), request);
    }
}
