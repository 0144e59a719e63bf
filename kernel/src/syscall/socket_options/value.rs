//! The value that a program passes to `setsockopt`, and what `getsockopt` shows.

use crate::fs::socket::Settings;
use crate::process::caller;
use crate::vm::uaccess;
use alloc::vec::Vec;
use logic::credentials::Capabilities;
use logic::errno::Errno;
use logic::socket::options::{Kept, Needs};

/// The value that a program passes.
pub(super) struct Value {
    pub(super) address: u64,
    pub(super) length: usize,
}

impl Value {
    pub(super) fn number(&self) -> Result<i32, Errno> {
        if self.length < 4 {
            return Err(Errno::EINVAL);
        }
        let mut bytes = [0; 4];
        uaccess::copy_in(&mut bytes, self.address)?;
        Ok(i32::from_le_bytes(bytes))
    }

    pub(super) fn unsigned(&self) -> Result<u32, Errno> {
        self.number().map(i32::cast_unsigned)
    }

    pub(super) fn on(&self) -> Result<bool, Errno> {
        self.number().map(|number| number != 0)
    }

    /// A number of at least 1 and at most `most`.
    pub(super) fn within(&self, most: i32) -> Result<u32, Errno> {
        let number = self.number()?;
        if number < 1 || number > most {
            return Err(Errno::EINVAL);
        }
        Ok(number.cast_unsigned())
    }

    /// A name, which ends with the value, with `room` less one, or with a 0.
    pub(super) fn name(&self, room: &mut [u8]) -> Result<usize, Errno> {
        let most = self.length.min(room.len() - 1);
        uaccess::copy_in(&mut room[..most], self.address)?;
        let zero = room[..most].iter().position(|&byte| byte == 0);
        Ok(zero.unwrap_or(most))
    }

    /// `count` numbers of the size of a word, one or two. `None`: it is shorter.
    ///
    /// # Errors
    /// `EFAULT`.
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

    /// Two numbers of the size of a word.
    pub(super) fn words(&self) -> Result<[u64; 2], Errno> {
        self.words_up_to(2)?.ok_or(Errno::EINVAL)
    }

    /// All its bytes.
    ///
    /// # Errors
    /// `EINVAL`: there are more than `N`. `EFAULT`.
    pub(super) fn bytes<const N: usize>(&self) -> Result<([u8; N], usize), Errno> {
        let mut bytes = [0; N];
        let place = bytes.get_mut(..self.length).ok_or(Errno::EINVAL)?;
        uaccess::copy_in(place, self.address)?;
        Ok((bytes, self.length))
    }
}

/// What an option is: a number, or other bytes.
pub(super) enum Shown {
    /// A number of four bytes.
    Number(u32),
    /// A byte, where a program has room for less than a number.
    Byte([u8; 1]),
    /// Two numbers, or a long one.
    Word([u8; 8]),
    /// A name.
    Name(&'static [u8]),
    /// Two words.
    Time([u8; 16]),
    /// Any other value.
    Bytes(Vec<u8>),
}

impl Shown {
    /// A switch.
    pub(super) fn switch(on: bool) -> Self {
        Self::Number(on.into())
    }

    /// A signed number.
    pub(super) fn signed(value: i32) -> Self {
        Self::Number(value.cast_unsigned())
    }
}

/// Requires one of the capabilities that lead around the rules of routers.
///
/// # Errors
/// `EPERM`: the caller has neither.
pub(super) fn need_admin_or_raw() -> Result<(), Errno> {
    caller::need(Capabilities::NET_RAW).or_else(|_| caller::need(Capabilities::NET_ADMIN))
}

/// Sets an option that is kept for programs to read again.
///
/// # Errors
/// `EINVAL`: it does not take `value`. `EPERM`: the caller may not change it so.
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
