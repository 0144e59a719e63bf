//! Page faults.
//!
//! Most faults store to an anonymous page of the area that the last one stored to: they are served
//! in one go under the space's lock. All others go through [`AddressSpace::resolve`], which
//! releases the lock while it waits for memory, a file's page or the end of a fork, and then checks
//! everything again.

use super::entry::REGION;
use super::family::Owner;
use super::khugepaged;
use super::pagetable::Leaf;
use super::pool_fault::Turn;
use super::serve::{Asked, Step, Supplies, new_anonymous, new_hot_anonymous};
use super::space::{PAGE, State};
use super::thp::HugeTry;
use super::want::Want;
use super::{AddressSpace, VmaFlags};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_mm::Order;
use logic::errno::Errno;
use machine::arch::{CpuSet, USER_END, cpu_id};
use machine::memory::frame::FrameRef;
use machine::memory::percpu::{self, Local};
use machine::memory::pressure;
use machine::sched;
use machine::sync::SpinGuard;

/// The most times that a fault begins again because the file changed under it.
const FILE_RETRIES: u32 = 10_000;
/// Pages that are mapped between two looks at whether others should run.
const POPULATE_BATCH: u64 = 64;

/// What an access wants of a page.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Access {
    Read,
    Write,
    Execute,
}

impl Access {
    /// Returns whether the CPU's error code `error` is that of a store.
    #[inline]
    pub(super) fn is_store(error: u64) -> bool {
        const STORE: u64 = 1 << 1;
        error & STORE != 0
    }

    /// Returns the access that failed with the CPU's error code `error`.
    #[inline]
    pub(super) fn from_error(error: u64) -> Self {
        const FETCH: u64 = 1 << 4;
        if Self::is_store(error) {
            Self::Write
        } else if error & FETCH != 0 {
            Self::Execute
        } else {
            Self::Read
        }
    }

    fn allowed(self, flags: VmaFlags) -> bool {
        match self {
            // Every mapping with a right at all can be read: x86 has no other.
            Self::Read => flags.intersects(VmaFlags::RIGHTS),
            Self::Write => flags.contains(VmaFlags::WRITE),
            Self::Execute => flags.contains(VmaFlags::EXEC),
        }
    }

    /// Whether an area with `flags` allows the access, or the debugger's that `want` says it is.
    fn is_possible(self, flags: VmaFlags, want: Want) -> bool {
        let private = !flags.contains(VmaFlags::SHARED);
        let forced = want == Want::Forced && (private || self == Self::Read);
        self.allowed(flags) || forced
    }
}

/// Why a page cannot be had.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// No area is there.
    NotMapped,
    /// The area does not allow it.
    NotAllowed,
    /// The file ends before the page.
    BeyondFile,
    /// There is no memory, or the task is being killed.
    NoMemory,
}

impl AddressSpace {
    /// Serves a store to a missing page of the area to which this CPU stored last. Returns `false`,
    /// and has changed nothing, if it is another fault, if another CPU holds the lock of this
    /// space, or if there is no free frame.
    #[inline(always)]
    pub(super) fn store_hot(&self, this: &Local, address: u64) -> bool {
        let Some(mut state) = self.state.lock_now() else {
            return false;
        };
        if let Some((entry, rights)) = state.hot_hole(address, &self.cpus)
            && let Ok(frame) = new_hot_anonymous(this)
        {
            state.put_hot(entry, rights, frame, self.owner_of(address & !(PAGE - 1)));
            return true;
        }
        false
    }

    /// Serves a fault that [`Self::store_hot`] does not.
    pub(super) fn fault(&self, this: &Local, address: u64, access: Access) -> Result<(), Fault> {
        if access == Access::Write {
            if self.is_used_by_several() {
                return self.fault_beside_others(this, address);
            }
            let Some(mut state) = self.state.lock_now() else {
                return self.fault_beside_others(this, address);
            };
            if state.store_to_file_page(address & !(PAGE - 1), self) {
                return Ok(());
            }
        }
        self.resolve(address, access, Want::Mapped).map(|_| ())
    }

    /// Serves a fault of the kernel's own access to memory of the program, or maps a page ahead of
    /// its use.
    #[inline(never)]
    pub(super) fn fault_of_kernel(
        &self,
        this: &Local,
        address: u64,
        access: Access,
    ) -> Result<(), Fault> {
        if access == Access::Write && self.store_hot(this, address) {
            return Ok(());
        }
        self.fault(this, address, access)
    }

