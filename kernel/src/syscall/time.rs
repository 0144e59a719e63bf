//! Clocks, sleeps and timers.

use super::Args;
use crate::process;
use crate::process::caller;
use crate::process::signal::Restart;
use crate::process::signal::Signal;
use crate::process::time::clocks::Clock;
use crate::process::time::cpu_timers::Which;
use crate::process::time::posix::{Notify, Reading};
use crate::process::time::process_timers::Setting;
use crate::process::time::values::{Itimerspec, Itimerval, Timespec, Timeval};
use crate::process::time::wall::{self, Deadline};
use linux_raw_sys::general as raw;
use logic::credentials::Capabilities;
use logic::errno::{Errno, SysResult};
use machine::arch::clock::{self, Nanos};
use machine::arch::cpu_count;
use machine::sync::{WaitEnd, WaitQueue};
use machine::uaccess::UserPtr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The number of clock ticks in a second, as user programs count them (`USER_HZ`).
const TICKS_PER_S: u64 = 100;

/// Sleeps until `deadline`. Fails with `ERESTART_RESTARTBLOCK` if a signal comes before.
fn sleep(deadline: Nanos) -> Result<(), Errno> {
    match WaitQueue::new().wait_deadline(|| false, deadline) {
        Ok(WaitEnd::Ready | WaitEnd::TimedOut) => Ok(()),
        Err(_) => Err(Errno::ERESTART_RESTARTBLOCK),
    }
}

/// Sleeps until `deadline` on the monotonic clock. Returns 0. If a signal comes, writes the time
/// left to the address `rest`, unless that is 0, and fails with the error that continues the sleep.
/// Fails with `EFAULT` for a bad address.
fn sleep_span(deadline: Nanos, rest: u64) -> SysResult {
    let result = sleep(deadline);
    if result.is_err() {
        if rest != 0 {
            Timespec::from(deadline.saturating_sub(clock::now())).write(rest)?;
        }
        let args = Args([deadline.0, rest, 0, 0, 0, 0]);
        process::current().signals().set_restart(Restart {
            call: sleep_again,
            args,
        });
    }
    result.map(|()| 0)
}

/// Continues a sleep that a signal has interrupted. Fails as [`sleep_span`] does.
fn sleep_again(a: &Args) -> SysResult {
    sleep_span(Nanos(a.addr(0)), a.addr(1))
}

/// `nanosleep(2)`.
pub fn nanosleep(a: &Args) -> SysResult {
    let span = Timespec::read(a.addr(0))?;
    sleep_span(clock::now().saturating_add(span), a.addr(1))
}

/// Checks that the caller may wait for the clock `number`. Clocks that wake a sleeping machine take
/// `CAP_WAKE_ALARM`, although the machine never sleeps here.
///
/// # Errors
/// Fails with `EPERM`.
pub(super) fn may_wait_for(number: u32) -> Result<(), Errno> {
    if matches!(
        number,
        raw::CLOCK_REALTIME_ALARM | raw::CLOCK_BOOTTIME_ALARM
    ) {
        caller::need(Capabilities::WAKE_ALARM)?;
    }
    Ok(())
}

/// `clock_nanosleep(2)`.
pub fn clock_nanosleep(a: &Args) -> SysResult {
    let clock = Clock::from_number(a.int(0))?;
    let time = Timespec::read(a.addr(2))?;
    may_wait_for(a.uint(0))?;
    match clock {
        Clock::RealtimeToRead | Clock::MonotonicToRead => Err(Errno::EOPNOTSUPP),
        // `CLOCK_THREAD_CPUTIME_ID`
        Clock::Thread(..) if a.int(0) >= 0 => Err(Errno::EOPNOTSUPP),
        Clock::Thread(tid, _) if [0, process::current().tid()].contains(&tid) => Err(Errno::EINVAL),
        Clock::Process(..) | Clock::Thread(..) => {
            let now = clock.now()?;
            let until = if a.uint(1) & raw::TIMER_ABSTIME != 0 {
                time
            } else {
                now.saturating_add(time)
            };
            sleep_by_cpu_time(clock, until, a)
        }
        _ if a.uint(1) & raw::TIMER_ABSTIME != 0 => {
            let end = Deadline::hold(Some(clock.deadline(time)?), |deadline| {
                sleep(deadline.unwrap_or(Nanos::MAX))?;
                // The deadline, which may have moved, has passed.
                Err::<(), _>(Errno::ETIMEDOUT)
            });
            match end {
                Err(Errno::ETIMEDOUT) | Ok(()) => Ok(0),
                // An absolute sleep starts again with the same arguments.
                Err(_) => Err(Errno::ERESTARTNOHAND),
            }
        }
        _ => sleep_span(clock::now().saturating_add(time), a.addr(3)),
    }
}

