//! Address spaces: their parts, and which of them each CPU uses.

#![expect(unsafe_code, reason = "a CPU's tables are changed")]

use super::backing::{Bytes, Graveyard};
use super::entry::{FILE, POOL, REGION, SHMEM, ZERO, frame_of};
use super::family::{Family, Member, Owner};
use super::gather::kind_index;
use super::locking::FutureLock;
use super::pagetable::{PageTables, Run};
use super::thp::wants_huge;
use super::{MappedName, VmaFlags};
use alloc::sync::Arc;
use core::any::Any;
use core::fmt;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use ebb_mm::Order;
use logic::errno::Errno;
use logic::vma::{Vma, VmaSet};
use machine::arch::{CpuSet, USER_END, cpu, cpu_id};
use machine::memory::percpu::{self, Local};
use machine::memory::{hugetlb, kernel_root, knobs, pressure};
use machine::sched;
use machine::sync::{Mutex, Once, SpinLock, WaitQueue, assert_no_spin_lock_held};

/// The size of a page in bytes.
pub(super) const PAGE: u64 = 4096;
/// The most page tables that are searched each time that a lock is held.
pub(super) const TABLES_AT_ONCE: u32 = 32;
/// The most areas that are removed each time that a lock is held.
const TAKEN_AT_ONCE: usize = 64;

/// An area: a range of addresses with flags and the bytes behind it.
pub(super) type Area = Vma<VmaFlags, Bytes>;

/// A process's memory: its areas and its page tables.
pub struct AddressSpace {
    /// Held during each change of the areas, from the decision to the last page table entry. Taken
    /// before `state`.
    pub(super) change: Mutex<()>,
    pub(super) state: SpinLock<State>,
    /// The CPUs that use the space's page tables (CR3).
    pub(super) cpus: CpuSet,
    /// The number of tasks that have changed entries and not flushed them yet. While it is not 0,
    /// code that relies on such a flush flushes as well.
    pub(super) flushes: AtomicU32,
    /// The queue of tasks whose accesses wait for the end of a fork.
    pub(super) forked: WaitQueue,
    /// Whether the space gets no huge pages, regardless of its areas (`PR_SET_THP_DISABLE`).
    no_huge_pages: AtomicBool,
    /// The `membarrier(2)` commands for which the process is registered, as bits.
    barriers: AtomicU32,
    /// Whether `khugepaged` visits this space.
    pub(super) enlisted: AtomicBool,
    /// The lock that `mlockall(2)` requested for later mappings.
    pub(super) future_lock: FutureLock,
    /// The physical address of the root page table.
    root: u64,
    /// The number of the space. Every new space gets a higher number than all spaces before it.
    pub(super) id: u64,
    /// The family of spaces that may map private memory of this one.
    family: Arc<Family>,
    /// The index of the space in its family.
    place: usize,
    /// The bits of an owner word that name `family` and `place`.
    tag: u64,
    /// The number of tasks that use the space.
    tasks: AtomicU32,
    /// The contexts of asynchronous requests (`io_setup(2)`). They end with the last task that uses
    /// the space.
    requests: Once<Arc<dyn Any + Send + Sync>>,
}

/// The data that the lock of a space guards.
#[derive(Debug)]
pub(super) struct State {
    /// The areas.
    pub(super) areas: VmaSet<VmaFlags, Bytes>,
    /// The page tables.
    pub(super) tables: PageTables,
    /// A number that changes whenever the areas change.
    pub(super) version: u64,
    /// A range whose areas were removed and whose pages the holder of `change` is still unmapping.
    /// Empty otherwise.
    pub(super) leaving: Range<u64>,
    /// A range whose mapping the holder of `change` is replacing, so that it may have no area for a
    /// moment. Empty otherwise.
    pub(super) replacing: Range<u64>,
    /// The number of mapped pages of 4 KiB, by kind: anonymous, file, shared memory.
    pub(super) mapped: [u64; 3],
    /// The largest sum of `mapped` when pages were unmapped. The present sum may be larger.
    pub(super) peak_mapped: u64,
    /// The sizes of all areas.
    pub(super) sizes: Sizes,
    /// The largest size of all areas so far, in bytes.
    pub(super) peak_bytes: u64,
    /// The heap, whose end `brk(2)` moves.
    pub(super) heap: Range<u64>,
    /// The process's limits on memory.
    pub(super) limits: Limits,
    /// The addresses of the program's arguments.
    pub(super) arguments: Range<u64>,
    /// The addresses of the program's environment.
    pub(super) environment: Range<u64>,
    /// The addresses of the program's auxiliary vector.
    pub(super) auxiliary: Range<u64>,
    /// The stack pointer with which the program started.
    pub(super) stack_start: u64,
    /// The addresses of the program's code, and of its data.
    pub(super) program: [Range<u64>; 2],
    /// Whether a fork is sharing the pages with a child. Faults, and calls that drop pages, wait
    /// for its end.
    pub(super) forking: bool,
}

