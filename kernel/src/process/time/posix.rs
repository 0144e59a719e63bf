//! POSIX timers: `timer_create` and related calls.

use super::clocks::Clock;
use super::cpu_timers;
use super::process_timers::Setting;
use crate::process;
use crate::process::signal::{
    Detail, Queued, SI_TIMER, SigInfo, Signal, send_to_process, send_to_task,
};
use crate::process::task::{Process, limits};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use logic::errno::Errno;
use logic::used_slots::UsedSlots;
use machine::arch::clock::{self, Nanos};
use machine::sched;
use machine::sched::timer::KernelTimer;
use machine::sync::SpinLock;

/// The most POSIX timers of one process.
pub(crate) const MAX_TIMERS: usize = 1024;
/// The number of timers that are adjusted to a changed wall clock under one hold of their lock.
const TIMERS_AT_ONCE: usize = 16;

/// Linux's `DELAYTIMER_MAX`.
const MAX_OVERRUN: u64 = 0x7fff_ffff;

/// The notification of the expiry of a POSIX timer.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Notify {
    /// No notification. The program reads the timer.
    Nothing,
    /// A signal for the process, or for one of its threads.
    Signal {
        signal: Signal,
        value: u64,
        thread: Option<u32>,
    },
}

struct Timer {
    clock: Clock,
    notify: Notify,
    /// The next deadline and the interval: in CPU time for a CPU clock, else on the monotonic
    /// clock.
    setting: Setting,
    /// The deadline on the wall clock, if the program has set it there (`TIMER_ABSTIME`).
    at_wall: Option<Nanos>,
    /// The time from the deadline to the machine's start, if the deadline is before it, else 0.
    /// Expirations before the start count in the overrun, too.
    before_start: Nanos,
    /// The number of expirations for which the pending signal stands, minus one.
    overrun: u64,
    /// The number of expirations for which the signal taken last stood, minus one
    /// (`timer_getoverrun(2)`).
    told: u64,
    /// A number that distinguishes this timer from earlier timers with its number.
    serial: u32,
    kernel: KernelTimer,
    /// The room for the timer's signal, which counts among the queued signals of the user.
    room: Queued,
}

impl Timer {
    /// Sets the deadline to the time `at` of the wall clock, at its present setting and rate.
    fn follow(&mut self, at: Nanos) {
        self.before_start = clock::realtime_offset().saturating_sub(at);
        self.setting.deadline = Some(clock::monotonic_at(at));
    }
}

#[derive(Default)]
struct Timers {
    list: Vec<Option<Timer>>,
    /// The numbers in use, including numbers of timers that are being created.
    used: UsedSlots,
    serial: u32,
}

/// The POSIX timers of a process.
pub(crate) struct PosixTimers(SpinLock<Timers>);

/// The state of a POSIX timer, as `timer_gettime(2)` returns it.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Reading {
    /// The time left to the next expiry; 0 if the timer is not set.
    pub(crate) left: Nanos,
    /// The time between expiries; 0 if the timer expires once.
    pub(crate) interval: Nanos,
}

impl PosixTimers {
    /// Returns an empty set of timers.
    pub(crate) const fn new() -> Self {
        Self(SpinLock::new(Timers {
            list: Vec::new(),
            used: UsedSlots::new(),
            serial: 0,
        }))
    }

    /// Creates a POSIX timer of `process` that follows `clock`, and returns its number. The timer
    /// is not set. `notify` gets the number, because the number may be the signal's value, and
    /// returns the notification.
    ///
    /// # Errors
    /// Fails with `EAGAIN` if there are too many timers, or no room for a signal of the user. Fails
    /// with `ENOMEM`.
    pub(crate) fn create(
        &self,
        process: &Arc<Process>,
        clock: Clock,
        notify: impl Fn(u32) -> Notify,
    ) -> Result<u32, Errno> {
        let target: Weak<Process> = Arc::downgrade(process);
        let uid = process::current().users().real;
        let limit = process.limit(limits::index::SIGPENDING);
        let room = Queued::count(uid, limit).ok_or(Errno::EAGAIN)?;
        let (number, serial) = {
            let mut timers = self.0.lock();
            let number = timers.used.first_free(0);
            if number >= MAX_TIMERS {
                return Err(Errno::EAGAIN);
            }
            if number == timers.list.len() {
                timers.used.grow_to(number + 1)?;
                timers.list.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                timers.list.push(None);
            }
            timers.used.set(number);
            timers.serial = timers.serial.wrapping_add(1) & 0x7fff_ffff;
            (
                u32::try_from(number).map_err(|_| Errno::EAGAIN)?,
                timers.serial,
            )
        };
        let kernel = KernelTimer::new(target, token(number, serial));
        let timer = Timer {
            clock,
            notify: notify(number),
            setting: Setting::default(),
            at_wall: None,
            before_start: Nanos::ZERO,
            overrun: 0,
            told: 0,
            serial,
            kernel,
            room,
        };
        let mut timers = self.0.lock();
        let Some(place) = timers.list.get_mut(number as usize) else {
            return Err(Errno::EAGAIN);
        };
        if place.is_some() {
            // Another thread has taken the number.
            drop(timers);
            return Err(Errno::EAGAIN);
        }
        *place = Some(timer);
        Ok(number)
    }