    /// A store while other CPUs want the lock, most likely for faults too: the page is cleared
    /// without it.
    #[cold]
    fn fault_beside_others(&self, this: &Local, address: u64) -> Result<(), Fault> {
        // Relaxed (as all its accesses): a hint of this CPU's own.
        let expected = this.expects_zeros.load(Ordering::Relaxed);
        let mut frame = expected.then(|| new_anonymous(this).ok()).flatten();
        if frame.is_some() {
            let mut state = self.state.lock();
            // Those that are so quick would clear theirs with the lock held.
            state.tables.forget_hot_tables();
            if let Some((entry, rights)) = state.warm_hole(address)
                && let Some(frame) = frame.take()
            {
                state.put_hot(entry, rights, frame, self.owner_of(address & !(PAGE - 1)));
                return Ok(());
            }
        }
        drop(frame);
        self.resolve(address, Access::Write, Want::Mapped)
            .map(|_| ())
    }

    /// Has the page of an address mapped, or pinned.
    #[cold]
    pub(super) fn resolve(
        &self,
        address: u64,
        access: Access,
        want: Want,
    ) -> Result<Option<FrameRef>, Fault> {
        if address >= USER_END {
            return Err(Fault::NotMapped);
        }
        let page = address & !(PAGE - 1);
        let mut relief = pressure::Relief::new(Order::BASE);
        let mut supplies = Supplies::default();
        for _ in 0..FILE_RETRIES {
            let step = {
                let mut state = self.state.lock();
                if state.forking {
                    drop(state);
                    // Other tasks could wait for these.
                    (supplies.pool, supplies.turn) = (None, None);
                    state = self.settled_state();
                }
                state.attempt(page, access, want, &mut supplies, self)?
            };
            match step {
                Step::Done(frame) => return Ok(frame),
                Step::NeedsGrowth => self.grow_stack(page)?,
                Step::NeedsFrame(error) => relief.step(error).map_err(|_| Fault::NoMemory)?,
                Step::NeedsPage(wanted) => match supplies.get_page(wanted) {
                    Ok(true) => {}
                    Err(Errno::ENOMEM) => return Err(Fault::NoMemory),
                    Ok(false) | Err(_) => return Err(Fault::BeyondFile),
                },
                Step::NeedsCopy(wanted) => {
                    if let Err(error) = supplies.make_copy(wanted) {
                        relief.step(error).map_err(|_| Fault::NoMemory)?;
                    }
                }
                Step::NeedsZeros => supplies.huge = HugeTry::zeros(),
                Step::NeedsHuge(asks) => supplies.get_huge(asks, self),
                Step::NeedsListing => supplies.unlisted = !khugepaged::enlist(self),
                Step::NeedsVerdict => self.settle_trials(page..page + PAGE),
                Step::NeedsTurn(turn) => {
                    // Not two at once, nor with a page in hand: others could wait for those.
                    supplies.pool = None;
                    supplies.turn = None;
                    supplies.turn = Some(Turn::take(turn).ok_or(Fault::NoMemory)?);
                }
                Step::NeedsPool(need) => {
                    let got = need.get(self, &mut supplies.surrenders);
                    supplies.pool = got.ok_or(Fault::BeyondFile)?;
                }
                Step::Lost => return Err(Fault::BeyondFile),
            }
        }
        Err(Fault::NoMemory)
    }

