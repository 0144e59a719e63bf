//! System V shared memory: segments that processes find by number or key and attach to their memory.
//!
//! A segment lasts until it is removed and the last process has detached it. Each attachment is a
//! mapping that tells the segment of its end ([`Attachment`]), whichever way it comes: `shmdt`,
//! `munmap`, exec or exit. Who may use it, its owner and its bits say.

use super::{Owner, READ, WRITE, pid, seconds};
use crate::process::task::limits;
use crate::process::{self, task::Process};
use crate::vm::hugetlb;
use crate::vm::shared::{self, SharedMemory};
use crate::vm::{
    AddressSpace, Attachment, Backing, MapFlags, MappedFile, PageSource, Prot, current_space,
};
use alloc::format;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use logic::credentials::Capabilities;
use logic::errno::Errno;
use logic::ipc_ids::{IpcIds, PRIVATE};
use machine::memory::{PAGE_SIZE, knobs};
use machine::sync::SpinLock;

const PAGE: u64 = PAGE_SIZE as u64;

// The numbers of <linux/shm.h>.
const SHM_HUGETLB: u32 = 0o4000;
const SHM_HUGE_SHIFT: u32 = 26;
const SHM_HUGE_MASK: u32 = 0x3f;
const SHM_NORESERVE: u32 = 0o10000;
const SHM_RDONLY: u32 = 0o10000;
const SHM_RND: u32 = 0o20000;
const SHM_REMAP: u32 = 0o40000;
const SHM_EXEC: u32 = 0o100_000;
/// In a segment's mode: it goes with its last attachment.
const SHM_DEST: u32 = 0o1000;
/// In a segment's mode: its pages stay in memory, as they do anyway.
const SHM_LOCKED: u32 = 0o2000;

/// How much there may be, as `/proc/sys/kernel/shm*` says.
#[derive(Debug)]
pub struct Limits {
    /// Bytes of a segment.
    pub bytes: AtomicU64,
    /// Pages of all together.
    pub pages: AtomicU64,
    /// Segments.
    pub segments: AtomicU64,
    /// A segment goes with its last attachment, or with its maker, removed or not: 0 or 1.
    pub force_removal: AtomicU64,
}

/// Linux's defaults: as good as no limits.
pub static LIMITS: Limits = Limits {
    bytes: AtomicU64::new(u64::MAX - (1 << 24)),
    pages: AtomicU64::new(u64::MAX - (1 << 24)),
    segments: AtomicU64::new(4096),
    force_removal: AtomicU64::new(0),
};

impl Limits {
    fn forces_removal(&self) -> bool {
        // Relaxed, as all limits: a value of its own.
        self.force_removal.load(Ordering::Relaxed) != 0
    }
}

/// The memory of a segment, and what was committed for it.
struct Memory {
    source: Arc<dyn PageSource>,
    committed: u64,
}

impl Memory {
    /// Memory of so many bytes, with the flags of `shmget`. Here is where memory of another kind is made
    /// when the flags ask for it.
    fn new(bytes: u64, flags: u32) -> Result<Self, Errno> {
        if flags & SHM_HUGETLB != 0 {
            let size = hugetlb::named_size(flags >> SHM_HUGE_SHIFT & SHM_HUGE_MASK)?;
            let whole = bytes
                .checked_next_multiple_of(size.bytes())
                .ok_or(Errno::EINVAL)?;
            let file = hugetlb::HugeFile::new(size, whole);
            if flags & SHM_NORESERVE == 0 {
                file.promise(&(0..whole))?;
            }
            return Ok(Self {
                source: Arc::new(file),
                committed: 0,
            });
        }
        let reserve = flags & SHM_NORESERVE == 0 || knobs::overcommit_memory() == 2;
        let committed = if reserve { bytes.div_ceil(PAGE) } else { 0 };
        knobs::commit(committed)?;
        Ok(Self {
            source: SharedMemory::new(bytes),
            committed,
        })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        knobs::uncommit(self.committed);
    }
}

/// What `shmctl` tells of a segment.
#[derive(Copy, Clone, Debug)]
pub struct Status {
    /// Its number.
    pub id: i32,
    /// Whose it is. `SHM_DEST` and `SHM_LOCKED` are among the permissions.
    pub owner: Owner,
    /// Bytes, as they were asked for.
    pub bytes: u64,
    /// Process that made it, and the last one that attached or detached it.
    pub pids: [u32; 2],
    /// Attachments.
    pub attached: u64,
    /// When it was last attached, and detached, in seconds since 1970; 0: never.
    pub times: [i64; 2],
    /// Pages of it that are in memory.
    pub resident: u64,
}

