//! System V shared memory: segments that processes find by number or key and attach to their
//! memory.
//!
//! A segment lasts until it is removed and the last process has detached it. Each attachment is a
//! mapping that notifies the segment of its end ([`Attachment`]), whether by `shmdt`, `munmap`,
//! exec or exit. A segment's owner and mode decide which tasks may use it.

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
/// The bit in a segment's mode that says that the segment is destroyed with its last attachment.
const SHM_DEST: u32 = 0o1000;
/// The bit in a segment's mode that says that the program has locked the pages (`SHM_LOCK`). It has
/// no effect, since pages always stay in memory.
const SHM_LOCKED: u32 = 0o2000;

/// The limits on System V shared memory that `/proc/sys/kernel/shm*` shows.
#[derive(Debug)]
pub struct Limits {
    /// The most bytes of a segment (`shmmax`).
    pub bytes: AtomicU64,
    /// The most pages of all segments together (`shmall`).
    pub pages: AtomicU64,
    /// The most segments (`shmmni`).
    pub segments: AtomicU64,
    /// `shm_rmid_forced`, 0 or 1. If 1, a segment is also destroyed without `IPC_RMID`: with its
    /// last attachment, or with its creator if no process has attached it.
    pub force_removal: AtomicU64,
}

/// The limits on System V shared memory in force. They start as Linux's defaults, which are
/// practically no limits.
pub static LIMITS: Limits = Limits {
    bytes: AtomicU64::new(u64::MAX - (1 << 24)),
    pages: AtomicU64::new(u64::MAX - (1 << 24)),
    segments: AtomicU64::new(4096),
    force_removal: AtomicU64::new(0),
};

impl Limits {
    fn forces_removal(&self) -> bool {
        // Relaxed, as for all limits: no other data depends on them.
        self.force_removal.load(Ordering::Relaxed) != 0
    }
}

/// The memory of a segment, and the number of pages committed for it.
struct Memory {
    source: Arc<dyn PageSource>,
    committed: u64,
}

impl Memory {
    /// Makes memory of `bytes` bytes with the flags of `shmget`. Flags that ask for another kind of
    /// memory are handled here. Fails with `ENOMEM` if the pages cannot be reserved or committed,
    /// and with `EINVAL` for a size without a pool.
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

/// The status of a segment of System V shared memory, for `shmctl(2)`.
#[derive(Copy, Clone, Debug)]
pub struct Status {
    /// The segment's number.
    pub id: i32,
    /// The owner. `mode` also holds `SHM_DEST` and `SHM_LOCKED`.
    pub owner: Owner,
    /// The size in bytes that `shmget` asked for.
    pub bytes: u64,
    /// The process that created the segment, and the one that last attached or detached it.
    pub pids: [u32; 2],
    /// The number of attachments.
    pub attached: u64,
    /// The times of the last attachment and detachment, in seconds since 1970; 0 if there was none.
    pub times: [i64; 2],
    /// The number of the segment's pages that are in memory.
    pub resident: u64,
}

/// Indices of [`Status::times`].
const ATTACHED: usize = 0;
const DETACHED: usize = 1;

struct Segment {
    memory: Memory,
    name: Arc<[u8]>,
    maker: Weak<Process>,
    /// The status without the fields that the memory knows.
    status: Status,
}

impl Segment {
    fn pages(&self) -> u64 {
        self.status.bytes.div_ceil(PAGE)
    }

    /// Notes an attachment or a detachment (`which`) by the current process.
    fn note(&mut self, which: usize) {
        self.status.times[which] = seconds();
        self.status.pids[1] = pid();
    }

