//! Page tables of an address space: four levels, with pages of 4 KiB, of 2 MiB (`leaf`), and of 1
//! GiB from the pool.
//!
//! A last-level entry that is not zero holds one reference to its frame, whether or not the entry
//! is present. Pages without any rights (`PROT_NONE`) keep their frames in entries that are not
//! present. Only entries of the shared frame of zeros (`ZERO`) hold no reference.

#![expect(unsafe_code, reason = "page tables are made, walked and freed")]

use super::entry::{
    ACCESSED, FILE, HUGE, NO_REGION, PAGE, POOL, PRESENT, REGION, SHMEM, SPANS, TRIAL, Table, USER,
    WRITABLE, frame_of, index, pages_in, table_at, unused_before,
};
use super::family::Owner;
use super::gather::Gather;
use super::hot::HotPlaces;
use super::leaf::{Deposits, TableFrame};
use super::trial::Trials;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_mm::{AllocError, Frame};
use machine::arch::CpuSet;
use machine::memory::memmap::frame_ptr;
use machine::memory::{clear_page, kernel_root};

/// The level whose entries can map the largest pages.
pub(super) const HUGEST: usize = 2;

/// Returns the address that the next used entry of `table` behind the entry for `address` maps.
/// Returns the end of the range of `table` if there is none.
fn next_used(table: &Table, address: u64, level: usize) -> u64 {
    let unused = unused_before(&table[index(address, level) + 1..]);
    (address / SPANS[level] + 1 + unused as u64) * SPANS[level]
}

/// The tables that [`PageTables::prune`] removes.
struct Pruning {
    range: Range<u64>,
    owned: Range<u64>,
    emptied: Range<u64>,
}

impl Pruning {
    /// Removes the tables below `table`, whose first entry, at `level`, maps the address `base`.
    /// Visits each table once. Returns `false` if the gather is full.
    fn below(&self, table: &Table, level: usize, base: u64, gather: &mut Gather) -> bool {
        let span = SPANS[level];
        let mut at = base.max(self.range.start / span * span);
        let end = self.range.end.min(base + table.len() as u64 * span);
        while at < end {
            let slot = &table[index(at, level)];
            let entry = slot.load(Ordering::Relaxed);
            if entry == 0 {
                at = next_used(table, at, level);
                continue;
            }
            let next = at + span;
            if entry & (HUGE | TRIAL) == 0 && at < self.owned.end && self.owned.start < next {
                let inner = table_at(entry);
                if level > 1 && !self.below(inner, level - 1, at, gather) {
                    return false;
                }
                let is_owned = self.owned.start <= at && next <= self.owned.end;
                // Between two batches the lock was free, so pages may have come back in remaining
                // areas.
                let known = self.emptied.start <= at && next <= self.emptied.end;
                debug_assert!(!known || is_empty(inner));
                if is_owned && (known || is_empty(inner)) {
                    if gather.is_full() {
                        return false;
                    }
                    slot.store(0, Ordering::Relaxed);
                    gather.table(frame_of(entry));
                }
            }
            at = next;
        }
        true
    }
}

fn is_empty(table: &Table) -> bool {
    unused_before(table) == table.len()
}

