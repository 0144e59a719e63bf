//! Calls that copy bytes between this process and another.

use super::Args;
use super::process::of_number;
use crate::process::caller;
use crate::vm::AddressSpace;
use alloc::sync::Arc;
use alloc::vec::Vec;
use logic::credentials::others::LooksAs;
use logic::errno::{Errno, SysResult};
use machine::memory::PAGE_SIZE;
use machine::sched;
use machine::uaccess;
use zerocopy::IntoBytes;

const PAGE: u64 = PAGE_SIZE as u64;
/// The most segments of a vectored call, Linux's `UIO_MAXIOV`.
const MAX_SEGMENTS: usize = 1024;
/// The most bytes that a vectored call moves, Linux's `MAX_RW_COUNT`.
const MAX_BYTES: usize = 0x7fff_f000;
/// The number of bytes that are copied from one address space to the other at a time.
const CARRY_BYTES: usize = 1024;

/// A place in a list of segments.
#[derive(Clone)]
struct Place<'a> {
    /// The remaining segments, by address and length.
    segments: &'a [[u64; 2]],
    /// The number of bytes of the first segment that are already copied.
    done: u64,
}

impl Place<'_> {
    /// Returns the address and the size of the next piece, of at most `most` bytes. A piece lies in
    /// one page, so that an error is reported at the right byte. Returns `None` at the end.
    #[inline]
    fn piece(&mut self, most: usize) -> Option<(u64, usize)> {
        loop {
            let &[start, bytes] = self.segments.first()?;
            if self.done == bytes {
                self.segments = &self.segments[1..];
                self.done = 0;
                continue;
            }
            let at = start.wrapping_add(self.done);
            let left = (bytes - self.done).min(PAGE - at % PAGE);
            return Some((
                at,
                usize::try_from(left).map_or(most, |left| left.min(most)),
            ));
        }
    }

    /// Advances by `bytes` bytes of the next piece.
    #[inline]
    fn pass(&mut self, bytes: usize) {
        self.done += bytes as u64;
    }

    /// Returns all pieces, the last one cut so that they have at most `most` bytes together.
    fn pieces(mut self, mut most: usize) -> impl Iterator<Item = (u64, usize)> {
        core::iter::from_fn(move || {
            let (at, bytes) = self.piece(most).filter(|_| most != 0)?;
            self.pass(bytes);
            most -= bytes;
            Some((at, bytes))
        })
    }

    /// Advances by `bytes` bytes of the pieces that [`Self::pieces`] returned.
    fn pass_all(&mut self, mut bytes: usize) {
        while bytes != 0
            && let Some((_, piece)) = self.piece(bytes)
        {
            self.pass(piece);
            bytes -= piece;
        }
    }
}

/// Reads the `count` segments of a vectored call. Returns them and their number of bytes. Fails
/// with `EINVAL` if these are too many, with `EFAULT`, and with `ENOMEM`.
fn segments(address: u64, count: u64) -> Result<(Vec<[u64; 2]>, u64), Errno> {
    let count = usize::try_from(count)
        .ok()
        .filter(|&count| count <= MAX_SEGMENTS)
        .ok_or(Errno::EINVAL)?;
    let mut list = Vec::new();
    list.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
    list.resize(count, [0; 2]);
    uaccess::copy_in(list.as_mut_slice().as_mut_bytes(), address)?;
    let mut total = 0u64;
    for &[_, bytes] in &list {
        total = total
            .checked_add(bytes)
            .filter(|&total| total <= i64::MAX as u64)
            .ok_or(Errno::EINVAL)?;
    }
    Ok((list, total))
}

/// The arguments of both calls: this process's segments, the other's, its space, and the number of
/// bytes to copy.
struct Ends {
    here: Vec<[u64; 2]>,
    there: Vec<[u64; 2]>,
    other: Arc<AddressSpace>,
    bytes: usize,
}

impl Ends {
    /// Reads and checks the arguments of `process_vm_readv` or `process_vm_writev`. Returns `None`
    /// if there is no byte to copy; the process then need not exist. Fails as these calls do.
    fn of(a: &Args) -> Result<Option<Self>, Errno> {
        if a.0[5] != 0 {
            return Err(Errno::EINVAL);
        }
        let (here, near) = segments(a.addr(1), a.0[2])?;
        if near == 0 {
            return Ok(None);
        }
        let (there, far) = segments(a.addr(3), a.0[4])?;
        let process = of_number(a.uint(0))?;
        let other = caller::space_of(&process, LooksAs::Real)?;
        let bytes = usize::try_from(near.min(far)).map_or(MAX_BYTES, |bytes| bytes.min(MAX_BYTES));
        Ok(Some(Self {
            here,
            there,
            other,
            bytes,
        }))
    }

    /// Returns two places: the beginning of this process's segments, and that of the other's.
    fn places(&self) -> (Place<'_>, Place<'_>) {
        let place = |segments| Place { segments, done: 0 };
        (place(&self.here), place(&self.there))
    }
}

/// Returns the result of a call that ends early: the number of copied bytes if there are any, else
/// `error`.
const fn ended(carried: usize, error: Errno) -> SysResult {
    if carried == 0 {
        Err(error)
    } else {
        Ok(carried)
    }
}

/// `process_vm_readv(2)`.
pub fn process_vm_readv(a: &Args) -> SysResult {
    let Some(ends) = Ends::of(a)? else {
        return Ok(0);
    };
    let (mut here, mut there) = ends.places();
    let mut buffer = [0; CARRY_BYTES];
    let mut done = 0;
    while done < ends.bytes {
        let room = buffer.len().min(ends.bytes - done);
        let mut got = ends
            .other
            .peek(there.clone().pieces(room), &mut buffer[..room]);
        if got == 0
            && let Some((at, bytes)) = there.piece(room)
        {
            // Faults the page in, or fails.
            if let Err(error) = ends.other.peek_mapping(at, &mut buffer[..bytes]) {
                return ended(done, error);
            }
            got = bytes;
        }
        there.pass_all(got);
        let mut from = &buffer[..got];
        while let Some((at, bytes)) = here.piece(from.len())
            && bytes != 0
        {
            let (piece, rest) = from.split_at(bytes);
            if let Err(error) = uaccess::copy_out(at, piece) {
                return ended(done, error);
            }
            here.pass(bytes);
            done += bytes;
            from = rest;
        }
        sched::cond_resched();
    }
    Ok(done)
}

/// `process_vm_writev(2)`.
pub fn process_vm_writev(a: &Args) -> SysResult {
    let Some(ends) = Ends::of(a)? else {
        return Ok(0);
    };
    let (mut here, mut there) = ends.places();
    let mut buffer = [0; CARRY_BYTES];
    let mut done = 0;
    while done < ends.bytes
        && let Some((from, most)) = here.piece(buffer.len().min(ends.bytes - done))
        && let Some((to, bytes)) = there.piece(most)
    {
        let buffer = &mut buffer[..bytes];
        let carried =
            uaccess::copy_in(buffer, from).and_then(|()| ends.other.write_bytes(to, buffer, false));
        if let Err(error) = carried {
            return ended(done, error);
        }
        here.pass(bytes);
        there.pass(bytes);
        done += bytes;
        sched::cond_resched();
    }
    Ok(done)
}
