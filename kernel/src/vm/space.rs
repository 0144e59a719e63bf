//! Address spaces: what they consist of, and which one each CPU uses.

#![expect(unsafe_code, reason = "a CPU's tables are changed")]

use super::backing::{Bytes, Graveyard};
use super::entry::{FILE, POOL, REGION, SHMEM, ZERO, frame_of};
use super::family::{Family, Owner};
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

pub(super) const PAGE: u64 = 4096;
/// Page tables that are looked through under one lock.
pub(super) const TABLES_AT_ONCE: u32 = 32;
/// Areas that are taken out under one hold of a lock.
const TAKEN_AT_ONCE: usize = 64;

pub(super) type Area = Vma<VmaFlags, Bytes>;

/// A process's memory: its areas and its page tables.
pub struct AddressSpace {
    /// Held by each change of areas, from the decision to the last entry. Taken before `state`.
    pub(super) change: Mutex<()>,
    pub(super) state: SpinLock<State>,
    /// CPUs whose CR3 is this space's root.
    pub(super) cpus: CpuSet,
    /// The number of changes of entries before their flush. Code that depends on the flush of an
    /// entry that another task has removed or made read-only flushes as well.
    pub(super) flushes: AtomicU32,
    /// Where accesses wait for the end of a fork.
    pub(super) forked: WaitQueue,
    /// No huge pages, regardless of the areas (`PR_SET_THP_DISABLE`).
    no_huge_pages: AtomicBool,
    /// The registrations of its process for `membarrier(2)`, by the commands' bits.
    barriers: AtomicU32,
    /// `khugepaged` looks at it.
    pub(super) enlisted: AtomicBool,
    /// `mlockall` for later mappings.
    pub(super) future_lock: FutureLock,
    /// Physical address of the root.
    root: u64,
    /// A number that no other space has had, greater than those of the spaces before.
    pub(super) id: u64,
    /// Those that show its private memory, and its place among them.
    family: Arc<Family>,
    place: usize,
    /// What the frames of its private memory have in their words.
    tag: u64,
    /// Tasks that use it.
    tasks: AtomicU32,
    /// The contexts of its asynchronous requests, which end with the last of these tasks.
    requests: Once<Arc<dyn Any + Send + Sync>>,
}

/// What the lock of a space guards.
#[derive(Debug)]
pub(super) struct State {
    pub(super) areas: VmaSet<VmaFlags, Bytes>,
    pub(super) tables: PageTables,
    /// Changes whenever areas do.
    pub(super) version: u64,
    /// Has no areas any more, but perhaps still pages: the holder of `change` takes them out.
    pub(super) leaving: Range<u64>,
    /// Shows another mapping soon, and perhaps none just now: the holder of `change` is at it.
    pub(super) replacing: Range<u64>,
    /// Mapped pages: anonymous, file, shared memory.
    pub(super) mapped: [u64; 3],
    pub(super) peak_mapped: u64,
    pub(super) sizes: Sizes,
    pub(super) peak_bytes: u64,
    pub(super) heap: Range<u64>,
    pub(super) limits: Limits,
    pub(super) arguments: Range<u64>,
    pub(super) environment: Range<u64>,
    pub(super) auxiliary: Range<u64>,
    /// A child is getting its pages: faults and calls that drop pages wait.
    pub(super) forking: bool,
}

/// Bytes of areas, by what they are.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Sizes {
    pub(super) all: u64,
    pub(super) data: u64,
    pub(super) stack: u64,
    pub(super) text: u64,
    pub(super) locked: u64,
    pub(super) accounted: u64,
}

impl Sizes {
    /// Bytes of an area with these flags count so.
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

    /// What this has more of than `other`.
    pub(super) fn beyond(mut self, other: Self) -> Self {
        self.pairs(other)
            .into_iter()
            .for_each(|(sum, less)| *sum = sum.saturating_sub(less));
        self
    }

    pub(super) fn add(&mut self, other: Self) {
        self.pairs(other)
            .into_iter()
            .for_each(|(sum, more)| *sum += more);
    }

    pub(super) fn subtract(&mut self, other: Self) {
        self.pairs(other)
            .into_iter()
            .for_each(|(sum, less)| *sum -= less);
    }
}

/// How much memory a space has, in bytes.
#[derive(Copy, Clone, Debug, Default)]
pub struct Usage {
    /// All areas.
    pub size: u64,
    /// The most that `size` has been.
    pub peak_size: u64,
    /// Mapped pages of anonymous memory.
    pub rss_anon: u64,
    /// Mapped pages of files.
    pub rss_file: u64,
    /// Mapped pages of shared memory.
    pub rss_shmem: u64,
    /// The most that the sum of the three has been.
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
    /// Mapped pages, in bytes.
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
    /// Bytes of the pages that it consists of.
    pub page_bytes: u64,
}