/// Indices of [`Status::times`].
const ATTACHED: usize = 0;
const DETACHED: usize = 1;

struct Segment {
    memory: Memory,
    name: Arc<[u8]>,
    maker: Weak<Process>,
    /// All but what the table and the memory know.
    status: Status,
}

impl Segment {
    fn pages(&self) -> u64 {
        self.status.bytes.div_ceil(PAGE)
    }

    /// Notes an attachment or a detachment by the process that runs.
    fn note(&mut self, which: usize) {
        self.status.times[which] = seconds();
        self.status.pids[1] = pid();
    }

    /// Whether it goes now.
    fn is_done(&self) -> bool {
        let removed = self.status.owner.mode & SHM_DEST != 0;
        self.status.attached == 0 && (removed || LIMITS.forces_removal())
    }
}

struct Table {
    segments: IpcIds<Segment>,
    /// Pages of all, there or not.
    pages: u64,
}

/// Taken with an address space's lock held, never the other way round.
static TABLE: SpinLock<Table> = SpinLock::new(Table {
    segments: IpcIds::new(),
    pages: 0,
});

impl Table {
    /// Takes a segment out if it goes now: to be dropped without a lock held.
    fn take_if_done(&mut self, id: i32) -> Option<Segment> {
        self.segments.get(id).ok().filter(|s| s.is_done())?;
        self.take(id)
    }

    fn take(&mut self, id: i32) -> Option<Segment> {
        let segment = self.segments.remove(id).ok()?;
        self.pages -= segment.pages();
        Some(segment)
    }

    fn status(&self, id: i32) -> Result<Status, Errno> {
        let segment = self.segments.get(id)?;
        Ok(Status {
            resident: segment.memory.source.resident(),
            ..segment.status
        })
    }
}

/// One attachment of a segment.
struct Attached {
    id: i32,
    /// The mapping was made: its end is an event.
    is_mapped: AtomicBool,
}

impl Attached {
    /// Notes that the mapping is there.
    fn enter(&self) {
        // Relaxed: the table's lock orders it with `leave`.
        self.is_mapped.store(true, Ordering::Relaxed);
        if let Ok(segment) = TABLE.lock().segments.get_mut(self.id) {
            segment.note(ATTACHED);
        }
    }
}

impl Attachment for Attached {
    fn inherit(&self) -> Arc<dyn Attachment> {
        if let Ok(segment) = TABLE.lock().segments.get_mut(self.id) {
            segment.status.attached += 1;
            segment.note(ATTACHED);
        }
        Arc::new(Self {
            id: self.id,
            is_mapped: AtomicBool::new(true),
        })
    }

    fn leave(&self) {
        let gone = {
            let mut table = TABLE.lock();
            if let Ok(segment) = table.segments.get_mut(self.id) {
                segment.status.attached -= 1;
                if self.is_mapped.load(Ordering::Relaxed) {
                    segment.note(DETACHED);
                }
            }
            table.take_if_done(self.id)
        };
        drop(gone);
    }
}

/// `shmget(2)`: the number of the segment with this key, which is made if the flags say so.
///
/// # Errors
/// As `shmget(2)`.
pub fn get(key: i32, bytes: u64, flags: u32) -> Result<i32, Errno> {
    if key != PRIVATE
        && let Some(id) = existing(&TABLE.lock(), key, bytes, flags)?
    {
        return Ok(id);
    }
    if bytes == 0 || bytes > LIMITS.bytes.load(Ordering::Relaxed) {
        return Err(Errno::EINVAL);
    }
    let pages = bytes.div_ceil(PAGE);
    let all_pages = |table: &Table| {
        let sum = table.pages.checked_add(pages);
        let most = LIMITS.pages.load(Ordering::Relaxed);
        sum.filter(|&sum| sum <= most).ok_or(Errno::ENOSPC)
    };
    all_pages(&TABLE.lock())?;
    let memory = Memory::new(bytes, flags)?;
    let current = process::current();
    let process = current.process();
    let owner = Owner::new(key, flags);
    let name = format!("/SYSV{key:08x} (deleted)");
    let name = Arc::from(name.as_bytes());
    let most = usize::try_from(LIMITS.segments.load(Ordering::Relaxed)).unwrap_or(usize::MAX);

    let mut table = TABLE.lock();
    // Another may have been faster. Whoever was not drops its memory without the lock.
    if key != PRIVATE {
        let found = existing(&table, key, bytes, flags);
        match found {
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => {
                drop(table);
                return found.map(|id| id.unwrap_or_default());
            }
        }
    }
    let sum = all_pages(&table)?;
    let id = table.segments.insert(key, most, |id| Segment {
        memory,
        name,
        maker: Arc::downgrade(process),
        status: Status {
            id,
            owner,
            bytes,
            pids: [process.pid(), 0],
            attached: 0,
            times: [0; 2],
            resident: 0,
        },
    })?;
    table.pages = sum;
    Ok(id)
}

