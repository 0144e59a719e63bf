//! Timers: one queue a CPU, and the CPU's one-shot timer set to the earliest.
//!
//! A timer is on the queue of the CPU that set it. Expiry runs in the timer interrupt, which comes
//! on top of user code, of the idle loop, or where kernel code serves interrupts: no lock of this CPU is held then.

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

/// Something that timers belong to.
pub trait TimerTarget: Send + Sync {
    /// A timer ran out; `token` says which. Runs in interrupt context: it must not block. The timer
    /// may have been set anew or dropped meanwhile.
    fn expired(&self, token: u64, now: Nanos);
}

enum Action {
    /// Wakes a thread, which waits in [`Sleeper::wait`] and so is alive.
    Wake(NonNull<Thread>),
    /// Calls its owner, if that still exists.
    Call(Weak<dyn TimerTarget>, u64),
}

struct Node {
    links: Links<Node>,
    action: Action,
    /// On whose queue it is or was last.
    cpu: AtomicUsize,
    fired: AtomicBool,
    _pinned: PhantomPinned,
}

// SAFETY: always the same field, which the heap alone uses.
unsafe impl Linked for Node {
    fn links(&self) -> &Links<Self> {
        &self.links
    }
}

// SAFETY: the thread pointer is used under the queue's lock alone, while its owner waits.
unsafe impl Send for Node {}
// SAFETY: as above.
unsafe impl Sync for Node {}

struct Queue {
    timers: SpinLock<Heap<Node>>,
    /// What this CPU's hardware timer is set to, `u64::MAX`: nothing. Its CPU's own.
    armed_ns: AtomicU64,
}

static QUEUES: [Queue; MAX_CPUS] = [const {
    Queue {
        timers: SpinLock::new(Heap::new()),
        armed_ns: AtomicU64::new(u64::MAX),
    }
}; MAX_CPUS];

/// Sees to it that this CPU's timer fires at `deadline` or before. An early fire is harmless: the
/// handler sets it anew.
pub fn ensure_armed(deadline: Nanos) {
    let armed = &QUEUES[cpu_id()].armed_ns;
    if deadline.0 < armed.load(Ordering::Relaxed) {
        armed.store(deadline.0, Ordering::Relaxed);
        arch::timer::arm(Some(deadline));
    }
}

/// The interrupt: runs what is due. The caller then arms the timer again with [`rearm`].
pub fn run_expired(now: Nanos) {
    let queue = &QUEUES[cpu_id()];
    queue.armed_ns.store(u64::MAX, Ordering::Relaxed);
    // Ends: each turn takes a timer out, and those set meanwhile are later than `now`, or bounded
    // by what their owners do.
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
            // SAFETY: the thread waits in `Sleeper::wait`, which cannot end before it took this lock.
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

/// Sets this CPU's timer to the earliest of its timers and `other`.
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

/// # Safety
/// The node stays where it is until [`cancel`]; it is on no queue.
unsafe fn insert(node: &Node, deadline: Nanos) {
    let cpu = cpu_id();
    let mut timers = QUEUES[cpu].timers.lock();
    node.fired.store(false, Ordering::Relaxed);
    // Relaxed: read by the owner, who calls this too.
    node.cpu.store(cpu, Ordering::Relaxed);
    // SAFETY: by the contract, and the lock is held.
    unsafe { timers.push(NonNull::from(node), deadline.0) };
    drop(timers);
    ensure_armed(deadline);
}

/// Takes the node off its queue, if it is on one; afterwards nobody knows it.
fn cancel(node: &Node) {
    let mut timers = QUEUES[node.cpu.load(Ordering::Relaxed)].timers.lock();
    // SAFETY: it is on this queue or on none.
    unsafe { timers.remove(NonNull::from(node)) };
}

/// Runs `block` with a timer that wakes the current thread at `deadline`; says whether the deadline
/// has passed, or is another one since the wall clock was set.
pub fn with_wake_at(deadline: Nanos, block: impl FnOnce()) -> bool {
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
    // SAFETY: the node is on this stack frame, which lasts until after `cancel`.
    unsafe { insert(&node, deadline) };
    block();
    cancel(&node);
    node.fired.load(Ordering::Acquire) || clock::now() >= deadline || wall.is_stale(deadline)
}

/// A timer that calls its owner.
pub struct KernelTimer {
    /// Boxed: queued nodes must not move.
    node: Box<Node>,
    setting: SpinLock<()>,
}

impl KernelTimer {
    /// A timer that is not set; `token` tells the owner's timers apart.
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

    /// Sets it to expire at `deadline`, or not at all; what was set before is forgotten. An expiry
    /// that has begun may still arrive.
    pub fn set(&self, deadline: Option<Nanos>) {
        let _setting = self.setting.lock();
        cancel(&self.node);
        if let Some(deadline) = deadline {
            // SAFETY: the node is boxed, and taken out when the timer is dropped; it was just
            // taken out, and `setting` keeps others from putting it in.
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