    /// Waits until no child is getting this space's pages, and returns its locked state. A killed
    /// thread waits as well: it may have to store to memory at its end.
    pub(super) fn settled_state(&self) -> SpinGuard<'_, State> {
        loop {
            let state = self.state.lock();
            if !state.forking {
                return state;
            }
            drop(state);
            self.forked
                .wait_uninterruptible(|| !self.state.lock().forking);
        }
    }

    /// Maps every page of a range that has areas; `write` as if it were stored to.
    pub(super) fn populate(&self, range: Range<u64>, write: bool) -> Result<(), Errno> {
        let access = if write { Access::Write } else { Access::Read };
        let mut page = range.start;
        while page < range.end {
            self.fault_of_kernel(percpu::this(), page, access)
                .or_else(|fault| {
                    self.serve_again((page, access, Want::Mapped), fault, || {
                        self.fault_of_kernel(percpu::this(), page, access)
                    })
                })
                .map_err(|fault| match fault {
                    Fault::NotMapped | Fault::NoMemory => Errno::ENOMEM,
                    Fault::NotAllowed | Fault::BeyondFile => Errno::EFAULT,
                })?;
            let whole = write.then(|| self.store_to_trial(page, &range)).flatten();
            page = whole.unwrap_or_else(|| self.after_page(page));
            if (page / PAGE).is_multiple_of(POPULATE_BATCH) {
                sched::cond_resched();
                if sched::current().killed() {
                    return Err(Errno::EINTR);
                }
            }
        }
        Ok(())
    }

    /// Where the page of an address, or the huge page around it, ends.
    fn after_page(&self, page: u64) -> u64 {
        // Where the last-level table is, no huge page is: mostly that of the page before.
        match self.state.lock().tables.leaf(page) {
            Leaf::Huge(_) => (page / REGION + 1) * REGION,
            Leaf::Page(_) | Leaf::Trial(_) | Leaf::Absent => page + PAGE,
        }
    }
}

impl State {
    /// The entry of a page where this CPU stored last, if nothing is there yet, and the rights that
    /// its area gives. None where several CPUs use the space.
    #[inline(always)]
    fn hot_hole(&mut self, address: u64, cpus: &CpuSet) -> Option<(&'static AtomicU64, u64)> {
        let page = address & !(PAGE - 1);
        // Relaxed (as all entry accesses): under the lock.
        self.tables
            .hot_entry(page, cpus)
            .filter(|(entry, _)| entry.load(Ordering::Relaxed) == 0)
    }

    /// The same however many do.
    fn warm_hole(&mut self, address: u64) -> Option<(&'static AtomicU64, u64)> {
        self.tables
            .warm_entry(cpu_id(), address & !(PAGE - 1))
            .filter(|(entry, _)| entry.load(Ordering::Relaxed) == 0)
    }

    /// Maps a zeroed frame there.
    #[inline(always)]
    fn put_hot(&mut self, entry: &AtomicU64, rights: u64, frame: FrameRef, owner: Owner) {
        frame.set_owner(owner.0);
        entry.store(frame.into_counted().address() | rights, Ordering::Relaxed);
        self.count_page(0);
    }

    /// Serves a store to a private page of a file that is not mapped yet, if nothing must be got
    /// for it but the copy. Returns `false` if it is another fault, which [`Self::attempt`] serves.
    #[inline(never)]
    fn store_to_file_page(&mut self, page: u64, space: &AddressSpace) -> bool {
        const WANTED: VmaFlags = VmaFlags::WRITE;
        const UNWANTED: VmaFlags = VmaFlags::SHARED.union(VmaFlags::HUGETLB);
        if self.forking {
            return false;
        }
        let Some(area) = self.areas.find(page) else {
            return false;
        };
        if area.flags.intersection(WANTED | UNWANTED) != WANTED {
            return false;
        }
        let asked = Asked::new(page, true, Want::Mapped, area, space);
        asked.copy_present(&mut self.tables, &mut self.mapped)
    }

    /// Whether the areas allow a fault; `change` is held. A stack that may grow does so.
    ///
    /// # Errors
    /// Why they do not.
    pub(super) fn check_fault(
        &mut self,
        address: u64,
        access: Access,
        want: Want,
    ) -> Result<(), Fault> {
        let page = address & !(PAGE - 1);
        match self.areas.find(page) {
            None => self.grow_stack(page),
            Some(area) if access.is_possible(area.flags, want) => Ok(()),
            Some(_) => Err(Fault::NotAllowed),
        }
    }

    /// One look at a fault, under the lock.
    fn attempt(
        &mut self,
        page: u64,
        access: Access,
        want: Want,
        supplies: &mut Supplies,
        space: &AddressSpace,
    ) -> Result<Step, Fault> {
        let Some(area) = self.areas.find(page) else {
            self.stack_above(page)?;
            return Ok(Step::NeedsGrowth);
        };
        if !access.is_possible(area.flags, want) {
            return Err(Fault::NotAllowed);
        }
        let asked = Asked::new(page, access == Access::Write, want, area, space);
        Ok(asked.serve(&mut self.tables, &mut self.mapped, supplies))
    }
}