    fn with<R>(&self, number: u32, call: impl FnOnce(&mut Timer) -> R) -> Result<R, Errno> {
        let mut timers = self.0.lock();
        let timer = timers
            .list
            .get_mut(number as usize)
            .and_then(Option::as_mut);
        timer.map(call).ok_or(Errno::EINVAL)
    }

    /// Returns the clock that the timer `number` follows.
    ///
    /// # Errors
    /// Fails with `EINVAL` if there is no such timer.
    pub(crate) fn clock(&self, number: u32) -> Result<Clock, Errno> {
        self.with(number, |timer| timer.clock)
    }

    /// Sets the timer `number` of `process` to `setting`, and returns the time left and the
    /// interval before. If `at_wall` is given, the timer first expires at that time on the wall
    /// clock, instead of at the deadline in `setting`.
    ///
    /// # Errors
    /// Fails with `EINVAL` if there is no such timer.
    pub(crate) fn set(
        &self,
        process: &Process,
        number: u32,
        setting: Setting,
        at_wall: Option<Nanos>,
    ) -> Result<Reading, Errno> {
        let clock = self.clock(number)?;
        let now = time_on(clock);
        let before = self.with(number, |timer| {
            let before = reading(timer, now);
            timer.setting = setting;
            timer.before_start = Nanos::ZERO;
            timer.at_wall = at_wall;
            if let Some(at) = at_wall {
                // The lock is held: a task that sets the clock afterwards takes it, too.
                timer.follow(at);
            }
            timer.overrun = 0;
            timer.told = 0;
            if !clock.is_cpu_time() {
                timer.kernel.set(timer.setting.deadline);
            }
            before
        })?;
        if clock.is_cpu_time() && setting.deadline.is_some() {
            cpu_timers::arm(process);
        }
        Ok(before)
    }

    /// Adjusts the timers that expire at a time on the wall clock, after the clock was set. A timer
    /// that is set during the call already uses the new time. Yields the CPU between batches.
    pub(super) fn clock_was_set(&self) {
        let count = self.0.lock().list.len();
        for from in (0..count).step_by(TIMERS_AT_ONCE) {
            let mut timers = self.0.lock();
            let list = timers.list.iter_mut().skip(from).take(TIMERS_AT_ONCE);
            for timer in list.flatten() {
                if let (Some(at), Some(_)) = (timer.at_wall, timer.setting.deadline) {
                    timer.follow(at);
                    timer.kernel.set(timer.setting.deadline);
                }
            }
            drop(timers);
            sched::give_way();
        }
    }

    /// Returns the time left of the timer `number`, and its interval.
    ///
    /// # Errors
    /// Fails with `EINVAL` if there is no such timer.
    pub(crate) fn get(&self, number: u32) -> Result<Reading, Errno> {
        let now = time_on(self.clock(number)?);
        self.with(number, |timer| reading(timer, now))
    }

    /// Sends the notifications of timers of `process` on CPU clocks that have expired. Returns
    /// whether any timer on a CPU clock is set.
    pub(super) fn check_cpu_time(&self, process: &Arc<Process>) -> bool {
        let count = self.0.lock().list.len();
        let mut any = false;
        for number in (0..count).filter_map(|number| u32::try_from(number).ok()) {
            let set = self.with(number, |timer| {
                let set = timer.clock.is_cpu_time() && timer.setting.deadline.is_some();
                set.then(|| (timer.clock, token(number, timer.serial)))
            });
            // The clock is read without the lock, because the read takes other locks.
            if let Ok(Some((clock, token))) = set {
                any = true;
                self.expired(process, token, time_on(clock));
            }
        }
        any
    }

    /// Returns the number of expirations that the last signal of the timer `number` stood for,
    /// minus one.
    ///
    /// # Errors
    /// Fails with `EINVAL` if there is no such timer.
    pub(crate) fn overrun(&self, number: u32) -> Result<u64, Errno> {
        self.with(number, |timer| timer.told.min(MAX_OVERRUN))
    }

    /// Notes that the signal `info` is taken. If a timer sent it, stores the timer's overrun in
    /// `info`.
    pub(crate) fn taken(&self, info: &mut SigInfo) {
        if let Detail::Timer {
            id,
            serial,
            overrun,
            ..
        } = &mut info.detail
        {
            let told = self.with(id.cast_unsigned(), |timer| {
                (timer.serial == *serial).then(|| {
                    timer.told = timer.overrun;
                    timer.overrun.min(MAX_OVERRUN)
                })
            });
            // The signal of a timer that is gone has its overrun already.
            if let Ok(Some(told)) = told {
                *overrun = i32::try_from(told).unwrap_or(i32::MAX);
            }
        }
    }

