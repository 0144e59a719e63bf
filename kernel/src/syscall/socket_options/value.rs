//! The value that a program passes to `setsockopt`, and the value that `getsockopt` returns.

use crate::fs::socket::Settings;
use crate::process::caller;
use alloc::vec::Vec;
use logic::credentials::Capabilities;
use logic::errno::Errno;
use logic::socket::options::{Kept, Needs};
use machine::uaccess;

/// The value that a program passes: its address and its length in bytes.
pub(super) struct Value {
    pub(super) address: u64,
    pub(super) length: usize,
}

impl Value {
    /// Reads the value as a number of four bytes.
    ///
    /// # Errors
    /// Fails with `EINVAL` if the value is shorter, and with `EFAULT`.
    pub(super) fn number(&self) -> Result<i32, Errno> {
        if self.length < 4 {
            return Err(Errno::EINVAL);
        }
        let mut bytes = [0; 4];
        uaccess::copy_in(&mut bytes, self.address)?;
        Ok(i32::from_le_bytes(bytes))
    }

    /// Reads the value as an unsigned number of four bytes.
    ///
    /// # Errors
    /// Fails with `EINVAL` if the value is shorter, and with `EFAULT`.
    pub(super) fn unsigned(&self) -> Result<u32, Errno> {
        self.number().map(i32::cast_unsigned)
    }

    /// Reads the value as a number of four bytes, and returns whether it is not 0.
    ///
    /// # Errors
    /// Fails with `EINVAL` if the value is shorter, and with `EFAULT`.
    pub(super) fn on(&self) -> Result<bool, Errno> {
        self.number().map(|number| number != 0)
    }

    /// Reads the value as a number of four bytes from 1 to `most`.
    ///
    /// # Errors
    /// Fails with `EINVAL` for another number or if the value is shorter, and with `EFAULT`.
    pub(super) fn within(&self, most: i32) -> Result<u32, Errno> {
        let number = self.number()?;
        if number < 1 || number > most {
            return Err(Errno::EINVAL);
        }
        Ok(number.cast_unsigned())
    }

    /// Copies the value to `room` as a name, and returns the name's length. The name ends at the
    /// first NUL, at the end of the value, or before the last byte of `room`.
    ///
    /// # Errors
    /// Fails with `EFAULT`.
    pub(super) fn name(&self, room: &mut [u8]) -> Result<usize, Errno> {
        let most = self.length.min(room.len() - 1);
        uaccess::copy_in(&mut room[..most], self.address)?;
        let zero = room[..most].iter().position(|&byte| byte == 0);
        Ok(zero.unwrap_or(most))
    }

    /// Reads the value as `count` words of eight bytes, one or two. With one, the second word is 0.
    /// Returns `None` if the value is shorter.
    ///
    /// # Errors
    /// Fails with `EFAULT`.
    pub(super) fn words_up_to(&self, count: usize) -> Result<Option<[u64; 2]>, Errno> {
        let length = count * size_of::<u64>();
        if self.length < length {
            return Ok(None);
        }
        let mut bytes = [0; 16];
        uaccess::copy_in(&mut bytes[..length], self.address)?;
        let value = u128::from_le_bytes(bytes);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "splits the value into its two halves"
        )]
        Ok(Some([value as u64, (value >> 64) as u64]))
    }

    /// Reads the value as two words of eight bytes.
    ///
    /// # Errors
    /// Fails with `EINVAL` if the value is shorter, and with `EFAULT`.
    pub(super) fn words(&self) -> Result<[u64; 2], Errno> {
        self.words_up_to(2)?.ok_or(Errno::EINVAL)
    }

    /// Copies all bytes of the value. Returns a buffer that starts with these bytes, and their
    /// number.
    ///
    /// # Errors
    /// Fails with `EINVAL` if there are more than `N` bytes, and with `EFAULT`.
    pub(super) fn bytes<const N: usize>(&self) -> Result<([u8; N], usize), Errno> {
        let mut bytes = [0; N];
        let place = bytes.get_mut(..self.length).ok_or(Errno::EINVAL)?;
        uaccess::copy_in(place, self.address)?;
        Ok((bytes, self.length))
    }
}

/// The value of an option that `getsockopt` returns.
pub(super) enum Shown {
    /// A number of four bytes.
    Number(u32),
    /// A byte, if the program's buffer has less room than a number.
    Byte([u8; 1]),
    /// Two numbers of four bytes, or one of eight.
    Word([u8; 8]),
    /// A name.
    Name(&'static [u8]),
    /// Two numbers of eight bytes.
    Time([u8; 16]),
    /// Any other value.
    Bytes(Vec<u8>),
}

impl Shown {
    /// Returns 1 or 0 as the value of a switch.
    pub(super) fn switch(on: bool) -> Self {
        Self::Number(on.into())
    }

    /// Returns `value` as a number of four bytes.
    pub(super) fn signed(value: i32) -> Self {
        Self::Number(value.cast_unsigned())
    }
}

/// Checks that the caller has `CAP_NET_RAW` or `CAP_NET_ADMIN`.
///
/// # Errors
/// Fails with `EPERM` if the caller has neither.
pub(super) fn need_admin_or_raw() -> Result<(), Errno> {
    caller::need(Capabilities::NET_RAW).or_else(|_| caller::need(Capabilities::NET_ADMIN))
}

/// Sets the option `kept`, which is stored only for programs to read it.
///
/// # Errors
/// Fails with `EINVAL` if the option does not accept `value`, and with `EPERM` if the caller lacks
/// the capability for this value.
pub(super) fn set_kept(settings: &Settings, kept: Kept, value: i32) -> Result<(), Errno> {
    let checked = kept.checked(value)?;
    match kept.needs() {
        Needs::AdminOrRaw if matches!(kept, Kept::Number(_)) || checked != 0 => {
            need_admin_or_raw()?;
        }
        Needs::AdminToRaise if checked > settings.kept.get(kept) => {
            caller::need(Capabilities::NET_ADMIN)?;
        }
        Needs::Nothing | Needs::AdminOrRaw | Needs::AdminToRaise => {}
    }
    settings.kept.set(kept, checked);
    Ok(())
}