/// The segment with this key, if the flags are for one that exists; `None` if one is to be made.
fn existing(table: &Table, key: i32, bytes: u64, flags: u32) -> Result<Option<i32>, Errno> {
    let Some(id) = super::find(&table.segments, key, flags)? else {
        return Ok(None);
    };
    let status = &table.segments.get(id)?.status;
    if status.bytes < bytes {
        return Err(Errno::EINVAL);
    }
    status.owner.check_get(flags)?;
    Ok(Some(id))
}

/// `shmat(2)`: attaches a segment to the memory of the process that runs; `address` 0 leaves the place
/// to the kernel.
///
/// # Errors
/// As `shmat(2)`.
pub fn attach(space: &Arc<AddressSpace>, id: i32, address: u64, flags: u32) -> Result<u64, Errno> {
    let replace = flags & SHM_REMAP != 0;
    let rounded = if flags & SHM_RND != 0 {
        address / PAGE * PAGE
    } else {
        address
    };
    if !rounded.is_multiple_of(PAGE) || rounded == 0 && replace {
        return Err(Errno::EINVAL);
    }
    let mut prot = Prot::READ;
    prot.set(Prot::WRITE, flags & SHM_RDONLY == 0);
    prot.set(Prot::EXEC, flags & SHM_EXEC != 0);
    let mut map = MapFlags::empty();
    let hint = (address != 0).then_some(rounded);
    if hint.is_some() {
        map.set(MapFlags::FIXED, replace);
        map.set(MapFlags::FIXED_NOREPLACE, !replace);
    }

    let attached = Arc::new(Attached {
        id,
        is_mapped: AtomicBool::new(false),
    });
    let (source, name, bytes) = {
        let mut table = TABLE.lock();
        let segment = table.segments.get_mut(id)?;
        if hint.is_some_and(|at| !replace && at.checked_add(segment.status.bytes).is_none()) {
            return Err(Errno::EINVAL);
        }
        let executes = u32::from(prot.contains(Prot::EXEC));
        let writes = if prot.contains(Prot::WRITE) { WRITE } else { 0 };
        segment.status.owner.check(READ | writes | executes)?;
        segment.status.attached += 1;
        let source = segment.memory.source.clone();
        (source, segment.name.clone(), segment.status.bytes)
    };
    if source.as_huge().is_some() {
        // What is promised was so when the segment was made.
        map |= MapFlags::NORESERVE;
    }
    let mut file = MappedFile::new(source, name, u64::from(id.cast_unsigned()), shared::DEVICE);
    file.shmem = true;
    file.attach(attached.clone());
    let backing = Backing::File {
        file,
        offset: 0,
        shared: true,
        writable: prot.contains(Prot::WRITE),
    };
    let start = space.map(hint, bytes, prot, map, backing);
    let start = start.map_err(|error| match error {
        Errno::EEXIST => Errno::EINVAL,
        other => other,
    })?;
    attached.enter();
    Ok(start)
}

/// `shmdt(2)`: detaches what was attached at `address`.
///
/// # Errors
/// `EINVAL` if nothing was.
pub fn detach(address: u64) -> Result<(), Errno> {
    current_space().ok_or(Errno::EINVAL)?.detach(address)
}

/// What there is of a segment.
///
/// # Errors
/// `EINVAL`: none has this number.
pub fn status(id: i32) -> Result<Status, Errno> {
    TABLE.lock().status(id)
}

/// What there is of the segment in a place of the table.
///
/// # Errors
/// `EINVAL`: none is there.
pub fn status_at(place: i32) -> Result<Status, Errno> {
    let table = TABLE.lock();
    table.status(table.segments.at(place)?)
}

