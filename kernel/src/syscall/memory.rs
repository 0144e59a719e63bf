//! Memory mapping calls.
#![expect(
    clippy::cast_possible_truncation,
    reason = "addresses and `usize` have 64 bits"
)]

use super::Args;
use crate::fs::OpenFile;
use crate::fs::io::read_segments;
use crate::fs::volume::MountFlags;
use crate::process::task::limits;
use crate::process::{self, caller, pidfd};
use crate::vm::hugetlb;
use crate::vm::{AddressSpace, Advice, Backing, Lock, MapFlags, MappedFile, Prot, Remap};
use alloc::sync::Arc;
use linux_raw_sys::general as abi;
use logic::credentials::Capabilities;
use logic::credentials::others::LooksAs;
use logic::errno::{Errno, SysResult};
use machine::memory::PAGE_SIZE;
use machine::uaccess;

const PAGE: u64 = PAGE_SIZE as u64;

/// Returns the address space of the calling process. Fails with `EFAULT` if there is none.
fn space() -> Result<Arc<AddressSpace>, Errno> {
    process::current().vm().ok_or(Errno::EFAULT)
}

/// Returns the rights of `PROT_*`. Other bits are ignored, as on Linux for x86.
fn prot(bits: u32) -> Prot {
    Prot::from_bits_truncate(bits)
}

/// The flags that `MAP_SHARED_VALIDATE` accepts: Linux's `LEGACY_MAP_MASK`. It does not include
/// `MAP_SYNC`, since no file's stores are durable by themselves, or `MAP_FIXED_NOREPLACE`.
const VALIDATED: u32 = abi::MAP_TYPE
    | abi::MAP_FIXED
    | abi::MAP_ANONYMOUS
    | abi::MAP_DENYWRITE
    | abi::MAP_EXECUTABLE
    | abi::MAP_GROWSDOWN
    | abi::MAP_LOCKED
    | abi::MAP_NORESERVE
    | abi::MAP_POPULATE
    | abi::MAP_NONBLOCK
    | abi::MAP_STACK
    | abi::MAP_HUGETLB
    | abi::MAP_32BIT
    | abi::MAP_HUGE_2MB
    | abi::MAP_HUGE_1GB;

/// `mmap(2)`.
pub fn mmap(a: &Args) -> SysResult {
    let (hint, bytes, flags) = (a.addr(0), a.0[1], a.uint(3));
    let (fd, offset) = (a.int(4), a.0[5]);
    if !offset.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    let file = match flags & abi::MAP_ANONYMOUS {
        0 => Some(caller::file(fd)?),
        _ => None,
    };
    // Checked before the rights of the file.
    if bytes == 0 {
        return Err(Errno::EINVAL);
    }
    let shared = match flags & abi::MAP_TYPE {
        abi::MAP_PRIVATE => false,
        abi::MAP_SHARED => true,
        abi::MAP_SHARED_VALIDATE if file.is_none() => return Err(Errno::EINVAL),
        abi::MAP_SHARED_VALIDATE if flags & !VALIDATED != 0 => return Err(Errno::EOPNOTSUPP),
        abi::MAP_SHARED_VALIDATE => true,
        _ => return Err(Errno::EINVAL),
    };
    let huge = flags & abi::MAP_HUGETLB != 0;
    let backing = match &file {
        None if huge => anonymous_huge(bytes, flags, shared)?,
        None => anonymous(shared),
        Some(open) => file_backing(open, offset, shared, prot(a.uint(2)), huge)?,
    };
    let mut map = MapFlags::empty();
    for (bit, flag) in [
        (abi::MAP_FIXED, MapFlags::FIXED),
        (abi::MAP_FIXED_NOREPLACE, MapFlags::FIXED_NOREPLACE),
        (abi::MAP_GROWSDOWN, MapFlags::GROWSDOWN),
        (abi::MAP_POPULATE, MapFlags::POPULATE),
        (abi::MAP_NORESERVE, MapFlags::NORESERVE),
        (abi::MAP_LOCKED, MapFlags::LOCKED),
        (abi::MAP_32BIT, MapFlags::LOW),
        (abi::MAP_STACK, MapFlags::NO_HUGE_PAGES),
    ] {
        map.set(flag, flags & bit != 0);
    }
    let hint = (hint != 0 || map.contains(MapFlags::FIXED)).then_some(hint);
    if map.contains(MapFlags::LOCKED) {
        check_lock(bytes, Errno::EAGAIN)?;
    }
    let start = space()?.map(hint, bytes, prot(a.uint(2)), map, backing)?;
    Ok(start as usize)
}

