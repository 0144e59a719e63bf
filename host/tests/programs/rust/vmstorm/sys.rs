//! The system calls of the storm, with their numbers on x86-64.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::sync::atomic::AtomicU32;

pub const PAGE: u64 = 4096;
/// Words of eight bytes in a page.
pub const PAGE_WORDS: usize = 512;
/// A page of zeroes.
pub static ZEROES: [u64; PAGE_WORDS] = [0; PAGE_WORDS];

pub const PROT_NONE: c_int = 0;
pub const PROT_READ: c_int = 1;
pub const PROT_BOTH: c_int = 3;

pub const MAP_SHARED: c_int = 1;
pub const MAP_PRIVATE: c_int = 2;
pub const MAP_FIXED: c_int = 0x10;
pub const MAP_ANONYMOUS: c_int = 0x20;
pub const MAP_GROWSDOWN: c_int = 0x100;
pub const MAP_NORESERVE: c_int = 0x4000;
pub const MAP_POPULATE: c_int = 0x8000;
pub const MAP_FIXED_NOREPLACE: c_int = 0x10_0000;

pub const MREMAP_MAYMOVE: c_int = 1;
pub const MREMAP_FIXED: c_int = 2;
pub const MREMAP_DONTUNMAP: c_int = 4;

pub const MADV_DONTNEED: c_int = 4;
pub const MADV_REMOVE: c_int = 9;
pub const MADV_HUGEPAGE: c_int = 14;
pub const MADV_POPULATE_WRITE: c_int = 23;

pub const MS_ASYNC: c_int = 1;
pub const MS_SYNC: c_int = 4;

pub const FALLOC_KEEP_SIZE: c_int = 1;
pub const FALLOC_PUNCH_HOLE: c_int = 2;
pub const FALLOC_ZERO_RANGE: c_int = 16;

pub const O_RDWR: c_int = 2;
pub const O_CREAT: c_int = 0o100;
pub const O_DIRECT: c_int = 0o40000;
pub const SEEK_END: c_int = 2;
pub const WNOHANG: c_int = 1;

pub const EAGAIN: i32 = 11;
pub const ENOMEM: i32 = 12;
pub const EFAULT: i32 = 14;
pub const EEXIST: i32 = 17;
pub const EINVAL: i32 = 22;
pub const EOPNOTSUPP: i32 = 95;

const SYS_BRK: c_long = 12;
const SYS_FUTEX: c_long = 202;
const SYS_PROCESS_VM_READV: c_long = 310;
const FUTEX_WAIT: c_int = 0;
const FUTEX_WAKE: c_int = 1;
/// The longest sleep in nanoseconds. The sleeper checks for failures in between.
const SLEEP_NS: u64 = 100_000_000;

unsafe extern "C" {
    fn mmap(at: u64, bytes: u64, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> u64;
    fn munmap(at: u64, bytes: u64) -> c_int;
    fn mremap(at: u64, old: u64, new: u64, flags: c_int, ...) -> u64;
    fn mprotect(at: u64, bytes: u64, prot: c_int) -> c_int;
    fn madvise(at: u64, bytes: u64, advice: c_int) -> c_int;
    fn msync(at: u64, bytes: u64, flags: c_int) -> c_int;
    fn mincore(at: u64, bytes: u64, out: *mut u8) -> c_int;
    fn memfd_create(name: *const c_char, flags: u32) -> c_int;
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn unlink(path: *const c_char) -> c_int;
    fn lseek(fd: c_int, offset: i64, whence: c_int) -> i64;
    fn ftruncate(fd: c_int, bytes: i64) -> c_int;
    fn fallocate(fd: c_int, mode: c_int, offset: i64, bytes: i64) -> c_int;
    fn pread(fd: c_int, to: u64, bytes: usize, offset: i64) -> isize;
    fn pwrite(fd: c_int, from: u64, bytes: usize, offset: i64) -> isize;
    fn fsync(fd: c_int) -> c_int;
    #[link_name = "fork"]
    fn libc_fork() -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, flags: c_int) -> c_int;
    #[link_name = "kill"]
    fn libc_kill(pid: c_int, signal: c_int) -> c_int;
    #[link_name = "_exit"]
    fn libc_exit(status: c_int) -> !;
    fn write(fd: c_int, from: *const c_void, bytes: usize) -> isize;
    fn syscall(number: c_long, ...) -> c_long;
    #[link_name = "sched_yield"]
    fn libc_yield() -> c_int;
}

/// A value, or the error number.
pub type Outcome<T = ()> = Result<T, i32>;

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn outcome(result: i64) -> Outcome<u64> {
    u64::try_from(result).map_err(|_| errno())
}

fn done(result: c_int) -> Outcome {
    outcome(result.into()).map(drop)
}

fn address(result: u64) -> Outcome<u64> {
    if result == u64::MAX {
        Err(errno())
    } else {
        Ok(result)
    }
}

// SAFETY (all below): the storm changes only mappings that it has made itself, at addresses that
// the standard library does not know. No Rust reference points into them. The kernel checks
// descriptors, lengths and addresses.

