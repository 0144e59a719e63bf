//! Linux's clocks and their numbers.

use super::steering;
use super::wall::{self, Deadline};
use crate::process;
use crate::process::task::{find, find_task};
use alloc::sync::Arc;
use logic::errno::Errno;
use machine::arch::clock::{self, Nanos};

/// The resolution of Linux's clocks that count ticks of 250 Hz.
const TICK: Nanos = Nanos::from_millis(4);

/// The part of the CPU time that a clock shows.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// User and system time, which Linux counts in ticks (`CPUCLOCK_PROF`).
    InTicks,
    /// User time (`CPUCLOCK_VIRT`).
    User,
    /// User and system time (`CPUCLOCK_SCHED`).
    Whole,
}

impl Part {
    fn of(self, user: Nanos, system: Nanos) -> Nanos {
        match self {
            Self::User => user,
            Self::InTicks | Self::Whole => user.saturating_add(system),
        }
    }
}

/// A clock that can be read.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Time since 1970.
    Realtime,
    /// Time since 1970, on a clock that can only be read.
    RealtimeToRead,
    /// Time since 1970 without leap seconds: ahead by the value that `ADJ_TAI` set.
    Atomic,
    /// Time since the kernel started.
    Monotonic,
    /// Time since the kernel started, on a clock that can only be read.
    MonotonicToRead,
    /// CPU time of a process; 0 for the current one.
    Process(u32, Part),
    /// CPU time of a thread; 0 for the current one.
    Thread(u32, Part),
}

impl Clock {
    /// Returns the clock with Linux's number `number`, which may name a process or thread.
    ///
    /// # Errors
    /// Fails with `EINVAL` for an unknown number.
    pub fn from_number(number: i32) -> Result<Self, Errno> {
        match number {
            // REALTIME, REALTIME_ALARM
            0 | 8 => Ok(Self::Realtime),
            // TAI
            11 => Ok(Self::Atomic),
            // REALTIME_COARSE
            5 => Ok(Self::RealtimeToRead),
            // MONOTONIC, BOOTTIME, BOOTTIME_ALARM
            1 | 7 | 9 => Ok(Self::Monotonic),
            // MONOTONIC_RAW, MONOTONIC_COARSE
            4 | 6 => Ok(Self::MonotonicToRead),
            2 => Ok(Self::Process(0, Part::Whole)),
            3 => Ok(Self::Thread(0, Part::Whole)),
            _ if number < 0 => {
                let part = match number & 3 {
                    0 => Part::InTicks,
                    1 => Part::User,
                    2 => Part::Whole,
                    _ => return Err(Errno::EINVAL),
                };
                let id = (!(number >> 3)).cast_unsigned();
                Ok(if number & 4 != 0 {
                    Self::Thread(id, part)
                } else {
                    Self::Process(id, part)
                })
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// Returns the time on the clock.
    ///
    /// # Errors
    /// Fails with `EINVAL` if the clock is that of a process or thread that does not exist.
    pub fn now(self) -> Result<Nanos, Errno> {
        Ok(match self {
            Self::Realtime | Self::RealtimeToRead => wall::now(),
            Self::Atomic => steering::atomic_of(wall::now()),
            Self::Monotonic | Self::MonotonicToRead => clock::now(),
            Self::Process(0, part) => {
                let usage = process::current().process().usage_of_tasks();
                part.of(usage.user, usage.system)
            }
            Self::Process(pid, part) => {
                let usage = find(pid).ok_or(Errno::EINVAL)?.usage_of_tasks();
                part.of(usage.user, usage.system)
            }
            Self::Thread(0, part) => {
                let (user, system) = process::current().account().times();
                part.of(user, system)
            }
            Self::Thread(tid, part) => {
                let own = process::current();
                let (user, system) = find_task(tid)
                    .filter(|task| Arc::ptr_eq(task.process(), own.process()))
                    .ok_or(Errno::EINVAL)?
                    .account()
                    .times();
                part.of(user, system)
            }
        })
    }

    /// Returns the resolution of the clock, as Linux names it for clocks on CPU time.
    ///
    /// # Errors
    /// Fails with `EINVAL` if the clock is that of a process or thread that does not exist.
    pub fn resolution(self) -> Result<Nanos, Errno> {
        match self {
            Self::Process(_, part) | Self::Thread(_, part) => {
                self.now()?;
                Ok(if part == Part::Whole { Nanos(1) } else { TICK })
            }
            _ => Ok(Nanos(1)),
        }
    }

    /// Returns the clock in the form for a timer of the current process, with numbers instead of 0.
    /// A timer may follow the CPU time of the process and its threads, and clocks that run by
    /// themselves.
    ///
    /// # Errors
    /// Fails with `EINVAL` for the CPU time of other processes, and with `EOPNOTSUPP` for clocks
    /// that can only be read.
    pub fn for_timer(self) -> Result<Self, Errno> {
        let current = process::current();
        let own = current.process();
        match self {
            Self::Realtime | Self::Atomic | Self::Monotonic => Ok(self),
            Self::RealtimeToRead | Self::MonotonicToRead => Err(Errno::EOPNOTSUPP),
            Self::Process(0, part) => Ok(Self::Process(own.pid(), part)),
            Self::Process(pid, _) if pid == own.pid() => Ok(self),
            Self::Thread(0, part) => Ok(Self::Thread(current.tid(), part)),
            Self::Thread(tid, _) if own.thread(tid).is_some() => Ok(self),
            Self::Process(..) | Self::Thread(..) => Err(Errno::EINVAL),
        }
    }

    /// Returns whether the clock advances only while threads run.
    pub fn is_cpu_time(self) -> bool {
        matches!(self, Self::Process(..) | Self::Thread(..))
    }

    /// Returns the deadline of a wait until the clock shows `time`.
    ///
    /// # Errors
    /// Fails with `EINVAL` for clocks that do not support waits.
    pub fn deadline(self, time: Nanos) -> Result<Deadline, Errno> {
        match self {
            Self::Realtime => Ok(Deadline::Wall(time)),
            Self::Atomic => Ok(Deadline::Wall(steering::wall_of(time))),
            Self::Monotonic => Ok(Deadline::Monotonic(time)),
            _ => Err(Errno::EINVAL),
        }
    }
}