fn anonymous(shared: bool) -> Backing {
    if shared {
        Backing::SharedAnonymous { writable: true }
    } else {
        Backing::Anonymous
    }
}

/// Returns the backing of anonymous memory of `bytes` bytes in huge pages of a pool. `flags` choose
/// the page size (`MAP_HUGE_SHIFT`). `shared` says whether the mapping is shared with children.
/// Fails with `EINVAL` for a size without a pool.
fn anonymous_huge(bytes: u64, flags: u32, shared: bool) -> Result<Backing, Errno> {
    let size = hugetlb::named_size(flags >> abi::MAP_HUGE_SHIFT & abi::MAP_HUGE_MASK)?;
    let whole = bytes
        .checked_next_multiple_of(size.bytes())
        .ok_or(Errno::EINVAL)?;
    Ok(Backing::File {
        file: hugetlb::anonymous(size, whole),
        offset: 0,
        shared,
        writable: true,
    })
}

fn file_backing(
    open: &Arc<OpenFile>,
    offset: u64,
    shared: bool,
    prot: Prot,
    huge: bool,
) -> Result<Backing, Errno> {
    let flags = open.flags();
    if huge
        && open
            .file()
            .page_source()
            .is_none_or(|source| source.as_huge().is_none())
    {
        return Err(Errno::EINVAL);
    }
    if !flags.readable() {
        return Err(Errno::EACCES);
    }
    if open.file().maps_zeros() {
        return Ok(match shared {
            true => Backing::SharedAnonymous {
                writable: flags.writable(),
            },
            false => Backing::Anonymous,
        });
    }
    let source = if shared {
        open.file().shared_page_source(flags.writable())
    } else {
        open.file().page_source()
    };
    let source = source.ok_or(Errno::ENODEV)?;
    let id = open.node().id();
    let mut file = MappedFile::new(source, Arc::from(open.path()), id.inode, id.device);
    file.hold = open.hold_for_mapping();
    file.writable = flags.writable();
    let mount = open.node().fs_stats().flags;
    file.executable = mount & MountFlags::NO_EXECUTION.bits() == 0;
    if prot.contains(Prot::EXEC) && !file.executable {
        return Err(Errno::EPERM);
    }
    Ok(Backing::File {
        file,
        offset,
        shared,
        writable: flags.writable() && !open.file().maps_read_only(),
    })
}

/// `mprotect(2)`.
pub fn mprotect(a: &Args) -> SysResult {
    const KNOWN: u32 =
        abi::PROT_READ | abi::PROT_WRITE | abi::PROT_EXEC | abi::PROT_SEM | abi::PROT_GROWSDOWN;
    let bits = a.uint(2);
    if bits & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    let space = space()?;
    let (mut start, mut bytes) = (a.addr(0), a.0[1]);
    if bits & abi::PROT_GROWSDOWN != 0 {
        let lower = space.growing_area_start(start)?;
        bytes = bytes.checked_add(start - lower).ok_or(Errno::ENOMEM)?;
        start = lower;
    }
    space.protect(start, bytes, prot(bits))?;
    Ok(0)
}

/// `munmap(2)`.
pub fn munmap(a: &Args) -> SysResult {
    space()?.unmap(a.addr(0), a.0[1])?;
    Ok(0)
}

/// `brk(2)`.
pub fn brk(a: &Args) -> SysResult {
    Ok(space()?.brk(a.addr(0)) as usize)
}

/// `mremap(2)`.
pub fn mremap(a: &Args) -> SysResult {
    let flags = a.uint(3);
    let known = abi::MREMAP_MAYMOVE | abi::MREMAP_FIXED | abi::MREMAP_DONTUNMAP;
    let may_move = flags & abi::MREMAP_MAYMOVE != 0;
    if flags & !known != 0 || flags != 0 && !may_move {
        return Err(Errno::EINVAL);
    }
    let to = if flags & abi::MREMAP_FIXED != 0 {
        Remap::Fixed(a.addr(4))
    } else if may_move {
        Remap::MayMove
    } else {
        Remap::InPlace
    };
    let keep = flags & abi::MREMAP_DONTUNMAP != 0;
    // As on Linux, which takes the address for a hint then.
    if keep && !a.addr(4).is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    let start = space()?.remap(a.addr(0), a.0[1], a.0[2], to, keep)?;
    Ok(start as usize)
}

