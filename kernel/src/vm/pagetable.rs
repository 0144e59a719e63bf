//! Page tables of an address space: four levels, with pages of 4 KiB, of 2 MiB (`leaf`), and of 1
//! GiB from the pool.
//!
//! A last-level entry that is not zero holds one reference to its frame, whether or not the entry
//! is present. Pages without any rights (`PROT_NONE`) keep their frames in entries that are not
//! present. Only entries of the shared frame of zeros (`ZERO`) hold no reference.

use super::entry::{FILE, HUGE, PAGE, POOL, REGION, SHMEM, SPANS, TRIAL, index, pages_in};
use super::family::Owner;
use super::gather::Gather;
use super::trial::Trials;
use core::cell::Cell;
use core::ops::{Deref, Range};
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_mm::AllocError;
use machine::arch::CpuSet;
use machine::memory::page_tables::{Deposits, Table, Tree};
pub(super) use machine::memory::page_tables::{Leaf, Region, Slot};

/// The level whose entries can map the largest pages.
pub(super) const HUGEST: usize = 2;

/// Adjacent entries that [`PageTables::runs`] finds in one last-level table, or one huge entry.
pub(super) enum Run<'t> {
    /// Entries of a last-level table. Some may be unused.
    Pages(&'t [AtomicU64]),
    /// The entry of a huge page, and the part of that page in the searched range, as page numbers
    /// from the start of the huge page.
    Huge(Slot<'t>, Range<u64>),
    /// The entry that leads to the page table of a huge block on trial, and the number of its pages
    /// in the searched range.
    Trial(Slot<'t>, usize),
}

/// The page tables of one address space. Dereferences to their [`Tree`].
#[derive(Debug)]
pub(super) struct PageTables {
    pub(super) tree: Tree,
    /// The tag of the space ([`Family::tag`](super::family::Family::tag)), 0 at first.
    tag: u64,
    /// The tables in reserve, one for each huge page that is no page of the pool.
    pub(super) deposits: Deposits,
    /// The bytes of huge pages from the pools that the tables map.
    pub(super) pool_bytes: Cell<u64>,
    /// The huge blocks on trial.
    pub(super) trials: Trials,
}

impl Deref for PageTables {
    type Target = Tree;

    #[inline]
    fn deref(&self) -> &Tree {
        &self.tree
    }
}

impl PageTables {
    /// Returns tables that map only the kernel. Fails if no frame is free.
    #[inline]
    pub(super) fn new() -> Result<Self, AllocError> {
        Ok(Self {
            tree: Tree::new()?,
            tag: 0,
            deposits: Deposits::default(),
            pool_bytes: Cell::new(0),
            trials: Trials::default(),
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

    /// Returns the number of frames that the tables take, including the tables in reserve.
    pub(super) fn count(&self) -> u64 {
        self.tree.count() + self.deposits.count()
    }

    /// Returns the last-level table for `address`. Creates missing tables. Fails if no frame is
    /// free.
    #[inline]
    pub(super) fn table_or_new(&self, address: u64) -> Result<&Table, AllocError> {
        self.tree.table_or_new(address, self.owner_of(address).0)
    }

    /// Returns the entry that maps the region of `address` or leads to its table. Creates missing
    /// tables above it. Fails if no frame is free.
    pub(super) fn region_slot_or_new(&self, address: u64) -> Result<Slot<'_>, AllocError> {
        self.slot_or_new(address, 1)
    }

    /// Returns the entry for `address` at the level `to`, which is not the last one. Creates
    /// missing tables above it. Fails if no frame is free.
    pub(super) fn slot_or_new(&self, address: u64, to: usize) -> Result<Slot<'_>, AllocError> {
        self.tree.slot_or_new(address, to, self.owner_of(address).0)
    }

    /// Returns the entry of the huge page of 2 MiB around `address`, or `None` if there is none.
    pub(super) fn huge_slot(&self, address: u64) -> Option<Slot<'_>> {
        self.upper_slot(address, 1)
            .ok()
            .filter(|slot| slot.load() & HUGE != 0)
    }

    /// Returns the end of the page of the pool that contains `address`. Returns `address` if no
    /// such page does, or if one begins there.
    pub(super) fn after_pool_page(&self, address: u64) -> u64 {
        let pooled = |level: &usize| {
            let entry = self.upper_slot(address, *level).ok()?.load();
            (entry & HUGE != 0 && entry & POOL != 0).then_some(SPANS[*level])
        };
        let span = [2, 1].iter().find_map(pooled);
        span.map_or(address, |span| address.next_multiple_of(span))
    }

    /// Returns the entry of the table of the huge block on trial around `address`, or `None` if
    /// there is none.
    #[inline]
    pub(super) fn trial_slot(&self, address: u64) -> Option<Slot<'_>> {
        if self.trials.count() == 0 {
            return None;
        }
        self.upper_slot(address, 1).ok().filter(|slot| {
            let entry = slot.load();
            entry & (HUGE | TRIAL) == TRIAL
        })
    }

    /// Returns the entry of the page at `address`. Creates missing tables. Fails if no frame is
    /// free.
    #[inline]
    pub(super) fn entry_or_new(&self, address: u64) -> Result<&AtomicU64, AllocError> {
        Ok(&self.table_or_new(address)?[index(address, 0)])
    }

    /// Returns the entries of `pages` pages from `address` on, which lie in one region with a
    /// table.
    ///
    /// # Panics
    /// Panics if the region has no table.
    pub(super) fn entries(&self, address: u64, pages: usize) -> &[AtomicU64] {
        let Region::Table(table) = self.region(address) else {
            panic!("no page table for {address:#x}")
        };
        let first = index(address, 0);
        &table[first..first + pages]
    }

    /// Calls `each` with every run of entries in `range`: the first address of the run and its
    /// entries. A run lies in one region or huge page. Stops if `each` returns `false`. Returns the
    /// address where it stopped.
    pub(super) fn runs<'t>(
        &'t self,
        range: Range<u64>,
        mut each: impl FnMut(u64, Run<'t>) -> bool,
    ) -> u64 {
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
        let is_unused = |run: &Run<'_>| match run {
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
                    let entry = slot.load();
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
                Region::Trial(_) => {
                    debug_assert!(
                        at.is_multiple_of(REGION) && range.end - at >= REGION || files_only
                    );
                    if !files_only {
                        if !gather.has_room_for_huge() {
                            return at;
                        }
                        self.take_trial(at, gather);
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
        self.tree.prune(
            range,
            owned,
            emptied,
            gather,
            |gather| gather.is_full(),
            Gather::table,
        )
    }

    /// Moves the entries of `from..from + bytes` to `to`, which is empty and has tables where
    /// `from` has some. Whole regions move at once if both are aligned alike; `prepare_move` leaves
    /// huge pages only in such regions.
    pub(super) fn move_entries(&self, from: u64, to: u64, bytes: u64) {
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
            let owner = |address| self.owner_of(address).0;
            if let Region::Huge(_, span) = region
                && span > REGION
            {
                // An empty table at the new place belongs to the old place from here on.
                self.exchange(source, target, HUGEST, owner);
                done += span;
                continue;
            }
            if whole && self.upper_slot(target, 1).is_ok() {
                // The two tables change places: the new one is empty.
                self.exchange(source, target, 1, owner);
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
        &self,
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
                    self.table_or_new(to + done)?;
                    let last = (done + step).min(bytes) - PAGE;
                    self.table_or_new(to + last)?;
                    done += step;
                }
            }
        }
        Ok(())
    }
}
