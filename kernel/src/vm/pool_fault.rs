//! Faults in areas of the pool of huge pages.

use super::AddressSpace;
use super::VmaFlags;
use super::backing::Bytes;
use super::entry::{FILE, HUGE, PAGE, POOL, WRITABLE, frame_of};
use super::pagetable::{HUGEST, Leaf, PageTables};
use super::serve::{Asked, Step};
use super::source::MappedFile;
use super::thp::pin_part;
use super::tlb;
use super::want::{entry_flags, store_flags};
use alloc::sync::Arc;
use machine::arch::clock::{self, Nanos};
use machine::memory::hugetlb::{self, HugePage, PageSize};
use machine::sched;
use machine::sync::{Mutex, MutexGuard};

/// A page from the pool of huge pages that a fault needs: page `index` of `file`.
pub(super) struct PoolNeed {
    file: Arc<MappedFile>,
    index: u64,
    /// The address at which the page is mapped.
    region: u64,
    shared: bool,
    store: bool,
    /// The mapped page, which a store must copy because the file or other processes share it.
    /// `None` if no page is mapped yet.
    source: Option<HugePage>,
}

/// A page from the pool of huge pages that was obtained for a fault while the space was not locked:
/// a new page, or a page of the file. If the value is dropped unused, a page that was reserved for
/// the mapping becomes reserved again.
pub(super) struct PoolSupply {
    file: Arc<MappedFile>,
    index: u64,
    sequence: u64,
    /// The page of which `page` is a copy. `None` if it is no copy.
    source: Option<HugePage>,
    /// The page. `None` once it is mapped.
    page: Option<HugePage>,
    /// Whether `page` belongs to the file. If not, it is private to the space.
    of_file: bool,
    /// Whether `page` was reserved for the mapping.
    promised: bool,
}

impl Drop for PoolSupply {
    fn drop(&mut self) {
        if let (Some(page), true, Some(promises)) =
            (self.page.take(), self.promised, self.file.promises())
        {
            promises.renew(self.index, page);
        }
    }
}

/// The most attempts to get a page back from the processes that share it. A process that is ending
/// or copying the page releases it by itself, but its CPU may not run for long. Other tasks may run
/// between the first attempts. Later attempts have a pause in between.
const MAX_SURRENDERS: u32 = 60_000;
/// The number of attempts without a pause.
const EAGER_SURRENDERS: u32 = 20;
/// The pause between two attempts.
const SURRENDER_PAUSE: Nanos = Nanos(1_000_000);

/// Locks for getting a private page for one place of one file.
///
/// Without such a lock, two faults of one place would both take a page, and the second might find
/// none. A reserved page exists once, and the pool's last page may go to a fault that needs no copy
/// once the other is done.
static TURNS: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];

/// The hold of one of the locks in [`TURNS`], with its index.
pub(super) struct Turn {
    number: usize,
    _guard: MutexGuard<'static, ()>,
}

impl Turn {
    /// Returns the index of the lock for page `index` of `file`.
    fn number(file: &MappedFile, index: u64) -> usize {
        let place = Arc::as_ptr(&file.source).cast::<()>().addr() as u64;
        (place / 64).wrapping_add(index) as usize % TURNS.len()
    }

    /// Takes a lock without waiting. Returns `None` if another fault holds it.
    fn take_now(number: usize) -> Option<Self> {
        let guard = TURNS[number].try_lock()?;
        Some(Self {
            number,
            _guard: guard,
        })
    }

    /// Takes the lock with the index `number` in [`TURNS`], and waits for it. Returns `None` if the
    /// task is killed during the wait.
    pub(super) fn take(number: usize) -> Option<Self> {
        let guard = TURNS[number].lock_killable().ok()?;
        Some(Self {
            number,
            _guard: guard,
        })
    }
}

impl PoolNeed {
    /// Gets the page for a fault of `space`. May wait. Returns `None` if the file ends before the
    /// page, if the pool has none, or if the task is being killed. Returns `Some(None)` if the
    /// fault must be checked again.
    ///
    /// A process with a reservation shares its pages with its children. If it stores to one and the
    /// pool has no other page, the children give the page up, and `surrenders` is incremented. The
    /// page then belongs to the process alone when the fault checks again, unless another reference
    /// exists for a moment.
    #[cold]
    pub(super) fn get(
        self,
        space: &AddressSpace,
        surrenders: &mut u32,
    ) -> Option<Option<PoolSupply>> {
        let huge = self.file.source.as_huge()?;
        // Before the page: a task that takes it out of the file in between increments this.
        let sequence = self.file.source.mappings().sequence();
        let size = huge.page_size();
        if self.index >= huge.bytes().div_ceil(size.bytes()) {
            return None;
        }
        let supply = |page, source, of_file, promised, file: Arc<MappedFile>| PoolSupply {
            file,
            index: self.index,
            sequence,
            source,
            page: Some(page),
            of_file,
            promised,
        };
        if self.shared {
            let page = huge.mapped_page(self.index)?;
            return Some(Some(supply(page, None, true, false, self.file)));
        }
        let of_file = huge.present(self.index);
        if let (None, false, Some(page)) = (&self.source, self.store, &of_file) {
            return Some(Some(supply(page.clone(), None, true, false, self.file)));
        }
        let promised = self
            .file
            .promises()
            .is_some_and(|promises| promises.claim(space.id(), self.index));
        let Some(page) = HugePage::take(size, promised) else {
            let owns = self
                .file
                .promises()
                .is_some_and(|promises| promises.is_of(space.id()));
            if self.source.is_none() || !owns || *surrenders == MAX_SURRENDERS {
                return None;
            }
            *surrenders += 1;
            let pages = self.index * size.frames()..(self.index + 1) * size.frames();
            self.file.source.mappings().surrender(huge, &pages, space);
            // Before the pause: it is one too many.
            drop(self.source);
            if *surrenders > EAGER_SURRENDERS {
                sched::sleep_until(clock::now().saturating_add(SURRENDER_PAUSE));
            } else if *surrenders > 1 {
                sched::yield_now();
            }
            return (!sched::current().killed()).then_some(None);
        };
        if let Some(from) = self.source.as_ref().or(of_file.as_ref()) {
            if self.source.is_some() && space.has_flushes() {
                // Another CPU may not know yet that the page is shared: its stores must not be
                // lost.
                tlb::flush(&space.cpus, self.region..self.region + 1);
            }
            page.copy_from(from);
        }
        Some(Some(supply(page, self.source, false, promised, self.file)))
    }
}

