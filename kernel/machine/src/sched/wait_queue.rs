//! Wait queues: threads that wait for a condition, and the calls that wake them.
//!
//! Protocol (the scheduler's half is in `logic::sched::state`). A waiter
//! 1. announces with `sched::prepare_to_block` that it is about to block;
//! 2. puts its [`Waiter`] on the queue, under the queue's lock;
//! 3. tests its condition, and leaves if it holds;
//! 4. calls `sched::block`, which returns when it was woken since step 1, however early that was.
//!
//! A waker makes the condition true, then walks the queue. Whoever it finds there re-tests; whoever
//! is not there yet will test after step 2 and see the condition. So no wake-up is lost, and a
//! spurious one only costs a test.
//!
//! Step 1 comes first because a waker takes the waiter off the queue: if another thread then makes
//! the condition false again before step 3, only the noted wake-up keeps the waiter, who is on no
//! queue any more, from blocking for ever.

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

/// A wait was broken off by a signal.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Interrupted;

impl From<Interrupted> for Errno {
    /// `ERESTARTSYS`: the call starts again, or gives `EINTR` when a handler without `SA_RESTART`
    /// runs.
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

/// What breaks a wait off before its condition holds.
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

/// One thread's place in one queue.
struct Waiter {
    /// The thread, alive while the waiter exists: it lives on the thread's own stack or in its heap.
    thread: NonNull<Thread>,
    /// Counts against a waker's limit. Pollers do not: they may not take what they are woken for.
    exclusive: bool,
    /// Set by the waker that took this waiter off its queue.
    woken: AtomicBool,
    /// Guarded by the queue's lock.
    links: Links<Self>,
    _pinned: PhantomPinned,
}

// SAFETY: the thread's pointer is valid while the waiter exists, and threads are shared between CPUs.
unsafe impl Sync for Waiter {}

// SAFETY: always the same field, which lists alone use.
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

/// Exclusive waiters go to the back, the others to the front: a waker meets these first.
///
/// # Safety
/// `waiter` is on no queue, and stays where it is until it has left this one.
unsafe fn push(list: &mut List<Waiter>, waiter: &Waiter) {
    // SAFETY: by the contract.
    unsafe {
        if waiter.exclusive {
            list.push_back(NonNull::from(waiter));
        } else {
            list.push_front(NonNull::from(waiter));
        }
    }
}

/// A queue of threads that wait for something that belongs to the queue's owner.
pub struct WaitQueue {
    list: SpinLock<List<Waiter>>,
}

impl WaitQueue {
    /// An empty queue.
    pub const fn new() -> Self {
        Self {
            list: SpinLock::new(List::new()),
        }
    }

    /// Waits until `ready` gives true; a signal breaks the wait off. `ready` is called at least
    /// once, and may take locks but not keep them.
    pub fn wait(&self, ready: impl FnMut() -> bool) -> Result<(), Interrupted> {
        self.wait_general(Break::Signal, None, ready).map(|_| ())
    }

    /// Like [`Self::wait`], but only SIGKILL breaks it off.
    pub fn wait_killable(&self, ready: impl FnMut() -> bool) -> Result<(), Interrupted> {
        self.wait_general(Break::Kill, None, ready).map(|_| ())
    }

    /// Waits until `ready` gives true, whatever signals come.
    pub fn wait_uninterruptible(&self, ready: impl FnMut() -> bool) {
        // Nothing breaks this wait off, so the result says Ready.
        let _ = self.wait_general(Break::Never, None, ready);
    }

    /// Like [`Self::wait`], at most until `deadline`.
    pub fn wait_deadline(
        &self,
        ready: impl FnMut() -> bool,
        deadline: Nanos,
    ) -> Result<WaitEnd, Interrupted> {
        self.wait_general(Break::Signal, Some(deadline), ready)
    }

    /// Like [`Self::wait_uninterruptible`], at most until `deadline`.
    pub fn wait_uninterruptible_deadline(
        &self,
        ready: impl FnMut() -> bool,
        deadline: Nanos,
    ) -> WaitEnd {
        self.wait_general(Break::Never, Some(deadline), ready)
            .unwrap_or(WaitEnd::TimedOut)
    }

    fn wait_general(
        &self,
        breaks: Break,
        deadline: Option<Nanos>,
        mut ready: impl FnMut() -> bool,
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
                    // A wake-up meant for one waiter came to us, who leave: hand it on.
                    self.wake_one();
                }
                return end;
            }
        }
    }

    /// Wakes the thread that waits longest, and all pollers; says whether anybody waited.
    pub fn wake_one(&self) -> bool {
        self.wake(1) != 0
    }

    /// Wakes all waiting threads; says how many.
    pub fn wake_all(&self) -> usize {
        self.wake(usize::MAX)
    }

    /// Wakes all pollers and up to `limit` waiting threads, those that wait longest first; says how
    /// many.
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
                // SAFETY: a waiter is valid until its owner took this lock after it left the queue. So is the thread: it
                // cannot leave its wait before.
                unsafe {
                    // Relaxed: read by the owner under this lock.
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
        // SAFETY: every caller dequeues the waiter before it moves or goes.
        unsafe { push(&mut list, waiter) };
    }

    /// Puts the waiter on the queue unless it is there.
    fn rejoin(&self, waiter: &Waiter) {
        let mut list = self.list.lock();
        // SAFETY: the lock that guards the waiter's links is held.
        if unsafe { !list.contains(NonNull::from(waiter)) } {
            // SAFETY: every caller dequeues the waiter before it moves or goes.
            unsafe { push(&mut list, waiter) };
        }
    }

    /// Takes the waiter off the queue; says whether a waker had done so already.
    fn dequeue(&self, waiter: &Waiter) -> bool {
        let mut list = self.list.lock();
        // SAFETY: it is on this queue or on none.
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

/// The current thread's places in several queues at once, for poll and its kin.
///
/// Fill it with [`Self::add`], then call [`Self::wait`].
pub struct WaitSet<'q> {
    places: Vec<(&'q WaitQueue, Box<Waiter>)>,
    /// Places belong to the thread that made them.
    _not_send: PhantomData<*mut ()>,
}

impl<'q> WaitSet<'q> {
    /// An empty set for the current thread.
    pub const fn new() -> Self {
        Self {
            places: Vec::new(),
            _not_send: PhantomData,
        }
    }

    /// Joins `queue`.
    pub fn add(&mut self, queue: &'q WaitQueue) -> Result<(), Errno> {
        self.places.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let waiter = Box::new(Waiter::new(false));
        queue.enqueue(&waiter);
        self.places.push((queue, waiter));
        Ok(())
    }

    /// Waits until `ready` gives true, at most until `deadline`; a signal breaks it off. `ready`
    /// must look at everything whose queue was added.
    pub fn wait(
        &mut self,
        deadline: Option<Nanos>,
        mut ready: impl FnMut() -> bool,
    ) -> Result<WaitEnd, Interrupted> {
        loop {
            super::prepare_to_block();
            for (queue, waiter) in &self.places {
                // Whoever woke us took us off its queue: join again, then test.
                queue.rejoin(waiter);
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
        for (queue, waiter) in &self.places {
            queue.dequeue(waiter);
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
