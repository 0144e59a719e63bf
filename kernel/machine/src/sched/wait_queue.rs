//! Wait queues: threads that wait for a condition, and the calls that wake them.
//!
//! Protocol (the scheduler's half is in `logic::sched::state`). A waiter
//! 1. announces with `sched::prepare_to_block` that it is about to block;
//! 2. puts its [`Waiter`] on the queue, under the queue's lock;
//! 3. tests its condition, and leaves if it holds;
//! 4. calls `sched::block`, which returns once a wake-up has arrived since step 1, however early.
//!
//! A waker makes the condition true, then walks the queue. A waiter that it finds there tests
//! again. A waiter that is not there yet will test after step 2 and see the condition. So no
//! wake-up is lost, and a spurious one only costs a test.
//!
//! Step 1 comes first because a waker takes the waiter off the queue. Another thread may then make
//! the condition false again before step 3. Now the waiter is on no queue, and only the noted
//! wake-up keeps it from blocking for ever.

use super::owner::Owned;
use super::thread::Thread;
use crate::arch::clock::Nanos;
use crate::arch::spin::SpinLock;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::marker::{PhantomData, PhantomPinned};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use logic::errno::Errno;
use logic::list::{Linked, Links, List, Sift};

/// A signal has interrupted a wait.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Interrupted;

impl From<Interrupted> for Errno {
    /// Returns `ERESTARTSYS`, which restarts the system call. If a handler without `SA_RESTART`
    /// runs, the call fails with `EINTR` instead.
    fn from(_: Interrupted) -> Self {
        Self::ERESTARTSYS
    }
}

/// How a wait with a deadline ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// The condition holds.
    Ready,
    /// The deadline passed first.
    TimedOut,
}

/// The events that interrupt a wait before its condition holds.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Break {
    /// Any signal that the thread would act on.
    Signal,
    /// Only SIGKILL.
    Kill,
    /// Nothing.
    Never,
}

impl Break {
    fn due(self) -> bool {
        match self {
            Self::Signal => super::current().signal_pending(),
            Self::Kill => super::current().killed(),
            Self::Never => false,
        }
    }
}

/// A thread's entry in a queue.
struct Waiter {
    /// The thread. It is alive while the waiter exists: the waiter lies on its stack during a call
    /// of [`WaitQueue::wait_general`], or in a [`Poller`], which keeps the thread alive.
    thread: NonNull<Thread>,
    /// Counts against a waker's limit. Pollers do not, because they may not consume what they are
    /// woken for.
    exclusive: bool,
    /// Set by the waker that took this waiter off its queue.
    woken: AtomicBool,
    /// Guarded by the queue's lock.
    links: Links<Self>,
    _pinned: PhantomPinned,
}

// SAFETY: the thread's pointer is valid while the waiter exists, and CPUs may share threads.
unsafe impl Sync for Waiter {}

// SAFETY: always returns the same field, which only lists use.
unsafe impl Linked for Waiter {
    fn links(&self) -> &Links<Self> {
        &self.links
    }
}

impl Waiter {
    fn new(exclusive: bool) -> Self {
        Self {
            thread: super::current().as_non_null(),
            exclusive,
            woken: AtomicBool::new(false),
            links: Links::new(),
            _pinned: PhantomPinned,
        }
    }
}

/// Adds `waiter` to `list`: an exclusive one at the back, another one at the front, where a waker
/// meets it first.
///
/// # Safety
/// `waiter` is on no queue, and does not move until it has left this one.
unsafe fn push(list: &mut List<Waiter>, waiter: &Waiter) {
    // SAFETY: the caller guarantees that the waiter is on no queue and does not move until it
    // leaves this one.
    unsafe {
        if waiter.exclusive {
            list.push_back(NonNull::from(waiter));
        } else {
            list.push_front(NonNull::from(waiter));
        }
    }
}

/// A queue of threads that wait for a condition of the queue's owner.
pub struct WaitQueue {
    list: SpinLock<List<Waiter>>,
}

impl WaitQueue {
    /// Makes an empty queue.
    pub const fn new() -> Self {
        Self {
            list: SpinLock::new(List::new()),
        }
    }

