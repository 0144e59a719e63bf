//! `struct timespec`, `struct timeval` and related types.

use logic::errno::Errno;
use machine::arch::clock::Nanos;
use machine::uaccess::UserPtr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const NS_PER_S: u64 = 1_000_000_000;

/// `struct timespec` of the ABI: seconds and nanoseconds.
#[derive(Copy, Clone, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Timespec {
    /// Seconds.
    pub sec: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nsec: i64,
}

impl Timespec {
    /// Reads a `struct timespec` at `address` in user memory and returns its time. A time that does
    /// not fit becomes the largest one.
    ///
    /// # Errors
    /// Fails with `EFAULT` if the memory cannot be read, and with `EINVAL` for a negative time or a
    /// billion nanoseconds or more.
    pub fn read(address: u64) -> Result<Nanos, Errno> {
        UserPtr::<Self>::new(address).read()?.to_nanos()
    }

    /// Returns the time if it is valid. A time that does not fit becomes the largest one.
    ///
    /// # Errors
    /// Fails with `EINVAL` for a negative time or a billion nanoseconds or more.
    pub fn to_nanos(self) -> Result<Nanos, Errno> {
        let sec = u64::try_from(self.sec).map_err(|_| Errno::EINVAL)?;
        let nsec = u64::try_from(self.nsec).map_err(|_| Errno::EINVAL)?;
        if nsec >= NS_PER_S {
            return Err(Errno::EINVAL);
        }
        Ok(Nanos(sec.saturating_mul(NS_PER_S).saturating_add(nsec)))
    }

    /// Writes the time to `address` in user memory.
    ///
    /// # Errors
    /// Fails with `EFAULT` if the memory cannot be written.
    pub fn write(self, address: u64) -> Result<(), Errno> {
        UserPtr::<Self>::new(address).write(&self)
    }
}

impl From<Nanos> for Timespec {
    fn from(time: Nanos) -> Self {
        let (sec, nsec) = (time.0 / NS_PER_S, time.0 % NS_PER_S);
        Self {
            sec: sec.cast_signed(),
            nsec: nsec.cast_signed(),
        }
    }
}

/// `struct timeval` of the ABI: seconds and microseconds.
#[derive(Copy, Clone, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Timeval {
    /// Seconds.
    pub sec: i64,
    /// Microseconds, 0 to 999,999.
    pub usec: i64,
}

impl Timeval {
    /// Returns the time if it is valid. A time that does not fit becomes the largest one.
    ///
    /// # Errors
    /// Fails with `EINVAL` for a negative time or a million microseconds or more.
    pub fn to_nanos(self) -> Result<Nanos, Errno> {
        if !(0..1_000_000).contains(&self.usec) {
            return Err(Errno::EINVAL);
        }
        Timespec {
            sec: self.sec,
            nsec: self.usec * 1000,
        }
        .to_nanos()
    }
}

impl From<Nanos> for Timeval {
    fn from(time: Nanos) -> Self {
        let (sec, ns) = (time.0 / NS_PER_S, time.0 % NS_PER_S);
        Self {
            sec: sec.cast_signed(),
            usec: (ns / 1000).cast_signed(),
        }
    }
}

/// `struct itimerspec` of the ABI: the interval of a POSIX timer, and its first expiration or time
/// left.
#[derive(Copy, Clone, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Itimerspec {
    /// The time between expirations; zero if there is only one.
    pub interval: Timespec,
    /// The time to the next expiration, or the time of the first one (`TIMER_ABSTIME`). Zero if the
    /// timer is not set.
    pub value: Timespec,
}

/// `struct itimerval` of the ABI: the interval of an interval timer, and its time left.
#[derive(Copy, Clone, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Itimerval {
    /// The time between expirations; zero if there is only one.
    pub interval: Timeval,
    /// The time to the next expiration; zero if the timer is not set.
    pub value: Timeval,
}
