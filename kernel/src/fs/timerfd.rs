//! timerfd: a timer that programs read.
//!
//! It uses no kernel timer. A task that waits for the file asks for the expiry
//! ([`TimerFile::due_at`]) and waits until then at most. Setting the timer wakes the task to ask
//! again.

use super::file::File;
use super::flags::OpenFlags;
use super::io::ByteSink;
use super::poll::{Notifier, PollMask};
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU64, Ordering};
use linux_raw_sys::general::{CLOCK_REALTIME, CLOCK_REALTIME_ALARM};
use logic::errno::{Errno, SysResult};
use logic::sparse::Sparse;
use logic::used_slots::UsedSlots;
use machine::arch::clock::{self, Nanos};
use machine::sched;
use machine::sync::SpinLock;

/// The expiry of a timer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// The timer expired at this time, and the expiry was not read.
    Now(Nanos),
    /// The timer will expire at this time.
    At(Nanos),
    /// The timer is not set, or was read and does not repeat.
    Never,
}

/// The setting of a timer, in monotonic time.
#[derive(Copy, Clone, Debug, Default)]
pub struct Setting {
    /// The next expiry. `None` if the timer is not set.
    pub next: Option<Nanos>,
    /// The time between two expiries. 0 if the timer expires once.
    pub interval: Nanos,
}

/// How a timer depends on the wall clock.
#[derive(Copy, Clone, Debug, Default)]
struct Wall {
    /// The next expiry on the wall clock, if the timer follows that clock.
    next: Option<Nanos>,
    /// Whether reads fail after the clock was set (`TFD_TIMER_CANCEL_ON_SET`).
    cancels: bool,
    /// The value of [`STEPS`] that was last reported to a reader.
    seen: u64,
    /// Whether the clock was set after the timer had expired, and before that was read.
    is_stale: bool,
}

#[derive(Debug, Default)]
struct State {
    setting: Setting,
    wall: Wall,
    /// The index in [`FOLLOWING`]. `None` until the timer is added there; it then keeps the index.
    place: Option<usize>,
}

impl State {
    /// Returns whether the clock was set and no read has reported that.
    fn is_cancelled(&self) -> bool {
        self.wall.cancels && self.wall.seen != steps()
    }
}

/// The file of a timerfd.
#[derive(Debug)]
pub struct TimerFile {
    state: SpinLock<State>,
    notifier: Arc<Notifier>,
    /// Linux's number of the clock that the timer follows.
    pub clock: u32,
    this: Weak<Self>,
}

/// The number of times that the wall clock was set.
static STEPS: AtomicU64 = AtomicU64::new(0);

fn steps() -> u64 {
    // Relaxed: the timer's lock orders it. A task that sets the clock takes that lock afterwards.
    STEPS.load(Ordering::Relaxed)
}

/// Counts a step of the wall clock, which reads of timers with `TFD_TIMER_CANCEL_ON_SET` report.
/// The caller calls [`clock_was_set`] next.
pub fn clock_was_stepped() {
    STEPS.fetch_add(1, Ordering::Relaxed);
}

/// Timers that follow the wall clock.
struct Following {
    timers: Sparse<Weak<TimerFile>>,
    used: UsedSlots,
}

/// This lock is taken before the lock of a timer.
static FOLLOWING: SpinLock<Following> = SpinLock::new(Following {
    timers: Sparse::new(),
    used: UsedSlots::new(),
});

/// Converts the expiries of timers on the wall clock to monotonic time again, and wakes their
/// waiters. Called after the wall clock was set or its rate changed. The caller holds no lock:
/// other tasks may run between two timers.
pub fn clock_was_set() {
    let mut next = 0;
    // This loop ends: each turn continues behind the last, and each file has at most one place. A
    // timer that is added in between follows the new clock already.
    loop {
        let timer = {
            let following = FOLLOWING.lock();
            let Some(at) = following.used.first_used(next) else {
                return;
            };
            next = at + 1;
            following.timers.get(at).and_then(Weak::upgrade)
        };
        if let Some(timer) = timer {
            timer.follow();
        }
        sched::give_way();
    }
}

