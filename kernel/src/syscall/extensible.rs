//! Structures that have grown with versions of Linux, and may grow again. The program passes the
//! size of the version that it uses.

use logic::errno::Errno;
use machine::memory::PAGE_SIZE;
use machine::uaccess;
use zerocopy::{FromBytes, IntoBytes};

/// Reads a structure of `size` bytes at `address` from the program. Missing fields become zero.
/// Bytes behind the known fields must be zero.
///
/// # Errors
/// Fails with `EINVAL` if `size` is below `least`, the size of the first version. Fails with
/// `E2BIG` if it is above a page, or if bytes behind the fields that this kernel knows are not
/// zero. Fails with `EFAULT`.
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