/// The sizes of areas in bytes, by kind. One area can count for several kinds.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Sizes {
    /// All areas.
    pub(super) all: u64,
    /// Private writable areas that are no stacks (`RLIMIT_DATA`).
    pub(super) data: u64,
    /// Stacks: areas that grow down, and the program's first stack.
    pub(super) stack: u64,
    /// Executable areas.
    pub(super) text: u64,
    /// Areas that are locked in memory.
    pub(super) locked: u64,
    /// Areas whose memory is committed.
    pub(super) accounted: u64,
}

impl Sizes {
    /// Returns the sizes that an area of `bytes` bytes with `flags` counts for.
    pub(super) fn of(flags: VmaFlags, bytes: u64) -> Self {
        let if_set = |yes: bool| if yes { bytes } else { 0 };
        let stack = flags.intersects(VmaFlags::GROWS_DOWN | VmaFlags::STACK);
        let private_writable = flags & (VmaFlags::WRITE | VmaFlags::SHARED) == VmaFlags::WRITE;
        Self {
            all: bytes,
            data: if_set(private_writable && !stack),
            stack: if_set(stack),
            text: if_set(flags.contains(VmaFlags::EXEC)),
            locked: if_set(flags.contains(VmaFlags::LOCKED)),
            accounted: if_set(flags.contains(VmaFlags::ACCOUNTED)),
        }
    }

    fn pairs(&mut self, other: Self) -> [(&mut u64, u64); 6] {
        [
            (&mut self.all, other.all),
            (&mut self.data, other.data),
            (&mut self.stack, other.stack),
            (&mut self.text, other.text),
            (&mut self.locked, other.locked),
            (&mut self.accounted, other.accounted),
        ]
    }

    /// Returns the sizes minus those of `other`, or 0 where `other` has the larger size.
    pub(super) fn beyond(mut self, other: Self) -> Self {
        self.pairs(other)
            .into_iter()
            .for_each(|(sum, less)| *sum = sum.saturating_sub(less));
        self
    }

    /// Adds the sizes `other` to these sizes.
    pub(super) fn add(&mut self, other: Self) {
        self.pairs(other)
            .into_iter()
            .for_each(|(sum, more)| *sum += more);
    }

    /// Subtracts the sizes `other` from these sizes.
    pub(super) fn subtract(&mut self, other: Self) {
        self.pairs(other)
            .into_iter()
            .for_each(|(sum, less)| *sum -= less);
    }
}

/// The memory that a space uses, in bytes.
#[derive(Copy, Clone, Debug, Default)]
pub struct Usage {
    /// All areas.
    pub size: u64,
    /// The largest value of `size` so far.
    pub peak_size: u64,
    /// Mapped pages of anonymous memory.
    pub rss_anon: u64,
    /// Mapped pages of files.
    pub rss_file: u64,
    /// Mapped pages of shared memory.
    pub rss_shmem: u64,
    /// The largest sum of the three so far.
    pub peak_rss: u64,
    /// Private writable areas that are not stacks.
    pub data: u64,
    /// Stacks.
    pub stack: u64,
    /// Executable areas.
    pub text: u64,
    /// `mlock`ed areas.
    pub locked: u64,
    /// Page tables.
    pub page_tables: u64,
    /// Pages of the pool of huge pages.
    pub hugetlb: u64,
}