#[inline]
fn slot(table: &'static Table, address: u64, level: usize) -> &'static AtomicU64 {
    &table[index(address, level)]
}

/// The mapping of a region, an aligned range of 2 MiB.
pub(super) enum Region {
    /// A last-level page table.
    Table(&'static Table),
    /// A huge page: its entry, and its size in bytes.
    Huge(&'static AtomicU64, u64),
    /// A huge block on trial: the entry that leads to its page table.
    Trial(&'static AtomicU64),
    /// Nothing. No address below this one, from the region on, is mapped.
    AbsentUntil(u64),
}

/// The mapping of one address.
pub(super) enum Leaf {
    /// The entry of the page in a last-level page table. It may be unused.
    Page(&'static AtomicU64),
    /// The entry of the huge page that contains the address.
    Huge(&'static AtomicU64),
    /// The entry that leads to the page table of the huge block on trial that contains the address.
    Trial(&'static AtomicU64),
    /// No page table covers the address.
    Absent,
}

/// Adjacent entries that [`PageTables::runs`] finds in one last-level table, or one huge entry.
pub(super) enum Run {
    /// Entries of a last-level table. Some may be unused.
    Pages(&'static [AtomicU64]),
    /// The entry of a huge page, and the part of that page in the searched range, as page numbers
    /// from the start of the huge page.
    Huge(&'static AtomicU64, Range<u64>),
    /// The entry that leads to the page table of a huge block on trial, and the number of its pages
    /// in the searched range.
    Trial(&'static AtomicU64, usize),
}

/// The page tables of one address space.
#[derive(Debug)]
pub(super) struct PageTables {
    root: Frame,
    /// The tag of the space ([`Family::tag`](super::family::Family::tag)), 0 at first.
    tag: u64,
    /// The number of frames with tables, including the root and the tables in reserve.
    pub(super) count: u64,
    /// The tables in reserve, one for each huge page that is no page of the pool.
    pub(super) deposits: Deposits,
    /// The bytes of huge pages from the pools that the tables map.
    pub(super) pool_bytes: u64,
    /// The huge blocks on trial.
    pub(super) trials: Trials,
    /// The number of the region whose last-level table was used last.
    pub(super) recent_region: u64,
    /// The last-level table of the region `recent_region`. Null if there is none.
    pub(super) recent_table: *const Table,
    pub(super) hot: HotPlaces,
}

// SAFETY: `recent_table` points into the physmap and is used under the space's lock only.
unsafe impl Send for PageTables {}

fn cleared(table: TableFrame) -> Frame {
    let frame = table.into_frame();
    // SAFETY: the frame is ours alone.
    unsafe { clear_page(frame_ptr(frame)) };
    frame
}

impl PageTables {
    /// Returns tables that map only the kernel. Fails if no frame is free.
    pub(super) fn new() -> Result<Self, AllocError> {
        let root = cleared(TableFrame::try_new_root()?);
        let (from, to) = (table_at(kernel_root()), table_at(root.address()));
        for index in 256..512 {
            // Relaxed: the kernel's top-level entries are all set before the first space is made.
            to[index].store(from[index].load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(Self {
            root,
            tag: 0,
            count: 1,
            deposits: Deposits::default(),
            pool_bytes: 0,
            trials: Trials::default(),
            recent_region: NO_REGION,
            recent_table: core::ptr::null(),
            hot: HotPlaces::new(),
        })
    }

    /// Sets the family and the member that owner words of this space name, as
    /// [`Family::tag`](super::family::Family::tag) returns them. Called before there is any table
    /// but the root.
    pub(super) fn set_tag(&mut self, tag: u64) {
        self.tag = tag;
    }

    /// Returns the owner word for the frame that this space maps at `address`.
    pub(super) fn owner_of(&self, address: u64) -> Owner {
        Owner::new(self.tag, address / PAGE * PAGE)
    }

    /// Returns the physical address of the root table.
    pub(super) fn root(&self) -> u64 {
        self.root.address()
    }

    /// Returns the number of frames that the tables take, including the tables in reserve.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the last-level table for `address`. Creates missing tables. Fails if no frame is
    /// free.
    #[inline]
    pub(super) fn table_or_new(&mut self, address: u64) -> Result<&'static Table, AllocError> {
        let region = address / REGION;
        if region == self.recent_region {
            // SAFETY: `recent_table` is forgotten when a table is freed; see `table_at`.
            return Ok(unsafe { &*self.recent_table });
        }
        self.find_or_new(address)
    }

    #[cold]
    fn find_or_new(&mut self, address: u64) -> Result<&'static Table, AllocError> {
        let slot = self.region_slot_or_new(address)?;
        let mut entry = slot.load(Ordering::Relaxed);
        debug_assert_eq!(
            entry & (HUGE | TRIAL),
            0,
            "a huge page is taken for a table"
        );
        if entry == 0 {
            entry = self.hang_in(slot, address)?;
        }
        let table = table_at(entry);
        self.recent_region = address / REGION;
        self.recent_table = table;
        Ok(table)
    }

    /// Returns the entry that maps the region of `address` or leads to its table. Creates missing
    /// tables above it. Fails if no frame is free.
    pub(super) fn region_slot_or_new(
        &mut self,
        address: u64,
    ) -> Result<&'static AtomicU64, AllocError> {
        self.slot_or_new(address, 1)
    }

    /// Returns the entry for `address` at the level `to`, which is not the last one. Creates
    /// missing tables above it. Fails if no frame is free.
    pub(super) fn slot_or_new(
        &mut self,
        address: u64,
        to: usize,
    ) -> Result<&'static AtomicU64, AllocError> {
        let mut table = table_at(self.root.address());
        for level in (to + 1..4).rev() {
            let slot = slot(table, address, level);
            // Relaxed (as all entry accesses here): changed under the space's lock; the CPU's
            // walker takes entries in any order, and new tables are zeroed before they are hung
            // in, which x86 keeps in order.
            let mut entry = slot.load(Ordering::Relaxed);
            if entry == 0 {
                entry = self.hang_in(slot, address)?;
            }
            debug_assert_eq!(entry & HUGE, 0, "a huge page is taken for a table");
            table = table_at(entry);
        }
        Ok(slot(table, address, to))
    }

    /// Allocates a table for `address` and stores its entry in `slot`. Returns the entry. Fails if
    /// memory is short.
    fn hang_in(&mut self, slot: &AtomicU64, address: u64) -> Result<u64, AllocError> {
        let table = cleared(TableFrame::try_new()?);
        self.note_place(table, address);
        let entry = table.address() | PRESENT | WRITABLE | USER | ACCESSED;
        self.count += 1;
        slot.store(entry, Ordering::Release);
        Ok(entry)
    }

    /// Returns the mapping of `address`.
    #[inline]
    pub(super) fn leaf(&mut self, address: u64) -> Leaf {
        if address / REGION == self.recent_region {
            // SAFETY: as in `table_or_new`.
            return Leaf::Page(slot(unsafe { &*self.recent_table }, address, 0));
        }
        self.find_leaf(address)
    }

    #[cold]
    fn find_leaf(&mut self, address: u64) -> Leaf {
        let mut table = table_at(self.root.address());
        for level in [3, 2, 1] {
            let slot = slot(table, address, level);
            let entry = slot.load(Ordering::Relaxed);
            if entry == 0 {
                return Leaf::Absent;
            }
            if entry & HUGE != 0 {
                return Leaf::Huge(slot);
            }
            if entry & TRIAL != 0 {
                return Leaf::Trial(slot);
            }
            table = table_at(entry);
        }
        self.recent_region = address / REGION;
        self.recent_table = table;
        Leaf::Page(slot(table, address, 0))
    }

    /// Returns the entry of the huge page of 2 MiB around `address`, or `None` if there is none.
    pub(super) fn huge_slot(&self, address: u64) -> Option<&'static AtomicU64> {
        self.upper_slot(address, 1)
            .ok()
            .filter(|slot| slot.load(Ordering::Relaxed) & HUGE != 0)
    }

    /// Returns the end of the page of the pool that contains `address`. Returns `address` if no
    /// such page does, or if one begins there.
    pub(super) fn after_pool_page(&self, address: u64) -> u64 {
        let pooled = |level: &usize| {
            let entry = self
                .upper_slot(address, *level)
                .ok()?
                .load(Ordering::Relaxed);
            (entry & HUGE != 0 && entry & POOL != 0).then_some(SPANS[*level])
        };
        let span = [2, 1].iter().find_map(pooled);
        span.map_or(address, |span| address.next_multiple_of(span))
    }

    /// Returns the entry of the table of the huge block on trial around `address`, or `None` if
    /// there is none.
    pub(super) fn trial_slot(&self, address: u64) -> Option<&'static AtomicU64> {
        if self.trials.count() == 0 {
            return None;
        }
        self.upper_slot(address, 1).ok().filter(|slot| {
            let entry = slot.load(Ordering::Relaxed);
            entry & (HUGE | TRIAL) == TRIAL
        })
    }

    /// Returns the entry of the page at `address`. Creates missing tables. Fails if no frame is
    /// free.
    #[inline]
    pub(super) fn entry_or_new(&mut self, address: u64) -> Result<&'static AtomicU64, AllocError> {
        Ok(slot(self.table_or_new(address)?, address, 0))
    }

    /// Returns the entries of `pages` pages from `address` on, which lie in one region with a
    /// table.
    ///
    /// # Panics
    /// Panics if the region has no table.
    pub(super) fn entries(&self, address: u64, pages: usize) -> &'static [AtomicU64] {
        let Region::Table(table) = self.region(address) else {
            panic!("no page table for {address:#x}")
        };
        let first = index(address, 0);
        &table[first..first + pages]
    }

    /// Returns the mapping of the region that contains `address`.
    pub(super) fn region(&self, address: u64) -> Region {
        let mut table = table_at(self.root.address());
        for level in [3, 2, 1] {
            let slot = slot(table, address, level);
            let entry = slot.load(Ordering::Relaxed);
            if entry == 0 {
                return Region::AbsentUntil(next_used(table, address, level));
            }
            if entry & HUGE != 0 {
                return Region::Huge(slot, SPANS[level]);
            }
            if entry & TRIAL != 0 {
                return Region::Trial(slot);
            }
            table = table_at(entry);
        }
        Region::Table(table)
    }

    /// Calls `each` with every run of entries in `range`: the first address of the run and its
    /// entries. A run lies in one region or huge page. Stops if `each` returns `false`. Returns the
    /// address where it stopped.
    pub(super) fn runs(&self, range: Range<u64>, mut each: impl FnMut(u64, Run) -> bool) -> u64 {
        let mut at = range.start;
        while at < range.end {
            let end_of = |span: u64| range.end.min((at / span + 1) * span);
            let (run, end) = match self.region(at) {
                Region::AbsentUntil(next) => {
                    at = next;
                    continue;
                }
                Region::Huge(slot, span) => {
                    let end = end_of(span);
                    let start = at - at % span;
                    let places = (at - start) / PAGE..(end - start) / PAGE;
                    (Run::Huge(slot, places), end)
                }
                Region::Trial(slot) => {
                    let end = end_of(REGION);
                    (Run::Trial(slot, pages_in(end - at)), end)
                }
                Region::Table(table) => {
                    let end = end_of(REGION);
                    let first = index(at, 0);
                    let pages = pages_in(end - at);
                    (Run::Pages(&table[first..first + pages]), end)
                }
            };
            if !each(at, run) {
                return at;
            }
            at = end;
        }
        range.end
    }

    /// Returns whether anything is mapped in `range`. Returns `true` without a search if `range` is
    /// longer than `most` bytes.
    pub(super) fn shows_any(&self, range: &Range<u64>, most: u64) -> bool {
        if range.end - range.start > most {
            return true;
        }
        let is_unused = |run: &Run| match run {
            Run::Pages(entries) => entries
                .iter()
                .all(|entry| entry.load(Ordering::Relaxed) == 0),
            Run::Huge(..) | Run::Trial(..) => false,
        };
        self.runs(range.clone(), |_, run| is_unused(&run)) < range.end
    }

    /// Clears entries in `range` while the gather has room, and passes their frames to it. With
    /// `files_only`, private pages stay. Huge pages lie wholly in the range (`split_edges`).
    /// Returns the address reached.
    pub(super) fn zap(&mut self, range: Range<u64>, files_only: bool, gather: &mut Gather) -> u64 {
        let mut at = range.start;
        while at < range.end {
            let table = match self.region(at) {
                Region::AbsentUntil(next) => {
                    at = next;
                    continue;
                }
                Region::Huge(slot, span) => {
                    debug_assert!(at.is_multiple_of(span) && range.end - at >= span);
                    let entry = slot.load(Ordering::Relaxed);
                    // A page of the pool that is a file's says so; others are private or a file's.
                    if !files_only || entry & (FILE | SHMEM) != 0 {
                        if !gather.has_room_for_huge() {
                            return at;
                        }
                        self.take_huge(slot, span, gather);
                    }
                    at += span;
                    continue;
                }
                Region::Trial(slot) => {
                    debug_assert!(
                        at.is_multiple_of(REGION) && range.end - at >= REGION || files_only
                    );
                    if !files_only {
                        if !gather.has_room_for_huge() {
                            return at;
                        }
                        self.take_trial(slot, gather);
                    }
                    at = (at / REGION + 1) * REGION;
                    continue;
                }
                Region::Table(table) => table,
            };
            let first = index(at, 0);
            let end = range.end.min((at / REGION + 1) * REGION);
            let pages = pages_in(end - at);
            let done = gather.take(&table[first..first + pages], files_only);
            if done < pages {
                return at + done as u64 * PAGE;
            }
            at = end;
        }
        range.end
    }

    /// Removes empty tables that touch `range` and lie wholly in `owned`. Tables wholly in
    /// `emptied` are known to be empty. Returns `false` if the gather is full and there are more.
    pub(super) fn prune(
        &mut self,
        range: Range<u64>,
        owned: Range<u64>,
        emptied: Range<u64>,
        gather: &mut Gather,
    ) -> bool {
        self.forget_tables();
        let before = gather.len();
        let pruning = Pruning {
            range,
            owned,
            emptied,
        };
        let whole = pruning.below(table_at(self.root.address()), 3, 0, gather);
        self.count -= (gather.len() - before) as u64;
        whole
    }

    /// Returns the entry for `address` in the table at `level`, 1 to 3, if it is in use.
    ///
    /// # Errors
    /// If there is no such entry, or a huge page of a higher level maps `address`, fails with the
    /// address up to which there are none.
    pub(super) fn upper_slot(&self, address: u64, level: usize) -> Result<&'static AtomicU64, u64> {
        let mut table = table_at(self.root.address());
        for upper in (level..4).rev() {
            let slot = slot(table, address, upper);
            let entry = slot.load(Ordering::Relaxed);
            if entry == 0 {
                return Err(next_used(table, address, upper));
            }
            if upper == level {
                return Ok(slot);
            }
            if entry & HUGE != 0 {
                return Err((address / SPANS[upper] + 1) * SPANS[upper]);
            }
            table = table_at(entry);
        }
        unreachable!("level is 1 to 3")
    }

    /// Moves the entries of `from..from + bytes` to `to`, which is empty and has tables where
    /// `from` has some. Whole regions move at once if both are aligned alike; `prepare_move` leaves
    /// huge pages only in such regions.
    pub(super) fn move_entries(&mut self, from: u64, to: u64, bytes: u64) {
        self.trials.may_move(from..from + bytes, to..to + bytes);
        let mut done = 0;
        while done < bytes {
            let (source, target) = (from + done, to + done);
            let whole = source.is_multiple_of(REGION)
                && target.is_multiple_of(REGION)
                && bytes - done >= REGION;
            let region = self.region(source);
            if let Region::AbsentUntil(next) = region {
                done = next - from;
                continue;
            }
            if let Region::Huge(old, span) = region
                && span > REGION
            {
                let Ok(new) = self.slot_or_new(target, HUGEST) else {
                    panic!("no place for the page of {source:#x} was made at {target:#x}")
                };
                // An empty table at the new place belongs to the old place from here on.
                let (a, b) = (old.load(Ordering::Relaxed), new.load(Ordering::Relaxed));
                old.store(b, Ordering::Relaxed);
                new.store(a, Ordering::Relaxed);
                self.forget_tables();
                done += span;
                continue;
            }
            if whole
                && let (Ok(old), Ok(new)) = (self.upper_slot(source, 1), self.upper_slot(target, 1))
            {
                // The two tables change places: the new one is empty.
                let (a, b) = (old.load(Ordering::Relaxed), new.load(Ordering::Relaxed));
                old.store(b, Ordering::Relaxed);
                new.store(a, Ordering::Relaxed);
                for (entry, address) in [(a, target), (b, source)] {
                    if entry & (HUGE | TRIAL) != HUGE {
                        self.note_place(frame_of(entry), address);
                    }
                }
                self.forget_tables();
                done += REGION;
                continue;
            }
            let Region::Table(table) = region else {
                panic!("a huge page at {source:#x} cannot move to {target:#x}")
            };
            // Up to where one of the two tables ends.
            let left_of = |address: u64| REGION - address % REGION;
            let step = left_of(source).min(left_of(target)).min(bytes - done);
            let entries = table[index(source, 0)..].iter();
            for (old, new) in entries.zip(self.entries(target, pages_in(step))) {
                let value = old.load(Ordering::Relaxed);
                if value != 0 {
                    debug_assert_eq!(new.load(Ordering::Relaxed), 0);
                    old.store(0, Ordering::Relaxed);
                    new.store(value, Ordering::Relaxed);
                }
            }
            done += step;
        }
    }

    /// Prepares [`Self::move_entries`]: splits the huge pages that cannot move whole, and creates
    /// the tables that are needed at `to`. Fails if no frame is free.
    pub(super) fn prepare_move(
        &mut self,
        from: u64,
        to: u64,
        bytes: u64,
        cpus: &CpuSet,
    ) -> Result<(), AllocError> {
        if from % REGION == to % REGION {
            self.split_edges(&(from..from + bytes), cpus);
        } else {
            self.split_all(from..from + bytes, u32::MAX, cpus);
        }
        let mut done = 0;
        while done < bytes {
            match self.region(from + done) {
                Region::AbsentUntil(next) => done = next - from,
                Region::Huge(_, span) if span > REGION => {
                    self.slot_or_new(to + done, HUGEST)?;
                    done += span;
                }
                Region::Table(_) | Region::Huge(..) | Region::Trial(_) => {
                    let step = REGION - (from + done) % REGION;
                    self.find_or_new(to + done)?;
                    let last = (done + step).min(bytes) - PAGE;
                    self.find_or_new(to + last)?;
                    done += step;
                }
            }
        }
        Ok(())
    }

    /// Frees the root table. All tables below it must have been freed.
    pub(super) fn free_root(&mut self) {
        let user = &table_at(self.root.address())[..256];
        assert!(
            unused_before(user) == user.len(),
            "a space goes with page tables left in it"
        );
        assert_eq!(self.deposits.len(), 0, "page tables in reserve for nothing");
        machine::memory::memmap::release(self.root);
        self.count = 0;
    }
}
