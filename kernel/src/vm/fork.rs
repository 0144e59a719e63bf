//! Copying an address space for a child process.

use super::backing::Bytes;
use super::entry::{
    FILE, MOVING, POOL, REGION, SHMEM, WRITABLE, ZERO, each_used, frame_of, index, pages_in,
};
use super::gather::kind_index;
use super::khugepaged;
use super::leaf::TableFrame;
use super::map::Commitment;
use super::pagetable::{HUGEST, Region, Slot};
use super::space::{Area, Sizes, State};
use super::{AddressSpace, MappedFile, VmaFlags, tlb};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use ebb_mm::{AllocError, Order};
use logic::errno::Errno;
use logic::vma::VmaSet;
use machine::arch::USER_END;
use machine::memory::memmap::Descriptor;
use machine::memory::percpu::{self, Count};
use machine::memory::pressure;
use machine::memory::{huge, hugetlb, zero_block};
use machine::sched;

impl AddressSpace {
    /// Returns a copy of the space for a child process. Private pages are shared until one of the
    /// two processes stores to them.
    ///
    /// The child sees the memory of one moment. C libraries rely on that to repair their lists of
    /// threads after a fork. Other threads continue while they store to pages that they may write,
    /// and the child sees these stores. Before any other fault, and before they drop pages, they
    /// wait for the end of the fork. So the child sees the work of each of them up to some call or
    /// store, and no later work.
    ///
    /// # Errors
    /// Fails with `ENOMEM`, and with `EINTR` if the task is being killed.
    pub fn fork(&self) -> Result<Arc<Self>, Errno> {
        let child = Self::of_family(self.family().clone())?;
        child.decline_huge_pages(self.declines_huge_pages());
        child.register_barriers(self.barriers());
        let _change = self.change.lock();
        let areas = self.copy_areas(&child)?;
        for file in areas.iter().filter_map(|a| a.backing.file()) {
            file.source.mappings().register_child(&child)?;
            sched::give_way();
        }
        if self.is_enlisted() {
            khugepaged::enlist(&child);
        }
        self.settle_trials(0..USER_END);
        // Until the flush, another CPU may store to pages that are shared already. Code that takes
        // such a page out for a file checks this flag. Faults wait.
        let pending = {
            let mut state = self.state.lock();
            state.forking = true;
            // So that each access that faults comes to `resolve`.
            state.tables.forget_areas();
            self.begin_flush()
        };
        let copied = self.copy_pages(&child, &areas);
        // Even after a failure: pages that were shared so far may be known as writable.
        tlb::flush(&self.cpus, 0..USER_END);
        drop(pending);
        self.state.lock().forking = false;
        self.forked.wake_all();
        copied?;
        // Not before: what moves must not be met half-way.
        child.join_family();
        Ok(child)
    }

    /// Gives the child its areas, limits and names, and returns a copy of the areas. The caller
    /// holds `change`, so the areas do not change: only their first copy needs the lock, and gives
    /// way after each chunk. Fails with `ENOMEM`.
    fn copy_areas(&self, child: &Self) -> Result<VmaSet<VmaFlags, Bytes>, Errno> {
        let mut areas = VmaSet::new();
        let wanted = |area: &Area| !area.flags.contains(VmaFlags::DONT_FORK);
        let mut next = Some(0);
        // Ends: the number of chunks does not change.
        while let Some(chunk) = next {
            let state = self.state.lock();
            let copied = state.areas.clone_chunk(chunk, wanted, &mut areas);
            drop(state);
            next = copied.map_err(|_| Errno::ENOMEM)?;
            sched::give_way();
        }
        // The child inherits no locks of memory.
        areas.set_flags(0..USER_END, |flags| {
            sched::give_way();
            flags - VmaFlags::LOCKED
        });
        attach_again(&mut areas);
        let mut sizes = Sizes::default();
        for area in areas.iter() {
            sizes.add(Sizes::of(area.flags, area.bytes()));
            sched::give_way();
        }
        let commitment = Commitment::new(sizes.accounted)?;
        let own = areas.try_clone_of(|_| {
            sched::give_way();
            true
        });
        let own = own.map_err(|_| Errno::ENOMEM)?;
        let state = self.state.lock();
        let (heap, limits) = (state.heap.clone(), state.limits);
        let (arguments, environment) = (state.arguments.clone(), state.environment.clone());
        let (auxiliary, stack_start) = (state.auxiliary.clone(), state.stack_start);
        let program = state.program.clone();
        drop(state);
        let mut state = child.state.lock();
        state.areas = own;
        state.sizes = sizes;
        state.heap = heap;
        state.limits = limits;
        state.arguments = arguments;
        state.environment = environment;
        state.auxiliary = auxiliary;
        state.stack_start = stack_start;
        state.program = program;
        state.changed();
        commitment.keep();
        Ok(areas)
    }