impl Usage {
    /// Returns the size of all mapped pages in bytes.
    pub const fn rss(&self) -> u64 {
        self.rss_anon + self.rss_file + self.rss_shmem
    }
}

/// One area, for `/proc/PID/maps`.
#[derive(Clone, Debug)]
pub struct VmaInfo {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// Rights and kind.
    pub flags: VmaFlags,
    /// Offset in the file, in bytes; 0 for anonymous memory.
    pub offset: u64,
    /// The file; `None` for anonymous memory.
    pub file: Option<MappedName>,
    /// The size in bytes of the pages behind the area.
    pub page_bytes: u64,
}

impl VmaInfo {
    /// Returns whether a huge page may serve a first store to the area.
    pub fn may_have_huge_pages(&self) -> bool {
        let first = self.start.next_multiple_of(REGION);
        self.file.is_none()
            && first < self.end
            && self.end - first >= REGION
            && wants_huge(self.flags)
    }

    /// Returns the last column of the area's line: a path, `[heap]`, `[stack]`, or nothing.
    pub fn name(&self) -> &[u8] {
        match &self.file {
            Some(file) => &file.path,
            None if self.flags.contains(VmaFlags::HEAP) => b"[heap]",
            None if self.flags.contains(VmaFlags::STACK) => b"[stack]",
            None => b"",
        }
    }
}

/// The limits on memory that the process has set (`setrlimit`), in bytes. `u64::MAX` means no
/// limit.
#[derive(Copy, Clone, Debug)]
pub struct Limits {
    /// `RLIMIT_AS`.
    pub address_space: u64,
    /// `RLIMIT_DATA`.
    pub data: u64,
    /// `RLIMIT_STACK`.
    pub stack: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            address_space: u64::MAX,
            data: u64::MAX,
            stack: 8 << 20,
        }
    }
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);
/// The number of spaces whose memory is being freed.
static GOING: AtomicU32 = AtomicU32::new(0);

/// Returns the number of spaces that are being freed at this moment. Their memory becomes free
/// without further action.
pub(crate) fn spaces_going() -> u32 {
    // Relaxed: a hint for those who wait for memory.
    GOING.load(Ordering::Relaxed)
}

/// Returns the space whose tables this CPU uses. That is the space of the current task, or `None`
/// for a kernel thread.
#[inline]
pub(super) fn active(this: &Local) -> Option<&'static AddressSpace> {
    // Relaxed: only this CPU writes its own.
    let space = this.space.load(Ordering::Relaxed);
    // SAFETY: `activate` alone stores there. A space is deactivated before its last reference goes,
    // and callers use the reference while their task runs, which holds one.
    unsafe { space.cast::<AddressSpace>().as_ref() }
}

impl AddressSpace {
    /// Returns a new, empty space with a new family.
    ///
    /// # Errors
    /// Fails with `ENOMEM`.
    pub fn new() -> Result<Arc<Self>, Errno> {
        let space = Self::of_family(Family::new()?)?;
        space.join_family();
        Ok(space)
    }

    /// Returns a new, empty space of `family`. Its private frames cannot move before
    /// [`Self::join_family`].
    ///
    /// # Errors
    /// Fails with `ENOMEM`.
    pub(super) fn of_family(family: Arc<Family>) -> Result<Arc<Self>, Errno> {
        let mut relief = pressure::Relief::new(Order::BASE);
        let tables = loop {
            match PageTables::new() {
                Ok(tables) => break tables,
                Err(error) => relief.step(error)?,
            }
        };
        let root = tables.root();
        let mut state = State {
            areas: VmaSet::new(),
            tables,
            version: 0,
            leaving: 0..0,
            replacing: 0..0,
            mapped: [0; 3],
            peak_mapped: 0,
            sizes: Sizes::default(),
            peak_bytes: 0,
            heap: 0..0,
            limits: Limits::default(),
            arguments: 0..0,
            environment: 0..0,
            auxiliary: 0..0,
            stack_start: 0,
            program: [0..0, 0..0],
            forking: false,
        };
        let place = family.reserve()?;
        let tag = family.tag(place);
        state.tables.set_tag(tag);
        Ok(Arc::new(Self {
            change: Mutex::new(()),
            state: SpinLock::new(state),
            cpus: CpuSet::new(),
            flushes: AtomicU32::new(0),
            forked: WaitQueue::new(),
            no_huge_pages: AtomicBool::new(false),
            barriers: AtomicU32::new(0),
            enlisted: AtomicBool::new(false),
            future_lock: FutureLock::new(),
            root,
            // Relaxed: only has to be different each time.
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            family,
            place,
            tag,
            tasks: AtomicU32::new(0),
            requests: Once::new(),
        }))
    }

