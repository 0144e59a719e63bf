//! Waiting of a disk's thread: an epoll for all events, and the time for which the thread polls
//! before it sleeps.
//!
//! Kicks are edge-triggered: a driver's notification ends a wait, and the thread need not read the
//! event counter. All rings are checked after every wait, so it does not matter which of them was
//! kicked.

use crate::time::Micros;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::time::Duration;

/// The kinds of events that end the wait of a disk's thread.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Source {
    /// A pressure event, a changed setting, or a request to stop.
    Wake = 1,
    /// The front-end's socket is readable.
    Message = 2,
    /// A front-end connects.
    Connect = 3,
    /// The I/O queue has completions.
    Io = 4,
    /// A driver notified a virtqueue.
    Kick = 5,
    /// The front-end's socket is writable, so that the rest of an answer can be sent.
    Answer = 6,
}

/// The events that ended a wait of [`Waiter`]. All `false` means the timeout, a signal, a kick or a
/// completion.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Ready {
    /// See [`Source::Wake`].
    pub(crate) wake: bool,
    /// See [`Source::Message`] and [`Source::Answer`].
    pub(crate) message: bool,
    /// See [`Source::Connect`].
    pub(crate) connect: bool,
}

/// Maximum number of events that one wait returns. The next wait returns the others.
const EVENTS: usize = 8;

/// The epoll with which a disk's thread waits. The caller makes a new one when a descriptor
/// changes, because an epoll would keep a descriptor that was closed here but is open in another
/// process.
#[derive(Debug)]
pub(crate) struct Waiter {
    epoll: OwnedFd,
}

impl Waiter {
    /// Makes an empty epoll. Fails if the process or the system has no descriptor left.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
        })
    }

    /// Adds the descriptor `fd`, whose events are of the kind `source`. [`Source::Kick`] is
    /// edge-triggered, the others are level-triggered. Fails if the system refuses, as for a
    /// regular file.
    pub(crate) fn add(&self, fd: impl AsFd, source: Source) -> io::Result<()> {
        let flags = match source {
            Source::Kick => EventFlags::IN | EventFlags::ET,
            Source::Answer => EventFlags::OUT,
            _ => EventFlags::IN,
        };
        epoll::add(&self.epoll, fd, EventData::new_u64(source as u64), flags)?;
        Ok(())
    }

    /// Waits for an event, at most for `timeout`, rounded up to milliseconds, or without limit if
    /// that is `None`. Returns the events found, none after the timeout or if a signal interrupts
    /// the wait. Fails if epoll fails.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> io::Result<Ready> {
        // Rounded up to milliseconds, the resolution of epoll, so that no wait ends too early.
        let timeout = timeout.map(|wait| Timespec {
            tv_sec: i64::try_from(wait.as_micros().div_ceil(1000) / 1000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(wait.as_micros().div_ceil(1000) % 1000).unwrap_or(0) * 1_000_000,
        });
        let mut events = [Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        }; EVENTS];
        let count = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        let any = |source: Source| {
            let mut ended = events[..count].iter();
            // The structure is packed, so its fields must be copied.
            ended.any(|event| {
                let data = event.data;
                data.u64() == source as u64
            })
        };
        Ok(Ready {
            wake: any(Source::Wake),
            message: any(Source::Message) || any(Source::Answer),
            connect: any(Source::Connect),
        })
    }
}

/// The longest time to poll before a sleep.
const MOST: Duration = Duration::from_micros(50);
/// The shortest time to poll, if the thread polls at all.
const LEAST: Duration = Duration::from_micros(6);

/// The time for which a thread polls before it sleeps. To sleep and be woken takes longer than a
/// fast disk needs, so a thread that was woken soon should have polled; after long sleeps polling
/// gains nothing. The time adapts to the last sleeps, between zero and 50 µs.
#[derive(Copy, Clone, Debug)]
pub(crate) struct PollTime {
    length: Duration,
    most: Duration,
}

