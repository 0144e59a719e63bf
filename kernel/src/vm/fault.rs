//! Page faults.
//!
//! Most faults store to an anonymous page of the area that the last fault stored to. They are
//! served in one go under the space's lock. All others go through [`AddressSpace::resolve`]. It
//! releases the lock while it waits for memory, for a file's page or for the end of a fork, and
//! then checks everything again.

use super::entry::REGION;
use super::family::Owner;
use super::khugepaged;
use super::pagetable::{Leaf, PageTables};
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

/// The most attempts to serve one fault, without those to get back a page of the pool. Each attempt
/// but the last lacks one supply. A fault needs many only if other tasks change the file or the
/// page in between.
const FILE_RETRIES: u32 = 10_000;
/// The number of pages that are mapped before other tasks may run.
const POPULATE_BATCH: u64 = 64;

/// The kind of an access to a page.
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

    /// Returns whether an area with `flags` allows the access, or allows a debugger's access if
    /// `want` is [`Want::Forced`].
    fn is_possible(self, flags: VmaFlags, want: Want) -> bool {
        let private = !flags.contains(VmaFlags::SHARED);
        let forced = want == Want::Forced && (private || self == Self::Read);
        self.allowed(flags) || forced
    }
}

/// The reason why a page cannot be accessed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// No area contains the address.
    NotMapped,
    /// The area does not allow the access.
    NotAllowed,
    /// The file ends before the page.
    BeyondFile,
    /// Memory is out, or the task is being killed.
    NoMemory,
}

impl AddressSpace {
    /// Serves a store to a missing page of the area to which this CPU stored last. Returns `false`,
    /// and has changed nothing, if the fault is of another kind, if another CPU holds the lock of
    /// this space, or if there is no free frame.
    #[inline(always)]
    pub(super) fn store_hot(&self, this: &Local, address: u64) -> bool {
        let Some(mut state) = self.state.lock_now() else {
            return false;
        };
        let State { tables, mapped, .. } = &mut *state;
        if let Some((entry, rights)) = hot_hole(tables, address, &self.cpus)
            && let Ok(frame) = new_hot_anonymous(this)
        {
            put_hot(entry, rights, frame, self.owner_of(address & !(PAGE - 1)));
            mapped[0] += 1;
            return true;
        }
        false
    }

    /// Serves a fault of the current program at `address` that [`Self::store_hot`] has not served.
    /// May block.
    ///
    /// # Errors
    /// Fails with the reason why the page cannot be accessed.
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
    ///
    /// # Errors
    /// Fails with the reason why the page cannot be accessed.
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

    /// Serves a store while other CPUs wait for the lock, most likely for faults too. Clears the
    /// page before it takes the lock. Fails as [`Self::resolve`] does.
    #[cold]
    fn fault_beside_others(&self, this: &Local, address: u64) -> Result<(), Fault> {
        // Relaxed (as all its accesses): a hint of this CPU's own.
        let expected = this.expects_zeros.load(Ordering::Relaxed);
        let mut frame = expected.then(|| new_anonymous(this).ok()).flatten();
        if frame.is_some() {
            let mut state = self.state.lock();
            let State { tables, mapped, .. } = &mut *state;
            // Those that are so quick would clear theirs with the lock held.
            tables.forget_hot_tables();
            if let Some((entry, rights)) = warm_hole(tables, address)
                && let Some(frame) = frame.take()
            {
                put_hot(entry, rights, frame, self.owner_of(address & !(PAGE - 1)));
                mapped[0] += 1;
                return Ok(());
            }
        }
        drop(frame);
        self.resolve(address, Access::Write, Want::Mapped)
            .map(|_| ())
    }

    /// Maps the page at `address` for `access`. May block. Returns a reference to the page's frame
    /// if `want` is [`Want::Pinned`] or [`Want::Forced`], and `None` for [`Want::Mapped`].
    ///
    /// # Errors
    /// Fails with the reason why the page cannot be accessed.
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
        let mut attempts = 0;
        // Those to get a page of the pool back have a limit of their own.
        while attempts - supplies.surrenders < FILE_RETRIES {
            attempts += 1;
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
                    // What did not fit may be the last page of the pool.
                    supplies.pool = None;
                    let got = need.get(self, &mut supplies.surrenders);
                    supplies.pool = got.ok_or(Fault::BeyondFile)?;
                }
                Step::Lost => return Err(Fault::BeyondFile),
            }
        }
        Err(Fault::NoMemory)
    }

    /// Waits until no child is getting this space's pages, and returns the locked state. A killed
    /// thread waits as well, since it may have to store to memory at its end.
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

    /// Maps all pages of `range`, for a store if `write` is set.
    ///
    /// # Errors
    /// Fails with `ENOMEM` if memory is out or a part is not mapped, and with `EFAULT` if an area
    /// does not allow the access or a file ends before the page. Fails with `EINTR` if the task is
    /// being killed. Pages below the failure stay mapped.
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

    /// Returns the end of the page at `page`. If a huge page maps it, returns the end of the region
    /// of 2 MiB around `page`.
    fn after_page(&self, page: u64) -> u64 {
        // Where the last-level table is, no huge page is: mostly that of the page before.
        match self.state.lock().tables.leaf(page) {
            Leaf::Huge(_) => (page / REGION + 1) * REGION,
            Leaf::Page(_) | Leaf::Trial(_) | Leaf::Absent => page + PAGE,
        }
    }
}

/// Returns the unused entry of the page at `address`, if this CPU stored last to the same area, and
/// the rights that the area gives. Returns `None` otherwise, and if several CPUs use the space and
/// the region is another one.
#[inline(always)]
fn hot_hole<'t>(
    tables: &'t PageTables,
    address: u64,
    cpus: &CpuSet,
) -> Option<(&'t AtomicU64, u64)> {
    let page = address & !(PAGE - 1);
    // Relaxed (as all entry accesses): under the lock.
    tables
        .hot_entry(page, cpus)
        .filter(|(entry, _)| entry.load(Ordering::Relaxed) == 0)
}

/// Does the same as [`hot_hole`], but if several CPUs use the space, also accepts another region
/// than that of the CPU's last fault.
fn warm_hole(tables: &PageTables, address: u64) -> Option<(&AtomicU64, u64)> {
    tables
        .warm_entry(cpu_id(), address & !(PAGE - 1))
        .filter(|(entry, _)| entry.load(Ordering::Relaxed) == 0)
}

/// Maps the zeroed frame at `entry`, which is unused. The caller counts the page.
#[inline(always)]
fn put_hot(entry: &AtomicU64, rights: u64, frame: FrameRef, owner: Owner) {
    frame.set_owner(owner.0);
    entry.store(frame.into_counted().address() | rights, Ordering::Relaxed);
}

impl State {
    /// Serves a store to an unmapped private page of a file, if only the copy must be allocated.
    /// Returns `false` if the fault is of another kind; [`Self::attempt`] serves those.
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
        asked.copy_present(&self.tables, &mut self.mapped)
    }

    /// Checks that the areas allow `access` to `address`. Grows a stack down to `address` if
    /// possible. The caller holds `change`.
    ///
    /// # Errors
    /// Fails with the reason why the areas do not allow the access.
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

    /// Serves a fault with the space's lock held, or returns the step or the supply that it needs
    /// first. Fails with [`Fault::NotAllowed`] if the area does not allow the access, and if there
    /// is no area at `page` and no stack above it.
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
        Ok(asked.serve(&self.tables, &mut self.mapped, supplies))
    }
}