    /// Counts one more task that uses the space.
    pub fn add_task(&self) {
        // Relaxed: another task that uses it, or its maker, hands it to the new one.
        self.tasks.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one task less that uses the space. Returns whether it was the last one.
    pub fn remove_task(&self) -> bool {
        // AcqRel: the last one sees what the others did with the space; pairs with itself.
        self.tasks.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Returns the contexts of asynchronous requests. Returns `None` until [`Self::set_requests`]
    /// has set them.
    pub fn requests(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.requests.get().map(|requests| &**requests)
    }

    /// Sets the contexts of asynchronous requests to the result of `make`, unless they are set. The
    /// value is dropped with the space, perhaps during a walk over the spaces that map a file. It
    /// must contain no context any more at that time.
    pub fn set_requests(&self, make: impl FnOnce() -> Arc<dyn Any + Send + Sync>) {
        if self.requests.get().is_none() {
            // Another task may have been first; then ours go.
            let _ = self.requests.set(make());
        }
    }

    /// Makes the space a member of its family, so that compaction finds the entries that map its
    /// private frames and can move them.
    pub(super) fn join_family(self: &Arc<Self>) {
        self.family.join(self.place, self);
    }

    /// Returns the family of the space.
    pub(super) fn family(&self) -> &Arc<Family> {
        &self.family
    }

    /// Returns the identity of the space among all spaces. Returns `None` if the family has no
    /// number.
    pub(super) fn member(&self) -> Option<Member> {
        self.family.member(self.place)
    }

    /// Returns the owner word for the frame that a store to the page at `page` allocates.
    #[inline]
    pub(super) fn owner_of(&self, page: u64) -> Owner {
        Owner::new(self.tag, page)
    }

    /// Loads the page tables of this space on this CPU, at a switch to one of its tasks. Takes
    /// little time if they are loaded already.
    ///
    /// The caller keeps a reference to the space until this CPU has activated another space, or
    /// [`Self::deactivate`] was called on this CPU.
    #[inline]
    pub fn activate(&self) {
        let (space, own) = (ptr::from_ref(self).cast_mut().cast(), percpu::this());
        let before = own.space.load(Ordering::Relaxed);
        if before == space {
            return;
        }
        let cpu = cpu_id();
        // In the set before CR3 is loaded: pairs with the fence in `tlb::flush`.
        self.cpus.insert(cpu);
        // SAFETY: the tables map the kernel as all do, and stay until the space was left.
        unsafe { cpu::write_cr3(self.root) };
        own.space.store(space, Ordering::Relaxed);
        // SAFETY: see the contract above.
        if let Some(before) = unsafe { before.cast::<Self>().as_ref() } {
            before.cpus.remove(cpu);
        }
    }

    /// Loads the kernel's own page tables if this CPU uses those of this space. Call this before a
    /// task's last reference is dropped, and when a CPU switches to the idle loop or a kernel
    /// thread.
    pub fn deactivate(&self) {
        let own = percpu::this();
        if !ptr::eq(own.space.load(Ordering::Relaxed).cast::<Self>(), self) {
            return;
        }
        // SAFETY: the kernel's own tables, which stay.
        unsafe { cpu::write_cr3(kernel_root()) };
        own.space.store(ptr::null_mut(), Ordering::Relaxed);
        self.cpus.remove(cpu_id());
    }

    /// Returns whether several CPUs use the space at this moment. This is a hint for code that
    /// holds its lock.
    #[inline]
    pub(super) fn is_used_by_several(&self) -> bool {
        self.cpus.has_several()
    }

    /// Sets whether the space gets no huge pages from now on, regardless of its areas.
    pub fn decline_huge_pages(&self, decline: bool) {
        // Relaxed (both): a value of its own.
        self.no_huge_pages.store(decline, Ordering::Relaxed);
    }

    /// Returns the value that [`Self::decline_huge_pages`] set, or `false` before the first call.
    pub fn declines_huge_pages(&self) -> bool {
        self.no_huge_pages.load(Ordering::Relaxed)
    }

    /// Registers the process for the `membarrier(2)` commands whose bits are set in `commands`.
    pub fn register_barriers(&self, commands: u32) {
        // Relaxed (all): bits of their own.
        self.barriers.fetch_or(commands, Ordering::Relaxed);
    }

    /// Returns whether the process is registered for all commands whose bits are set in `commands`.
    pub fn has_registered(&self, commands: u32) -> bool {
        self.barriers() & commands == commands
    }

    /// Returns the bits of the `membarrier(2)` commands for which the process is registered.
    pub(super) fn barriers(&self) -> u32 {
        self.barriers.load(Ordering::Relaxed)
    }

    /// Sets the limits of this space.
    pub fn set_limits(&self, limits: Limits) {
        self.state.lock().limits = limits;
    }

    /// Returns the number of the space, which no other space has had.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Returns the memory that the space uses.
    pub fn usage(&self) -> Usage {
        let state = self.state.lock();
        let [anonymous, file, shmem] = state.mapped.map(|pages| pages * PAGE);
        Usage {
            size: state.sizes.all,
            peak_size: state.peak_bytes.max(state.sizes.all),
            rss_anon: anonymous,
            rss_file: file,
            rss_shmem: shmem,
            peak_rss: state.peak_mapped.max(state.mapped.iter().sum()) * PAGE,
            data: state.sizes.data,
            stack: state.sizes.stack,
            text: state.sizes.text,
            locked: state.sizes.locked,
            page_tables: state.tables.count() * PAGE,
            hugetlb: state.tables.pool_bytes.get(),
        }
    }

    /// Calls `each` with the areas in ascending order. No lock is held during a call.
    pub fn for_each_vma(&self, mut each: impl FnMut(&VmaInfo)) {
        let mut at = 0;
        while let Some(info) = self.vma_from(at) {
            at = info.end;
            each(&info);
            sched::cond_resched();
        }
    }

    /// Returns the mapped bytes in `range` (for `smaps`), in this order:
    /// 1. anonymous memory
    /// 2. files
    /// 3. shared memory
    /// 4. the part of 1 in huge pages
    /// 5. pages of the pool that belong to this space alone
    /// 6. other pages of the pool
    /// 7. the part of 2 and 3 in huge pages
    pub fn resident(&self, range: Range<u64>) -> [u64; 7] {
        let mut pages = [0; 7];
        let mut at = range.start;
        while at < range.end {
            let state = self.state.lock();
            let mut tables = 0;
            at = state.tables.runs(at..range.end, |_, run| {
                // A refused table comes again, so it must not be counted here.
                if tables == TABLES_AT_ONCE {
                    return false;
                }
                tables += 1;
                match run {
                    Run::Pages(entries) => {
                        for entry in entries {
                            let entry = entry.load(Ordering::Relaxed);
                            if entry != 0 && entry & ZERO == 0 {
                                pages[kind_index(entry)] += 1;
                            }
                        }
                    }
                    Run::Trial(_, count) => {
                        pages[0] += count as u64;
                        pages[3] += count as u64;
                    }
                    Run::Huge(entry, places) => {
                        let count = places.end - places.start;
                        let entry = entry.load();
                        if entry & POOL != 0 {
                            // A file has a reference to its page, too.
                            let of_file = u32::from(entry & FILE != 0);
                            let own = hugetlb::references(frame_of(entry)) == 1 + of_file;
                            pages[if own { 4 } else { 5 }] += count;
                            return true;
                        }
                        if entry & (FILE | SHMEM) != 0 {
                            pages[kind_index(entry)] += count;
                            pages[6] += count;
                        } else if entry & ZERO == 0 {
                            pages[0] += count;
                            pages[3] += count;
                        }
                    }
                }
                true
            });
            drop(state);
            sched::cond_resched();
        }
        pages.map(|pages| pages * PAGE)
    }

    /// Sets the range of the program's arguments (`/proc/PID/cmdline`).
    pub fn set_arg_range(&self, range: Range<u64>) {
        self.state.lock().arguments = range;
    }

    /// Sets the range of the program's environment (`/proc/PID/environ`).
    pub fn set_env_range(&self, range: Range<u64>) {
        self.state.lock().environment = range;
    }

    /// Sets the range of the program's auxiliary vector (`/proc/PID/auxv`).
    pub fn set_aux_range(&self, range: Range<u64>) {
        self.state.lock().auxiliary = range;
    }

    /// Sets the stack pointer with which the program starts (`/proc/PID/stat`).
    pub fn set_stack_start(&self, pointer: u64) {
        self.state.lock().stack_start = pointer;
    }

    /// Returns the stack pointer with which the program started.
    pub fn stack_start(&self) -> u64 {
        self.state.lock().stack_start
    }

    /// Sets the bounds of the program's code and of its data (`/proc/PID/stat`).
    pub fn set_program(&self, code: Range<u64>, data: Range<u64>) {
        self.state.lock().program = [code, data];
    }

    /// Returns the bounds of the program's code and of its data.
    pub fn program(&self) -> [Range<u64>; 2] {
        self.state.lock().program.clone()
    }

    /// Returns the start of the heap that `brk` moves.
    pub fn heap_start(&self) -> u64 {
        self.state.lock().heap.start
    }

    /// Returns the range of the program's arguments.
    pub fn arg_range(&self) -> Range<u64> {
        self.state.lock().arguments.clone()
    }

    /// Returns the range of the program's environment.
    pub fn env_range(&self) -> Range<u64> {
        self.state.lock().environment.clone()
    }

    /// Returns the range of the program's auxiliary vector.
    pub fn aux_range(&self) -> Range<u64> {
        self.state.lock().auxiliary.clone()
    }
}

/// A flush that not all CPUs have answered yet.
#[derive(Debug)]
pub(super) struct PendingFlush<'a>(&'a AtomicU32);

impl Drop for PendingFlush<'_> {
    fn drop(&mut self) {
        // Release: the answers come before it; pairs with the Acquire in `has_flushes`.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl AddressSpace {
    /// Records that entries are about to change, and that other CPUs may use the old ones until the
    /// result is dropped. The caller holds the lock under which the entries are changed.
    pub(super) fn begin_flush(&self) -> PendingFlush<'_> {
        // Relaxed: the lock publishes it.
        self.flushes.fetch_add(1, Ordering::Relaxed);
        PendingFlush(&self.flushes)
    }