impl PollTime {
    /// Makes a time of zero for a machine with `processors` processors. With a single one it stays
    /// zero, because the thread would occupy the processor that the driver needs.
    pub(crate) fn new(processors: usize) -> Self {
        Self {
            length: Duration::ZERO,
            most: if processors > 1 { MOST } else { Duration::ZERO },
        }
    }

    /// Calls `found` until it returns `true` or this time is up; `now` returns the current time.
    /// Returns `true` in the first case, `false` in the second. If this time is zero, calls `found`
    /// once and returns its result.
    pub(crate) fn poll_until(
        &self,
        mut now: impl FnMut() -> Micros,
        mut found: impl FnMut() -> bool,
    ) -> bool {
        if self.length.is_zero() {
            return found();
        }
        let end = now() + self.length;
        loop {
            if found() {
                return true;
            }
            if now() >= end {
                return false;
            }
            std::hint::spin_loop();
        }
    }

    /// Adapts this time to a sleep that lasted from `from` to `to`: doubles it after a sleep of up
    /// to 50 µs, and halves it after a longer one.
    pub(crate) fn adapt(&mut self, from: Micros, to: Micros) {
        if from.until(to) > self.most {
            self.length /= 2;
            if self.length < LEAST {
                self.length = Duration::ZERO;
            }
        } else {
            self.length = (self.length * 2).max(LEAST).min(self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    fn sleeps(poll_time: &mut PollTime, micros: u64, times: usize) -> Duration {
        for _ in 0..times {
            poll_time.adapt(Micros(1000), Micros(1000 + micros));
        }
        poll_time.length
    }

    #[test]
    fn short_sleeps_make_patient_and_long_ones_do_not() {
        let mut poll_time = PollTime::new(2);
        assert_eq!(sleeps(&mut poll_time, 20, 1), LEAST);
        assert_eq!(sleeps(&mut poll_time, 20, 20), MOST);
        assert_eq!(sleeps(&mut poll_time, 5000, 20), Duration::ZERO);
        assert_eq!(sleeps(&mut PollTime::new(1), 20, 20), Duration::ZERO);
    }

    #[test]
    fn a_look_ends_with_what_it_was_for_or_with_patience() {
        let mut poll_time = PollTime::new(2);
        sleeps(&mut poll_time, 1, 20);
        assert_eq!(poll_time.length, MOST);
        // Ten microseconds pass between two reads of the clock.
        let looks = |wanted: Option<u64>| {
            let (mut time, mut looks) = (0, 0);
            let now = || {
                time += 10;
                Micros(time)
            };
            let found = poll_time.poll_until(now, || {
                looks += 1;
                wanted == Some(looks)
            });
            (found, looks, time)
        };
        assert_eq!(looks(Some(3)), (true, 3, 30));
        assert_eq!(looks(Some(5)), (true, 5, 50));
        assert_eq!(looks(None), (false, 5, 60));
        assert_eq!(looks(Some(6)), (false, 5, 60));
    }

    #[test]
    fn a_kick_counts_once_and_needs_no_reading() {
        let waiter = Waiter::new().unwrap();
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let (kick, wake) = (eventfd(0, flags).unwrap(), eventfd(0, flags).unwrap());
        waiter.add(&kick, Source::Kick).unwrap();
        waiter.add(&wake, Source::Wake).unwrap();
        let mut buffer = [Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        }; EVENTS];
        let mut count = || {
            let none = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            epoll::wait(&waiter.epoll, &mut buffer, Some(&none)).unwrap()
        };
        for _ in 0..3 {
            rustix::io::write(&kick, &1_u64.to_ne_bytes()).unwrap();
            assert_eq!((count(), count()), (1, 0));
        }
        rustix::io::write(&wake, &1_u64.to_ne_bytes()).unwrap();
        assert!(waiter.wait(None).unwrap().wake, "until it is read");
        assert!(waiter.wait(Some(Duration::ZERO)).unwrap().wake);
    }
}