/// `remap_file_pages(2)`.
pub fn remap_file_pages(a: &Args) -> SysResult {
    let (start, bytes, prot, first) = (a.addr(0), a.0[1], a.0[2], a.0[3]);
    if prot != 0 {
        return Err(Errno::EINVAL);
    }
    // As on Linux, which cuts both down to pages.
    space()?.show_from(start & !(PAGE - 1), bytes & !(PAGE - 1), first)?;
    Ok(0)
}

/// `msync(2)`. With `MS_SYNC`, writes the mapped files of volumes in the range, and all dirty pages
/// of mapped disks regardless of the range. Other files are in memory.
pub fn msync(a: &Args) -> SysResult {
    let flags = a.uint(2);
    let known = abi::MS_ASYNC | abi::MS_SYNC | abi::MS_INVALIDATE;
    let both = abi::MS_ASYNC | abi::MS_SYNC;
    if flags & !known != 0 || flags & both == both {
        return Err(Errno::EINVAL);
    }
    space()?.check_sync(a.addr(0), a.0[1], flags & abi::MS_INVALIDATE != 0)?;
    if flags & abi::MS_SYNC != 0 {
        space()?.sync_files(a.addr(0), a.0[1])?;
        crate::fs::block::sync_mapped()?;
    }
    Ok(0)
}

/// `mincore(2)`.
pub fn mincore(a: &Args) -> SysResult {
    let mut to = a.addr(2);
    space()?.residency(a.addr(0), a.0[1], |present| {
        uaccess::copy_out(to, present)?;
        to += present.len() as u64;
        Ok(())
    })?;
    Ok(0)
}

/// Returns the meaning of an `MADV_*` number, or `None` if the number is not supported.
fn advice(number: u32) -> Option<Advice> {
    Some(match number {
        abi::MADV_DONTNEED => Advice::DontNeed,
        abi::MADV_DONTNEED_LOCKED => Advice::DontNeedLocked,
        abi::MADV_FREE => Advice::Free,
        abi::MADV_REMOVE => Advice::Remove,
        abi::MADV_POPULATE_READ => Advice::PopulateRead,
        abi::MADV_POPULATE_WRITE => Advice::PopulateWrite,
        abi::MADV_DONTFORK => Advice::DontFork,
        abi::MADV_DOFORK => Advice::DoFork,
        abi::MADV_WIPEONFORK => Advice::WipeOnFork,
        abi::MADV_KEEPONFORK => Advice::KeepOnFork,
        abi::MADV_HUGEPAGE => Advice::HugePages,
        abi::MADV_NOHUGEPAGE => Advice::NoHugePages,
        abi::MADV_COLLAPSE => Advice::Collapse,
        abi::MADV_NORMAL | abi::MADV_RANDOM | abi::MADV_SEQUENTIAL | abi::MADV_WILLNEED => {
            Advice::Nothing
        }
        // As on a Linux that is built without KSM.
        abi::MADV_MERGEABLE | abi::MADV_UNMERGEABLE => return None,
        abi::MADV_DONTDUMP => Advice::DontDump,
        abi::MADV_DODUMP => Advice::DoDump,
        abi::MADV_COLD | abi::MADV_PAGEOUT => Advice::Cold,
        _ => return None,
    })
}

/// `madvise(2)`.
pub fn madvise(a: &Args) -> SysResult {
    let advice = advice(a.uint(2)).ok_or(Errno::EINVAL)?;
    space()?.advise(a.addr(0), a.0[1], advice)?;
    Ok(0)
}

/// Returns the number of bytes that the caller may lock (`RLIMIT_MEMLOCK`). There is no limit with
/// `CAP_IPC_LOCK`.
fn lock_limit() -> u64 {
    let current = process::current();
    if caller::can(Capabilities::IPC_LOCK) {
        return limits::INFINITY;
    }
    current.process().limit(limits::index::MEMLOCK)
}

