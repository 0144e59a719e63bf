//! How a knob reads what is written to it: a file of `/proc/sys` or `/sys` names one of Linux's readers, and what
//! is done with the value.

use core::fmt;
use logic::errno::{Errno, SysResult};
use logic::knob::number::{self, Base};
use logic::knob::{sysctl, word};

/// The longest part of one write that is read.
pub(super) const MOST_BYTES: usize = 4096;
/// From this number of bytes on, `/proc/sys` refuses a write.
const SYSCTL_BYTES: usize = 4 << 20;
/// The most numbers of one file.
const MOST_NUMBERS: usize = 4;

/// What a program writes with one call.
#[derive(Copy, Clone, Debug)]
pub struct Input<'a> {
    /// The bytes, 4096 at most.
    pub bytes: &'a [u8],
    /// The number of bytes that the program has written, of which [`Self::bytes`] are the first.
    pub length: usize,
}

impl<'a> Input<'a> {
    /// The text without white space and NUL bytes around it.
    ///
    /// # Errors
    /// `EINVAL` if it is longer than 4096 bytes, or is not UTF-8.
    pub fn text(&self) -> Result<&'a str, Errno> {
        if self.length > self.bytes.len() {
            return Err(Errno::EINVAL);
        }
        let text = core::str::from_utf8(self.bytes).map_err(|_| Errno::EINVAL)?;
        Ok(text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\0'))
    }
}

/// Takes a value.
pub type Set<T> = fn(T) -> Result<(), Errno>;
/// Takes words or numbers.
pub type SetBy<T> = fn(&T) -> Result<(), Errno>;

/// A reader, and what takes the value.
#[derive(Copy, Clone)]
pub enum Store {
    /// Text of the file's own form, without white space around it.
    Text(SetBy<str>),
    /// Whatever is written: that it is, matters.
    Event(fn() -> Result<(), Errno>),
    /// An `int` of `/proc/sys` within bounds.
    Int {
        /// The least value.
        least: i32,
        /// The greatest value.
        most: i32,
        /// Takes the value.
        set: Set<i32>,
    },
    /// An `int` of `/proc/sys` within bounds that are not below 0.
    Natural {
        /// The least value, not below 0.
        least: i32,
        /// The greatest value.
        most: i32,
        /// Takes the value.
        set: Set<u64>,
    },
    /// An `unsigned long` of `/proc/sys` within bounds.
    Long {
        /// The least value.
        least: u64,
        /// The greatest value.
        most: u64,
        /// Takes the value.
        set: Set<u64>,
    },
    /// An `unsigned int` of `/proc/sys`.
    Unsigned(Set<u32>),
    /// A `bool` of `/proc/sys`: any number.
    Bool(Set<bool>),
    /// Up to four `int` values of `/proc/sys`. Those before a wrong one count.
    Ints {
        /// The number of values.
        count: usize,
        /// Takes the first values, one at least.
        set: SetBy<[i32]>,
    },
    /// A decimal `unsigned long` of `/sys`.
    Decimal(Set<u64>),
    /// A decimal `unsigned int` of `/sys`, or `EINVAL`.
    Count(Set<u64>),
    /// 0 or 1 in `/sys`.
    Flag(Set<bool>),
    /// One of several names in `/sys`.
    Name(SetBy<str>),
    /// One of several names in `/sys`, 15 bytes with what ends it at most.
    ShortName(SetBy<str>),
    /// A size with a suffix in `/sys`, whatever follows.
    Size(Set<u64>),
    /// An `unsigned int` that is a module's parameter within bounds.
    Parameter {
        /// The least value.
        least: u32,
        /// The greatest value.
        most: u32,
        /// Takes the value.
        set: Set<u64>,
    },
}

impl Store {
    /// An `int` of `/proc/sys` from `least` to `most`, which are not below 0.
    pub const fn natural(least: i32, most: i32, set: Set<u64>) -> Self {
        Self::Natural { least, most, set }
    }

    /// An `int` of `/proc/sys`.
    pub const fn int(set: Set<i32>) -> Self {
        let (least, most) = (i32::MIN, i32::MAX);
        Self::Int { least, most, set }
    }

    /// An `unsigned long` of `/proc/sys` from `least` to `most`.
    pub const fn long(least: u64, most: u64, set: Set<u64>) -> Self {
        Self::Long { least, most, set }
    }

