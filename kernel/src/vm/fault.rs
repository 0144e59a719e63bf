//! Page faults.
//!
//! Most faults store to an anonymous page of the area that the last one stored to: they are served
//! in one go under the space's lock. All others go through [`AddressSpace::resolve`], which lets
//! the lock go while it waits for memory or a file's page and then looks at everything again.

use super::backing::Bytes;
use super::entry::{ADDRESS, DIRTY, FILE, REGION, SHMEM, WRITABLE, ZERO, frame_of, pages_in};
use super::pagetable::Leaf;
use super::source::MappedFile;
use super::space::{PAGE, State};
use super::thp::{HugeTry, allow_huge, pin_huge, wants_huge};
use super::want::{Want, entry_flags, store_flags};
use super::{AddressSpace, VmaFlags, tlb};
use alloc::sync::Arc;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_mm::{AllocError, Mobility, Order, Reserve};
use logic::errno::Errno;
use machine::arch::{USER_END, cpu_id};
use machine::memory::frame::FrameRef;
use machine::memory::memmap::{Descriptor, Kind, frame_ptr};
use machine::memory::percpu::{self, Count, Local};
use machine::memory::{copy_page, pressure, zero_frame};
use machine::sched;

/// The most times that a fault begins again because the file changed under it.
const FILE_RETRIES: u32 = 10_000;
/// Pages of a file that are mapped together, all aligned: those around the one that is touched.
/// Linux's `fault_around_bytes`.
const AROUND: usize = 16;
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
    /// From the CPU's error code.
    #[inline]
    pub(super) fn from_error(error: u64) -> Self {
        const STORE: u64 = 1 << 1;
        const FETCH: u64 = 1 << 4;
        if error & STORE != 0 {
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

/// A file's page, got without the lock.
struct Supply {
    file: Arc<MappedFile>,
    index: u64,
    sequence: u64,
    page: FrameRef,
}

/// How far one look at a fault came.
enum Step {
    Done(Option<FrameRef>),
    /// The stack above must grow first.
    NeedsGrowth,
    /// There is no frame.
    NeedsFrame(AllocError),
    /// The file's page must be got first.
    NeedsPage(Arc<MappedFile>, u64),
    /// A huge page would do.
    NeedsHuge,
}

/// What was got without the lock for a fault.
#[derive(Default)]
struct Supplies {
    page: Option<Supply>,
    huge: HugeTry,
}

impl From<AllocError> for Step {
    fn from(error: AllocError) -> Self {
        Self::NeedsFrame(error)
    }
}

/// A zeroed frame of private memory; does not wait.
#[cold]
fn new_anonymous(this: &Local) -> Result<FrameRef, AllocError> {
    new_hot_anonymous(this)
}

/// The same where each instruction counts: once in the kernel's code.
#[inline(always)]
fn new_hot_anonymous(this: &Local) -> Result<FrameRef, AllocError> {
    FrameRef::try_zeroed_on(this, Kind::Anonymous, Mobility::Movable, Reserve::Keep)
}

/// A private copy of a frame; does not wait.
fn copy_of(source: *const u8) -> Result<FrameRef, AllocError> {
    let frame = FrameRef::try_new(Kind::Anonymous, Mobility::Movable, Reserve::Keep)?;
    // SAFETY: the frame is ours alone; the source is a frame that the caller holds.
    unsafe { copy_page(frame.as_ptr(), source) };
    percpu::add(Count::CopiedPages, 1);
    Ok(frame)
}

impl AddressSpace {
    /// Serves a fault that is rare where it comes from.
    #[cold]
    pub(super) fn fault(&self, this: &Local, address: u64, access: Access) -> Result<(), Fault> {
        self.fault_hot(this, address, access)
    }

    /// Serves a fault of the program.
    #[inline(always)]
    pub(super) fn fault_hot(
        &self,
        this: &Local,
        address: u64,
        access: Access,
    ) -> Result<(), Fault> {
        if access == Access::Write {
            let Some(mut state) = self.state.lock_now() else {
                return self.fault_contended(this, address);
            };
            if let Some((entry, rights)) = state.hot_hole(address)
                && let Ok(frame) = new_hot_anonymous(this)
            {
                state.put_hot(entry, rights, frame);
                return Ok(());
            }
        }
        self.resolve(address, access, Want::Mapped).map(|_| ())
    }

    /// A store while another CPU holds the lock, most likely for a fault too: the page is cleared
    /// meanwhile.
    #[cold]
    fn fault_contended(&self, this: &Local, address: u64) -> Result<(), Fault> {
        let mut frame = new_anonymous(this).ok();
        {
            let mut state = self.state.lock();
            if let Some((entry, rights)) = state.hot_hole(address)
                && let Some(frame) = frame.take()
            {
                state.put_hot(entry, rights, frame);
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
                state.attempt(page, access, want, &mut supplies, self)?
            };
            match step {
                Step::Done(frame) => return Ok(frame),
                Step::NeedsGrowth => self.grow_stack(page)?,
                Step::NeedsFrame(error) => relief.step(error).map_err(|_| Fault::NoMemory)?,
                Step::NeedsPage(file, index) => {
                    let sequence = file.source.mappings().sequence();
                    let page = match file.source.page(index) {
                        Ok(Some(page)) => page,
                        Ok(None) => return Err(Fault::BeyondFile),
                        Err(Errno::ENOMEM) => return Err(Fault::NoMemory),
                        Err(_) => return Err(Fault::BeyondFile),
                    };
                    supplies.page = Some(Supply {
                        file,
                        index,
                        sequence,
                        page,
                    });
                }
                Step::NeedsHuge => supplies.huge = HugeTry::get(),
            }
        }
        Err(Fault::NoMemory)
    }

    /// Maps every page of a range that has areas; `write` as if it were stored to.
    pub(super) fn populate(&self, range: Range<u64>, write: bool) -> Result<(), Errno> {
        let access = if write { Access::Write } else { Access::Read };
        let mut page = range.start;
        while page < range.end {
            self.fault(percpu::this(), page, access)
                .map_err(|fault| match fault {
                    Fault::NotMapped | Fault::NoMemory => Errno::ENOMEM,
                    Fault::NotAllowed | Fault::BeyondFile => Errno::EFAULT,
                })?;
            page = self.after_page(page);
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
        let region = page / REGION;
        // Where the last-level table is, no huge page is: mostly that of the page before.
        match self.state.lock().tables.leaf(page) {
            Leaf::Huge(_) => (region + 1) * REGION,
            Leaf::Page(_) | Leaf::Absent => page + PAGE,
        }
    }
}

impl State {
    /// The entry of a page where this CPU stored last, if nothing is there yet, and the rights that
    /// its area gives.
    #[inline(always)]
    fn hot_hole(&mut self, address: u64) -> Option<(&'static AtomicU64, u64)> {
        let page = address & !(PAGE - 1);
        // Relaxed (as all entry accesses): under the lock.
        self.tables
            .hot_entry(cpu_id(), page)
            .filter(|(entry, _)| entry.load(Ordering::Relaxed) == 0)
    }

    /// Maps a zeroed frame there.
    #[inline(always)]
    fn put_hot(&mut self, entry: &AtomicU64, rights: u64, frame: FrameRef) {
        entry.store(frame.into_counted().address() | rights, Ordering::Relaxed);
        self.count_page(0);
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
        let flags = area.flags;
        let forced = want == Want::Forced && !flags.contains(VmaFlags::SHARED);
        if !access.allowed(flags) && !forced {
            return Err(Fault::NotAllowed);
        }
        let file = match &area.backing {
            Bytes::Zero => None,
            Bytes::File(file, offset) => Some((file, (offset + (page - area.start)) / PAGE)),
        };
        let shared = flags.contains(VmaFlags::SHARED);
        let store = access == Access::Write;
        if store && file.is_none() && flags.contains(VmaFlags::WRITE) {
            let bits = entry_flags(flags) | store_flags(flags);
            self.tables.set_hot(cpu_id(), area.start..area.end, bits);
        }
        let region = page & !(REGION - 1);
        let holds_region = area.start <= region && area.end - region >= REGION;
        // What the file has to give: looked at before entries are, which `tables` lends out.
        let supplied = match (file, &supplies.page) {
            (Some((file, index)), Some(supply))
                if Arc::ptr_eq(file, &supply.file)
                    && index == supply.index
                    && supply.sequence == file.source.mappings().sequence() =>
            {
                Some(supply)
            }
            _ => None,
        };
        match self.tables.leaf(page) {
            Leaf::Page(_) => {}
            Leaf::Huge(slot) => {
                if holds_region && allow_huge(slot, page, flags, store) {
                    return Ok(Step::Done(pin_huge(slot, page, want)));
                }
                self.tables.split(page, &space.cpus);
            }
            Leaf::Absent
                if store
                    && holds_region
                    && file.is_none()
                    && wants_huge(flags)
                    && !space.declines_huge_pages() =>
            {
                match core::mem::take(&mut supplies.huge) {
                    HugeTry::NotTried => return Ok(Step::NeedsHuge),
                    HugeTry::Got(supply) => match self.tables.region_slot_or_new(page) {
                        Ok(slot) => {
                            self.put_huge(slot, supply, flags);
                            return Ok(Step::Done(pin_huge(slot, page, want)));
                        }
                        Err(error) => {
                            supplies.huge = HugeTry::Got(supply);
                            return Ok(error.into());
                        }
                    },
                    HugeTry::Failed => supplies.huge = HugeTry::Failed,
                }
            }
            Leaf::Absent => {}
        }
        let entry = match self.tables.entry_or_new(page) {
            Ok(entry) => entry,
            Err(error) => return Ok(error.into()),
        };
        let old = entry.load(Ordering::Relaxed);
        let mut change = Change {
            entry,
            old,
            flags,
            page,
            space,
            mapped: &mut self.mapped,
        };
        let result = match (old, file) {
            (0, None) if store => {
                new_anonymous(percpu::this()).map(|frame| change.put(frame, 0, true))
            }
            (0, None) => {
                change.put_zero();
                Ok(())
            }
            (0, Some((file, index))) if store && !shared => {
                let source = match supplied {
                    Some(supply) => Some(supply.page.clone()),
                    None => present_page(file, index),
                };
                let Some(source) = source else {
                    return Ok(Step::NeedsPage(file.clone(), index));
                };
                copy_of(source.as_ptr()).map(|frame| change.put(frame, 0, true))
            }
            (0, Some((file, index))) => {
                let kind = if file.shmem { SHMEM } else { FILE };
                let Some(supply) = supplied else {
                    let (start, end) = (area.start, area.end);
                    let around = around(page, start..end);
                    let first = index - (page - around.start) / PAGE;
                    let mut pages = [const { None }; AROUND];
                    let wanted = &mut pages[..pages_in(around.end - around.start)];
                    file.source.present(first, wanted);
                    if wanted[pages_in(page - around.start)].is_none() {
                        return Ok(Step::NeedsPage(file.clone(), index));
                    }
                    let entries = self.tables.entries(around.start, wanted.len());
                    for (entry, frame) in entries.iter().zip(wanted) {
                        if entry.load(Ordering::Relaxed) == 0
                            && let Some(frame) = frame.take()
                        {
                            change.entry = entry;
                            change.put(frame, kind, shared);
                        }
                    }
                    return Ok(Step::Done(pin(entry, want)));
                };
                change.put(supply.page.clone(), kind, shared);
                Ok(())
            }
            // What may be stored to is the program's own, whoever else looks at it just now.
            _ if store && !shared && old & WRITABLE == 0 => change.own(),
            _ => {
                change.allow(shared);
                Ok(())
            }
        };
        if let Err(error) = result {
            return Ok(error.into());
        }
        Ok(Step::Done(pin(entry, want)))
    }
}

/// What the caller wants besides: a reference to the page of an entry.
fn pin(entry: &AtomicU64, want: Want) -> Option<FrameRef> {
    match want {
        Want::Mapped => None,
        // The entry holds a reference while the lock is held, so there is one to count from.
        Want::Pinned | Want::Forced => Some(FrameRef::new_reference(frame_of(
            entry.load(Ordering::Relaxed),
        ))),
    }
}

/// A file's page, if it is there.
fn present_page(file: &MappedFile, index: u64) -> Option<FrameRef> {
    let mut page = [None];
    file.source.present(index, &mut page);
    let [page] = page;
    page
}

/// The pages of an area that a fault at `page` maps, as far as they are there.
fn around(page: u64, area: Range<u64>) -> Range<u64> {
    let start = page & !(AROUND as u64 * PAGE - 1);
    start.max(area.start)..(start + AROUND as u64 * PAGE).min(area.end)
}

/// A change of one entry.
struct Change<'a> {
    entry: &'static AtomicU64,
    old: u64,
    flags: VmaFlags,
    page: u64,
    space: &'a AddressSpace,
    mapped: &'a mut [u64; 3],
}

impl Change<'_> {
    /// Puts a frame in where nothing was; `kind`: 0, `FILE` or `SHMEM`.
    fn put(&mut self, frame: FrameRef, kind: u64, store: bool) {
        let rights = entry_flags(self.flags) | if store { store_flags(self.flags) } else { 0 };
        let value = frame.into_counted().address() | rights | kind;
        self.entry.store(value, Ordering::Relaxed);
        self.count(value, 1);
    }

    /// Puts the shared frame of zeros in.
    fn put_zero(&mut self) {
        let value = zero_frame().address() | entry_flags(self.flags) | ZERO;
        self.entry.store(value, Ordering::Relaxed);
    }

    /// Gives an entry that is there the rights of its area.
    fn allow(&mut self, shared: bool) {
        // Private pages that may be stored to already stay so; others first go through `own`.
        let store = if shared {
            store_flags(self.flags)
        } else {
            self.old & (WRITABLE | DIRTY)
        };
        let kept = self.old & (ADDRESS | FILE | SHMEM | ZERO);
        self.entry
            .store(kept | entry_flags(self.flags) | store, Ordering::Relaxed);
        // Another CPU may have served the same fault; ours may still hold the refused entry.
        machine::arch::cpu::invlpg(self.page);
    }

    /// Makes the private page the program's own, copying it if others have it too.
    fn own(&mut self) -> Result<(), AllocError> {
        let frame = frame_of(self.old);
        let borrowed = self.old & (ZERO | FILE | SHMEM) != 0;
        if !borrowed && Descriptor::get(frame).references() == 1 {
            let value = self.old & ADDRESS | entry_flags(self.flags) | store_flags(self.flags);
            self.entry.store(value, Ordering::Relaxed);
            machine::arch::cpu::invlpg(self.page);
            return Ok(());
        }
        if self.space.has_flushes() {
            // Another CPU may not know yet that the page is shared: its stores must not be lost.
            tlb::flush(&self.space.cpus, self.page..self.page + PAGE);
        }
        let copy = if self.old & ZERO != 0 {
            new_anonymous(percpu::this())?
        } else {
            copy_of(frame_ptr(frame))?
        };
        self.put(copy, 0, true);
        tlb::flush(&self.space.cpus, self.page..self.page + PAGE);
        if self.old & ZERO == 0 {
            self.count(self.old, -1);
            machine::memory::memmap::release(frame);
        }
        Ok(())
    }

    fn count(&mut self, entry: u64, pages: i64) {
        let kind = super::gather::kind_index(entry);
        self.mapped[kind] = self.mapped[kind].wrapping_add_signed(pages);
        if kind != 0 {
            percpu::add(Count::MappedFile, pages.cast_unsigned());
        }
    }
}
