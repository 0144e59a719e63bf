//! Handles SIGBUS, which the kernel raises if a guest's RAM file is truncated while `ebb` maps it.
//!
//! A file on a tmpfs cannot be sealed against truncation, unlike a memfd. Access to a mapping
//! behind the new end of the file raises SIGBUS. The handler maps zeroes over the whole mapping, so
//! that the access continues. The zeroes that are read then are treated like any other invalid
//! guest memory. Signals for other addresses go to the handler that was installed before.

use rustix::io::Errno;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The maximum number of mappings that are watched at a time: one of the RAM, and one for each
/// thread that reclaims memory.
const MAPPINGS: usize = 32;

/// The start and end address of each watched mapping; an end of 0 marks a free entry. The signal
/// handler reads them at any time.
static WATCHED: [[AtomicUsize; 2]; MAPPINGS] =
    [const { [const { AtomicUsize::new(0) }; 2] }; MAPPINGS];
/// Held by a thread that changes [`WATCHED`]. The value says whether the handler is installed.
static CHANGES: Mutex<bool> = Mutex::new(false);
/// The SIGBUS action that was installed before.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// The protection of one mapping from SIGBUS, which ends when this is dropped. Drop it before the
/// mapping is unmapped.
#[derive(Debug)]
pub(super) struct Watched(usize);

/// Protects the mapping of `len` bytes at the address `start` from SIGBUS until the result is
/// dropped. Installs the handler of the process at the first call. The mapping contains one file
/// only.
///
/// # Errors
/// `ENOMEM` if all 32 entries are in use, or the kernel's if the handler cannot be installed.
pub(super) fn watch(start: usize, len: usize) -> Result<Watched, Errno> {
    let mut installed = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
    if !*installed {
        install().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        *installed = true;
    }
    let is_free = |slot: &[AtomicUsize; 2]| slot[1].load(Ordering::Relaxed) == 0;
    let index = WATCHED.iter().position(is_free).ok_or(Errno::NOMEM)?;
    WATCHED[index][0].store(start, Ordering::Relaxed);
    // Release: a handler that reads the end also sees the start.
    WATCHED[index][1].store(start + len, Ordering::Release);
    Ok(Watched(index))
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
        WATCHED[self.0][1].store(0, Ordering::Release);
    }
}

/// Installs the SIGBUS handler and remembers the previous action.
fn install() -> io::Result<()> {
    // SAFETY: an all-zero sigaction is a valid value of this C structure.
    let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: with a null pointer for the new action this only reads; `previous` is a local value.
    if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut previous) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Set before the handler can run, so that the handler only ever reads it.
    let _ = PREVIOUS.set(previous);
    // SAFETY: an all-zero sigaction is a valid value of this C structure.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the handler has the signature that SA_SIGINFO requires, and calls only functions that
    // are allowed in a signal handler.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The SIGBUS handler.
extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid structure, which has an address for SIGBUS.
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

/// Maps zeroes from `start` to `end`, so that this mapping cannot fault again. Returns whether the
/// kernel did it.
fn fill(start: usize, end: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let at = std::ptr::without_provenance_mut(start);
    // SAFETY: the range is a watched mapping of guest memory, which is not unmapped because the
    // interrupted thread is accessing it. The guest may write any contents there, zeroes included.
    unsafe { libc::mmap(at, end - start, access, flags, -1, 0) != libc::MAP_FAILED }
}

/// Does what the process would have done without this handler: calls the previous handler if that
/// takes a `siginfo_t`. Otherwise sets the default action, which ends the process.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.get();
    let handler = previous.map_or(libc::SIG_DFL, |previous| previous.sa_sigaction);
    let with_info = previous.is_some_and(|previous| previous.sa_flags & libc::SA_SIGINFO != 0);
    if handler != libc::SIG_DFL && handler != libc::SIG_IGN && with_info {
        type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: the kernel accepted the address as a handler of this signature, since SA_SIGINFO
        // was set.
        let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
        handler(signal, info, context);
        return;
    }
    // The access is repeated after this and ends the process, as intended.
    //
    // SAFETY: sets the default action, which is always valid.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}