pub fn map(at: u64, bytes: u64, prot: c_int, flags: c_int, fd: c_int, offset: u64) -> Outcome<u64> {
    address(unsafe { mmap(at, bytes, prot, flags, fd, offset as i64) })
}

pub fn unmap(at: u64, bytes: u64) -> Outcome {
    done(unsafe { munmap(at, bytes) })
}

/// Calls mremap(2). `to` is used with `MREMAP_FIXED`.
pub fn remap(at: u64, old: u64, new: u64, flags: c_int, to: u64) -> Outcome<u64> {
    address(unsafe { mremap(at, old, new, flags, to) })
}

pub fn protect(at: u64, bytes: u64, prot: c_int) -> Outcome {
    done(unsafe { mprotect(at, bytes, prot) })
}

pub fn advise(at: u64, bytes: u64, advice: c_int) -> Outcome {
    done(unsafe { madvise(at, bytes, advice) })
}

pub fn sync_map(at: u64, bytes: u64, flags: c_int) -> Outcome {
    done(unsafe { msync(at, bytes, flags) })
}

/// Calls mincore(2). `out` has a byte for each page.
pub fn in_core(at: u64, out: &mut [u8]) -> Outcome {
    done(unsafe { mincore(at, out.len() as u64 * PAGE, out.as_mut_ptr()) })
}

pub fn memfd(name: &CStr) -> Outcome<c_int> {
    let fd = unsafe { memfd_create(name.as_ptr(), 0) };
    done(fd).map(|()| fd)
}

pub fn open_file(path: &CStr, flags: c_int) -> Outcome<c_int> {
    let fd = unsafe { open(path.as_ptr(), flags, 0o600 as c_int) };
    done(fd).map(|()| fd)
}

pub fn unlink_file(path: &CStr) -> Outcome {
    done(unsafe { unlink(path.as_ptr()) })
}

pub fn size(fd: c_int) -> Outcome<u64> {
    outcome(unsafe { lseek(fd, 0, SEEK_END) })
}

pub fn truncate(fd: c_int, bytes: u64) -> Outcome {
    done(unsafe { ftruncate(fd, bytes as i64) })
}

pub fn allocate(fd: c_int, mode: c_int, offset: u64, bytes: u64) -> Outcome {
    done(unsafe { fallocate(fd, mode, offset as i64, bytes as i64) })
}

pub fn read_at(fd: c_int, to: u64, bytes: u64, offset: u64) -> Outcome<u64> {
    outcome(unsafe { pread(fd, to, bytes as usize, offset as i64) } as i64)
}

pub fn write_at(fd: c_int, from: u64, bytes: u64, offset: u64) -> Outcome<u64> {
    outcome(unsafe { pwrite(fd, from, bytes as usize, offset as i64) } as i64)
}

pub fn sync_file(fd: c_int) -> Outcome {
    done(unsafe { fsync(fd) })
}

/// Forks. The child has only this thread, so it must not wait for anything that other threads hold.
pub fn fork() -> Outcome<c_int> {
    let pid = unsafe { libc_fork() };
    done(pid).map(|()| pid)
}

/// Returns the status of an ended child. Returns `None` if it still runs and `flags` is `WNOHANG`.
pub fn wait(pid: c_int, flags: c_int) -> Outcome<Option<c_int>> {
    let mut status = 0;
    let found = unsafe { waitpid(pid, &mut status, flags) };
    done(found).map(|()| (found != 0).then_some(status))
}

pub fn kill(pid: c_int) {
    // The child may have ended.
    let _ = unsafe { libc_kill(pid, 9) };
}

/// Ends the process without running exit handlers.
pub fn exit(status: c_int) -> ! {
    unsafe { libc_exit(status) }
}

/// Writes to standard error with one call. It may be used in a forked child and in a signal
/// handler.
pub fn say(text: &str) {
    let _ = unsafe { write(2, text.as_ptr().cast(), text.len()) };
}

/// Sets the end of the heap and returns it. Returns the current end for 0.
pub fn brk(end: u64) -> u64 {
    // This is the kernel's call, because libc keeps its own record of the heap's end.
    unsafe { syscall(SYS_BRK, end) as u64 }
}

/// Reads memory of a process. Returns the number of bytes.
pub fn read_process(pid: c_int, from: u64, to: u64, bytes: u64) -> Outcome<u64> {
    let local = [to, bytes];
    let remote = [from, bytes];
    outcome(unsafe {
        syscall(
            SYS_PROCESS_VM_READV,
            pid as c_long,
            local.as_ptr(),
            1_u64,
            remote.as_ptr(),
            1_u64,
            0_u64,
        )
    })
}

/// Sleeps for a while if `word`, which processes share, has the value `value`.
pub fn sleep_while(word: &AtomicU32, value: u32) {
    let timeout = [0, SLEEP_NS];
    unsafe {
        syscall(
            SYS_FUTEX,
            word.as_ptr(),
            FUTEX_WAIT,
            value,
            timeout.as_ptr(),
        )
    };
}

/// Wakes all threads that sleep on `word`.
pub fn wake_all(word: &AtomicU32) {
    unsafe { syscall(SYS_FUTEX, word.as_ptr(), FUTEX_WAKE, i32::MAX) };
}

pub fn yield_now() {
    unsafe { libc_yield() };
}