impl VmaInfo {
    /// Whether a first store to it may be served by a huge page.
    pub fn may_have_huge_pages(&self) -> bool {
        let first = self.start.next_multiple_of(REGION);
        self.file.is_none()
            && first < self.end
            && self.end - first >= REGION
            && wants_huge(self.flags)
    }

    /// What the last column shows: a path, `[heap]`, `[stack]`, or nothing.
    pub fn name(&self) -> &[u8] {
        match &self.file {
            Some(file) => &file.path,
            None if self.flags.contains(VmaFlags::HEAP) => b"[heap]",
            None if self.flags.contains(VmaFlags::STACK) => b"[stack]",
            None => b"",
        }
    }
}

/// Limits that the process has set (`setrlimit`), in bytes; `u64::MAX`: none.
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
/// Spaces whose memory is being freed.
static GOING: AtomicU32 = AtomicU32::new(0);

/// How many spaces are being freed at this moment: their memory comes without anybody's doing.
pub(crate) fn spaces_going() -> u32 {
    // Relaxed: a hint for those who wait for memory.
    GOING.load(Ordering::Relaxed)
}

/// The space that this CPU uses: that of the task that runs, unless a kernel thread does.
#[inline]
pub(super) fn active(this: &Local) -> Option<&'static AddressSpace> {
    // Relaxed: only this CPU writes its own.
    let space = this.space.load(Ordering::Relaxed);
    // SAFETY: `activate` alone stores there. A space is deactivated before its last reference goes,
    // and callers use the reference while their task runs, which holds one.
    unsafe { space.cast::<AddressSpace>().as_ref() }
}

