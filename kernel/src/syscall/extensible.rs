//! Structures that have grown, and may grow again: the program says how large its own is.

use crate::vm::uaccess;
use logic::errno::Errno;
use machine::memory::PAGE_SIZE;
use zerocopy::{FromBytes, IntoBytes};

/// Reads a structure of `size` bytes from the program. Missing fields are zero; bytes behind the
/// known fields must be zero.
///
/// # Errors
/// `EINVAL` if it is smaller than the first version, which had `least` bytes. `E2BIG` if it is
/// larger than a page, or has other bytes than zero behind the fields that this kernel knows.
/// `EFAULT`.
pub(super) fn read<T: FromBytes + IntoBytes>(
    address: u64,
    size: usize,
    least: usize,
) -> Result<T, Errno> {
    if size > PAGE_SIZE {
        return Err(Errno::E2BIG);
    }
    if size < least {
        return Err(Errno::EINVAL);
    }
    let mut value = T::new_zeroed();
    let known = size.min(size_of::<T>());
    // The bytes behind the known fields are checked first, as on Linux.
    let mut rest = [0; 64];
    let mut at = known;
    while at < size {
        let part = &mut rest[..(size - at).min(64)];
        uaccess::copy_in(part, address.wrapping_add(at as u64))?;
        if part.iter().any(|&byte| byte != 0) {
            return Err(Errno::E2BIG);
        }
        at += part.len();
    }
    uaccess::copy_in(&mut value.as_mut_bytes()[..known], address)?;
    Ok(value)
}
