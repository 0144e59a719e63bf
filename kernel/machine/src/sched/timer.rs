//! Timers: one queue for each CPU, whose one-shot timer is set to the earliest.
//!
//! A timer is on the queue of the CPU that set it. Expiry runs in the timer interrupt. That
//! interrupts user code or the idle loop, or runs where kernel code serves interrupts. So no lock
//! of this CPU is held then.

use super::thread::Thread;
use crate::arch::clock::{self, Nanos};
use crate::arch::spin::SpinLock;
use crate::arch::{self, MAX_CPUS, cpu_id};
use alloc::boxed::Box;
use alloc::sync::Weak;
use core::fmt;
use core::marker::PhantomPinned;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use logic::heap::{Heap, Linked, Links};

/// An object that owns timers.
pub trait TimerTarget: Send + Sync {
    /// Handles the expiry of the timer that was made with `token`, at `now`. Runs in interrupt
    /// context, so it must not block. The timer may have been set again or dropped in between.
    fn expired(&self, token: u64, now: Nanos);
}

/// What the expiry of a timer does.
enum Action {
    /// Wakes a thread, which waits in [`with_wake_at`] and so is alive.
    Wake(NonNull<Thread>),
    /// Calls the owner, if that still exists.
    Call(Weak<dyn TimerTarget>, u64),
}

/// A timer: its place in the queue of a CPU, and the action at its expiry.
struct Node {
    links: Links<Node>,
    action: Action,
    /// The CPU whose queue the node is on, or was on last.
    cpu: AtomicUsize,
    fired: AtomicBool,
    _pinned: PhantomPinned,
}

// SAFETY: always returns the same field, which only the heap uses.
unsafe impl Linked for Node {
    fn links(&self) -> &Links<Self> {
        &self.links
    }
}

// SAFETY: the thread pointer is used only under the queue's lock, while the thread waits.
unsafe impl Send for Node {}
// SAFETY: the thread pointer is used only under the queue's lock, while the thread waits.
unsafe impl Sync for Node {}

/// The timers that a CPU has set, and the state of its hardware timer.
struct Queue {
    timers: SpinLock<Heap<Node>>,
    /// The time in nanoseconds to which the CPU's hardware timer is set; `u64::MAX` if it is not.
    /// Only that CPU uses it.
    armed_ns: AtomicU64,
}

static QUEUES: [Queue; MAX_CPUS] = [const {
    Queue {
        timers: SpinLock::new(Heap::new()),
        armed_ns: AtomicU64::new(u64::MAX),
    }
}; MAX_CPUS];

/// Makes this CPU's hardware timer fire at `deadline` or before. An early interrupt is harmless,
/// because its handler sets the timer again.
pub fn ensure_armed(deadline: Nanos) {
    let armed = &QUEUES[cpu_id()].armed_ns;
    if deadline.0 < armed.load(Ordering::Relaxed) {
        armed.store(deadline.0, Ordering::Relaxed);
        arch::timer::arm(Some(deadline));
    }
}

/// Runs the timers in this CPU's queue whose deadline is not after `now`: wakes their threads, or
/// calls their owners. The timer interrupt calls this, and then sets the hardware timer with
/// [`rearm`].
pub fn run_expired(now: Nanos) {
    let queue = &QUEUES[cpu_id()];
    queue.armed_ns.store(u64::MAX, Ordering::Relaxed);
    // Ends: each turn takes a timer out. Timers set in the meantime are later than `now`, or
    // bounded by their owners.
    loop {
        let mut timers = queue.timers.lock();
        if timers.least().is_none_or(|least| least > now.0) {
            return;
        }
        let Some(node) = timers.pop() else { return };
        // SAFETY: a queued node is valid until its owner has taken it out under this lock.
        let node = unsafe { node.as_ref() };
        node.fired.store(true, Ordering::Release);
        match &node.action {
            // SAFETY: the thread waits in `with_wake_at`, which cannot end before it has taken this
            // lock.
            Action::Wake(thread) => super::wake(unsafe { thread.as_ref() }),
            Action::Call(target, token) => {
                let (target, token) = (target.clone(), *token);
                drop(timers);
                if let Some(target) = target.upgrade() {
                    target.expired(token, now);
                }
            }
        }
    }
}