    /// Returns whether the segment must be destroyed now.
    fn is_done(&self) -> bool {
        let removed = self.status.owner.mode & SHM_DEST != 0;
        self.status.attached == 0 && (removed || LIMITS.forces_removal())
    }
}

struct Table {
    segments: IpcIds<Segment>,
    /// Pages in all segments, in memory or not.
    pages: u64,
}

/// Taken with an address space's lock held, never the other way round.
static TABLE: SpinLock<Table> = SpinLock::new(Table {
    segments: IpcIds::new(),
    pages: 0,
});

impl Table {
    /// Takes the segment `id` out of the table if it must be destroyed now, and otherwise returns
    /// `None`. The caller drops it without a lock held.
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
    /// Whether the mapping exists, so that its end counts as a detachment.
    is_mapped: AtomicBool,
}

impl Attached {
    /// Notes that the mapping exists.
    fn enter(&self) {
        // Relaxed: the table's lock orders it before the load in `leave`.
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

/// Returns the number of the segment of shared memory with the key `key` (`shmget(2)`). Creates the
/// segment with `bytes` bytes if `flags` say so, or if `key` is `IPC_PRIVATE`.
///
/// # Errors
/// Fails with `EINVAL` if `bytes` is above the size of the segment or, for a new segment, is 0 or
/// above the limit. Fails with `ENOENT` if there is no such segment, with `EEXIST` if `flags`
/// demand a new one, and with `EACCES` if the calling task lacks a right in `flags`. Fails with
/// `ENOSPC` at the limit on pages or segments, and with `ENOMEM`. Huge pages have further errors.
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
    // Another task may have created it in between. The loser drops its memory without the lock.
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

/// Returns the number of the segment with the key `key` after a check of its size and of the rights
/// in `flags`. Returns `None` if a `get` call with `flags` must create the segment. Fails with
/// `ENOENT`, `EEXIST`, `EINVAL` and `EACCES` as `shmget(2)` does.
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

/// Maps the segment `id` in `space`, the address space of the current process (`shmat(2)`). Returns
/// the address of the mapping. With `address` 0 the kernel chooses the address. `flags` are the
/// `SHM_*` flags of `shmat`.
///
/// # Errors
/// Fails with `EINVAL` if no segment has this number, or if the address is unaligned or in use.
/// Fails with `EACCES` if the calling task lacks a right, and with `ENOMEM`.
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
        // Pages that need a reservation were reserved when the segment was made.
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

/// Unmaps the segment that is attached at `address` in the address space of the current process
/// (`shmdt(2)`).
///
/// # Errors
/// Fails with `EINVAL` if no segment is attached there.
pub fn detach(address: u64) -> Result<(), Errno> {
    current_space().ok_or(Errno::EINVAL)?.detach(address)
}

/// Returns the status of the segment with the number `id`. Checks no permissions.
///
/// # Errors
/// Fails with `EINVAL` if no segment has this number.
pub fn status(id: i32) -> Result<Status, Errno> {
    TABLE.lock().status(id)
}

/// Returns the status of the segment at the index `place` of the table. Checks no permissions.
///
/// # Errors
/// Fails with `EINVAL` if no segment is there.
pub fn status_at(place: i32) -> Result<Status, Errno> {
    let table = TABLE.lock();
    table.status(table.segments.at(place)?)
}

/// Returns the status of the first segment at or behind the index `place` of the table, and the
/// index behind that segment. Returns `None` if there is no such segment.
pub fn next_from(place: usize) -> Option<(Status, usize)> {
    let table = TABLE.lock();
    let (id, next) = table.segments.next_from(place)?;
    Some((table.status(id).ok()?, next))
}

/// Figures for all segments of System V shared memory together.
#[derive(Copy, Clone, Debug)]
pub struct Totals {
    /// The number of segments.
    pub segments: usize,
    /// The highest index of the table that is in use; 0 without segments.
    pub highest: usize,
    /// The pages of all segments, in memory or not.
    pub pages: u64,
    /// The pages of all segments that are in memory.
    pub resident: u64,
}

/// Returns the figures for all segments of System V shared memory together.
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

/// Removes the segment `id` (`IPC_RMID`). It is destroyed at once if no process has attached it,
/// else with its last attachment.
///
/// # Errors
/// Fails with `EINVAL` if no segment has this number, and with `EPERM` if the calling task may not
/// remove the segment.
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

/// Gives the segment `id` the owner `owner` (user and group) and the permission bits `permissions`
/// (`IPC_SET`).
///
/// # Errors
/// Fails with `EINVAL` if no segment has this number, or if an ID of `owner` is -1. Fails with
/// `EPERM` if the calling task may not change the segment.
pub fn set(id: i32, owner: [u32; 2], permissions: u32) -> Result<(), Errno> {
    let mut table = TABLE.lock();
    let segment = table.segments.get_mut(id)?;
    segment.status.owner.check_change()?;
    let kept = segment.status.owner.mode & !0o777;
    segment.status.owner.set(owner, permissions)?;
    segment.status.owner.mode |= kept;
    Ok(())
}

/// Marks the segment `id` as locked in memory if `locked`, else removes the mark (`SHM_LOCK`,
/// `SHM_UNLOCK`). The mark is only shown, because pages are never evicted. A segment of huge pages
/// never gets it, as on Linux.
///
/// # Errors
/// Fails with `EINVAL` if no segment has this number. Fails with `EPERM` if the calling task has no
/// `CAP_IPC_LOCK` and does not own the segment, or locks it with an `RLIMIT_MEMLOCK` of 0.
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
        // As on Linux: huge pages stay in memory anyway.
        return Ok(());
    }
    let mode = &mut segment.status.owner.mode;
    *mode = *mode & !SHM_LOCKED | if locked { SHM_LOCKED } else { 0 };
    Ok(())
}

/// If `kernel.shm_rmid_forced` is set, destroys the segments that no process has attached and whose
/// creator is gone. The process in `ends` is about to end and counts as gone.
pub fn remove_forced(ends: Option<&Process>) {
    if !LIMITS.forces_removal() {
        return;
    }
    let mut place = 0;
    // Ends after the last segment.
    while let Some((status, next)) = next_from(place) {
        place = next;
        // The reference is dropped without the lock, because it may be the last one to the process.
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

/// Returns the number that was requested for the next segment (`kernel.shm_next_id`), or `None`.
pub fn next_id() -> Option<i32> {
    TABLE.lock().segments.next_id()
}

/// Requests `id` as the number of the next segment (`kernel.shm_next_id`).
pub fn set_next_id(id: i32) {
    TABLE.lock().segments.set_next_id(id);
}