impl TimerFile {
    /// Returns a timer that is not set, on the clock with Linux's number `clock`.
    pub fn new(clock: u32) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            state: SpinLock::new(State::default()),
            notifier: Arc::new(Notifier::new()),
            clock,
            this: this.clone(),
        })
    }

    /// Returns whether the timer's clock counts from 1970 (`CLOCK_REALTIME`,
    /// `CLOCK_REALTIME_ALARM`).
    pub fn is_realtime(&self) -> bool {
        matches!(self.clock, CLOCK_REALTIME | CLOCK_REALTIME_ALARM)
    }

    /// Adds the timer to those that follow the wall clock.
    ///
    /// # Errors
    /// Fails with `ENOMEM`.
    fn enter(&self) -> Result<(), Errno> {
        let mut following = FOLLOWING.lock();
        let mut state = self.state.lock();
        if state.place.is_some() {
            return Ok(());
        }
        let at = following.used.first_free(0);
        following.used.grow_to(at + 1)?;
        following.timers.prepare(at)?;
        following.used.set(at);
        following.timers.put(at, self.this.clone());
        state.place = Some(at);
        Ok(())
    }

    /// Converts the next expiry to monotonic time again, after the clock was set. Wakes all waiters
    /// so that they ask for it again. A timer that has expired and was not read stays expired.
    fn follow(&self) {
        {
            let mut state = self.state.lock();
            if let (Some(at), Some(next)) = (state.wall.next, state.setting.next) {
                if next <= clock::now() {
                    state.wall.is_stale = true;
                } else {
                    state.setting.next = Some(clock::monotonic_at(at));
                }
            }
        }
        self.notifier.notify(PollMask::READABLE);
    }

    /// Returns the next expiry of the timer, or the last one if it was not read. A timer with
    /// `TFD_TIMER_CANCEL_ON_SET` counts as expired now if a read must report that the clock was
    /// set.
    pub fn due_at(&self) -> Due {
        let state = self.state.lock();
        if state.is_cancelled() {
            return Due::Now(clock::now());
        }
        match state.setting.next {
            None => Due::Never,
            Some(at) if at <= clock::now() => Due::Now(at),
            Some(at) => Due::At(at),
        }
    }

    /// Sets the timer to `new` and returns the old setting. If `at_wall` is given, the next expiry
    /// is that time of the wall clock instead of `new.next`. With `cancels`, reads fail once the
    /// wall clock was set after this call.
    ///
    /// # Errors
    /// Fails with `ENOMEM`. Fails with `ECANCELED` if `cancels` is set, the timer had the same
    /// option, and no read has reported an earlier setting of the clock. The timer is set
    /// nevertheless.
    pub fn set(
        &self,
        new: Setting,
        at_wall: Option<Nanos>,
        cancels: bool,
    ) -> Result<Setting, Errno> {
        if at_wall.is_some() || cancels {
            self.enter()?;
        }
        let (old, cancelled) = {
            let mut state = self.state.lock();
            let old = Self::ahead(state.setting);
            let cancelled = cancels && state.is_cancelled();
            state.setting = new;
            state.wall = Wall {
                next: at_wall,
                cancels,
                seen: steps(),
                is_stale: false,
            };
            if let Some(at) = at_wall {
                // With the lock held, because a task that sets the clock afterwards takes it too.
                state.setting.next = Some(clock::monotonic_at(at));
            }
            (old, cancelled)
        };
        // An empty mask stands for any change, so all waiters ask for the expiry again.
        self.notifier.notify(PollMask::empty());
        if cancelled {
            Err(Errno::ECANCELED)
        } else {
            Ok(old)
        }
    }

    /// Returns the present setting of the timer. If the timer has expired, `next` is the next
    /// expiry in the future, or `None` if the timer does not repeat.
    pub fn get(&self) -> Setting {
        Self::ahead(self.state.lock().setting)
    }

    fn ahead(mut setting: Setting) -> Setting {
        let now = clock::now();
        if let Some(next) = setting.next
            && next <= now
        {
            setting.next = (setting.interval.0 > 0).then(|| {
                let missed = (now.0 - next.0) / setting.interval.0 + 1;
                Nanos(
                    next.0
                        .saturating_add(missed.saturating_mul(setting.interval.0)),
                )
            });
        }
        setting
    }

    /// Takes the number of expiries since the last read. Returns `None` if there were none. The
    /// number is 0 if the timer repeats and has expired, but the clock was then set to a time
    /// before that expiry, which comes again.
    ///
    /// # Errors
    /// Fails with `ECANCELED` if the clock was set since the last read.
    fn take(&self) -> Result<Option<u64>, Errno> {
        let mut state = self.state.lock();
        if state.is_cancelled() {
            state.wall.seen = steps();
            return Err(Errno::ECANCELED);
        }
        let interval = state.setting.interval.0;
        if let Some(at) = state.wall.next
            && core::mem::take(&mut state.wall.is_stale)
            && interval > 0
        {
            let passed = clock::wall_now().0.checked_sub(at.0);
            let times = passed.map_or(0, |passed| passed / interval + 1);
            let next = Nanos(at.0.saturating_add(times.saturating_mul(interval)));
            state.wall.next = Some(next);
            state.setting.next = Some(clock::monotonic_at(next));
            return Ok(Some(times));
        }
        let before = state.setting.next;
        let taken = Self::take_from(&mut state.setting);
        if let (Some(at), Some(before), Some(next)) = (state.wall.next, before, state.setting.next)
        {
            state.wall.next = Some(at.saturating_add(next.saturating_sub(before)));
        }
        Ok(taken)
    }

    fn take_from(setting: &mut Setting) -> Option<u64> {
        let now = clock::now();
        let next = setting.next.filter(|&next| next <= now)?;
        if setting.interval.0 == 0 {
            setting.next = None;
            return Some(1);
        }
        let times = (now.0 - next.0) / setting.interval.0 + 1;
        let step = times.saturating_mul(setting.interval.0);
        setting.next = Some(Nanos(next.0.saturating_add(step)));
        Some(times)
    }
}

