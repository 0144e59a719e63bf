//! What all processes of a storm share: the barrier, what each actor does, the first failure.

use crate::journal::Journal;
use crate::random::Random;
use crate::sys;
use std::cell::{Cell, UnsafeCell};
use std::fmt::Arguments;
use std::io::Write;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Actors (threads of all processes) at most.
pub const ACTORS: usize = 32;
/// Operations of each actor that a failure shows.
const LOG_LINES: usize = 24;
const LINE_BYTES: usize = 160;
const FAILURE_BYTES: usize = 4096;
/// Turns that a barrier is waited for before others get the CPU.
const BARRIER_SPINS: u32 = 300;
/// The same for what comes soon; then turns for others, then naps.
const SPINS: u32 = 1000;
const YIELDS: u32 = 1100;
const NAP: Duration = Duration::from_micros(300);

/// A text that one writes and others read after a flag.
#[derive(Debug)]
struct Text<const N: usize> {
    length: AtomicU32,
    bytes: UnsafeCell<[u8; N]>,
}

impl<const N: usize> Text<N> {
    /// Called by one thread at a time.
    fn set(&self, arguments: Arguments) {
        // Relaxed (both): a reader that comes meanwhile shows an old or a short line.
        self.length.store(0, Ordering::Relaxed);
        // SAFETY: only the actor itself writes its lines, only the first failure its text.
        let mut rest: &mut [u8] = unsafe { &mut *self.bytes.get() };
        // A longer text is cut.
        let _ = rest.write_fmt(arguments);
        self.length
            .store((N - rest.len()) as u32, Ordering::Release);
    }

    fn get(&self) -> String {
        // Acquire: pairs with the Release in `set`.
        let length = self.length.load(Ordering::Acquire) as usize;
        // SAFETY: a line that is written at this moment may come out mixed; bytes are bytes.
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

/// What one actor does.
#[derive(Debug)]
pub struct Desk {
    /// Lines written so far; also the sign of progress.
    lines: AtomicU64,
    ring: [Line; LOG_LINES],
    /// What it did to files in this round.
    pub journal: Journal,
}

/// The one shared block. Zeroed memory is its beginning.
#[derive(Debug)]
pub struct Control {
    pub seed: AtomicU64,
    pub round: AtomicU64,
    /// Index of this round's theme.
    pub theme: AtomicU32,
    /// Set between rounds: there is no further one.
    pub over: AtomicU32,
    /// How far the check of this round has come, for children that stand by.
    pub views_settled: AtomicU64,
    /// Orders operations: taken before and after each.
    clock: AtomicU64,
    arrived: AtomicU32,
    generation: AtomicU32,
    /// 1 from the first failure on, 2 when its text is there.
    failed: AtomicU32,
    failure: Text<FAILURE_BYTES>,
    desks: [Desk; ACTORS],
}

// SAFETY: the cells are used as `Text::set` says.
unsafe impl Sync for Control {}

static CONTROL: AtomicPtr<Control> = AtomicPtr::new(ptr::null_mut());

thread_local! {
    static ACTOR: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Makes the block; all processes are forked later.
pub fn create() {
    let bytes = size_of::<Control>() as u64;
    let flags = sys::MAP_SHARED | sys::MAP_ANONYMOUS;
    let at =
        sys::map(0, bytes, sys::PROT_BOTH, flags, -1, 0).expect("memory for the control block");
    CONTROL.store(at as *mut Control, Ordering::Relaxed);
}

/// The block.
pub fn get() -> &'static Control {
    // SAFETY: `create` was called first; the block stays mapped, and zeroes are valid in it.
    unsafe { &*CONTROL.load(Ordering::Relaxed) }
}

/// Says which actor this thread is.
pub fn become_actor(actor: usize) {
    ACTOR.set(actor);
}

/// The desk of an actor.
pub fn desk(actor: usize) -> &'static Desk {
    &get().desks[actor]
}

/// The next number of the clock that orders operations.
pub fn tick() -> u64 {
    // SeqCst: what this thread did before is before what anybody does who gets a later number.
    get().clock.fetch_add(1, Ordering::SeqCst) + 1
}

/// Notes the operation that this actor begins. `log!` calls it.
pub fn begin(arguments: Arguments) {
    let actor = ACTOR.get();
    if actor == usize::MAX {
        return;
    }
    let desk = desk(actor);
    // Relaxed (all): the watch only looks whether it changes.
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

/// Notes an operation in the actor's ring; what ran before has ended.
#[macro_export]
macro_rules! log {
    ($($word:tt)*) => { $crate::control::begin(format_args!($($word)*)) };
}

/// Whether somebody has failed, and has said how: a process that ends sooner may take the one with
/// it who is about to say it.
pub fn has_failed() -> bool {
    get().failed.load(Ordering::Acquire) == 2
}

/// Notes the first failure and ends this process.
pub fn fail(text: &str) -> ! {
    let control = get();
    let first = control
        .failed
        // Relaxed (both): it only has to be one.
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

/// The first failure, once its text is there.
pub fn failure() -> Option<String> {
    let control = get();
    // Acquire: pairs with the Release in `fail`.
    (control.failed.load(Ordering::Acquire) == 2).then(|| control.failure.get())
}

/// Waits until all actors are here.
pub fn barrier(actors: usize, name: &str) {
    begin(format_args!("barrier: {name}"));
    let control = get();
    let generation = control.generation.load(Ordering::Relaxed);
    // AcqRel: what all did before is visible to all afterwards.
    if control.arrived.fetch_add(1, Ordering::AcqRel) as usize + 1 == actors {
        control.arrived.store(0, Ordering::Relaxed);
        control.generation.store(generation + 1, Ordering::Release);
        sys::wake_all(&control.generation);
        return;
    }
    // Who waits leaves the CPU to others: where there are fewer than actors, a round takes as long as
    // its work.
    let mut turns = 0;
    // Acquire: pairs with the Release of the last one.
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

/// Waits for what another says soon, or for the storm's end.
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

/// Goes up as long as any actor does anything.
pub fn progress(actors: usize) -> u64 {
    (0..actors)
        .map(|actor| desk(actor).lines.load(Ordering::Relaxed))
        .sum()
}

/// The last operations of all actors, the oldest first.
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

/// The number of this round.
pub fn round() -> u64 {
    get().round.load(Ordering::Relaxed)
}

/// Numbers that all actors get alike in this round.
pub fn random_of_round(what: u64) -> Random {
    Random::new(&[get().seed.load(Ordering::Relaxed), round(), what, 0x0e])
}
