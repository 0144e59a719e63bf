//! Reports free pages of the pools to the host, like other free memory.

use super::PageSize;
use super::blocks::{BATCH, Batch};
use super::pool::pool;
use super::side::{self, TOUCHED};
use crate::arch::clock::{self, Nanos};
use crate::memory::allocator;
use crate::memory::helpers::HELPERS;
use crate::memory::isolated::{self, Isolated};
use core::sync::atomic::{AtomicBool, Ordering};
use ebb_mm::{Frame, FrameRange};

/// The time in nanoseconds for which a thread that wants a page under report sleeps between two
/// looks.
const PAUSE: u64 = 200_000;

/// Whether the reporter was notified of freed pages since the last report.
static REPORT_WANTED: AtomicBool = AtomicBool::new(false);

fn any_touched() -> bool {
    PageSize::ALL
        .into_iter()
        .any(|size| pool(size).lock().has_touched())
}

/// Returns whether there are free pages of the pools to report to the host. If this returns
/// `false`, the reporter is notified when a page is freed later.
pub fn has_reports() -> bool {
    if any_touched() {
        return true;
    }
    REPORT_WANTED.store(false, Ordering::SeqCst);
    // Checks again: a page freed before that did not notify the reporter. SeqCst: there the list is
    // changed before the flag is read, here the flag is changed before the list is read.
    any_touched()
}

/// Blocks the current thread for [`PAUSE`], because pages that are being reported return soon. A
/// yield would keep a CPU that the reporter may need.
#[cold]
pub(super) fn pause() {
    (HELPERS.sleep_until)(Nanos(clock::now().0 + PAUSE));
}

/// Notifies the reporter of freed pages, unless that was done since the last report.
pub(super) fn want_report() {
    if !REPORT_WANTED.swap(true, Ordering::SeqCst) {
        allocator::report_wanted();
    }
}

/// Reports all free pages of the pools for which the host has memory. Calls the closure `send`
/// with the frames of each batch of pages, and ends at the first call that fails. The pages of that
/// call stay unreported. If they are still lent, the host may still drop these pages. Then they
/// leave the pools, and are never used again. Returns the number of reported frames.
///
/// # Errors
/// Those of `send`.
pub fn report<E>(mut send: impl FnMut(&mut Isolated<'_>) -> Result<(), E>) -> Result<u64, E> {
    // Relaxed: pages freed from here on set it again.
    REPORT_WANTED.store(false, Ordering::Relaxed);
    let mut told = 0;
    for size in PageSize::ALL {
        told += report_size(size, &mut send)?;
    }
    Ok(told)
}

fn report_size<E>(
    size: PageSize,
    send: &mut impl FnMut(&mut Isolated<'_>) -> Result<(), E>,
) -> Result<u64, E> {
    let mut told = 0;
    loop {
        let mut batch = Batch::new(size);
        {
            let mut pool = pool(size).lock();
            while !batch.is_full()
                && let Some(page) = pool.begin_report()
            {
                batch.push(page);
            }
        }
        if batch.len() == 0 {
            return Ok(told);
        }
        let mut ranges = [FrameRange::new(Frame::new(0), 0); BATCH];
        for (range, &page) in ranges.iter_mut().zip(batch.as_slice()) {
            *range = FrameRange::new(page, size.frames());
        }
        // SAFETY: `begin_report` has taken the pages out of use. Below they come back, unless the
        // host may still drop them.
        let done = unsafe { isolated::report(&ranges[..batch.len()], &mut *send) };
        let lost = done.as_ref().is_err_and(|failed| failed.may_drop_later);
        let mut pool = pool(size).lock();
        for &page in batch.as_slice() {
            if lost {
                pool.lose();
                continue;
            }
            if done.is_ok() {
                let head = &side::entry(page).head;
                head.fetch_and(!TOUCHED, Ordering::Relaxed);
                told += size.frames();
            }
            pool.end_report(page);
        }
        drop(pool);
        if lost {
            let (pages, kib) = (batch.len(), size.bytes() >> 10);
            crate::console!("hugetlb: the host may still drop {pages} pages of {kib} kB: lost");
        }
        done.map_err(|failed| failed.error)?;
        (HELPERS.yield_now)();
    }
}