    /// Deletes the timer `number` of `process`. Its pending signal, if any, stays, and counts for
    /// the user until it is taken.
    ///
    /// # Errors
    /// Fails with `EINVAL` if there is no such timer.
    pub(crate) fn delete(&self, process: &Process, number: u32) -> Result<(), Errno> {
        let timer = {
            let mut timers = self.0.lock();
            let timer = timers.list.get_mut(number as usize).and_then(Option::take);
            if timer.is_some() {
                timers.used.clear(number as usize);
            }
            timer
        };
        let timer = timer.ok_or(Errno::EINVAL)?;
        if let Notify::Signal { thread, .. } = timer.notify {
            let same = sent_by(number, timer.serial);
            match thread.map(|tid| process.thread(tid)) {
                None => process.group.lock().pending.count_as(timer.room, same),
                Some(Some(task)) => task.signals().pending().count_as(timer.room, same),
                // The thread has ended.
                Some(None) => {}
            }
        }
        Ok(())
    }

    /// Deletes all timers of the process (exec, exit). The caller discards their pending signals.
    pub(crate) fn clear(&self) {
        let mut timers = self.0.lock();
        let list = core::mem::take(&mut timers.list);
        timers.used = UsedSlots::new();
        drop(timers);
        drop(list);
    }

    /// Handles the expiry of the timer with the token `token` at the time `now`: sends the
    /// notification and sets the next deadline. Does nothing if the timer was deleted or set again.
    pub(super) fn expired(&self, process: &Arc<Process>, token: u64, now: Nanos) {
        let number = u32::try_from(token >> 32).unwrap_or(u32::MAX);
        let fired = self.with(number, |timer| {
            let due = timer
                .setting
                .deadline
                .is_some_and(|deadline| deadline <= now);
            if self::token(number, timer.serial) != token || !due {
                return None;
            }
            let interval = timer.setting.interval.0;
            let before = core::mem::replace(&mut timer.before_start, Nanos::ZERO);
            let last = timer.setting.deadline;
            let missed = timer
                .setting
                .advance(now)
                .saturating_add(before.0.checked_div(interval).unwrap_or(0));
            if let (Some(at), Some(last), Some(next)) =
                (timer.at_wall, last, timer.setting.deadline)
            {
                let passed = next.saturating_sub(last).saturating_add(before);
                timer.at_wall = Some(at.saturating_add(passed));
            }
            if !timer.clock.is_cpu_time() {
                timer.kernel.set(timer.setting.deadline);
            }
            Some((timer.notify, timer.serial, missed))
        });
        if let Ok(Some((notify, serial, missed))) = fired {
            self.notify(process, (number, serial), notify, missed);
        }
    }

    fn notify(
        &self,
        process: &Arc<Process>,
        (number, serial): (u32, u32),
        notify: Notify,
        missed: u64,
    ) {
        let Notify::Signal {
            signal,
            value,
            thread,
        } = notify
        else {
            return;
        };
        let id = number.cast_signed();
        let task = match thread.map(|tid| process.thread(tid)) {
            // The thread has ended.
            Some(None) => return,
            Some(task) => task,
            None => None,
        };
        // A timer has one pending signal at a time. Further expirations count as its overrun.
        let waits = {
            let same = sent_by(number, serial);
            let group = process.group.lock();
            match &task {
                None => group.pending.has(signal, same),
                Some(task) => task.signals().pending().has(signal, same),
            }
        };
        let overrun = self.with(number, |timer| {
            timer.overrun = if waits {
                timer.overrun.saturating_add(missed).saturating_add(1)
            } else {
                missed
            };
            timer.overrun.min(MAX_OVERRUN)
        });
        if waits {
            return;
        }
        let overrun = i32::try_from(overrun.unwrap_or(0)).unwrap_or(i32::MAX);
        let detail = Detail::Timer {
            id,
            serial,
            overrun,
            value,
        };
        let info = SigInfo {
            signal,
            errno: 0,
            code: SI_TIMER,
            detail,
        };
        // If memory is out or the queue is full, the expiry is lost.
        let _ = match &task {
            None => send_to_process(process, info),
            Some(task) => send_to_task(task, info),
        };
    }
}

/// Returns the current time for a timer on this clock.
fn time_on(clock: Clock) -> Nanos {
    if clock.is_cpu_time() {
        // A thread that has ended uses no more CPU time.
        clock.now().unwrap_or(Nanos::ZERO)
    } else {
        clock::now()
    }
}

fn reading(timer: &Timer, now: Nanos) -> Reading {
    Reading {
        left: timer.setting.left(now),
        interval: timer.setting.interval,
    }
}

/// Returns a function that tells whether a signal is that of the timer `number` with this `serial`.
fn sent_by(number: u32, serial: u32) -> impl Fn(&SigInfo) -> bool {
    move |info| {
        matches!(info.detail, Detail::Timer { id, serial: made, .. }
            if (id, made) == (number.cast_signed(), serial))
    }
}

fn token(number: u32, serial: u32) -> u64 {
    u64::from(number) << 32 | u64::from(serial)
}
