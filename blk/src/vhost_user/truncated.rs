//! Handles guest memory whose file is made shorter while it is mapped.
//!
//! The front-end owns the files of guest memory. If it truncates one, an access to the mapping
//! behind the new end raises SIGBUS, which by default ends the process and all its disks. Here only
//! the disk concerned loses its front-end. A handler maps zeroed pages over the mapping, so that
//! the interrupted access continues, and sets a flag. The disk's thread then cuts the front-end off
//! before it waits again. The kernel's own accesses (reads and writes of the image in place) raise
//! no signal. They fail, and the engine sets the flag.
//!
//! A disk is one thread, and only this thread accesses its guest's memory. So the handler uses only
//! data of the thread that it interrupts. It shares nothing, allocates nothing and takes no lock.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{Ordering, compiler_fence};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Maximum number of mappings that are watched for one disk: 8 regions of guest memory, the
/// in-flight log and the log of written pages.
pub const MAX_MAPPINGS: usize = 10;

/// A range of addresses: the first, and the one behind the last.
type Span = (usize, usize);

thread_local! {
    // They have no destructor and no lazy initialisation, because a signal handler may read them at
    // any time.
    static WATCHED: [Cell<Span>; MAX_MAPPINGS] = const { [const { Cell::new((0, 0)) }; MAX_MAPPINGS] };
    static LOST: Cell<bool> = const { Cell::new(false) };
}

/// The action for SIGBUS before [`install`].
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Installs the handler for SIGBUS at the first call, and does nothing at later ones. Signals for
/// addresses that are not watched go to the handler installed before, or end the process.
///
/// # Errors
/// Fails if `sigaction` fails.
pub fn install() -> io::Result<()> {
    // Held until the handler is installed, so that each caller returns with the handler in place.
    static INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if *installed {
        return Ok(());
    }
    // SAFETY: an all-zero sigaction is a valid value of this C structure.
    let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the call only reads the action, into the local `previous`.
    if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut previous) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Stored before the handler can run, which only reads it.
    let _ = PREVIOUS.set(previous);
    // SAFETY: an all-zero sigaction is a valid value of this C structure.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the handler has the type that SA_SIGINFO requires, and makes only async-signal-safe
    // calls.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    *installed = true;
    Ok(())
}

/// Replaces the list of mappings that the handler watches for the calling thread. Each is given by
/// its address and its number of bytes. Returns `false` if there are more than [`MAX_MAPPINGS`];
/// the first ones are then watched.
pub fn watch(mappings: impl IntoIterator<Item = (*mut u8, usize)>) -> bool {
    let mut mappings = mappings.into_iter();
    WATCHED.with(|watched| {
        for cell in watched {
            let next = mappings.next();
            cell.set(next.map_or((0, 0), |(start, bytes)| {
                (start as usize, start as usize + bytes)
            }));
        }
    });
    // The handler runs on this thread, so only the compiler could reorder accesses.
    compiler_fence(Ordering::SeqCst);
    mappings.next().is_none()
}

/// Returns whether memory that the calling thread watches was found to be truncated since the last
/// [`take_lost`]. Such memory reads as zeros.
pub fn is_lost() -> bool {
    compiler_fence(Ordering::SeqCst);
    LOST.get()
}

/// Sets the flag of [`is_lost`] for the calling thread, because the kernel found memory of a
/// request not mapped. The kernel reports this by an error, not by the signal.
pub fn lost_to_kernel() {
    LOST.set(true);
}

/// Returns whether memory that the calling thread watches was found to be truncated since the last
/// call, and resets this.
pub fn take_lost() -> bool {
    compiler_fence(Ordering::SeqCst);
    LOST.replace(false)
}

/// The signal handler: replaces the watched mapping that holds the address, or passes the signal
/// on.
extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid structure, which for SIGBUS holds an
    // address.
    let address = unsafe { (*info).si_addr() } as usize;
    let inside = |cell: &Cell<Span>| {
        let (start, end) = cell.get();
        (start..end).contains(&address).then_some((start, end))
    };
    let found = WATCHED.with(|watched| watched.iter().find_map(inside));
    let Some((start, end)) = found else {
        return pass_on(signal, info, context);
    };
    if !fill(start, end) {
        leave_behind();
    }
    LOST.set(true);
}

