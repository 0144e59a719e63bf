//! Page hinting: a list of freed blocks for each CPU, the knobs and the counters.
//! [`super::give_back`] has the thread.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use ebb_mm::{HINT_ENTRIES, HINT_THRESHOLD_MAX, HintCounts, HintList, Order, PAGEBLOCK_ORDER};
use logic::errno::Errno;
use logic::knob::number::{self, Base};
use machine::arch::{BootInfo, cpu_count, cpu_id};
use machine::memory;
use machine::sync::Once;

/// Allocated when hinting is first turned on, when all CPUs are online.
static LISTS: Once<Vec<HintList>> = Once::new();

/// Sets a knob.
type Set = fn(u64) -> Result<(), Errno>;

/// `page_hinting_order`. It is kept in every mode.
static ORDER: AtomicU8 = AtomicU8::new(PAGEBLOCK_ORDER.get());
/// `hyperlist_threshold`. The default is that of the series.
static THRESHOLD: AtomicUsize = AtomicUsize::new(1);

/// The requests that the host took, the ranges in them, and the frames in these. The freed
/// descriptors of hinted frames count, too.
static SENT: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
/// Counters of the entries of the lists: all entries, dropped ones, merged ones, and sweeps.
static ENTRIES: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// Returns the list of this CPU, or `None` before [`prepare`].
pub(super) fn own() -> Option<&'static HintList> {
    LISTS.get()?.get(cpu_id())
}

/// Returns the lists of all CPUs, or an empty slice before [`prepare`].
pub(super) fn lists() -> &'static [HintList] {
    LISTS.get().map_or(&[], Vec::as_slice)
}

/// Allocates the lists. Does nothing if they exist.
///
/// # Errors
/// Fails with `ENOMEM`.
pub(super) fn prepare() -> Result<(), Errno> {
    if LISTS.get().is_some() {
        return Ok(());
    }
    let mut lists = Vec::new();
    lists
        .try_reserve_exact(cpu_count())
        .map_err(|_| Errno::ENOMEM)?;
    lists.resize_with(cpu_count(), HintList::new);
    // If another task has allocated lists in the same time, those are used and these are freed.
    let _ = LISTS.set(lists);
    Ok(())
}

/// Reads the knobs from the kernel command line. An invalid value causes a message on the console
/// and changes nothing.
pub(super) fn configure(boot: &BootInfo) {
    let knobs: [(&str, Set); 3] = [
        ("page_hinting.page_hinting_order", keep_order),
        ("page_hinting.max_fgpt_entries", set_limit),
        ("page_hinting.hyperlist_threshold", set_threshold),
    ];
    for (name, set) in knobs {
        if let Some(text) = boot.option(name)
            && number::unsigned(text.as_bytes(), Base::OfPrefix, u32::MAX.into())
                .and_then(set)
                .is_err()
        {
            machine::console!("{name}={text}: not a value of it");
        }
    }
}

/// Returns the order of the smallest blocks that are hinted, the knob
/// `/sys/module/page_hinting/parameters/page_hinting_order`. Never returns `None`, since only valid
/// orders are stored.
pub(super) fn order() -> Option<Order> {
    Order::new(ORDER.load(Ordering::Relaxed))
}

/// Stores `order` as the order of the smallest blocks that are hinted. It takes effect when the
/// mode is next applied.
///
/// # Errors
/// Fails with `EINVAL` if `order` is above 10.
pub(super) fn keep_order(order: u64) -> Result<(), Errno> {
    let order = u8::try_from(order)
        .ok()
        .and_then(Order::new)
        .filter(|&order| order <= Order::MAX)
        .ok_or(Errno::EINVAL)?;
    ORDER.store(order.get(), Ordering::Relaxed);
    Ok(())
}

/// Returns the number of entries at which a CPU's list is full, the knob
/// `/sys/module/page_hinting/parameters/max_fgpt_entries`.
pub fn limit() -> usize {
    memory::allocator().hint_limit()
}

/// Sets the number of entries at which a CPU's list is full.
///
/// # Errors
/// Fails with `EINVAL` if `value` is 0 or above [`HINT_ENTRIES`].
pub fn set_limit(value: u64) -> Result<(), Errno> {
    memory::allocator()
        .set_hint_limit(within(value, HINT_ENTRIES)?)
        .map_err(|_| Errno::EINVAL)
}

/// Returns the number of ranges that are worth a request to the host, the knob
/// `/sys/module/page_hinting/parameters/hyperlist_threshold`.
pub fn threshold() -> usize {
    THRESHOLD.load(Ordering::Relaxed)
}

/// Sets the number of ranges that are worth a request to the host.
///
/// # Errors
/// Fails with `EINVAL` if `value` is 0 or above [`HINT_THRESHOLD_MAX`].
pub fn set_threshold(value: u64) -> Result<(), Errno> {
    THRESHOLD.store(within(value, HINT_THRESHOLD_MAX)?, Ordering::Relaxed);
    Ok(())
}

fn within(value: u64, most: usize) -> Result<usize, Errno> {
    usize::try_from(value)
        .ok()
        .filter(|value| (1..=most).contains(value))
        .ok_or(Errno::EINVAL)
}

/// Adds the results of one poll of the hinter to the counters: `sent` is the number of requests,
/// ranges and frames. Relaxed, as for all counters, which order nothing.
pub(super) fn count(sent: [u64; 3], counts: HintCounts) {
    let HintCounts {
        entries,
        dropped,
        merged,
        sweeps,
    } = counts;
    let sums = SENT.iter().chain(&ENTRIES);
    let new = sent.into_iter().chain([entries, dropped, merged, sweeps]);
    for (sum, new) in sums.zip(new).filter(|(_, new)| *new != 0) {
        sum.fetch_add(new, Ordering::Relaxed);
    }
}

/// Returns three sums since boot: the requests that hinting has sent, the ranges in them, and the
/// frames in these.
pub fn sent() -> [u64; 3] {
    [0, 1, 2].map(|at: usize| SENT[at].load(Ordering::Relaxed))
}

/// Returns hinting's lines of `/proc/vmstat`.
pub fn vmstat() -> [(&'static str, u64); 7] {
    let [requests, ranges, pages] = sent();
    let entry = |at: usize| ENTRIES[at].load(Ordering::Relaxed);
    [
        ("page_hinting_requests", requests),
        ("page_hinting_ranges", ranges),
        ("page_hinting_pages", pages),
        ("page_hinting_entries", entry(0)),
        ("page_hinting_dropped", entry(1)),
        ("page_hinting_merged", entry(2)),
        ("page_hinting_sweeps", entry(3)),
    ]
}
