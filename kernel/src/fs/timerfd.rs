//! timerfd: a timer that is read.
//!
//! No kernel timer stands behind it. Whoever waits for the file asks when it goes off
//! ([`TimerFile::due_at`]) and waits until then at most; setting the timer wakes him to ask again.

use super::file::File;
use super::flags::OpenFlags;
use super::io::ByteSink;
use super::poll::{Notifier, PollMask};
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU64, Ordering};
use logic::errno::{Errno, SysResult};
use logic::sparse::Sparse;
use logic::used_slots::UsedSlots;
use machine::arch::clock::{self, Nanos};
use machine::sched;
use machine::sync::SpinLock;

/// When a timer goes off.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// It has, at this time, and nobody has read it since.
    Now(Nanos),
    /// In the future.
    At(Nanos),
    /// It is not set, or was read and does not repeat.
    Never,
}

/// A timer's setting, in monotonic time.
#[derive(Copy, Clone, Debug, Default)]
pub struct Setting {
    /// The next time it goes off; `None` when it is not set.
    pub next: Option<Nanos>,
    /// What comes between two times; 0: it goes off once.
    pub interval: Nanos,
}

/// What a setting of the wall clock does to a timer.
#[derive(Copy, Clone, Debug, Default)]
struct Wall {
    /// The next time on the wall clock, where the timer follows that.
    next: Option<Nanos>,
    /// Who reads learns that the clock was set (`TFD_TIMER_CANCEL_ON_SET`).
    cancels: bool,
    /// [`STEPS`] that who reads has learned of.
    seen: u64,
}

#[derive(Debug, Default)]
struct State {
    setting: Setting,
    wall: Wall,
    /// Its place in [`FOLLOWING`], once it has one. It keeps that.
    place: Option<usize>,
}

impl State {
    /// Whether the clock was set, and no reader has learned of it.
    fn is_cancelled(&self) -> bool {
        self.wall.cancels && self.wall.seen != steps()
    }
}

/// A timerfd's file.
#[derive(Debug)]
pub struct TimerFile {
    state: SpinLock<State>,
    notifier: Arc<Notifier>,
    /// Given times count from 1970.
    pub realtime: bool,
    this: Weak<Self>,
}

/// How often the wall clock was set.
static STEPS: AtomicU64 = AtomicU64::new(0);

fn steps() -> u64 {
    // Relaxed: the timer's lock, which who sets the clock takes afterwards, orders it.
    STEPS.load(Ordering::Relaxed)
}

/// Has those who asked for it learn that the clock was set. [`clock_was_set`] comes then.
pub fn clock_was_stepped() {
    STEPS.fetch_add(1, Ordering::Relaxed);
}

/// Timers that follow the wall clock.
struct Following {
    timers: Sparse<Weak<TimerFile>>,
    used: UsedSlots,
}

/// This lock comes before a timer's.
static FOLLOWING: SpinLock<Following> = SpinLock::new(Following {
    timers: Sparse::new(),
    used: UsedSlots::new(),
});

/// Has the timers that follow the wall clock do so, after it was set or got another rate. Others run
/// meanwhile; no lock is held.
pub fn clock_was_set() {
    let mut next = 0;
    // Ends: each turn goes on behind the last, and there is a place for each file at most. A timer
    // that comes meanwhile follows the clock as it is now already.
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
    /// A timer that is not set.
    pub fn new(realtime: bool) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            state: SpinLock::new(State::default()),
            notifier: Arc::new(Notifier::new()),
            realtime,
            this: this.clone(),
        })
    }

    /// Enters it among those that follow the wall clock.
    ///
    /// # Errors
    /// `ENOMEM`.
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

    /// The clock was set: the next time is a nearer or a farther one, and who waits asks anew.
    fn follow(&self) {
        {
            let mut state = self.state.lock();
            if let (Some(at), Some(_)) = (state.wall.next, state.setting.next) {
                state.setting.next = Some(clock::monotonic_at(at));
            }
        }
        self.notifier.notify(PollMask::READABLE);
    }

    /// When it goes off.
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

    /// Sets it and gives the old setting. With `at_wall` the next time is that of the wall clock,
    /// instead of the one in `new`, and with `cancels` who reads learns when that clock is set.
    ///
    /// # Errors
    /// `ENOMEM`; `ECANCELED`: the clock was set since the last one was told, but the timer is set
    /// all the same.
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
            };
            if let Some(at) = at_wall {
                // With the lock held: who sets the clock afterwards takes it, too.
                state.setting.next = Some(clock::monotonic_at(at));
            }
            (old, cancelled)
        };
        // Without a name for the change: whoever waits asks anew.
        self.notifier.notify(PollMask::empty());
        if cancelled {
            Err(Errno::ECANCELED)
        } else {
            Ok(old)
        }
    }

    /// The setting, with `next` in the future where the timer repeats.
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

    /// Takes the number of times it went off since the last read.
    ///
    /// # Errors
    /// `ECANCELED`: the clock was set meanwhile.
    fn take(&self) -> Result<Option<u64>, Errno> {
        let mut state = self.state.lock();
        if state.is_cancelled() {
            state.wall.seen = steps();
            return Err(Errno::ECANCELED);
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
            if let Some(times) = self.take()? {
                return to.put(&times.to_le_bytes());
            }
            if flags.nonblocking() {
                return Err(Errno::EAGAIN);
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