/// Stops a disk's thread for ever. If the handler returned, the access would be repeated and end
/// the process with all other disks.
fn leave_behind() -> ! {
    const WORDS: &[u8] =
        b"ebb blk: a disk is lost: memory that its front-end cut cannot be replaced\n";
    // SAFETY: the system call only reads the constant.
    unsafe { libc::write(libc::STDERR_FILENO, WORDS.as_ptr().cast(), WORDS.len()) };
    loop {
        // SAFETY: the call has no descriptors, no timeout and no signal mask, so it uses no memory.
        unsafe { libc::ppoll(std::ptr::null_mut(), 0, std::ptr::null(), std::ptr::null()) };
    }
}

/// Maps zeroed pages over a whole mapping, so that it cannot fault again. Returns `false` if the
/// kernel refuses.
fn fill(start: usize, end: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let at = std::ptr::without_provenance_mut(start);
    // SAFETY: the span is a mapping of guest memory that this thread registered and has not
    // unmapped. Its contents may change at any time, so also to zeroes. mmap is async-signal-safe.
    unsafe { libc::mmap(at, end - start, access, flags, -1, 0) != libc::MAP_FAILED }
}

/// Handles a signal as if this module had no handler: by the previous handler, or by ending the
/// process.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.get();
    let handler = previous.map_or(libc::SIG_DFL, |previous| previous.sa_sigaction);
    if let Some(previous) = previous
        && handler != libc::SIG_DFL
        && handler != libc::SIG_IGN
    {
        if previous.sa_flags & libc::SA_SIGINFO != 0 {
            type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            // SAFETY: the kernel accepted the address as such a function, because SA_SIGINFO was
            // set.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
            handler(signal, info, context);
        } else {
            // SAFETY: the kernel accepted the address as such a function, because SA_SIGINFO was
            // not set.
            let handler =
                unsafe { std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(handler) };
            handler(signal);
        }
        return;
    }
    // The access is repeated after this and ends the process.
    // SAFETY: the default action is always valid.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory};

    #[test]
    fn memory_that_was_cut_reads_as_zero_and_is_told_of() {
        install().unwrap();
        let file = std::fs::File::from(memfd_create("cut", MemfdFlags::CLOEXEC).unwrap());
        ftruncate(&file, 8192).unwrap();
        let cut = file.try_clone().unwrap();
        let map = MmapRegion::<()>::from_file(FileOffset::new(file, 0), 8192).unwrap();
        assert!(watch([(map.as_ptr(), 8192)]));
        let slice = map.as_volatile_slice();
        slice.store(7_u8, 5000, Ordering::Relaxed).unwrap();
        assert!(!take_lost());
        ftruncate(&cut, 4096).unwrap();
        assert_eq!(slice.load::<u8>(5000, Ordering::Relaxed).unwrap(), 0);
        assert!(take_lost());
        slice.store(1_u8, 5001, Ordering::Relaxed).unwrap();
        assert!(!take_lost(), "once is enough");
        assert!(watch([]));
    }

    #[test]
    fn memory_that_cannot_be_replaced_costs_its_thread_and_not_the_process() {
        install().unwrap();
        let (sender, touches) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let file = std::fs::File::from(memfd_create("cut", MemfdFlags::CLOEXEC).unwrap());
            ftruncate(&file, 8192).unwrap();
            let cut = file.try_clone().unwrap();
            let map = MmapRegion::<()>::from_file(FileOffset::new(file, 0), 8192).unwrap();
            // The address is not at the start of a page, so nothing can be mapped there.
            assert!(watch([(map.as_ptr().wrapping_add(1), 8191)]));
            ftruncate(&cut, 4096).unwrap();
            sender.send(rustix::thread::gettid()).unwrap();
            let slice = map.as_volatile_slice();
            let _ = slice.load::<u8>(5000, Ordering::Relaxed);
            panic!("it goes on with memory that is not there");
        });
        let thread = touches.recv().unwrap().as_raw_nonzero();
        let waits = || {
            let call = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall"));
            let number = call.as_ref().ok().and_then(|call| call.split(' ').next());
            let number = number.map(str::parse);
            assert!(number.is_some(), "{call:?}");
            number == Some(Ok(libc::SYS_ppoll))
        };
        while !waits() {
            std::thread::yield_now();
        }
        assert!(touches.try_recv().is_err());
    }

    #[test]
    fn more_mappings_than_can_be_watched_are_told_of() {
        let one = (std::ptr::null_mut(), 0);
        assert!(watch(std::iter::repeat_n(one, MAX_MAPPINGS)));
        assert!(!watch(std::iter::repeat_n(one, MAX_MAPPINGS + 1)));
        watch([]);
    }
}
