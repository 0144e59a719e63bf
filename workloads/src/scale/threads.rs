//! Part `threads`: threads that are alive.

use super::call::{checked, raise_limit};
use super::{BEFORE, Figures, Part, TIMES};
use crate::Failure;
use crate::clock::{monotonic_ns, ratio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

/// The part `threads` of the experiment `scale`: its numbers of objects and its function.
pub(super) const PART: Part = Part {
    name: "threads",
    counts: "threads",
    usual: [100, 6_400],
    most: 20_000,
    run,
};

/// Stack size in bytes of a thread that only waits.
const STACK_BYTES: usize = 32 << 10;

/// A futex word, 0 or 1. Threads can wait on it while it is 0.
pub(super) struct Word(AtomicU32);

impl Word {
    /// Returns a futex word that is 0.
    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Waits until a thread wakes the waiters of this word. Returns at once if the word is not 0,
    /// and also if a signal interrupts the wait. Fails with `System` if the call fails otherwise.
    pub(super) fn wait(&self) -> Result<(), Failure> {
        // SAFETY: the word is valid, and without a timeout the call reads no other memory.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                0_u32,
                std::ptr::null::<libc::timespec>(),
            )
        };
        match checked("futex wait", answer) {
            Err(Failure::System { source, .. })
                if matches!(source.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) =>
            {
                Ok(())
            }
            other => other.map(drop),
        }
    }

    /// Wakes up to `most` waiters of this word and returns how many it woke. Fails with `System` if
    /// the call fails.
    pub(super) fn wake(&self, most: i32) -> Result<i64, Failure> {
        // SAFETY: the word is valid, and the call accesses no other memory.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                most,
            )
        };
        checked("futex wake", answer)
    }

    /// Sets the word to 1 and wakes all its waiters. Later calls of `wait` return at once. Fails
    /// with `System` if the call fails.
    pub(super) fn open(&self) -> Result<(), Failure> {
        self.0.store(1, Ordering::Release);
        self.wake(i32::MAX).map(drop)
    }

    /// Returns whether the word is set.
    fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }
}

/// A set of threads, each with its outcome. Dropping it leaves them running.
pub(super) struct Threads(Vec<JoinHandle<Result<(), Failure>>>);

impl Threads {
    /// Returns a set without threads.
    pub(super) fn none() -> Self {
        Self(Vec::new())
    }

    /// Starts a thread with a small stack that runs `work`, and adds it to the set. Fails with
    /// `System` if the thread cannot be started.
    pub(super) fn start(
        &mut self,
        work: impl FnOnce() -> Result<(), Failure> + Send + 'static,
    ) -> Result<(), Failure> {
        let thread = std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(work)
            .map_err(Failure::system("start a thread"))?;
        self.0.push(thread);
        Ok(())
    }

    /// Waits for the end of the thread that was started last.
    fn join_last(&mut self) -> Result<(), Failure> {
        match self.0.pop().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(outcome)) => outcome,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        }
    }

    /// Waits for the threads of the set, the last one first. Fails with the first failure that it
    /// meets; it then does not wait for the others. Passes the panic of a thread on.
    pub(super) fn join(mut self) -> Result<(), Failure> {
        while !self.0.is_empty() {
            self.join_last()?;
        }
        Ok(())
    }
}

/// Yields to other threads until `counter` is at least `number`. Does not return if it never is.
pub(super) fn until(counter: &AtomicU32, number: u64) {
    while u64::from(counter.load(Ordering::Acquire)) < number {
        std::thread::yield_now();
    }
}

static STAY: Word = Word::new();
static HERE: AtomicU32 = AtomicU32::new(0);

fn run(number: u64) -> Result<Figures, Failure> {
    raise_limit(libc::RLIMIT_NPROC, number + 1_000)?;
    STAY.0.store(0, Ordering::Relaxed);
    HERE.store(0, Ordering::Relaxed);
    let mut threads = Threads::none();
    let stay = || {
        HERE.fetch_add(1, Ordering::Release);
        while !STAY.is_open() {
            STAY.wait()?;
        }
        Ok(())
    };
    for _ in 0..number {
        threads.start(stay)?;
    }
    until(&HERE, number);
    let begin = monotonic_ns();
    for _ in 0..TIMES {
        threads.start(stay)?;
    }
    until(&HERE, number + TIMES);
    let kept = monotonic_ns() - begin;
    // Threads that end at once. The library reuses their stack.
    let mut ended = 0;
    for index in 0..BEFORE + TIMES {
        let begin = monotonic_ns();
        threads.start(|| Ok(()))?;
        threads.join_last()?;
        if index >= BEFORE {
            ended += monotonic_ns() - begin;
        }
    }
    STAY.open()?;
    threads.join()?;
    Ok(vec![
        ("pthread_create_ns", ratio(kept, TIMES)),
        ("pthread_create_and_join_ns", ratio(ended, TIMES)),
    ])
}