impl Drop for TimerFile {
    fn drop(&mut self) {
        if let Some(at) = self.state.get_mut().place {
            let gone = {
                let mut following = FOLLOWING.lock();
                following.used.clear(at);
                following.timers.take(at)
            };
            drop(gone);
        }
    }
}

impl File for TimerFile {
    fn read(&self, to: &mut dyn ByteSink, _: &mut u64, flags: OpenFlags) -> SysResult {
        if to.room() < 8 {
            return Err(Errno::EINVAL);
        }
        loop {
            let taken = self.take()?;
            if let Some(times) = taken.filter(|&times| times > 0) {
                return to.put(&times.to_le_bytes());
            }
            if flags.nonblocking() {
                return Err(Errno::EAGAIN);
            }
            if taken.is_some() {
                return Ok(0);
            }
            let before = self.state.lock().setting;
            let changed = || {
                let state = self.state.lock();
                state.setting.next != before.next || state.is_cancelled()
            };
            match before.next {
                Some(at) => {
                    self.notifier.queue().wait_deadline(changed, at)?;
                }
                None => self.notifier.queue().wait(changed)?,
            }
        }
    }

    fn poll(&self) -> PollMask {
        match self.due_at() {
            Due::Now(_) => PollMask::READABLE,
            _ => PollMask::empty(),
        }
    }

    fn notifier(&self) -> Option<Arc<Notifier>> {
        Some(self.notifier.clone())
    }
}