/// Returns the page size of `file`, a mapped file of huge pages.
fn pool_page_size(file: &MappedFile) -> PageSize {
    match file.source.as_huge() {
        Some(huge) => huge.page_size(),
        None => panic!("the file of an area of huge pages is one of others"),
    }
}

/// Returns the level of the entries that map pages of `size`.
pub(super) const fn level_of(size: PageSize) -> usize {
    match size {
        PageSize::Mib2 => 1,
        PageSize::Gib1 => HUGEST,
    }
}

impl Asked<'_> {
    /// Serves a fault in an area of the pool of huge pages with the space's lock held, or returns
    /// the supply that it needs first.
    #[cold]
    pub(super) fn pool(
        &self,
        tables: &PageTables,
        supply: &mut Option<PoolSupply>,
        turn: &mut Option<Turn>,
    ) -> Step {
        let flags = self.area.flags;
        let shared = flags.contains(VmaFlags::SHARED);
        let Bytes::File(file, offset) = &self.area.backing else {
            panic!("an area of huge pages has no file")
        };
        let size = pool_page_size(file);
        let region = self.page & !(size.bytes() - 1);
        let index = (offset + (region - self.area.start)) / size.bytes();
        let slot = match tables.leaf(self.page) {
            Leaf::Huge(slot) => slot,
            Leaf::Absent => match tables.slot_or_new(self.page, level_of(size)) {
                Ok(slot) => slot,
                Err(error) => return error.into(),
            },
            Leaf::Page(_) | Leaf::Trial(_) => panic!("pages of 4 KiB in an area of huge pages"),
        };
        let done = || Step::Done(pin_part(slot, (self.page - region) / PAGE, self.want));
        let old = slot.load();
        let own = old & FILE == 0 && old != 0 && hugetlb::references(frame_of(old)) == 1;
        if old != 0 && (!self.store || shared || old & WRITABLE != 0 || own) {
            let store = if shared || own || old & WRITABLE != 0 {
                store_flags(flags)
            } else {
                0
            };
            let kept = frame_of(old).address() | old & (HUGE | POOL | FILE);
            slot.set_page(kept | entry_flags(flags) | store);
            machine::arch::cpu::invlpg(self.page);
            return done();
        }
        let fits = |got: &PoolSupply| {
            Arc::ptr_eq(file, &got.file)
                && index == got.index
                && got.sequence == file.source.mappings().sequence()
                && got.source.as_ref().map(HugePage::frame) == (old != 0).then(|| frame_of(old))
        };
        if old == 0 && flags.contains(VmaFlags::POOL_LOST) {
            return Step::Lost;
        }
        // One that does not fit is dropped without the lock: that may free its page.
        let got = supply.take_if(|got| fits(got));
        let Some((got, page)) = got.and_then(|mut got| got.page.take().map(|page| (got, page)))
        else {
            let turn_wanted = Turn::number(file, index);
            if !shared && turn.as_ref().is_none_or(|turn| turn.number != turn_wanted) {
                // Before there is a reference to the page: another could take it for a sharer's.
                if turn.is_none() {
                    *turn = Turn::take_now(turn_wanted);
                }
                if turn.as_ref().is_none_or(|turn| turn.number != turn_wanted) {
                    return Step::NeedsTurn(turn_wanted);
                }
                if old != 0 {
                    // Who had the turn may have let go of the page since.
                    return self.pool(tables, supply, turn);
                }
            }
            let source = (old != 0).then(|| HugePage::new_reference(frame_of(old)));
            return Step::NeedsPool(PoolNeed {
                file: file.clone(),
                index,
                region,
                shared,
                store: self.store,
                source,
            });
        };
        let kind = if got.of_file { FILE } else { 0 };
        let store = if shared || !got.of_file {
            store_flags(flags)
        } else {
            0
        };
        let entry = page.into_counted().address() | HUGE | POOL | kind;
        if old != 0 {
            // Not both at once: some CPUs must not read the old page when others write the new one.
            slot.set_page(0);
            tlb::flush(&self.space.cpus, region..region + 1);
            hugetlb::release(frame_of(old));
            // It has another reference to the old page, which goes without the lock, as above.
            *supply = Some(got);
        } else {
            tables
                .pool_bytes
                .set(tables.pool_bytes.get() + size.bytes());
        }
        slot.set_page(entry | entry_flags(flags) | store);
        done()
    }
}
