//! The memory that all processes of a storm share: the barrier, the operations of each actor, the
//! first failure.

use crate::journal::Journal;
use crate::random::Random;
use crate::sys;
use std::cell::{Cell, UnsafeCell};
use std::fmt::Arguments;
use std::io::Write;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// The largest number of actors (threads of all processes).
pub const ACTORS: usize = 32;
/// The number of operations of each actor that a failure shows.
const LOG_LINES: usize = 24;
const LINE_BYTES: usize = 160;
const FAILURE_BYTES: usize = 4096;
/// The number of turns of a barrier wait before the CPU is yielded to other threads.
const BARRIER_SPINS: u32 = 300;
/// The same for a wait that is expected to be short: first spins, then yields, then naps.
const SPINS: u32 = 1000;
const YIELDS: u32 = 1100;
const NAP: Duration = Duration::from_micros(300);

/// A text that one thread writes and others read after a flag.
#[derive(Debug)]
struct Text<const N: usize> {
    length: AtomicU32,
    bytes: UnsafeCell<[u8; N]>,
}

impl<const N: usize> Text<N> {
    /// Sets the text. Only one thread at a time may call this.
    fn set(&self, arguments: Arguments) {
        // Relaxed (both): a concurrent reader shows an old or a short line.
        self.length.store(0, Ordering::Relaxed);
        // SAFETY: only the actor itself writes its lines, and only the first failure writes its
        // text.
        let mut rest: &mut [u8] = unsafe { &mut *self.bytes.get() };
        // A longer text is cut.
        let _ = rest.write_fmt(arguments);
        self.length
            .store((N - rest.len()) as u32, Ordering::Release);
    }

    fn get(&self) -> String {
        // Acquire: pairs with the Release in `set`.
        let length = self.length.load(Ordering::Acquire) as usize;
        // SAFETY: a line that is being written may be mixed, but every value of its bytes is valid.
        let bytes: &[u8; N] = unsafe { &*self.bytes.get() };
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }
}

/// One line of an actor's ring.
#[derive(Debug)]
struct Line {
    text: Text<LINE_BYTES>,
    /// 0 while the operation runs.
    ended: AtomicU32,
}

/// The shared record of one actor.
#[derive(Debug)]
pub struct Desk {
    /// The number of lines written so far, which is also the sign of progress.
    lines: AtomicU64,
    ring: [Line; LOG_LINES],
    /// The actor's operations on files in this round.
    pub journal: Journal,
}

/// The one shared block. It starts as zeroed memory.
#[derive(Debug)]
pub struct Control {
    pub seed: AtomicU64,
    pub round: AtomicU64,
    /// The index of this round's theme.
    pub theme: AtomicU32,
    /// Set between rounds if there is no further one.
    pub over: AtomicU32,
    /// The progress of this round's check, for waiting children.
    pub views_settled: AtomicU64,
    /// A clock that orders operations. It is read before and after each.
    clock: AtomicU64,
    arrived: AtomicU32,
    generation: AtomicU32,
    /// 1 from the first failure on, 2 once its text is complete.
    failed: AtomicU32,
    failure: Text<FAILURE_BYTES>,
    desks: [Desk; ACTORS],
}

// SAFETY: the cells are used as `Text::set` requires.
unsafe impl Sync for Control {}

static CONTROL: AtomicPtr<Control> = AtomicPtr::new(ptr::null_mut());

thread_local! {
    static ACTOR: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Creates the block. All processes are forked later.
pub fn create() {
    let bytes = size_of::<Control>() as u64;
    let flags = sys::MAP_SHARED | sys::MAP_ANONYMOUS;
    let at =
        sys::map(0, bytes, sys::PROT_BOTH, flags, -1, 0).expect("memory for the control block");
    CONTROL.store(at as *mut Control, Ordering::Relaxed);
}

/// Returns the block.
pub fn get() -> &'static Control {
    // SAFETY: `create` was called first. The block stays mapped, and zeroes are valid in it.
    unsafe { &*CONTROL.load(Ordering::Relaxed) }
}

/// Sets the actor number of this thread.
pub fn become_actor(actor: usize) {
    ACTOR.set(actor);
}

/// Returns the shared record of an actor.
pub fn desk(actor: usize) -> &'static Desk {
    &get().desks[actor]
}

/// Returns the next number of the clock that orders operations.
pub fn tick() -> u64 {
    // SeqCst: everything that this thread did before is visible to each thread that gets a later
    // number.
    get().clock.fetch_add(1, Ordering::SeqCst) + 1
}

