//! Moving frames of private memory while programs use them.
//!
//! A batch of frames moves in four steps:
//!
//! 1. Each frame's entries are *parked*: found by the frame's word (`family`) and made not present,
//!    with a bit of their own. An access faults, and the fault restores the entry, as it does for
//!    any entry that is not present. Then the frame stays where it is. So no program waits for a
//!    move.
//! 2. The CPUs that use the spaces flush the entries, once for each space. From here on no CPU
//!    reads or writes the frames by them.
//! 3. The references are counted. If their number is that of the parked entries, and all of these
//!    are still parked, then the frame has no other user, such as a system call or a device. A new
//!    user can come by an entry alone. The bytes are copied, without a lock.
//! 4. Each entry that is still parked is pointed at the new frame. It is in no TLB, so no second
//!    flush is needed. An entry that is not parked any more had a fault: it keeps the old frame,
//!    which has the same bytes.
//!
//! A page of a file is found through the file. It is taken out of all page tables, as by a
//! truncation. If the file then has the only reference, it replaces the frame, under the lock under
//! which it hands out pages.
//!
//! Only faults remove the bit on purpose; other changes of an entry drop it, too, since they keep
//! `ADDRESS` and the kind alone. Frames parked by `collapse` stay where they are.
//!
//! Pages of volumes and disks move as those of tmpfs do ([`PageOwner::relocate`]). A page that is
//! being read or written has a further reference, so it stays. Pages of the balloon move through
//! its driver (`machine::memory::ballooned`).

#![expect(unsafe_code, reason = "frames are copied")]

use super::compaction::knobs;
use super::entry::{
    ADDRESS, COLLAPSING, FILE, MOVING, PAGE, POOL, PRESENT, SHMEM, WRITABLE, ZERO, frame_of,
};
use super::family::{Family, Owner};
use super::leaf::TableFrame;
use super::named;
use super::page_owner::PageOwner;
use super::pagetable::{Leaf, Run};
use super::tlb;
use super::{AddressSpace, VmaFlags};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_mm::Frame;
use logic::carry::{self, Moving, ParkedBy};
use logic::errno::Errno;
use machine::arch::USER_END;
use machine::arch::clock::{self, Nanos};
use machine::memory::ballooned;
use machine::memory::copy_page;
use machine::memory::frame::FrameRef;
use machine::memory::memmap::{self, Descriptor, Kind, frame_ptr};
use machine::memory::percpu::{self, Count};
use machine::memory::targets::{Target, Targets};
use machine::sched;

/// The most frames that move together.
pub(super) const BATCH: usize = Targets::MOST;
/// The most entries that are parked at once. A batch with more of them moves in several turns.
const ENTRIES: usize = 4 * BATCH;

/// The time for which a searched family is not searched again.
const SEARCH_REST: Nanos = Nanos(2_000_000_000);
/// The number of page tables that are searched each time that the lock is held.
const TABLES: u32 = 4;

/// A space in which entries are parked, and the pages whose translations must be flushed.
struct Shown {
    space: Arc<AddressSpace>,
    pages: Range<u64>,
}

/// A parked entry: an entry that maps a frame which is being moved. The CPU cannot use it until the
/// move ends.
struct Parked {
    /// The index of the entry's space in `shown`.
    space: usize,
    page: u64,
    /// The value that the entry had before it was parked.
    before: u64,
}

impl Parked {
    const fn parked(&self) -> u64 {
        parked(self.before)
    }
}

const fn parked(entry: u64) -> u64 {
    entry & !(PRESENT | WRITABLE) | MOVING
}

/// Returns the operation that has parked `entry`.
const fn parked_by(entry: u64) -> ParkedBy {
    if entry & MOVING == 0 {
        ParkedBy::None
    } else if entry & COLLAPSING == 0 {
        ParkedBy::Mover
    } else {
        ParkedBy::Joiner
    }
}

/// A frame that is being moved.
struct Item {
    frame: Frame,
    owner: Owner,
    /// The range in `parked` of the entries that map the frame.
    entries: Range<usize>,
}

