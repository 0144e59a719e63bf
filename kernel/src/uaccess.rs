//! Access to the memory of the current program.
//!
//! Every address that a program hands over is an allegation: the routines check it against the
//! user's half, and a page that cannot be had is `EFAULT`. They may serve page faults and so may
//! block: never call them with a spin lock held.

use crate::errno::Errno;
use alloc::vec::Vec;
use core::marker::PhantomData;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Copies from the program's memory.
///
/// # Errors
/// `EFAULT`; some bytes of `to` may have been written.
pub fn copy_in(to: &mut [u8], from: u64) -> Result<(), Errno> {
    let _ = (to, from);
    Err(Errno::EFAULT)
}

/// Copies to the program's memory.
///
/// # Errors
/// `EFAULT`; some bytes may have been written.
pub fn copy_out(to: u64, from: &[u8]) -> Result<(), Errno> {
    let _ = (to, from);
    Err(Errno::EFAULT)
}

/// As [`copy_in`], but gives the number of bytes copied before a fault.
pub fn copy_in_partial(to: &mut [u8], from: u64) -> usize {
    let _ = (to, from);
    0
}

/// As [`copy_out`], but gives the number of bytes copied before a fault.
pub fn copy_out_partial(to: u64, from: &[u8]) -> usize {
    let _ = (to, from);
    0
}

/// Copies between the program's memory and raw kernel memory (a frame in the physmap); gives the
/// number of bytes copied before a fault.
///
/// # Safety
/// `from` is readable for `len` bytes.
pub unsafe fn copy_out_raw(to: u64, from: *const u8, len: usize) -> usize {
    let _ = (to, from, len);
    0
}

/// As [`copy_out_raw`], the other way.
///
/// # Safety
/// `to` is writable for `len` bytes and not looked at by Rust code meanwhile.
pub unsafe fn copy_in_raw(to: *mut u8, from: u64, len: usize) -> usize {
    let _ = (to, from, len);
    0
}

/// Zeroes the program's memory.
///
/// # Errors
/// `EFAULT`.
pub fn zero(to: u64, len: usize) -> Result<(), Errno> {
    let _ = (to, len);
    Err(Errno::EFAULT)
}

/// Reads bytes up to a NUL, which is not part of the result.
///
/// # Errors
/// `EFAULT`; `ENAMETOOLONG` when there is no NUL in the first `max` bytes; `ENOMEM`.
pub fn read_cstr(from: u64, max: usize) -> Result<Vec<u8>, Errno> {
    let _ = (from, max);
    Err(Errno::EFAULT)
}

/// Atomic operations on a futex word. The old value, or `EFAULT`.
pub mod atomic {
    use crate::errno::Errno;

    /// Loads an aligned 32-bit word in one piece.
    pub fn load_u32(address: u64) -> Result<u32, Errno> {
        let _ = address;
        Err(Errno::EFAULT)
    }

    /// Stores `new` if the word is `expected`; gives the word as it was.
    pub fn compare_exchange_u32(address: u64, expected: u32, new: u32) -> Result<u32, Errno> {
        let _ = (address, expected, new);
        Err(Errno::EFAULT)
    }
}

/// The address of a value in the program's memory.
#[derive(Debug)]
pub struct UserPtr<T> {
    address: u64,
    value: PhantomData<T>,
}

impl<T> Copy for UserPtr<T> {}
impl<T> Clone for UserPtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> UserPtr<T> {
    /// A value at this address, whatever that is.
    pub const fn new(address: u64) -> Self {
        Self {
            address,
            value: PhantomData,
        }
    }

    /// The address.
    pub const fn address(self) -> u64 {
        self.address
    }

    /// Whether the address is 0.
    pub const fn is_null(self) -> bool {
        self.address == 0
    }

    /// The value `index` places further on.
    pub const fn add(self, index: usize) -> Self {
        let bytes = index.wrapping_mul(size_of::<T>()) as u64;
        Self::new(self.address.wrapping_add(bytes))
    }
}

impl<T: FromBytes + IntoBytes> UserPtr<T> {
    /// Reads the value.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn read(self) -> Result<T, Errno> {
        let mut value = T::new_zeroed();
        copy_in(value.as_mut_bytes(), self.address)?;
        Ok(value)
    }
}

impl<T: IntoBytes + Immutable> UserPtr<T> {
    /// Writes the value.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn write(self, value: &T) -> Result<(), Errno> {
        copy_out(self.address, value.as_bytes())
    }
}

/// A value of a plain C struct of the ABI. `linux_raw_sys`' types cannot implement `zerocopy`'s
/// traits here, so they are marked by hand.
///
/// # Safety
/// Any bytes are a valid value.
pub unsafe trait Plain: Copy + 'static {}

/// Reads a plain C struct.
///
/// # Errors
/// `EFAULT`.
pub fn read_plain<T: Plain>(from: u64) -> Result<T, Errno> {
    let mut value = core::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: the bytes of `value` are zeroed, so they may be seen as bytes; any bytes are valid.
    unsafe {
        let bytes =
            core::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>());
        copy_in(bytes, from)?;
        Ok(value.assume_init())
    }
}

/// Writes a plain C struct. Its padding is written too: make it from zeroed memory.
///
/// # Errors
/// `EFAULT`.
pub fn write_plain<T: Plain>(to: u64, value: &T) -> Result<(), Errno> {
    // SAFETY: callers build such values from zeroed memory, so the padding is initialised.
    let bytes = unsafe {
        core::slice::from_raw_parts(core::ptr::from_ref(value).cast::<u8>(), size_of::<T>())
    };
    copy_out(to, bytes)
}

/// Bytes of the program's memory: an address and a length.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct UserSlice {
    /// First address.
    pub address: u64,
    /// Length in bytes.
    pub len: usize,
}