/// Checks that the caller may lock memory at all. Fails with `EPERM` otherwise.
fn check_may_lock() -> Result<(), Errno> {
    if lock_limit() == 0 {
        return Err(Errno::EPERM);
    }
    Ok(())
}

/// Checks that the process may lock `bytes` more bytes. Fails with `EPERM` if it may lock none, and
/// with `beyond` if that exceeds its limit.
fn check_lock(bytes: u64, beyond: Errno) -> Result<(), Errno> {
    check_may_lock()?;
    let limit = lock_limit();
    if limit == limits::INFINITY {
        return Ok(());
    }
    let locked = space()?.usage().locked;
    let pages = bytes.div_ceil(PAGE).saturating_mul(PAGE);
    if locked.saturating_add(pages) > limit {
        return Err(beyond);
    }
    Ok(())
}

/// `mlock(2)`.
pub fn mlock(a: &Args) -> SysResult {
    check_lock((a.addr(0) % PAGE).saturating_add(a.0[1]), Errno::ENOMEM)?;
    space()?.lock_pages(a.addr(0), a.0[1], Lock::Now)?;
    Ok(0)
}

/// `munlock(2)`.
pub fn munlock(a: &Args) -> SysResult {
    space()?.lock_pages(a.addr(0), a.0[1], Lock::None)?;
    Ok(0)
}

/// `mlockall(2)`.
pub fn mlockall(a: &Args) -> SysResult {
    let flags = a.uint(0);
    let both = abi::MCL_CURRENT | abi::MCL_FUTURE;
    if flags & both == 0 || flags & !(both | abi::MCL_ONFAULT) != 0 {
        return Err(Errno::EINVAL);
    }
    let lock = |bit| match (flags & bit != 0, flags & abi::MCL_ONFAULT != 0) {
        (false, _) => Lock::None,
        (true, false) => Lock::Now,
        (true, true) => Lock::OnFault,
    };
    check_may_lock()?;
    if flags & abi::MCL_CURRENT != 0 {
        let size = space()?.usage().size;
        if size > lock_limit() {
            return Err(Errno::ENOMEM);
        }
    }
    space()?.lock_all(lock(abi::MCL_CURRENT), lock(abi::MCL_FUTURE))?;
    Ok(0)
}

/// `munlockall(2)`.
pub fn munlockall(_a: &Args) -> SysResult {
    space()?.unlock_all()?;
    Ok(0)
}

/// `mlock2(2)`.
pub fn mlock2(a: &Args) -> SysResult {
    let lock = match a.uint(2) {
        0 => Lock::Now,
        abi::MLOCK_ONFAULT => Lock::OnFault,
        _ => return Err(Errno::EINVAL),
    };
    check_lock((a.addr(0) % PAGE).saturating_add(a.0[1]), Errno::ENOMEM)?;
    space()?.lock_pages(a.addr(0), a.0[1], lock)?;
    Ok(0)
}

/// `process_madvise(2)`, for advice that does not change what a program sees. Other advice gives
/// `EINVAL`. Returns the number of bytes that were advised.
pub fn process_madvise(a: &Args) -> SysResult {
    if a.uint(4) != 0 {
        return Err(Errno::EINVAL);
    }
    let segments = read_segments(a.addr(1), a.0[2])?;
    let target = pidfd::process_of(&*caller::file(a.int(0))?)?;
    if !pidfd::is_known(&target) {
        return Err(Errno::ESRCH);
    }
    let advice = match a.uint(3) {
        number @ (abi::MADV_COLD | abi::MADV_PAGEOUT | abi::MADV_WILLNEED | abi::MADV_COLLAPSE) => {
            advice(number)
        }
        _ => None,
    };
    let advice = advice.ok_or(Errno::EINVAL)?;
    let space = caller::space_of(&target, LooksAs::OfFiles).map_err(|error| match error {
        Errno::EPERM => Errno::EACCES,
        other => other,
    })?;
    caller::need(Capabilities::SYS_NICE)?;
    let mut done = 0;
    for segment in segments {
        match space.advise(segment.address, segment.length as u64, advice) {
            Ok(()) => done += segment.length,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}
