//! Readers of values that programs write to knobs. A file of `/proc/sys` or `/sys` names one of
//! Linux's readers and the function that takes the value.

use core::fmt;
use logic::errno::{Errno, SysResult};
use logic::knob::number::{self, Base};
use logic::knob::{sysctl, word};

/// The most bytes of one write that the kernel looks at.
pub(super) const MOST_BYTES: usize = 4096;
/// The number of bytes from which on `/proc/sys` refuses a write.
const SYSCTL_BYTES: usize = 4 << 20;
/// The most numbers in one file.
const MOST_NUMBERS: usize = 4;

/// The data of one write to a knob.
#[derive(Copy, Clone, Debug)]
pub struct Input<'a> {
    /// The bytes, 4096 at most.
    pub bytes: &'a [u8],
    /// The number of bytes that the program has written. [`Self::bytes`] are the first of them.
    pub length: usize,
}

impl<'a> Input<'a> {
    /// Returns the text without white space and NUL bytes around it.
    ///
    /// # Errors
    /// Fails with `EINVAL` if the program wrote more than 4096 bytes, or if the text is not UTF-8.
    pub fn text(&self) -> Result<&'a str, Errno> {
        if self.length > self.bytes.len() {
            return Err(Errno::EINVAL);
        }
        let text = core::str::from_utf8(self.bytes).map_err(|_| Errno::EINVAL)?;
        Ok(text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\0'))
    }
}

/// A function that stores the value of a knob. Fails with the error for the program if it refuses
/// the value.
pub type Set<T> = fn(T) -> Result<(), Errno>;
/// A function as [`Set`] for a value that is passed by reference: a text or a list of numbers.
pub type SetBy<T> = fn(&T) -> Result<(), Errno>;

/// The format in which a program writes a knob, and the function that stores the value.
#[derive(Copy, Clone)]
pub enum Store {
    /// Text in a form of the file's own, without white space around it.
    Text(SetBy<str>),
    /// Any text. Only the write itself matters.
    Event(fn() -> Result<(), Errno>),
    /// An `int` of `/proc/sys` within bounds.
    Int {
        /// The least value.
        least: i32,
        /// The greatest value.
        most: i32,
        /// Stores the value.
        set: Set<i32>,
    },
    /// An `int` of `/proc/sys` within bounds that are not below 0.
    Natural {
        /// The least value, not below 0.
        least: i32,
        /// The greatest value.
        most: i32,
        /// Stores the value.
        set: Set<u64>,
    },
    /// An `unsigned long` of `/proc/sys` within bounds.
    Long {
        /// The least value.
        least: u64,
        /// The greatest value.
        most: u64,
        /// Stores the value.
        set: Set<u64>,
    },
    /// An `unsigned int` of `/proc/sys`.
    Unsigned(Set<u32>),
    /// A `bool` of `/proc/sys`. Programs may write any number; 0 stands for `false`.
    Bool(Set<bool>),
    /// Up to four `int` values of `/proc/sys`. Values before a wrong one are stored.
    Ints {
        /// The number of values.
        count: usize,
        /// Stores the values that were read, at least one.
        set: SetBy<[i32]>,
    },
    /// A decimal `unsigned long` of `/sys`.
    Decimal(Set<u64>),
    /// A decimal `unsigned int` of `/sys`. Anything else fails with `EINVAL`.
    Count(Set<u64>),
    /// A `bool` of `/sys`, written as 0 or 1.
    Flag(Set<bool>),
    /// One of several names in `/sys`.
    Name(SetBy<str>),
    /// One of several names in `/sys`, at most 15 bytes with the end of the line.
    ShortName(SetBy<str>),
    /// A size with a suffix in `/sys`. Text behind the size is ignored.
    Size(Set<u64>),
    /// An `unsigned int` that is a module's parameter within bounds.
    Parameter {
        /// The least value.
        least: u32,
        /// The greatest value.
        most: u32,
        /// Stores the value.
        set: Set<u64>,
    },
}

impl Store {
    /// Returns the reader of an `int` of `/proc/sys` from `least` to `most`, which are not below 0.
    pub const fn natural(least: i32, most: i32, set: Set<u64>) -> Self {
        Self::Natural { least, most, set }
    }

    /// Returns the reader of any `int` of `/proc/sys`.
    pub const fn int(set: Set<i32>) -> Self {
        let (least, most) = (i32::MIN, i32::MAX);
        Self::Int { least, most, set }
    }

    /// Returns the reader of an `unsigned long` of `/proc/sys` from `least` to `most`.
    pub const fn long(least: u64, most: u64, set: Set<u64>) -> Self {
        Self::Long { least, most, set }
    }

    /// Returns the reader of a module's parameter: an `unsigned int` from `least` to `most`.
    pub const fn parameter(least: u32, most: u32, set: Set<u64>) -> Self {
        Self::Parameter { least, most, set }
    }

    /// Reads the value from `input`, which a program wrote at `offset`, and stores it. `offset`
    /// advances as on Linux. Returns the number of bytes that count as written: in `/proc/sys`
    /// those up to the end of the last number that is read.
    ///
    /// # Errors
    /// Fails with `EINVAL` if the text is no allowed value, with `ENOMEM` if a text for `/proc/sys`
    /// is too long, and with the errors of the function that stores the value.
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
        // As on Linux, `Unsigned` and `Event` do not advance the offset.
        if !matches!(self, Self::Unsigned(_) | Self::Event(_)) {
            *offset += taken as u64;
        }
        Ok(taken)
    }

    /// Stores the numbers that a program wrote to a file of `/proc/sys`. A write at an offset other
    /// than 0 is accepted and does nothing. Returns the number of bytes that count as written.
    /// Fails with `ENOMEM` for [`SYSCTL_BYTES`] or more, with `EINVAL` for a value that is
    /// malformed or out of bounds, with `EIO` if the file takes another form, and with the error of
    /// setting the value.
    fn write_sysctl(&self, input: Input<'_>, offset: u64) -> SysResult {
        if input.length >= SYSCTL_BYTES {
            return Err(Errno::ENOMEM);
        }
        if offset != 0 {
            return Ok(input.length);
        }
        // Bytes behind the part that is read count as written too.
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

    /// Stores the value that a program wrote to a file of `/sys`. Returns the length of `text`.
    /// Fails with `EINVAL` or `ERANGE` for a value that is malformed or out of bounds, with `EIO`
    /// if the file takes another form, and with the error of setting the value.
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

/// Reads the value of a module's parameter: an `unsigned int` from `least` to `most`.
///
/// # Errors
/// Fails with `ERANGE` if the value does not fit an `unsigned int`, and with `EINVAL` if it is no
/// number or out of bounds.
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
