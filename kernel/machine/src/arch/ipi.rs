//! Interrupts between CPUs: requests to check the run queue, and TLB flushes that are answered.
//!
//! A CPU writes its request to its own post, sets its bit in the mailbox of each CPU that must
//! serve it, and interrupts those CPUs. They take the bits, serve the posts and clear their own
//! bits there. A waiting CPU keeps serving its own mailbox, so two CPUs that wait for each other
//! both continue. If the host says that a CPU does not run, and promises to flush its TLB before it
//! runs again, no CPU waits for it (`steal`).

use super::clock::{self, Nanos};
use super::cpu;
use super::cpuset::{CpuSet, Cpus, MAX_CPUS};
use super::{apic, cpu_id, interrupt, percpu, spin, steal};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What other CPUs must flush from their TLBs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FlushRequest {
    /// All entries that are not global: those of user memory.
    All,
    /// The entries of `pages` pages of 4 KiB from `start` on.
    Range {
        /// The first address.
        start: u64,
        /// The number of pages. If there are many, a CPU may flush all entries that are not global
        /// instead.
        pages: u64,
    },
    /// All entries, also those of kernel memory.
    Kernel,
    /// No entries. The answer only acts as a memory barrier (membarrier).
    Barrier,
}

/// The most pages that are flushed one by one. For more, a flush of everything costs less.
const MAX_SINGLE_PAGES: u64 = 32;
/// The time that an answer takes if the other CPU runs.
pub(super) const SPIN_TIME: Nanos = Nanos::from_micros(50);
/// The number of polls between two readings of the clock.
const POLLS_PER_LOOK: u32 = 16;
/// The time after which a CPU that has not answered is considered dead.
const ANSWER_TIMEOUT: Nanos = Nanos::from_secs(60);

/// The request that a CPU has posted for other CPUs, and the answers that it still waits for.
#[repr(align(64))]
struct Post {
    request: UnsafeCell<FlushRequest>,
    /// The CPUs that have not answered `request` yet, one bit each.
    waiting: AtomicU64,
    /// Whether the CPU that owns the post has halted to wait for the answers. The last CPU to
    /// answer then wakes it.
    halted: AtomicBool,
}

// SAFETY: the owner writes the request while `waiting` has no bit; others read it before they clear
// their bit.
unsafe impl Sync for Post {}

static POSTS: [Post; MAX_CPUS] = [const {
    Post {
        request: UnsafeCell::new(FlushRequest::Barrier),
        waiting: AtomicU64::new(0),
        halted: AtomicBool::new(false),
    }
}; MAX_CPUS];

/// The set of CPUs whose posts the owner of this mailbox must serve.
#[repr(align(64))]
struct Mailbox(AtomicU64);

static MAILBOXES: [Mailbox; MAX_CPUS] = [const { Mailbox(AtomicU64::new(0)) }; MAX_CPUS];

/// Whether a CPU has been requested to check its run queue and has not begun to.
#[repr(align(64))]
struct Asked(AtomicBool);

static ASKED: [Asked; MAX_CPUS] = [const { Asked(AtomicBool::new(false)) }; MAX_CPUS];

/// Makes CPU `cpu` check its run queue, by an interrupt that calls
/// [`Entries::resched`](super::Entries::resched) there. Does not wait. Does nothing if CPU `cpu`
/// has no area.
///
/// One interrupt serves all requests made before that CPU begins to check. Kernel code is not
/// interrupted, so that may take as long as a system call does.
pub fn resched(cpu: usize) {
    let Some(apic_id) = percpu::apic_id(cpu) else {
        return;
    };
    // SeqCst: after the caller's change of the queue, and before that CPU's look at it (pairs with
    // the swap in `take_resched`). A caller that finds it set leaves the interrupt to the one that
    // set it.
    if !ASKED[cpu].0.swap(true, Ordering::SeqCst) {
        apic::send(apic_id, interrupt::RESCHED);
    }
}

/// Clears the request to check this CPU's run queue. Called before the check, so that later changes
/// of the queue send a new interrupt.
pub(super) fn take_resched() {
    // SeqCst: partner of the swap in `resched`.
    ASKED[cpu_id()].0.swap(false, Ordering::SeqCst);
}

/// Flushes the entries that `request` names from this CPU's TLB.
pub fn flush_local(request: FlushRequest) {
    match request {
        FlushRequest::Range { start, pages } if pages <= MAX_SINGLE_PAGES => {
            for page in 0..pages {
                cpu::invlpg(start.wrapping_add(page * 4096));
            }
        }
        FlushRequest::All | FlushRequest::Range { .. } => cpu::flush_tlb_all(),
        FlushRequest::Kernel => cpu::flush_tlb_global(),
        // The exchanges of the answer are the barrier.
        FlushRequest::Barrier => {}
    }
}

/// Waits until CPU `cpu` has served its mailbox, that is, until it has left the kernel or waits
/// itself. This CPU halts in that time, so that the host can give its core to a CPU that does not
/// run.
#[cold]
pub(super) fn wait_for_cpu(cpu: usize) {
    flush_tlb(&CpuSet::from_mask(1 << cpu), FlushRequest::Barrier);
}

