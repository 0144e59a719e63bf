//! Guest memory whose file is cut while it is mapped.
//!
//! Guest memory is files of the front-end's. If it makes one shorter, whoever touches the mapping
//! behind the new end gets SIGBUS, which by default ends the process and with it all disks. Here
//! only the disk whose memory it was loses its front-end: a handler puts pages of zeroes over the
//! mapping, so that whatever was going on goes on without effect, and notes it for the disk's
//! thread, which cuts that front-end off before it waits for anything again. The kernel's own accesses
//! (reads and writes of the image in place) do not raise the signal; they fail, and are noted, too.
//!
//! A disk is a thread, and only this thread touches its guest's memory. So what the handler looks
//! at belongs to the thread that was interrupted: nothing in it is shared, nothing allocates,
//! nothing locks.

use std::cell::Cell;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};

/// Mappings that a disk can have at a time: 8 regions of guest memory, the in-flight area, and the
/// log of written pages.
pub const MAX_MAPPINGS: usize = 10;

/// Addresses from the first up to the second.
type Span = (usize, usize);

thread_local! {
    // Without destructor or lazy initialisation: a signal handler may read them at any time.
    static WATCHED: [Cell<Span>; MAX_MAPPINGS] = const { [const { Cell::new((0, 0)) }; MAX_MAPPINGS] };
    static LOST: Cell<bool> = const { Cell::new(false) };
}

/// What was done about the signal before.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Takes care of the signal in this process, once. Signals that have nothing to do with guest
/// memory go to whoever took care of them before.
///
/// # Errors
/// What `sigaction` says.
pub fn install() -> io::Result<()> {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    // AcqRel: whoever finds it set may rely on what came before; there is nothing before it.
    if INSTALLED.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    // SAFETY: an all-zero sigaction is a valid value of this C structure.
    let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only asks; the pointer is to a value of our own.
    if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut previous) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Set before the handler can run, so that it only ever reads it.
    let _ = PREVIOUS.set(previous);
    // SAFETY: as above.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the handler is a function of the kind that SA_SIGINFO asks for and does only what
    // is allowed in one.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Replaces what is watched on this thread. Says whether all of it could be: there may be
/// [`MAX_MAPPINGS`].
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
    // The handler runs on this thread: all that could go wrong is the compiler's order.
    compiler_fence(Ordering::SeqCst);
    mappings.next().is_none()
}

/// Whether [`take_lost`] would say so.
pub fn is_lost() -> bool {
    compiler_fence(Ordering::SeqCst);
    LOST.get()
}

/// The kernel came for memory that is watched on this thread and did not find it: it says so by an
/// error, not by the signal.
pub fn lost_to_kernel() {
    LOST.set(true);
}

/// Whether memory watched on this thread was gone since the last time this was asked.
pub fn take_lost() -> bool {
    compiler_fence(Ordering::SeqCst);
    LOST.replace(false)
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid structure; SIGBUS has an address in it.
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

/// Keeps a disk's thread here for ever. The access would be made again after a return, and end the
/// process with all other disks.
fn leave_behind() -> ! {
    const WORDS: &[u8] =
        b"ebb blk: a disk is lost: memory that its front-end cut cannot be replaced\n";
    // SAFETY: a bare system call; the bytes are a constant.
    unsafe { libc::write(libc::STDERR_FILENO, WORDS.as_ptr().cast(), WORDS.len()) };
    loop {
        // SAFETY: a bare system call, with no descriptors and no time to wait for.
        unsafe { libc::ppoll(std::ptr::null_mut(), 0, std::ptr::null(), std::ptr::null()) };
    }
}

/// Puts zeroes over a whole mapping, so that it cannot fault again.
fn fill(start: usize, end: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let at = std::ptr::without_provenance_mut(start);
    // SAFETY: the span is a mapping of guest memory that this thread registered and has not
    // unmapped yet; any contents may be in it, zeroes too. mmap is a bare system call.
    unsafe { libc::mmap(at, end - start, access, flags, -1, 0) != libc::MAP_FAILED }
}

/// Does what would have been done without us.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.get();
    let handler = previous.map_or(libc::SIG_DFL, |previous| previous.sa_sigaction);
    if let Some(previous) = previous
        && handler != libc::SIG_DFL
        && handler != libc::SIG_IGN
    {
        if previous.sa_flags & libc::SA_SIGINFO != 0 {
            type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            // SAFETY: the kernel accepted it as such a function.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
            handler(signal, info, context);
        } else {
            // SAFETY: the kernel accepted it as such a function.
            let handler =
                unsafe { std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(handler) };
            handler(signal);
        }
        return;
    }
    // The access is made again after this and ends the process, as it should.
    // SAFETY: sets the default, which is always valid.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

#[cfg(all(test, not(loom)))]
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
            // No page begins there, so nothing can be mapped there.
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