    /// An `unsigned int` from `least` to `most` that is a module's parameter.
    pub const fn parameter(least: u32, most: u32, set: Set<u64>) -> Self {
        Self::Parameter { least, most, set }
    }

    /// Takes `input`, written at `offset`, which moves on as on Linux. Returns the number of bytes that count as
    /// written: in `/proc/sys` those up to the end of the last number that is read.
    pub(super) fn write(&self, input: Input<'_>, offset: &mut u64) -> SysResult {
        if input.length == 0 {
            return Ok(0);
        }
        let taken = match self {
            Self::Int { .. }
            | Self::Natural { .. }
            | Self::Long { .. }
            | Self::Unsigned(_)
            | Self::Bool(_)
            | Self::Ints { .. } => self.write_sysctl(input, *offset)?,
            Self::Text(set) => {
                set(input.text()?)?;
                input.length
            }
            Self::Event(act) => {
                act()?;
                input.length
            }
            _ => self.write_attribute(input.bytes)?,
        };
        // As on Linux, two of them stay where they are.
        if !matches!(self, Self::Unsigned(_) | Self::Event(_)) {
            *offset += taken as u64;
        }
        Ok(taken)
    }

    /// Takes numbers of `/proc/sys`. A write behind the beginning is taken and does nothing.
    fn write_sysctl(&self, input: Input<'_>, offset: u64) -> SysResult {
        if input.length >= SYSCTL_BYTES {
            return Err(Errno::ENOMEM);
        }
        if offset != 0 {
            return Ok(input.length);
        }
        // Bytes behind the part that is read count as taken with it.
        let unread = input.length - input.bytes.len();
        let text = input.bytes;
        let taken = match *self {
            Self::Int { least, most, set } => {
                let mut value = [0];
                let taken = sysctl::ints(text, least, most, &mut value).taken?;
                set(value[0])?;
                taken
            }
            Self::Natural { least, most, set } => {
                let mut value = [0];
                let taken = sysctl::ints(text, least, most, &mut value).taken?;
                set(u64::from(value[0].unsigned_abs()))?;
                taken
            }
            Self::Long { least, most, set } => {
                let mut value = [0];
                let taken = sysctl::longs(text, least, most, &mut value).taken?;
                set(value[0])?;
                taken
            }
            Self::Unsigned(set) => {
                set(sysctl::unsigned(text)?)?;
                text.len()
            }
            Self::Bool(set) => {
                let mut on = false;
                let taken = sysctl::switch(text, &mut on).taken?;
                set(on)?;
                taken
            }
            Self::Ints { count, set } => {
                let mut values = [0; MOST_NUMBERS];
                let values = &mut values[..count];
                let numbers = sysctl::ints(text, i32::MIN, i32::MAX, values);
                if numbers.count != 0 {
                    set(&values[..numbers.count])?;
                }
                numbers.taken?
            }
            _ => return Err(Errno::EIO),
        };
        Ok(taken + unread)
    }

    /// Takes what a file of `/sys` reads, all of it.
    fn write_attribute(&self, text: &[u8]) -> SysResult {
        let name = |bytes| core::str::from_utf8(bytes).map_err(|_| Errno::EINVAL);
        match *self {
            Self::Decimal(set) => set(number::unsigned(text, Base::Ten, u64::MAX)?)?,
            Self::Count(set) => {
                let number = number::unsigned(text, Base::Ten, u32::MAX.into());
                set(number.map_err(|_| Errno::EINVAL)?)?;
            }
            Self::Flag(set) => set(word::flag(text)?)?,
            Self::Name(set) => set(name(word::name(text))?)?,
            Self::ShortName(set) => set(name(word::short_name(text)?)?)?,
            Self::Size(set) => set(number::size(text).0)?,
            Self::Parameter { least, most, set } => set(parameter(text, least, most)?)?,
            _ => return Err(Errno::EIO),
        }
        Ok(text.len())
    }
}

/// Reads the value of a module's parameter that is an `unsigned int` from `least` to `most`.
///
/// # Errors
/// `ERANGE` if it does not fit an `unsigned int`, `EINVAL` if it is no number or beyond the bounds.
pub fn parameter(text: &[u8], least: u32, most: u32) -> Result<u64, Errno> {
    let value = number::unsigned(text, Base::OfPrefix, u32::MAX.into())?;
    if (u64::from(least)..=u64::from(most)).contains(&value) {
        Ok(value)
    } else {
        Err(Errno::EINVAL)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}