    /// Blocks the current thread until `ready` returns `true`. `ready` is called at least once, and
    /// again after each wake-up. It may take locks, but must release them before it returns.
    ///
    /// # Errors
    /// [`Interrupted`] if a signal arrives first.
    pub fn wait(&self, ready: impl FnMut() -> bool + Send) -> Result<(), Interrupted> {
        self.wait_general(Break::Signal, None, ready).map(|_| ())
    }

    /// Blocks the current thread until `ready` returns `true`. Only SIGKILL interrupts the wait.
    /// `ready` is called as in [`Self::wait`].
    ///
    /// # Errors
    /// [`Interrupted`] if the thread is killed first.
    pub fn wait_killable(&self, ready: impl FnMut() -> bool + Send) -> Result<(), Interrupted> {
        self.wait_general(Break::Kill, None, ready).map(|_| ())
    }

    /// Blocks the current thread until `ready` returns `true`. Signals do not interrupt the wait.
    /// `ready` is called as in [`Self::wait`].
    pub fn wait_uninterruptible(&self, ready: impl FnMut() -> bool + Send) {
        // Nothing interrupts this wait, so the result is `Ready`.
        let _ = self.wait_general(Break::Never, None, ready);
    }

    /// Like [`Self::wait`], but waits at most until `deadline`. Returns [`WaitEnd::Ready`] if
    /// `ready` returned `true`, and [`WaitEnd::TimedOut`] if the deadline passed first.
    ///
    /// # Errors
    /// [`Interrupted`] if a signal arrives first.
    pub fn wait_deadline(
        &self,
        ready: impl FnMut() -> bool + Send,
        deadline: Nanos,
    ) -> Result<WaitEnd, Interrupted> {
        self.wait_general(Break::Signal, Some(deadline), ready)
    }

    /// Like [`Self::wait_uninterruptible`], but waits at most until `deadline`. Returns
    /// [`WaitEnd::Ready`] if `ready` returned `true`, and [`WaitEnd::TimedOut`] if the deadline
    /// passed first.
    pub fn wait_uninterruptible_deadline(
        &self,
        ready: impl FnMut() -> bool + Send,
        deadline: Nanos,
    ) -> WaitEnd {
        self.wait_general(Break::Never, Some(deadline), ready)
            .unwrap_or(WaitEnd::TimedOut)
    }

    fn wait_general(
        &self,
        breaks: Break,
        deadline: Option<Nanos>,
        mut ready: impl FnMut() -> bool + Send,
    ) -> Result<WaitEnd, Interrupted> {
        if ready() {
            return Ok(WaitEnd::Ready);
        }
        let waiter = Waiter::new(true);
        loop {
            super::prepare_to_block();
            self.enqueue(&waiter);
            let end = if ready() {
                Some(Ok(WaitEnd::Ready))
            } else if breaks.due() {
                Some(Err(Interrupted))
            } else if super::block_until(deadline) {
                // The condition may have come true together with the deadline.
                Some(Ok(if ready() {
                    WaitEnd::Ready
                } else {
                    WaitEnd::TimedOut
                }))
            } else {
                None
            };
            super::cancel_block();
            let taken = self.dequeue(&waiter);
            if let Some(end) = end {
                if taken && end != Ok(WaitEnd::Ready) {
                    // A wake-up for one waiter reached this thread, which leaves. Pass it on.
                    self.wake_one();
                }
                return end;
            }
        }
    }

    /// Wakes the longest-waiting thread, and all pollers ([`WaitSet`]). Returns whether it woke any
    /// thread or poller.
    pub fn wake_one(&self) -> bool {
        self.wake(1) != 0
    }

    /// Wakes all waiting threads and pollers. Returns their number.
    pub fn wake_all(&self) -> usize {
        self.wake(usize::MAX)
    }

    /// Wakes all pollers ([`WaitSet`]), and up to `limit` other waiting threads, the
    /// longest-waiting ones first. Returns the number of woken threads and pollers.
    pub fn wake(&self, limit: usize) -> usize {
        let (mut woken, mut counted) = (0, 0);
        self.list.lock().sift(
            |waiter| {
                if waiter.exclusive {
                    if counted == limit {
                        return Sift::Stop;
                    }
                    counted += 1;
                }
                Sift::Take
            },
            |waiter| {
                // SAFETY: a waiter is valid until its owner has taken this lock after it left the
                // queue. The thread is valid, too, because it cannot leave its wait before.
                unsafe {
                    // Relaxed: the owner reads it under this lock.
                    waiter.as_ref().woken.store(true, Ordering::Relaxed);
                    super::wake(waiter.as_ref().thread.as_ref());
                }
                woken += 1;
            },
        );
        woken
    }