    /// Does the same as [`Self::begin_flush`], until [`Self::end_moves`] is called.
    pub(super) fn begin_moves(&self) {
        core::mem::forget(self.begin_flush());
    }

    /// Ends what [`Self::begin_moves`] began. All CPUs know the new entries now.
    pub(super) fn end_moves(&self) {
        drop(PendingFlush(&self.flushes));
    }

    /// Returns whether some CPUs may still use entries that were changed. The caller holds the
    /// lock.
    pub(super) fn has_flushes(&self) -> bool {
        // Acquire: pairs with the Release of `PendingFlush::drop`.
        self.flushes.load(Ordering::Acquire) != 0
    }
}

impl AddressSpace {
    /// Frees the memory of the space if no task uses the space any more, though other references to
    /// it remain: khugepaged or a reader of `/proc` may be looking at it. Without other references
    /// does nothing, because dropping the last one frees the memory.
    pub fn end(self: &Arc<Self>) {
        // Acquire: pairs with `remove_task`, so that this sees what the tasks mapped.
        if self.tasks.load(Ordering::Acquire) != 0 || Arc::strong_count(self) == 1 {
            return;
        }
        GOING.fetch_add(1, Ordering::Relaxed);
        // Fails only without memory. Then the last of the other references frees the memory.
        let _ = self.unmap(0, USER_END);
        GOING.fetch_sub(1, Ordering::Relaxed);
    }
}