/// The shortest pause between two reads of a clock on CPU time.
const LOOK: Nanos = Nanos::from_millis(1);

/// Sleeps until `clock`, which shows CPU time of a process or thread, shows `until`. The clock
/// cannot run faster than all CPUs together, which determines when it is read next. Returns 0, also
/// if the process or thread ends. At a signal fails with `EINTR`, or with `ERESTARTNOHAND` if
/// `until` was given as an absolute time.
fn sleep_by_cpu_time(clock: Clock, until: Nanos, a: &Args) -> SysResult {
    let queue = WaitQueue::new();
    loop {
        // The clock of a process or thread that has ended has stopped, so the sleep ends.
        let Ok(shown) = clock.now() else {
            return Ok(0);
        };
        let left = until.saturating_sub(shown);
        if left == Nanos::ZERO {
            return Ok(0);
        }
        let soonest = Nanos(left.0 / cpu_count() as u64).max(LOOK);
        let deadline = clock::now().saturating_add(soonest);
        if queue.wait_deadline(|| false, deadline).is_err() {
            let relative = a.uint(1) & raw::TIMER_ABSTIME == 0;
            if relative && a.addr(3) != 0 {
                Timespec::from(left).write(a.addr(3))?;
            }
            // As on Linux if a handler runs. Without a handler, Linux continues the sleep.
            return Err(if relative {
                Errno::EINTR
            } else {
                Errno::ERESTARTNOHAND
            });
        }
    }
}

/// `clock_gettime(2)`.
pub fn clock_gettime(a: &Args) -> SysResult {
    let clock = match Clock::from_number(a.int(0))? {
        // As on Linux, a thread may name its process by its own number too, in this call alone.
        Clock::Process(tid, part) if tid == process::current().tid() => Clock::Process(0, part),
        clock => clock,
    };
    Timespec::from(clock.now()?).write(a.addr(1))?;
    Ok(0)
}