/// A frame of a file that is being moved.
struct FilePage {
    frame: Frame,
    file: Arc<dyn PageOwner>,
    index: u64,
    /// The frame's reference count when it was found.
    references: u32,
}

impl FilePage {
    /// Unmaps the pages `range` of the file from all page tables. Faults map them again.
    fn unmap(&self, range: &Range<u64>) {
        self.file.unmap(range.clone());
    }

    /// Moves the page to `to`. Returns `false` if the page is in use at this time.
    fn carry(&self, to: Target) -> bool {
        let to = FrameRef::of_target(to, Kind::File);
        self.file.relocate(self.index, self.frame, to)
    }
}

/// Moves frames in batches. Keeps the buffers for a batch.
pub(super) struct Mover {
    /// The frames of page tables in the batch.
    tables: Vec<Frame>,
    of_files: Vec<FilePage>,
    /// The frames of the balloon in the batch.
    ballooned: Vec<Frame>,
    shown: Vec<Shown>,
    parked: Vec<Parked>,
    items: Vec<Item>,
    family: Option<(u64, Arc<Family>)>,
    /// A family with a frame that was not mapped at the address in its owner word.
    /// [`Mover::search`] searches it.
    lost: Option<Arc<Family>>,
    /// The number of the family that was searched last, and the time of that search.
    searched: (u64, Nanos),
}

/// Calls `then` with the entry of `page` in `space`, with the space's lock held, and returns its
/// result. Returns `false` if no base page can be there.
fn entry_of(space: &AddressSpace, page: u64, then: impl FnOnce(&AtomicU64) -> bool) -> bool {
    let state = space.state.lock();
    match state.tables.leaf(page) {
        Leaf::Page(entry) => then(entry),
        Leaf::Huge(_) | Leaf::Trial(_) | Leaf::Absent => false,
    }
}

impl AddressSpace {
    /// Returns whether the area of a page is locked.
    fn is_locked(&self, page: u64) -> bool {
        let state = self.state.lock();
        let area = state.areas.find(page);
        area.is_some_and(|area| area.flags.contains(VmaFlags::LOCKED))
    }

    /// Splits the huge page at `page` if `block` is mapped there.
    fn part_huge(&self, page: u64, block: Frame) {
        self.settle_trials(page..page + PAGE);
        let state = self.state.lock();
        if let Leaf::Huge(entry) = state.tables.leaf(page)
            && frame_of(entry.load()) == block
        {
            state.tables.split(page, &self.cpus);
        }
    }

    /// Corrects the owner words of this space's frames to the addresses at which the frames are
    /// mapped.
    fn correct_owners(&self) {
        let mut at = 0;
        while at < USER_END {
            let state = self.state.lock();
            let mut tables = 0;
            at = state.tables.runs(at..USER_END, |start, run| {
                if tables == TABLES {
                    return false;
                }
                tables += 1;
                match run {
                    Run::Pages(entries) => {
                        for (page, entry) in (0..).zip(entries) {
                            // Relaxed: under the lock.
                            let entry = entry.load(Ordering::Relaxed);
                            self.correct_owner(start + page * PAGE, entry);
                        }
                    }
                    Run::Huge(entry, _) => self.correct_owner(start, entry.load()),
                    // The block is one: its word is for later.
                    Run::Trial(..) => {}
                }
                true
            });
            drop(state);
            sched::cond_resched();
        }
    }

    /// Corrects the word of the frame of one entry. The caller holds the lock.
    fn correct_owner(&self, page: u64, entry: u64) {
        if entry == 0 || entry & (FILE | SHMEM | ZERO | POOL) != 0 {
            return;
        }
        let descriptor = Descriptor::get(frame_of(entry));
        if Owner(descriptor.owner()).page() != page && descriptor.references() == 1 {
            descriptor.set_owner(self.owner_of(page).0);
        }
    }
}