/// Makes each online CPU in `cpus` serve `request`, and returns when all have served it. If this
/// CPU is in `cpus`, it serves the request itself. A CPU that the host does not run is not waited
/// for if the request is a flush of user memory and the host flushes the CPU's TLB before it runs
/// the CPU again.
///
/// # Panics
/// If a CPU does not answer for a minute.
pub fn flush_tlb(cpus: &CpuSet, request: FlushRequest) {
    let me = cpu_id();
    let online = percpu::online_cpus().mask();
    let mask = cpus.mask() & online;
    if mask & (1 << me) != 0 {
        flush_local(request);
    }
    let others = mask & !(1 << me);
    if others != 0 {
        ask(me, others, request);
    }
}

/// Returns the CPUs of `others` that must answer: those that run, and all if the request is more
/// than a TLB flush. `Kernel` is more: the memory manager relies on an answer from outside of
/// kernel code.
fn must_answer(others: u64, request: FlushRequest) -> u64 {
    match request {
        FlushRequest::Barrier | FlushRequest::Kernel => others,
        FlushRequest::All | FlushRequest::Range { .. } => Cpus::of(others)
            .filter(|&cpu| !steal::flush_before_it_runs(cpu))
            .fold(0, |left, cpu| left | 1 << cpu),
    }
}

fn ask(me: usize, others: u64, request: FlushRequest) {
    let others = must_answer(others, request);
    if others == 0 {
        return;
    }
    let post = &POSTS[me];
    debug_assert!(post.waiting.load(Ordering::Relaxed) == 0);
    // SAFETY: `waiting` has no bit, so no CPU reads.
    unsafe { *post.request.get() = request };
    // Relaxed: the Release below publishes both.
    post.waiting.store(others, Ordering::Relaxed);
    for cpu in Cpus::of(others) {
        // SeqCst is Release (partner: the Acquire of the exchange in `serve`) and the barrier
        // between our change of the page tables and their use of them.
        let before = MAILBOXES[cpu].0.fetch_or(1 << me, Ordering::SeqCst);
        // The CPU that sets the first bit interrupts; the bits are taken together.
        if before == 0
            && let Some(apic_id) = percpu::apic_id(cpu)
        {
            apic::send(apic_id, interrupt::MAILBOX);
        }
    }
    wait_for_answers(me, post, request);
}

/// Waits until all CPUs have answered `request`, which this CPU, number `me`, has put into its post
/// `post`. Spins for the usual time of an answer. A CPU that takes longer is not running: the host
/// has given its core away, perhaps to this CPU. So this CPU then halts until the last answer, or a
/// request of another CPU, wakes it.
///
/// # Panics
/// If a CPU does not answer within [`ANSWER_TIMEOUT`].
fn wait_for_answers(me: usize, post: &Post, request: FlushRequest) {
    let start = clock::now();
    let mut polls = 0u32;
    // Acquire: partner of the change in `serve`: what they did is done.
    while post.waiting.load(Ordering::Acquire) != 0 {
        poll_mailbox();
        spin::relax(&mut polls);
        if !polls.is_multiple_of(POLLS_PER_LOOK) {
            continue;
        }
        let waited = clock::now().saturating_sub(start);
        // Relaxed: a hint.
        let waiting = post.waiting.load(Ordering::Relaxed);
        if waited > SPIN_TIME || Cpus::of(waiting).any(steal::is_not_running) {
            // SeqCst, as in `serve`: either we see the last answer, or who gives it sees us halted.
            post.halted.store(true, Ordering::SeqCst);
            if post.waiting.load(Ordering::SeqCst) != 0 {
                interrupt::wait_for_mailbox();
            }
            post.halted.store(false, Ordering::SeqCst);
        }
        assert!(
            waited < ANSWER_TIMEOUT,
            "CPUs {:#x} do not answer CPU {me}'s {request:?}",
            post.waiting.load(Ordering::Relaxed)
        );
    }
}

/// Serves the requests in this CPU's mailbox, if there are any. Every loop that waits for another
/// CPU calls this.
#[inline]
pub fn poll_mailbox() {
    let me = cpu_id();
    // Relaxed: a hint; the exchange in `serve` takes the bits.
    if MAILBOXES[me].0.load(Ordering::Relaxed) != 0 {
        serve(me);
    }
}

#[cold]
fn serve(me: usize) {
    // SeqCst: Acquire for the requests (partner: `ask`), and the barrier after which our accesses
    // see their page tables.
    let from = MAILBOXES[me].0.swap(0, Ordering::SeqCst);
    for cpu in Cpus::of(from) {
        let post = &POSTS[cpu];
        // SAFETY: our bit is in `waiting` until we take it out below; until then it stays.
        let request = unsafe { *post.request.get() };
        flush_local(request);
        // SeqCst: a Release of the work (pairs with the Acquire in `wait_for_answers`), and before
        // the look at `halted`.
        let before = post.waiting.fetch_and(!(1 << me), Ordering::SeqCst);
        if before == 1 << me
            && post.halted.load(Ordering::SeqCst)
            && let Some(apic_id) = percpu::apic_id(cpu)
        {
            apic::send(apic_id, interrupt::MAILBOX);
        }
    }
}