    fn copy_pages(&self, child: &Self, areas: &VmaSet<VmaFlags, Bytes>) -> Result<(), Errno> {
        for area in areas
            .iter()
            .filter(|a| !a.flags.contains(VmaFlags::WIPE_ON_FORK))
            // As on Linux, the child gets what the file has of them when it asks.
            .filter(|a| !a.flags.contains(VmaFlags::HUGETLB | VmaFlags::SHARED))
        {
            let mut relief = pressure::Relief::new(Order::BASE);
            let mut at = area.start;
            while at < area.end {
                match self.copy_region(child, area, at) {
                    Ok(next) => at = next,
                    Err(error) => relief.step(error)?,
                }
                sched::cond_resched();
                if sched::current().killed() {
                    return Err(Errno::EINTR);
                }
            }
        }
        Ok(())
    }

    /// Shares the pages of one page table, or skips to the next table. Returns the address to
    /// continue at. Fails if memory is short.
    fn copy_region(&self, child: &Self, area: &Area, at: u64) -> Result<u64, AllocError> {
        let shared = area.flags.contains(VmaFlags::SHARED);
        let state = self.state.lock();
        let mut target = child.state.lock();
        let end = area.end.min((at / REGION + 1) * REGION);
        state.tables.split_edges(&(at..end), &self.cpus);
        let table = match state.tables.region(at) {
            Region::AbsentUntil(next) => return Ok(next),
            Region::Huge(entry, span) => {
                let value = entry.load();
                if value & POOL == 0 && value & (FILE | SHMEM) != 0 {
                    // The child gets it from the file when it asks.
                } else if value & POOL != 0 {
                    share_pool(entry, span, &mut target, at)?;
                } else {
                    share_huge(entry, &mut target, at)?;
                }
                return Ok(area.end.min((at / span + 1) * span));
            }
            Region::Trial(slot) => {
                // One that began after `settle_trials`. The next call finds its pages.
                state.tables.end_trial(slot);
                return Ok(at);
            }
            Region::Table(table) => table,
        };
        let State { tables, mapped, .. } = &mut *target;
        let copy = tables.table_or_new(at)?;
        let first = index(at, 0);
        let pages = pages_in(end - at);
        let copy = &copy[first..first + pages];
        let mut files = 0;
        each_used(&table[first..first + pages], |place, from, mut entry| {
            // Relaxed: both locks are held; the CPU's walker takes any order.
            if !shared && entry & WRITABLE != 0 {
                entry &= !WRITABLE;
                from.store(entry, Ordering::Relaxed);
            }
            if entry & ZERO == 0 {
                Descriptor::get(frame_of(entry)).get_reference();
                mapped[kind_index(entry)] += 1;
                files += u64::from(entry & (FILE | SHMEM) != 0);
            }
            copy[place].store(entry & !MOVING, Ordering::Relaxed);
        });
        if files != 0 {
            percpu::add(Count::MappedFile, files);
        }
        Ok(end)
    }
}

/// Gives a child separate mappings of the files that count the spaces that map them. The caller
/// holds no spin lock.
fn attach_again(areas: &mut VmaSet<VmaFlags, Bytes>) {
    // The areas that a mapping was split into share one file.
    let mut known: BTreeMap<usize, Attached> = BTreeMap::new();
    areas.for_each_backing(|backing| {
        sched::give_way();
        let Bytes::File(file, _) = backing else {
            return;
        };
        if !file.is_attached() {
            return;
        }
        let address = Arc::as_ptr(file).addr();
        if let Some(attached) = known.get(&address) {
            *file = attached.childs.clone();
        } else if let Some(childs) = file.for_child().map(Arc::new) {
            let parents = core::mem::replace(file, childs.clone());
            known.insert(
                address,
                Attached {
                    _parents: parents,
                    childs,
                },
            );
        }
    });
}

/// A parent's mapping, held so that its address is not used again, and that of the child.
struct Attached {
    _parents: Arc<MappedFile>,
    childs: Arc<MappedFile>,
}

/// Maps the huge page of the entry `from` in the child at `at`, too. The first process that stores
/// to it gets pages of its own instead. Fails if memory is short.
fn share_huge(from: Slot<'_>, target: &mut State, at: u64) -> Result<(), AllocError> {
    let to = target.tables.region_slot_or_new(at)?;
    let table = TableFrame::try_new()?;
    // Both locks are held.
    let entry = from.load() & !WRITABLE;
    if entry & ZERO != 0 {
        zero_block::share();
        target.tables.set_huge(to, entry, table);
        return Ok(());
    }
    from.set_page(entry);
    huge::get_reference(frame_of(entry));
    target.tables.set_huge(to, entry, table);
    target.mapped[0] += huge::FRAMES;
    Ok(())
}

/// Maps the page of the pool of `bytes` bytes in the entry `from` in the child at `at`, too.
/// Neither process may store to it without a fault. Fails if memory is short.
fn share_pool(from: Slot<'_>, bytes: u64, target: &mut State, at: u64) -> Result<(), AllocError> {
    let level = if bytes == REGION { 1 } else { HUGEST };
    let to = target.tables.slot_or_new(at, level)?;
    // Both locks are held.
    let entry = from.load() & !WRITABLE;
    from.set_page(entry);
    let pool_bytes = &target.tables.pool_bytes;
    pool_bytes.set(pool_bytes.get() + bytes);
    hugetlb::get_reference(frame_of(entry));
    to.set_page(entry);
    Ok(())
}
