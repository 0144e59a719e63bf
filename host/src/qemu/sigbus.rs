//! Keeps `ebb` alive where the file of a guest's RAM is cut while it is mapped here.
//!
//! A file on a tmpfs cannot be sealed against that, as a memfd is. Access to a mapping behind the new
//! end of its file raises SIGBUS. The handler puts zeroes over the whole mapping, so that the access
//! goes on: what it reads then is not a guest, and is treated as such. Signals for other addresses go
//! to the handler that was there before.

use rustix::io::Errno;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Mappings of guests' RAM at a time: one, and one for each thread that is taking memory.
const MAPPINGS: usize = 32;

/// The first address of each mapping and the one behind it; 0 and 0 where there is none. The handler
/// reads them at any time.
static WATCHED: [[AtomicUsize; 2]; MAPPINGS] =
    [const { [const { AtomicUsize::new(0) }; 2] }; MAPPINGS];
/// Held by the thread that changes [`WATCHED`]. Whether the handler is installed.
static CHANGES: Mutex<bool> = Mutex::new(false);
/// What was done about the signal before.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// A mapping that is watched until this is dropped, which must be before it is unmapped.
#[derive(Debug)]
pub(super) struct Watched(usize);

/// Watches the mapping of `len` bytes at `start`, which holds a file alone.
///
/// # Errors
/// `ENOMEM` if too many are watched, or the kernel's for the handler.
pub(super) fn watch(start: usize, len: usize) -> Result<Watched, Errno> {
    let mut installed = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
    if !*installed {
        install().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        *installed = true;
    }
    let is_free = |slot: &[AtomicUsize; 2]| slot[1].load(Ordering::Relaxed) == 0;
    let index = WATCHED.iter().position(is_free).ok_or(Errno::NOMEM)?;
    WATCHED[index][0].store(start, Ordering::Relaxed);
    // Release: a handler that sees the end sees the start.
    WATCHED[index][1].store(start + len, Ordering::Release);
    Ok(Watched(index))
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
        WATCHED[self.0][1].store(0, Ordering::Release);
    }
}

fn install() -> io::Result<()> {
    // SAFETY: an all-zero sigaction is a valid value of this C structure.
    let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only asks; the pointer is to a value of our own.
    if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut previous) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Set before the handler can run, so that it only ever reads it.
    let _ = PREVIOUS.set(previous);
    // SAFETY: as for `previous`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the handler is a function of the kind that SA_SIGINFO asks for, and does only what is
    // allowed in one.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid structure; SIGBUS has an address in it.
    let address = unsafe { (*info).si_addr() } as usize;
    for slot in &WATCHED {
        let end = slot[1].load(Ordering::Acquire);
        let start = slot[0].load(Ordering::Relaxed);
        if (start..end).contains(&address) && fill(start, end) {
            return;
        }
    }
    pass_on(signal, info, context);
}

/// Puts zeroes over a whole mapping, so that it cannot fault again. Returns whether it could.
fn fill(start: usize, end: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let at = std::ptr::without_provenance_mut(start);
    // SAFETY: the span is a mapping of guest memory that is watched, so it is not unmapped yet: the
    // thread that was interrupted is accessing it. The guest may write any contents there, zeroes too.
    unsafe { libc::mmap(at, end - start, access, flags, -1, 0) != libc::MAP_FAILED }
}

/// Does what would have been done without this handler.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.get();
    let handler = previous.map_or(libc::SIG_DFL, |previous| previous.sa_sigaction);
    let with_info = previous.is_some_and(|previous| previous.sa_flags & libc::SA_SIGINFO != 0);
    if handler != libc::SIG_DFL && handler != libc::SIG_IGN && with_info {
        type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: the kernel accepted it as such a function.
        let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
        handler(signal, info, context);
        return;
    }
    // The access is made again after this and ends the process, as it should.
    // SAFETY: sets the default, which is always valid.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}