impl Mover {
    /// Returns a mover with buffers for one batch.
    ///
    /// # Errors
    /// Fails with `ENOMEM`.
    pub(super) fn new() -> Result<Self, Errno> {
        let mut mover = Self {
            tables: Vec::new(),
            of_files: Vec::new(),
            ballooned: Vec::new(),
            shown: Vec::new(),
            parked: Vec::new(),
            items: Vec::new(),
            family: None,
            lost: None,
            searched: (0, Nanos(0)),
        };
        let room = mover
            .shown
            .try_reserve_exact(ENTRIES)
            .and_then(|()| mover.parked.try_reserve_exact(ENTRIES))
            .and_then(|()| mover.items.try_reserve_exact(BATCH))
            .and_then(|()| mover.of_files.try_reserve_exact(BATCH))
            .and_then(|()| mover.ballooned.try_reserve_exact(BATCH))
            .and_then(|()| mover.tables.try_reserve_exact(BATCH));
        room.map_err(|_| Errno::ENOMEM)?;
        Ok(mover)
    }

    /// Moves the frames `from` to `to`, at least as many, and frees the old ones. Frames in use may
    /// stay. The caller holds no lock.
    pub(super) fn run(&mut self, from: &[Frame], mut to: Targets) {
        debug_assert!(from.len() <= to.left());
        let mut moved = 0;
        for &frame in from {
            if self.is_full_for(frame) {
                moved += self.carry_parked(&mut to);
            }
            self.park(frame);
        }
        moved += self.carry_parked(&mut to);
        let failed = from.len() - moved;
        percpu::add(Count::Migrated, moved as u64);
        percpu::add(Count::MigrateFailed, failed as u64);
        self.family = None;
    }

    /// Returns `true` if the entries of `frame` find no room beside those that are parked, and
    /// would alone.
    fn is_full_for(&self, frame: Frame) -> bool {
        let descriptor = Descriptor::get(frame);
        let references = descriptor.references();
        let room = ENTRIES - self.parked.len();
        descriptor.is_anonymous(references) && (room + 1..=ENTRIES).contains(&(references as usize))
    }

    /// Moves the frames of the batch to targets of `to`, one for each, and frees the old ones.
    /// Returns the number of frames that have moved. The batch is empty afterwards.
    fn carry_parked(&mut self, to: &mut Targets) -> usize {
        self.unmap_files();
        for shown in &self.shown {
            tlb::flush(&shown.space.cpus, shown.pages.clone());
            shown.space.end_moves();
        }
        let mut moved = 0;
        for item in &self.items {
            let Some(to) = to.take() else { break };
            sched::give_way();
            moved += usize::from(self.carry(item, to));
        }
        for page in &self.of_files {
            let Some(to) = to.take() else { break };
            sched::give_way();
            moved += usize::from(page.carry(to));
        }
        for index in 0..self.tables.len() {
            let Some(to) = to.take() else { break };
            sched::give_way();
            moved += usize::from(self.carry_table(self.tables[index], to));
        }
        self.items.clear();
        self.tables.clear();
        self.parked.clear();
        // Spaces whose last reference this is go here, with their memory.
        self.shown.clear();
        self.of_files.clear();
        // Last, because it may sleep.
        moved += ballooned::exchange(&self.ballooned, to);
        self.ballooned.clear();
        moved
    }

    /// Takes pages of files that are mapped out of all page tables, neighbours together.
    fn unmap_files(&self) {
        let mut pages = self.of_files.iter().filter(|page| page.references > 1);
        let Some(mut first) = pages.next() else {
            return;
        };
        let mut range = first.index..first.index + 1;
        for page in pages {
            if Arc::ptr_eq(&page.file, &first.file) && page.index == range.end {
                range.end += 1;
                continue;
            }
            first.unmap(&range);
            first = page;
            range = page.index..page.index + 1;
        }
        first.unmap(&range);
    }