/// `clock_settime(2)`.
pub fn clock_settime(a: &Args) -> SysResult {
    match Clock::from_number(a.int(0))? {
        Clock::Realtime if a.int(0) == 0 => {
            let time = Timespec::read(a.addr(1))?;
            caller::need(Capabilities::SYS_TIME)?;
            wall::set(time)?;
            Ok(0)
        }
        // As on Linux, no program may set the clock of a process or thread.
        clock if clock.is_cpu_time() && a.int(0) < 0 => {
            clock.now()?;
            Timespec::read(a.addr(1))?;
            Err(Errno::EPERM)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// `clock_getres(2)`.
pub fn clock_getres(a: &Args) -> SysResult {
    let resolution = Clock::from_number(a.int(0))?.resolution()?;
    if a.addr(1) != 0 {
        Timespec::from(resolution).write(a.addr(1))?;
    }
    Ok(0)
}

/// `gettimeofday(2)`.
pub fn gettimeofday(a: &Args) -> SysResult {
    if a.addr(0) != 0 {
        let now = Timeval::from(Clock::Realtime.now()?);
        UserPtr::new(a.addr(0)).write(&now)?;
    }
    if a.addr(1) != 0 {
        UserPtr::<[i32; 2]>::new(a.addr(1)).write(&wall::zone())?;
    }
    Ok(0)
}

/// `settimeofday(2)`.
pub fn settimeofday(a: &Args) -> SysResult {
    let time = match a.addr(0) {
        0 => None,
        address => Some(UserPtr::<Timeval>::new(address).read()?),
    };
    let zone = match a.addr(1) {
        0 => None,
        address => Some(UserPtr::<[i32; 2]>::new(address).read()?),
    };
    if let Some(time) = time {
        time.to_nanos()?;
    }
    caller::need(Capabilities::SYS_TIME)?;
    wall::set_with_zone(time, zone)
}

/// `time(2)`.
pub fn time(a: &Args) -> SysResult {
    let seconds = Clock::Realtime.now()?.0 / 1_000_000_000;
    if a.addr(0) != 0 {
        UserPtr::<u64>::new(a.addr(0)).write(&seconds)?;
    }
    Ok(super::value(seconds))
}

fn ticks(time: Nanos) -> u64 {
    time.0 / (1_000_000_000 / TICKS_PER_S)
}

/// `times(2)`.
pub fn times(a: &Args) -> SysResult {
    if a.addr(0) != 0 {
        let process = process::current().process().clone();
        let (own, children) = (process.usage_of_tasks(), process.children_usage());
        let words = [
            ticks(own.user),
            ticks(own.system),
            ticks(children.user),
            ticks(children.system),
        ];
        UserPtr::<[u64; 4]>::new(a.addr(0)).write(&words)?;
    }
    Ok(super::value(ticks(clock::now())))
}

/// `alarm(2)`.
pub fn alarm(a: &Args) -> SysResult {
    let span = Nanos::from_secs(u64::from(a.uint(0)));
    let deadline = (span.0 != 0).then(|| clock::now().saturating_add(span));
    let process = process::current().process().clone();
    let setting = Setting {
        deadline,
        interval: Nanos::ZERO,
    };
    let (left, _) = process.timers.set_real(&process, setting);
    // Rounded to seconds, but never 0 for an alarm that was set.
    let seconds = left.0.saturating_add(500_000_000) / 1_000_000_000;
    Ok(if left.0 != 0 {
        super::value(seconds.max(1))
    } else {
        0
    })
}

/// An interval timer.
enum Timer {
    Real,
    Cpu(Which),
}

fn timer(number: i32) -> Result<Timer, Errno> {
    match number {
        0 => Ok(Timer::Real),
        1 => Ok(Timer::Cpu(Which::Virtual)),
        2 => Ok(Timer::Cpu(Which::Prof)),
        _ => Err(Errno::EINVAL),
    }
}

fn read_timer(which: &Timer) -> Itimerval {
    let process = process::current().process().clone();
    let (left, interval) = match which {
        Timer::Real => process.timers.real(),
        Timer::Cpu(which) => process.timers.cpu.get(&process, *which),
    };
    Itimerval {
        interval: interval.into(),
        value: round_up(left),
    }
}

/// Rounds a span up to microseconds, so that only an empty span becomes 0.
fn round_up(span: Nanos) -> Timeval {
    Timeval::from(Nanos(span.0.saturating_add(999)))
}

/// `getitimer(2)`.
pub fn getitimer(a: &Args) -> SysResult {
    let value = read_timer(&timer(a.int(0))?);
    UserPtr::new(a.addr(1)).write(&value)?;
    Ok(0)
}

/// `setitimer(2)`.
pub fn setitimer(a: &Args) -> SysResult {
    let which = timer(a.int(0))?;
    let new = match a.addr(1) {
        // As on Linux, a null pointer stands for zeros.
        0 => Itimerval::default(),
        address => UserPtr::<Itimerval>::new(address).read()?,
    };
    let (value, interval) = (new.value.to_nanos()?, new.interval.to_nanos()?);
    let old = read_timer(&which);
    let process = process::current().process().clone();
    match which {
        Timer::Real => {
            let deadline = (value.0 != 0).then(|| clock::now().saturating_add(value));
            process
                .timers
                .set_real(&process, Setting { deadline, interval });
        }
        Timer::Cpu(which) => process.timers.cpu.set(&process, which, value, interval),
    }
    if a.addr(2) != 0 {
        UserPtr::new(a.addr(2)).write(&old)?;
    }
    Ok(0)
}

/// `struct sigevent`, with the fields that the kernel reads.
#[derive(Copy, Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct SigEvent {
    value: u64,
    signo: u32,
    notify: u32,
    thread: i32,
    padding: [u32; 11],
}

/// `timer_create(2)`.
pub fn timer_create(a: &Args) -> SysResult {
    const SIGEV_SIGNAL: u32 = 0;
    const SIGEV_NONE: u32 = 1;
    // The C library starts the thread. For the kernel this is a signal.
    const SIGEV_THREAD: u32 = 2;
    const SIGEV_THREAD_ID: u32 = 4;
    let clock = Clock::from_number(a.int(0))?.for_timer()?;
    let process = process::current().process().clone();
    let event = match a.addr(1) {
        0 => None,
        address => Some(UserPtr::<SigEvent>::new(address).read()?),
    };
    let signal = match &event {
        Some(event) if event.notify != SIGEV_NONE => {
            Signal::new(event.signo).ok_or(Errno::EINVAL)?
        }
        _ => Signal::SIGALRM,
    };
    let thread = match &event {
        Some(event) if event.notify == SIGEV_THREAD_ID => {
            let tid = u32::try_from(event.thread).map_err(|_| Errno::EINVAL)?;
            process.thread(tid).ok_or(Errno::EINVAL)?;
            Some(tid)
        }
        Some(event) if !matches!(event.notify, SIGEV_SIGNAL | SIGEV_NONE | SIGEV_THREAD) => {
            return Err(Errno::EINVAL);
        }
        _ => None,
    };
    may_wait_for(a.uint(0))?;
    let number = process
        .timers
        .posix
        .create(&process, clock, |number| match &event {
            Some(event) if event.notify == SIGEV_NONE => Notify::Nothing,
            Some(event) => Notify::Signal {
                signal,
                value: event.value,
                thread,
            },
            None => Notify::Signal {
                signal,
                value: u64::from(number),
                thread,
            },
        })?;
    if let Err(error) = UserPtr::<u32>::new(a.addr(2)).write(&number) {
        let _ = process.timers.posix.delete(&process, number);
        return Err(error);
    }
    Ok(0)
}

fn show(reading: Reading) -> Itimerspec {
    Itimerspec {
        interval: reading.interval.into(),
        value: reading.left.into(),
    }
}

/// `timer_settime(2)`.
pub fn timer_settime(a: &Args) -> SysResult {
    if a.addr(2) == 0 {
        return Err(Errno::EINVAL);
    }
    let new = UserPtr::<Itimerspec>::new(a.addr(2)).read()?;
    let (value, interval) = (new.value.to_nanos()?, new.interval.to_nanos()?);
    let process = process::current().process().clone();
    let timers = &process.timers.posix;
    let clock = timers.clock(a.uint(0))?;
    let absolute = a.uint(1) & raw::TIMER_ABSTIME != 0;
    let mut at_wall = None;
    let deadline = match clock {
        _ if value.0 == 0 => None,
        _ if absolute && !clock.is_cpu_time() => match clock.deadline(value)? {
            Deadline::Wall(at) => {
                at_wall = Some(at);
                None
            }
            Deadline::Monotonic(at) => Some(at),
        },
        _ if absolute => Some(value),
        _ if clock.is_cpu_time() => Some(clock.now()?.saturating_add(value)),
        _ => Some(clock::now().saturating_add(value)),
    };
    let setting = Setting { deadline, interval };
    let old = timers.set(&process, a.uint(0), setting, at_wall)?;
    if a.addr(3) != 0 {
        UserPtr::new(a.addr(3)).write(&show(old))?;
    }
    Ok(0)
}

/// `timer_gettime(2)`.
pub fn timer_gettime(a: &Args) -> SysResult {
    let reading = process::current().process().timers.posix.get(a.uint(0))?;
    UserPtr::new(a.addr(1)).write(&show(reading))?;
    Ok(0)
}

/// `timer_getoverrun(2)`.
pub fn timer_getoverrun(a: &Args) -> SysResult {
    let overrun = process::current()
        .process()
        .timers
        .posix
        .overrun(a.uint(0))?;
    Ok(super::value(overrun))
}

/// `timer_delete(2)`.
pub fn timer_delete(a: &Args) -> SysResult {
    let own = process::current();
    let process = own.process();
    process.timers.posix.delete(process, a.uint(0))?;
    Ok(0)
}