    fn enqueue(&self, waiter: &Waiter) {
        let mut list = self.list.lock();
        waiter.woken.store(false, Ordering::Relaxed);
        // SAFETY: every caller dequeues the waiter before the waiter moves or is dropped.
        unsafe { push(&mut list, waiter) };
    }

    /// Puts `waiter` on the queue unless it is there already.
    fn rejoin(&self, waiter: &Waiter) {
        let mut list = self.list.lock();
        // SAFETY: the lock that guards the waiter's links is held.
        if unsafe { !list.contains(NonNull::from(waiter)) } {
            // SAFETY: every caller dequeues the waiter before the waiter moves or is dropped.
            unsafe { push(&mut list, waiter) };
        }
    }

    /// Takes `waiter` off the queue, if it is there. Returns whether a waker had taken it off
    /// already.
    fn dequeue(&self, waiter: &Waiter) -> bool {
        let mut list = self.list.lock();
        // SAFETY: the waiter is on this queue or on none.
        unsafe { list.remove(NonNull::from(waiter)) };
        waiter.woken.load(Ordering::Relaxed)
    }
}

impl Default for WaitQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for WaitQueue {
    fn drop(&mut self) {
        debug_assert!(
            self.list.get_mut().is_empty(),
            "a wait queue goes while threads wait"
        );
    }
}

impl fmt::Debug for WaitQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitQueue").finish_non_exhaustive()
    }
}

/// An entry of a [`WaitSet`].
struct Poller {
    waiter: Waiter,
    /// Keeps the thread alive, even if it ends without dropping the set.
    _thread: Owned,
}

/// The current thread's entries in several queues at once, for poll and related calls.
///
/// Fill it with [`Self::add`], then call [`Self::wait`].
pub struct WaitSet<'q> {
    places: Vec<(&'q WaitQueue, Box<Poller>)>,
    /// Entries belong to the thread that made them.
    _not_send: PhantomData<*mut ()>,
}

impl<'q> WaitSet<'q> {
    /// Makes an empty set for the current thread.
    pub const fn new() -> Self {
        Self {
            places: Vec::new(),
            _not_send: PhantomData,
        }
    }

    /// Adds the current thread to `queue` as a poller.
    ///
    /// # Errors
    /// `ENOMEM` if there is no memory.
    pub fn add(&mut self, queue: &'q WaitQueue) -> Result<(), Errno> {
        self.places.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let poller = Box::new(Poller {
            waiter: Waiter::new(false),
            _thread: super::current().hold(),
        });
        queue.enqueue(&poller.waiter);
        self.places.push((queue, poller));
        Ok(())
    }

    /// Blocks the current thread until `ready` returns `true`, or until `deadline` has passed if
    /// that is not `None`. Returns [`WaitEnd::Ready`] in the first case, and [`WaitEnd::TimedOut`]
    /// in the second. `ready` must check the conditions of all added queues.
    ///
    /// # Errors
    /// [`Interrupted`] if a signal arrives first.
    pub fn wait(
        &mut self,
        deadline: Option<Nanos>,
        mut ready: impl FnMut() -> bool + Send,
    ) -> Result<WaitEnd, Interrupted> {
        loop {
            super::prepare_to_block();
            for (queue, poller) in &self.places {
                // A waker has taken the entry off its queue: join again, then test.
                queue.rejoin(&poller.waiter);
            }
            let end = if ready() {
                Some(Ok(WaitEnd::Ready))
            } else if Break::Signal.due() {
                Some(Err(Interrupted))
            } else if super::block_until(deadline) {
                Some(Ok(if ready() {
                    WaitEnd::Ready
                } else {
                    WaitEnd::TimedOut
                }))
            } else {
                None
            };
            super::cancel_block();
            if let Some(end) = end {
                return end;
            }
        }
    }
}

impl Default for WaitSet<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for WaitSet<'_> {
    fn drop(&mut self) {
        for (queue, poller) in &self.places {
            queue.dequeue(&poller.waiter);
        }
    }
}

impl fmt::Debug for WaitSet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitSet")
            .field("places", &self.places.len())
            .finish()
    }
}