/// Records the start of an operation of this actor. `log!` calls it.
pub fn begin(arguments: Arguments) {
    let actor = ACTOR.get();
    if actor == usize::MAX {
        return;
    }
    let desk = desk(actor);
    // Relaxed (all): the watcher only checks whether the number changes.
    let number = desk.lines.load(Ordering::Relaxed);
    if let Some(before) = number.checked_sub(1) {
        desk.ring[before as usize % LOG_LINES]
            .ended
            .store(1, Ordering::Relaxed);
    }
    let line = &desk.ring[number as usize % LOG_LINES];
    line.ended.store(0, Ordering::Relaxed);
    line.text.set(format_args!(
        "r{} {arguments}",
        get().round.load(Ordering::Relaxed)
    ));
    desk.lines.store(number + 1, Ordering::Release);
}

/// Records an operation in the actor's ring, and that the one before has ended.
#[macro_export]
macro_rules! log {
    ($($word:tt)*) => { $crate::control::begin(format_args!($($word)*)) };
}

/// Returns whether there is a failure with a complete text. A process that ends sooner could take
/// the thread that writes the text with it.
pub fn has_failed() -> bool {
    get().failed.load(Ordering::Acquire) == 2
}

/// Records the first failure and ends this process.
pub fn fail(text: &str) -> ! {
    let control = get();
    let first = control
        .failed
        // Relaxed (both): only one thread must succeed.
        .compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
    if first.is_ok() {
        let actor = ACTOR.get();
        let round = control.round.load(Ordering::Relaxed);
        let who = match actor {
            usize::MAX => "a child".to_owned(),
            _ => format!("actor {actor}"),
        };
        control
            .failure
            .set(format_args!("round {round}, {who}: {text}"));
        // Release: pairs with the Acquire in `failure`.
        control.failed.store(2, Ordering::Release);
    }
    while !has_failed() {
        std::hint::spin_loop();
    }
    sys::exit(77);
}

/// Returns the first failure once its text is complete, or `None`.
pub fn failure() -> Option<String> {
    let control = get();
    // Acquire: pairs with the Release in `fail`.
    (control.failed.load(Ordering::Acquire) == 2).then(|| control.failure.get())
}

/// Waits until all actors have arrived.
pub fn barrier(actors: usize, name: &str) {
    begin(format_args!("barrier: {name}"));
    let control = get();
    let generation = control.generation.load(Ordering::Relaxed);
    // AcqRel: everything that the actors did before is visible to all of them afterwards.
    if control.arrived.fetch_add(1, Ordering::AcqRel) as usize + 1 == actors {
        control.arrived.store(0, Ordering::Relaxed);
        control.generation.store(generation + 1, Ordering::Release);
        sys::wake_all(&control.generation);
        return;
    }
    // A waiting thread leaves the CPU to others. With fewer CPUs than actors, a round then takes
    // only as long as its work.
    let mut turns = 0;
    // Acquire: pairs with the Release of the last actor.
    while control.generation.load(Ordering::Acquire) == generation {
        turns += 1;
        if turns < BARRIER_SPINS {
            std::hint::spin_loop();
        } else {
            sys::sleep_while(&control.generation, generation);
        }
        if has_failed() {
            sys::exit(77);
        }
    }
}

/// Waits until `said` returns `true`, which is expected soon, or until the storm ends.
pub fn wait_until(said: impl Fn() -> bool) {
    let mut turns = 0;
    while !said() {
        turns += 1;
        match turns {
            0..SPINS => std::hint::spin_loop(),
            SPINS..YIELDS => sys::yield_now(),
            _ => std::thread::sleep(NAP),
        }
        if has_failed() {
            sys::exit(77);
        }
    }
}

/// Returns a number that rises as long as any actor works.
pub fn progress(actors: usize) -> u64 {
    (0..actors)
        .map(|actor| desk(actor).lines.load(Ordering::Relaxed))
        .sum()
}

/// Returns the last operations of all actors, the oldest first.
pub fn last_operations(actors: usize) -> String {
    let mut text = String::new();
    for actor in 0..actors {
        let desk = desk(actor);
        let lines = desk.lines.load(Ordering::Acquire);
        text.push_str(&format!("actor {actor}:\n"));
        for number in lines.saturating_sub(LOG_LINES as u64)..lines {
            let line = &desk.ring[number as usize % LOG_LINES];
            let state = if line.ended.load(Ordering::Relaxed) == 0 {
                " ..."
            } else {
                ""
            };
            text.push_str(&format!("  {}{state}\n", line.text.get()));
        }
    }
    text
}

/// Returns the number of this round.
pub fn round() -> u64 {
    get().round.load(Ordering::Relaxed)
}

/// Returns random numbers that are equal for all actors in this round. `what` selects the sequence.
pub fn random_of_round(what: u64) -> Random {
    Random::new(&[get().seed.load(Ordering::Relaxed), round(), what, 0x0e])
}
