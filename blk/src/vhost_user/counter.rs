//! Writes to a front-end's event counters, which end even if the front-end makes them block.
//!
//! Whether a write to a full counter blocks is a flag of the open file. The front-end shares that
//! file: it can clear `O_NONBLOCK` and fill the counter at any time. Linux has no write to a
//! counter that ignores the flag. So one thread of the process checks all writing threads once a
//! second. A thread that is in the same write at two checks gets a signal, which interrupts the
//! write. The front-end of that disk is cut off.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Time between two checks of all writing threads.
const INTERVAL: Duration = Duration::from_secs(1);

/// The signal that interrupts a write. Its default action is to be ignored.
const SIGNAL: libc::c_int = libc::SIGURG;

/// A thread that writes to counters.
#[derive(Debug)]
struct Writer {
    thread: libc::pid_t,
    /// Number of writes begun plus number of writes ended: odd during a write.
    steps: AtomicU64,
    /// `steps` at the last check.
    seen: AtomicU64,
}

/// The entry of a thread in [`WRITERS`], removed when the thread ends.
struct Entry(Arc<Writer>);

/// All threads that write to counters.
static WRITERS: Mutex<Vec<Arc<Writer>>> = Mutex::new(Vec::new());
/// Signalled when a thread is added to [`WRITERS`].
static ADDED: Condvar = Condvar::new();

thread_local! {
    static ENTRY: Entry = Entry::new();
    static HELD_UP: Cell<bool> = const { Cell::new(false) };
}

/// Starts a thread that interrupts writes to event counters that block, and installs the handler of
/// the signal for that (`SIGURG`). Does nothing if this was done before.
///
/// # Errors
/// Fails if the system refuses the thread or the handler. The next call then tries again.
pub fn install() -> io::Result<()> {
    static STARTED: Mutex<bool> = Mutex::new(false);
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    if *started {
        return Ok(());
    }
    // SAFETY: an all-zero sigaction is a valid value of this C structure.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = ignore as *const () as usize;
    // Without SA_RESTART, so that the interrupted write fails.
    action.sa_flags = libc::SA_ONSTACK;
    // SAFETY: the handler has the type of one without SA_SIGINFO, and does nothing.
    if unsafe { libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let builder = thread::Builder::new().name("blk counters".into());
    builder.spawn(end_writes)?;
    *started = true;
    Ok(())
}

/// The signal handler, which does nothing.
extern "C" fn ignore(_: libc::c_int) {}

/// Adds one to the event counter `file`. If the front-end makes the write block, it is interrupted
/// after one to two seconds. This thread then writes to no counter until [`take_held_up`] is
/// called. Other errors are ignored.
pub fn add_one(mut file: &File) {
    if HELD_UP.get() {
        return;
    }
    ENTRY.with(|Entry(writer)| {
        writer.step();
        let written = file.write(&1_u64.to_ne_bytes());
        writer.step();
        // A full counter that does not block wakes its reader anyway.
        if written.is_err_and(|error| error.kind() == ErrorKind::Interrupted) {
            HELD_UP.set(true);
        }
    });
}

/// Returns whether a write of this thread by [`add_one`] was interrupted since the last
/// [`take_held_up`].
pub fn is_held_up() -> bool {
    HELD_UP.get()
}

/// Returns whether a write of this thread was interrupted since the last call, and lets the thread
/// write again.
pub fn take_held_up() -> bool {
    HELD_UP.take()
}

impl Writer {
    /// Counts the beginning or the end of a write. Called by the writing thread only.
    fn step(&self) {
        // Relaxed: only this thread stores, and the value orders no other memory access.
        let steps = self.steps.load(Ordering::Relaxed);
        self.steps.store(steps.wrapping_add(1), Ordering::Relaxed);
    }

    /// Sends the signal if the thread is still in the write of the last check.
    fn look(&self) {
        // Relaxed: as in `step`. A check that misses a store is followed by another.
        let steps = self.steps.load(Ordering::Relaxed);
        if steps % 2 == 1 && steps == self.seen.swap(steps, Ordering::Relaxed) {
            // SAFETY: the system call uses no memory. The thread is in `WRITERS`, so it has not
            // ended.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.thread, SIGNAL) };
        }
    }
}

impl Entry {
    /// Adds the calling thread to [`WRITERS`] and unblocks the signal for it.
    fn new() -> Self {
        // SAFETY: an all-zero value is valid for this C structure, and sigemptyset sets it anyway.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the pointers refer to the local `set`. Only this thread's mask changes.
        unsafe {
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, SIGNAL);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        }
        let writer = Arc::new(Writer {
            // SAFETY: the system call uses no memory and cannot fail.
            thread: unsafe { libc::gettid() },
            steps: AtomicU64::new(0),
            seen: AtomicU64::new(0),
        });
        writers().push(writer.clone());
        ADDED.notify_one();
        Self(writer)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        writers().retain(|writer| !Arc::ptr_eq(writer, &self.0));
    }
}

/// Locks the list of writing threads.
fn writers() -> MutexGuard<'static, Vec<Arc<Writer>>> {
    // No code that holds the lock can panic halfway through a change.
    WRITERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks all writing threads at intervals, for ever. Sleeps while there are none.
fn end_writes() {
    loop {
        let guard = ADDED.wait_while(writers(), |writers| writers.is_empty());
        let guard = guard.unwrap_or_else(PoisonError::into_inner);
        guard.iter().for_each(|writer| writer.look());
        drop(guard);
        thread::sleep(INTERVAL);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::sync::mpsc;

    #[test]
    fn a_write_that_blocks_is_ended_and_no_other_is_begun() {
        install().unwrap();
        let counter = || File::from(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let (full, empty) = (counter(), counter());
        rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        let (sender, ended) = mpsc::channel();
        thread::spawn(move || {
            add_one(&empty);
            let before = is_held_up();
            add_one(&full);
            // These writes would block, too.
            (0..100).for_each(|_| add_one(&full));
            let after = (take_held_up(), is_held_up());
            sender.send((before, after)).unwrap();
        });
        // The limit only ends the test if it hangs.
        let ended = ended.recv_timeout(Duration::from_secs(120)).unwrap();
        assert_eq!(ended, (false, (true, false)));
    }
}