    /// Adds `frame` to the batch if it can move, and parks its entries.
    fn park(&mut self, frame: Frame) {
        let descriptor = Descriptor::get(frame);
        let references = descriptor.references();
        if descriptor.kind() == Some(Kind::PageTable) {
            self.tables.push(frame);
            return;
        }
        if descriptor.kind() == Some(Kind::Balloon) {
            self.ballooned.push(frame);
            return;
        }
        if descriptor.kind() == Some(Kind::File) {
            // A space that maps it may have locked it.
            if references > 1 && !knobs::unevictable_allowed() {
                return;
            }
            if let Some((file, index)) = named::find(descriptor.owner()) {
                self.of_files.push(FilePage {
                    frame,
                    file,
                    index,
                    references,
                });
            }
            return;
        }
        if !descriptor.is_anonymous(references) || references == 0 {
            return;
        }
        let owner = Owner(descriptor.owner());
        let room = ENTRIES - self.parked.len();
        if !owner.is_known() || references as usize > room {
            return;
        }
        let Some(family) = self.family_of(owner) else {
            return;
        };
        let first = self.parked.len();
        let page = owner.page();
        let mut shown = false;
        family.ask(owner, |space| {
            shown |= self.park_entry(space, page, frame);
            self.parked.len() - first == references as usize
        });
        let entries = first..self.parked.len();
        if entries.len() == references as usize {
            self.items.push(Item {
                frame,
                owner,
                entries,
            });
        } else {
            // Some show it elsewhere, or a call or a device has it.
            if !shown && references == 1 {
                self.lost = Some(family);
            }
            for parked in &self.parked[first..] {
                self.unpark(parked);
            }
            // They stay in the list, since parked entries must be flushed.
        }
    }

    /// Splits the huge page of private memory that consists of `block`, in all spaces that map it.
    /// If the page is on trial, decides the trial. Does nothing if `block` is no such page.
    pub(super) fn part(&mut self, block: Frame) {
        let descriptor = Descriptor::get(block);
        let owner = Owner(descriptor.owner());
        if descriptor.kind() != Some(Kind::Anonymous) || !owner.is_known() {
            return;
        }
        if let Some(family) = self.family_of(owner) {
            family.ask(owner, |space| {
                space.part_huge(owner.page(), block);
                false
            });
        }
        self.family = None;
    }

    /// Searches the page tables of one family for frames that were not at the addresses in their
    /// owner words, as `mremap` leaves them, and corrects the words. Does nothing if [`Self::run`]
    /// has met no such frame since the last search, or if the family was searched a moment ago. The
    /// search visits each page of the family, so it runs seldom, and never for a waiting task.
    pub(super) fn search(&mut self) {
        let Some(family) = self.lost.take() else {
            return;
        };
        let (number, at) = self.searched;
        if number == family.number() && clock::now().saturating_sub(at) < SEARCH_REST {
            return;
        }
        family.ask(Owner(0), |space| {
            space.correct_owners();
            false
        });
        self.searched = (family.number(), clock::now());
    }

    /// Moves a page table to `to`. Returns `false` if its space is not found.
    fn carry_table(&mut self, from: Frame, to: Target) -> bool {
        let owner = Owner(Descriptor::get(from).owner());
        if !owner.is_known() {
            return false;
        }
        let Some(family) = self.family_of(owner) else {
            return false;
        };
        let mut target = Some(TableFrame::of_target(to));
        // A table has one space.
        family.ask(owner, |space| {
            if let Some(to) = target.take() {
                // The old table goes.
                target = space.move_table(owner.page(), from, to).err();
            }
            true
        });
        target.is_none()
    }

    fn family_of(&mut self, owner: Owner) -> Option<Arc<Family>> {
        let number = owner.family();
        if let Some((known, family)) = &self.family
            && *known == number
        {
            return Some(family.clone());
        }
        let family = Family::of(owner)?;
        self.family = Some((number, family.clone()));
        Some(family)
    }

