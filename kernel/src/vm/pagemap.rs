//! The frames that an address space maps at its pages, for `/proc/PID/pagemap`.

use super::AddressSpace;
use super::entry::{FILE, POOL, SHMEM, ZERO, frame_of, index};
use super::pagetable::Run;
use super::space::PAGE;
use super::trial::table_of;
use core::sync::atomic::Ordering;
use machine::memory::memmap::Descriptor;
use machine::memory::{huge, hugetlb};

/// What `/proc/PID/pagemap` shows of a mapped page.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The number of the page's frame.
    pub frame: u64,
    /// The page belongs to a file or to shared memory.
    pub of_file: bool,
    /// No other space maps the page. Always `false` for a huge page of a file.
    pub alone: bool,
}

/// Returns the page that `entry`, the entry of a base page, maps. Returns `None` for an empty
/// entry.
fn base(entry: u64) -> Option<Shown> {
    let of_file = entry & (FILE | SHMEM) != 0;
    // A file has a reference of its own.
    let own = if of_file { 2 } else { 1 };
    (entry != 0).then(|| Shown {
        frame: frame_of(entry).number(),
        of_file,
        alone: entry & ZERO == 0 && Descriptor::get(frame_of(entry)).references() == own,
    })
}

/// Returns the base page with the index `place` in the huge page that `entry` maps. Returns `None`
/// for an empty entry.
fn part(entry: u64, place: u64) -> Option<Shown> {
    let frame = frame_of(entry);
    let of_file = entry & (FILE | SHMEM) != 0;
    let alone = if entry & POOL != 0 {
        // A file has a reference of its own.
        hugetlb::references(frame) == 1 + u32::from(entry & FILE != 0)
    } else {
        entry & (FILE | SHMEM | ZERO) == 0 && huge::is_own(frame)
    };
    (entry != 0).then(|| Shown {
        frame: frame.number() + place,
        of_file,
        alone,
    })
}

impl AddressSpace {
    /// Calls `each` once for each of `count` pages from the address `first` on, in ascending order.
    /// `each` gets `None` for a page that is not mapped. A spin lock is held during most calls, so
    /// `each` must not wait.
    pub fn show_pages(&self, first: u64, count: usize, mut each: impl FnMut(Option<Shown>)) {
        let end = first + count as u64 * PAGE;
        let mut next = first;
        let state = self.state.lock();
        state.tables.runs(first..end, |from, run| {
            while next < from {
                each(None);
                next += PAGE;
            }
            let pages = match run {
                Run::Pages(entries) => {
                    for entry in entries {
                        each(base(entry.load(Ordering::Relaxed)));
                    }
                    entries.len()
                }
                Run::Trial(slot, pages) => {
                    let table = table_of(slot);
                    for entry in table.iter().skip(index(from, 0)).take(pages) {
                        let entry = entry.load(Ordering::Relaxed);
                        // A block on trial is one space's.
                        each((entry != 0).then(|| Shown {
                            frame: frame_of(entry).number(),
                            of_file: false,
                            alone: true,
                        }));
                    }
                    pages
                }
                Run::Huge(slot, places) => {
                    let (entry, pages) = (slot.load(), places.end - places.start);
                    for place in places {
                        each(part(entry, place));
                    }
                    next = from + pages * PAGE;
                    return true;
                }
            };
            next = from + pages as u64 * PAGE;
            true
        });
        drop(state);
        while next < end {
            each(None);
            next += PAGE;
        }
    }
}