/// Sets this CPU's hardware timer to the earliest of the timers in its queue and `other`. Does
/// nothing if there are no timers and `other` is `None`. Called after [`run_expired`].
pub fn rearm(other: Option<Nanos>) {
    let queue = &QUEUES[cpu_id()];
    let least = queue.timers.lock().least().map(Nanos);
    let deadline = match (least, other) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    if let Some(deadline) = deadline {
        ensure_armed(deadline);
    }
}

/// Adds `node` to this CPU's queue, to expire at `deadline`, and makes the hardware timer fire at
/// that time or before.
///
/// # Safety
/// `node` does not move until [`cancel`], and is on no queue.
unsafe fn insert(node: &Node, deadline: Nanos) {
    let cpu = cpu_id();
    let mut timers = QUEUES[cpu].timers.lock();
    node.fired.store(false, Ordering::Relaxed);
    // Relaxed: only the owner reads it, which also calls this.
    node.cpu.store(cpu, Ordering::Relaxed);
    // SAFETY: the caller guarantees that the node does not move and is on no queue. The lock is
    // held.
    unsafe { timers.push(NonNull::from(node), deadline.0) };
    drop(timers);
    ensure_armed(deadline);
}

/// Takes `node` off its queue, if it is on one. The queue has no reference to it afterwards.
fn cancel(node: &Node) {
    let mut timers = QUEUES[node.cpu.load(Ordering::Relaxed)].timers.lock();
    // SAFETY: the node is on this queue or on none.
    unsafe { timers.remove(NonNull::from(node)) };
}

/// Calls `block` while a timer is set that wakes the current thread at `deadline`. Returns `true`
/// if the deadline has passed, or has changed because the wall clock was set. If either is true at
/// the start, returns without calling `block`. Returns `false` otherwise.
pub(super) fn with_wake_at(deadline: Nanos, block: impl FnOnce()) -> bool {
    let wall = &super::current().wall;
    if clock::now() >= deadline || wall.is_stale(deadline) {
        return true;
    }
    let node = Node {
        links: Links::new(),
        action: Action::Wake(super::current().as_non_null()),
        cpu: AtomicUsize::new(cpu_id()),
        fired: AtomicBool::new(false),
        _pinned: PhantomPinned,
    };
    // SAFETY: the node lies on this stack frame, which lasts until after `cancel`.
    unsafe { insert(&node, deadline) };
    block();
    cancel(&node);
    node.fired.load(Ordering::Acquire) || clock::now() >= deadline || wall.is_stale(deadline)
}

/// A timer that calls the object that owns it. Dropping the timer cancels it.
pub struct KernelTimer {
    /// Boxed, because queued nodes must not move.
    node: Box<Node>,
    setting: SpinLock<()>,
}

impl KernelTimer {
    /// Makes a timer that is not set. Its expiry calls [`TimerTarget::expired`] of `target` with
    /// `token`, if `target` still exists.
    pub fn new(target: Weak<dyn TimerTarget>, token: u64) -> Self {
        let node = Node {
            links: Links::new(),
            action: Action::Call(target, token),
            cpu: AtomicUsize::new(0),
            fired: AtomicBool::new(false),
            _pinned: PhantomPinned,
        };
        Self {
            node: Box::new(node),
            setting: SpinLock::new(()),
        }
    }

    /// Sets the timer to expire at `deadline`, in place of the earlier deadline. `None` cancels the
    /// timer. An expiry that has begun may still call the owner.
    pub fn set(&self, deadline: Option<Nanos>) {
        let _setting = self.setting.lock();
        cancel(&self.node);
        if let Some(deadline) = deadline {
            // SAFETY: the node is boxed, and taken out when the timer is dropped. It was just taken
            // out, and the lock `setting` keeps other callers from inserting it.
            unsafe { insert(&self.node, deadline) };
        }
    }
}

impl Drop for KernelTimer {
    fn drop(&mut self) {
        cancel(&self.node);
    }
}

impl fmt::Debug for KernelTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelTimer").finish_non_exhaustive()
    }
}