impl AddressSpace {
    /// A new, empty space.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new() -> Result<Arc<Self>, Errno> {
        let space = Self::of_family(Family::new()?)?;
        space.join_family();
        Ok(space)
    }

    /// Returns a new, empty space of a family. Its pages do not move until it joins the family.
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
            forking: false,
        };
        let place = family.reserve().inspect_err(|_| state.tables.free_root())?;
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

    /// Counts one more task that uses it.
    pub fn add_task(&self) {
        // Relaxed: another task that uses it, or its maker, hands it to the new one.
        self.tasks.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes [`Self::add_task`] back. Returns whether that was the last task.
    pub fn remove_task(&self) -> bool {
        // AcqRel: the last one sees what the others did with the space; pairs with itself.
        self.tasks.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Returns the contexts of asynchronous requests, once [`Self::set_requests`] has set them.
    pub fn requests(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.requests.get().map(|requests| &**requests)
    }

    /// Calls `make` for the contexts of asynchronous requests, unless there are some. Its result is
    /// dropped with the space, perhaps in a walk over the mappers of a file: it must not contain a
    /// context then.
    pub fn set_requests(&self, make: impl FnOnce() -> Arc<dyn Any + Send + Sync>) {
        if self.requests.get().is_none() {
            // Another task may have been first; then ours go.
            let _ = self.requests.set(make());
        }
    }

    /// Has its private memory be found in it from here on.
    pub(super) fn join_family(self: &Arc<Self>) {
        self.family.join(self.place, self);
    }

    /// Those that show its private memory.
    pub(super) fn family(&self) -> &Arc<Family> {
        &self.family
    }

    /// What the words of its frames have beside the address; 0: it has no number.
    pub(super) fn tag(&self) -> u64 {
        self.tag
    }

    /// The word of a frame that a store to this page got.
    #[inline]
    pub(super) fn owner_of(&self, page: u64) -> Owner {
        Owner::new(self.tag, page)
    }

    /// Makes it the space of this CPU, on a switch to one of its tasks. Cheap if it is already.
    ///
    /// The caller keeps a reference to the space until this CPU has activated another one or
    /// [`Self::deactivate`] was called here.
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

    /// Leaves it, if this CPU uses it, for the kernel's own tables: before a task's last reference
    /// may go, and when a CPU turns to the idle loop or a kernel thread.
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

    /// Whether several CPUs use it just now: a hint for those who hold its lock.
    #[inline]
    pub(super) fn is_used_by_several(&self) -> bool {
        self.cpus.has_several()
    }

    /// Sets whether it gets no huge pages from here on, regardless of its areas.
    pub fn decline_huge_pages(&self, decline: bool) {
        // Relaxed (both): a value of its own.
        self.no_huge_pages.store(decline, Ordering::Relaxed);
    }

    /// What `decline_huge_pages` said.
    pub fn declines_huge_pages(&self) -> bool {
        self.no_huge_pages.load(Ordering::Relaxed)
    }

    /// Registers for the `membarrier(2)` of these bits.
    pub fn register_barriers(&self, commands: u32) {
        // Relaxed (all): bits of their own.
        self.barriers.fetch_or(commands, Ordering::Relaxed);
    }

    /// Whether that was done for these.
    pub fn has_registered(&self, commands: u32) -> bool {
        self.barriers() & commands == commands
    }

    /// Returns the registrations for `membarrier(2)`.
    pub(super) fn barriers(&self) -> u32 {
        self.barriers.load(Ordering::Relaxed)
    }

    /// Sets the limits that hold for this space.
    pub fn set_limits(&self, limits: Limits) {
        self.state.lock().limits = limits;
    }

    /// A number that no other space has had.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// How much memory it has.
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
            hugetlb: state.tables.pool_bytes,
        }
    }

    /// Calls `each` with its areas, upwards, without a lock held during the call.
    pub fn for_each_vma(&self, mut each: impl FnMut(&VmaInfo)) {
        let mut at = 0;
        while let Some(info) = self.vma_from(at) {
            at = info.end;
            each(&info);
            sched::cond_resched();
        }
    }

    /// Returns the mapped bytes in a range (for `smaps`): anonymous, of files, of shared memory,
    /// the part of the first in huge pages, pool pages that belong to the space alone, those that
    /// do not, and the part of files and shared memory in huge pages.
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
                    Run::Huge(entry, count) => {
                        let entry = entry.load(Ordering::Relaxed);
                        if entry & POOL != 0 {
                            // A file has a reference to its page, too.
                            let of_file = u32::from(entry & FILE != 0);
                            let own = hugetlb::references(frame_of(entry)) == 1 + of_file;
                            pages[if own { 4 } else { 5 }] += count as u64;
                            return true;
                        }
                        if entry & (FILE | SHMEM) != 0 {
                            pages[kind_index(entry)] += count as u64;
                            pages[6] += count as u64;
                        } else if entry & ZERO == 0 {
                            pages[0] += count as u64;
                            pages[3] += count as u64;
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

    /// Where the program's arguments stand (`/proc/PID/cmdline`).
    pub fn set_arg_range(&self, range: Range<u64>) {
        self.state.lock().arguments = range;
    }

    /// Where its environment stands (`/proc/PID/environ`).
    pub fn set_env_range(&self, range: Range<u64>) {
        self.state.lock().environment = range;
    }

    /// Where the words behind it stand (`/proc/PID/auxv`).
    pub fn set_aux_range(&self, range: Range<u64>) {
        self.state.lock().auxiliary = range;
    }

    /// What `set_arg_range` set.
    pub fn arg_range(&self) -> Range<u64> {
        self.state.lock().arguments.clone()
    }

    /// What `set_env_range` set.
    pub fn env_range(&self) -> Range<u64> {
        self.state.lock().environment.clone()
    }

    /// What `set_aux_range` set.
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
    /// Notes a flush to come, under the lock under which the entries are changed.
    pub(super) fn begin_flush(&self) -> PendingFlush<'_> {
        // Relaxed: the lock publishes it.
        self.flushes.fetch_add(1, Ordering::Relaxed);
        PendingFlush(&self.flushes)
    }

    /// The same where the flush ends elsewhere: by `end_moves`.
    pub(super) fn begin_moves(&self) {
        core::mem::forget(self.begin_flush());
    }

    /// All CPUs know what `begin_moves` announced.
    pub(super) fn end_moves(&self) {
        drop(PendingFlush(&self.flushes));
    }

    /// Whether a change of entries may not be known to all CPUs; asked under the lock.
    pub(super) fn has_flushes(&self) -> bool {
        // Acquire: pairs with the Release of `PendingFlush::drop`.
        self.flushes.load(Ordering::Acquire) != 0
    }
}

impl State {
    /// The first area from `at` on.
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

    /// Notes that areas have changed.
    pub(super) fn changed(&mut self) {
        self.version += 1;
        self.tables.forget_areas();
        self.peak_bytes = self.peak_bytes.max(self.sizes.all);
    }

    /// Notes one more mapped page.
    #[inline]
    pub(super) fn count_page(&mut self, kind: usize) {
        self.mapped[kind] += 1;
    }

    /// Returns the sizes of the areas' parts in `range`, with the flags that `with` returns for
    /// theirs.
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

    /// Takes out areas that start in `range`, whose ends are boundaries, until none is left (true)
    /// or the graveyard is full, or [`TAKEN_AT_ONCE`] are out.
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
    /// Removes this space from the files that it maps. A file that it has unmapped refers to it,
    /// and so keeps the memory of this structure, until the next space maps that file.
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
        self.state.lock().tables.free_root();
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