impl State {
    /// Returns the first area that ends behind `at`, or `None` if there is none.
    pub(super) fn info_from(&self, at: u64) -> Option<VmaInfo> {
        let area = self.areas.next_from(at)?;
        let (file, offset) = match &area.backing {
            Bytes::Zero => (None, 0),
            Bytes::File(file, offset) => (Some(file.name.clone()), *offset),
        };
        Some(VmaInfo {
            start: area.start,
            end: area.end,
            flags: area.flags,
            offset,
            file,
            page_bytes: area.backing.page_bytes(),
        })
    }

    /// Records that the areas have changed.
    pub(super) fn changed(&mut self) {
        self.version += 1;
        self.tables.forget_areas();
        self.peak_bytes = self.peak_bytes.max(self.sizes.all);
    }

    /// Returns the sum of the sizes that the areas in `range` count for, each with the flags that
    /// `with` returns for its present ones. Only the part of an area in `range` counts.
    pub(super) fn sizes_in(
        &self,
        range: &Range<u64>,
        with: impl Fn(VmaFlags) -> VmaFlags,
    ) -> Sizes {
        let mut sizes = Sizes::default();
        for area in self.areas.overlapping(range.clone()) {
            let bytes = area.end.min(range.end) - area.start.max(range.start);
            sizes.add(Sizes::of(with(area.flags), bytes));
        }
        sizes
    }