/// The first segment in this place of the table or behind it, and the place behind it.
pub fn next_from(place: usize) -> Option<(Status, usize)> {
    let table = TABLE.lock();
    let (id, next) = table.segments.next_from(place)?;
    Some((table.status(id).ok()?, next))
}

/// All segments together.
#[derive(Copy, Clone, Debug)]
pub struct Totals {
    /// How many there are.
    pub segments: usize,
    /// The highest place in use.
    pub highest: usize,
    /// Their pages, there or not.
    pub pages: u64,
    /// Those that are there.
    pub resident: u64,
}

/// All segments together.
pub fn totals() -> Totals {
    let table = TABLE.lock();
    let segments = &table.segments;
    let resident = |id| segments.get(id).map_or(0, |s| s.memory.source.resident());
    Totals {
        segments: segments.len(),
        highest: segments.highest(),
        pages: table.pages,
        resident: segments.ids().map(resident).sum(),
    }
}

/// `IPC_RMID`: the segment goes, at once or with its last attachment.
///
/// # Errors
/// `EINVAL`: none has this number.
pub fn remove(id: i32) -> Result<(), Errno> {
    let gone = {
        let mut table = TABLE.lock();
        let owner = &mut table.segments.get_mut(id)?.status.owner;
        owner.check_change()?;
        owner.mode |= SHM_DEST;
        owner.key = PRIVATE;
        table.segments.forget_key(id);
        table.take_if_done(id)
    };
    drop(gone);
    Ok(())
}

/// `IPC_SET`: gives a segment another owner and other permissions.
///
/// # Errors
/// `EINVAL`: none has this number, or the owner is nobody.
pub fn set(id: i32, owner: [u32; 2], permissions: u32) -> Result<(), Errno> {
    let mut table = TABLE.lock();
    let segment = table.segments.get_mut(id)?;
    segment.status.owner.check_change()?;
    let kept = segment.status.owner.mode & !0o777;
    segment.status.owner.set(owner, permissions)?;
    segment.status.owner.mode |= kept;
    Ok(())
}

/// `SHM_LOCK` and `SHM_UNLOCK`: pages are never taken away, so this is kept to be shown.
///
/// # Errors
/// `EINVAL`: none has this number.
pub fn lock(id: i32, locked: bool) -> Result<(), Errno> {
    let mut table = TABLE.lock();
    let segment = table.segments.get_mut(id)?;
    let task = process::current();
    let who = task.credentials();
    if !who.can(Capabilities::IPC_LOCK) {
        let owner = &segment.status.owner;
        let own = [owner.owner[0], owner.maker[0]].contains(&who.users.effective);
        let none = locked && task.process().limit(limits::index::MEMLOCK) == 0;
        if !own || none {
            return Err(Errno::EPERM);
        }
    }
    if segment.memory.source.as_huge().is_some() {
        // As on Linux: they stay anyway.
        return Ok(());
    }
    let mode = &mut segment.status.owner.mode;
    *mode = *mode & !SHM_LOCKED | if locked { SHM_LOCKED } else { 0 };
    Ok(())
}

/// Removes what nobody has attached and nobody will, where the limits say so: of processes that are
/// gone, and of `ends`, which is about to go.
pub fn remove_forced(ends: Option<&Process>) {
    if !LIMITS.forces_removal() {
        return;
    }
    let mut place = 0;
    // Ends with the last segment.
    while let Some((status, next)) = next_from(place) {
        place = next;
        // Not under the lock: the last reference to a process may go here.
        let maker = TABLE
            .lock()
            .segments
            .get(status.id)
            .map(|s| s.maker.clone());
        let maker = maker.ok().and_then(|maker| maker.upgrade());
        let stays = maker.is_some_and(|maker| {
            !maker.is_zombie() && !ends.is_some_and(|ends| core::ptr::eq(&raw const *maker, ends))
        });
        if !stays {
            let gone = TABLE.lock().take_if_done(status.id);
            drop(gone);
        }
    }
}

/// Returns the number that the next segment is to have, if one was asked for.
pub fn next_id() -> Option<i32> {
    TABLE.lock().segments.next_id()
}

/// Has the next segment get this number.
pub fn set_next_id(id: i32) {
    TABLE.lock().segments.set_next_id(id);
}