    /// Parks the entry of `page` if it maps `frame`, and returns whether it maps it. Leaves an
    /// entry alone that another operation has parked.
    fn park_entry(&mut self, space: &Arc<AddressSpace>, page: u64, frame: Frame) -> bool {
        // Where the last one was, mostly.
        let known = self
            .shown
            .iter()
            .rposition(|shown| Arc::ptr_eq(&shown.space, space));
        let mut before = 0;
        let may_move = knobs::unevictable_allowed() || !space.is_locked(page);
        let mut parks = false;
        let shows = entry_of(space, page, |entry| {
            // Relaxed (all accesses to entries): the space's lock is held, and the CPU does not
            // write entries.
            before = entry.load(Ordering::Relaxed);
            let shows =
                before & (FILE | SHMEM | ZERO) == 0 && before != 0 && frame_of(before) == frame;
            parks = shows && may_move && parked_by(before).may_be_movers();
            if parks {
                if known.is_none() {
                    // Until it is flushed others may store by the entry.
                    space.begin_moves();
                }
                entry.store(parked(before), Ordering::Relaxed);
            }
            shows
        });
        if !parks {
            return shows;
        }
        let place = known.unwrap_or_else(|| {
            self.shown.push(Shown {
                space: space.clone(),
                pages: page..page,
            });
            self.shown.len() - 1
        });
        let pages = &mut self.shown[place].pages;
        *pages = pages.start.min(page)..pages.end.max(page + PAGE);
        self.parked.push(Parked {
            space: place,
            page,
            before,
        });
        true
    }

    /// Restores an entry without the right to store: the frame may be shared by now, which the next
    /// fault checks.
    fn unpark(&self, parked: &Parked) {
        self.replace(parked, parked.before & !WRITABLE);
    }

    /// Sets a parked entry to `with`. Returns `false` if it is not parked any more.
    fn replace(&self, parked: &Parked, with: u64) -> bool {
        entry_of(&self.shown[parked.space].space, parked.page, |entry| {
            let still = entry.load(Ordering::Relaxed) == parked.parked();
            if still {
                // Release: the bytes come before it; x86 keeps that order anyway.
                entry.store(with, Ordering::Release);
            }
            still
        })
    }

    fn is_parked(&self, parked: &Parked) -> bool {
        entry_of(&self.shown[parked.space].space, parked.page, |entry| {
            entry.load(Ordering::Relaxed) == parked.parked()
        })
    }

    /// Moves the frame of `item` to `to`, unless one of its entries was used after it was parked.
    /// Returns whether the frame moved.
    fn carry(&self, item: &Item, to: Target) -> bool {
        let entries = &self.parked[item.entries.clone()];
        let to = FrameRef::of_target(to, Kind::Anonymous);
        let carried = Carried {
            mover: self,
            item,
            entries,
            to,
        };
        carry::carry(&carried, entries.len()) != 0
    }
}

/// A frame of private memory during its move to the frame `to`, to which it has a reference until
/// all entries are done.
struct Carried<'a> {
    mover: &'a Mover,
    item: &'a Item,
    entries: &'a [Parked],
    to: FrameRef,
}

impl Moving for Carried<'_> {
    fn has_references(&self, count: u32) -> bool {
        Descriptor::get(self.item.frame).is_anonymous(count)
    }

    fn is_parked(&self, entry: usize) -> bool {
        self.mover.is_parked(&self.entries[entry])
    }

    fn unpark(&self, entry: usize) {
        self.mover.unpark(&self.entries[entry]);
    }

    fn copy(&self) {
        // SAFETY: the target is not mapped yet. The other may be freed by now, if its program
        // ended; then the copy is not used. It is RAM in any case.
        unsafe { copy_page(self.to.as_ptr(), frame_ptr(self.item.frame)) };
        self.to.set_owner(self.item.owner.0);
    }

    fn exchange(&self, entry: usize) -> bool {
        let parked = &self.entries[entry];
        // The entry's reference comes before the entry.
        let reference = self.to.clone_of_base();
        let entry = parked.before & !ADDRESS | self.to.address();
        if !self.mover.replace(parked, entry) {
            return false;
        }
        let _ = reference.into_counted();
        memmap::release(self.item.frame);
        true
    }
}