    /// Removes areas that start in `range`, whose ends are boundaries of areas, and puts their
    /// files into `graveyard`. Returns `true` if none is left. Returns `false` if the graveyard is
    /// full, or if [`TAKEN_AT_ONCE`] areas were removed.
    pub(super) fn take_areas(&mut self, range: Range<u64>, graveyard: &mut Graveyard) -> bool {
        for _ in 0..TAKEN_AT_ONCE {
            if graveyard.is_full() {
                break;
            }
            let Some(area) = self.areas.pop(range.clone()) else {
                self.changed();
                return true;
            };
            let sizes = Sizes::of(area.flags, area.bytes());
            self.sizes.subtract(sizes);
            knobs::uncommit(sizes.accounted / PAGE);
            graveyard.bury(area);
        }
        self.changed();
        false
    }
}

impl AddressSpace {
    /// Removes this space from the files that it maps. A file that the space has unmapped still
    /// refers to it, and so keeps the memory of this structure until another space maps that file.
    fn leave_files(&mut self) {
        let mut left = None;
        let number = self.id;
        let areas = &self.state.get_mut().areas;
        for file in areas.iter().filter_map(|area| area.backing.file()) {
            // One file's areas mostly lie beside each other.
            if left.is_some_and(|source| file.same_source(source)) {
                continue;
            }
            file.source.mappings().forget(number);
            sched::give_way();
            left = Some(Arc::as_ptr(&file.source).cast());
        }
    }
}

/// Frees all of its memory, in batches between which other tasks run. So the last reference must be
/// dropped where the holder may block: when a task ends or executes another program, and after a
/// look at another process. No CPU uses the space then, so no TLB is flushed for it.
impl Drop for AddressSpace {
    fn drop(&mut self) {
        assert_no_spin_lock_held();
        self.deactivate();
        assert!(
            self.cpus.is_empty(),
            "an address space goes while CPUs use it: {:?}",
            self.cpus
        );
        GOING.fetch_add(1, Ordering::Relaxed);
        self.leave_files();
        self.unlist();
        self.family.leave(self.place);
        loop {
            let mut graveyard = Graveyard::of(self.id);
            let all = self.state.lock().take_areas(0..USER_END, &mut graveyard);
            drop(graveyard);
            if all {
                break;
            }
            sched::give_way();
        }
        self.zap_unmapped(0..USER_END);
        GOING.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for AddressSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressSpace")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
