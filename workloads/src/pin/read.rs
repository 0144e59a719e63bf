//! Pages that are held for the time of one call: `process_vm_readv`.
//!
//! For each segment the kernel finds the page, keeps it from going away, copies, and lets it go.
//! With segments of one byte the copy costs almost nothing.

use super::{Calls, for_pieces, moved};
use crate::Failure;
use crate::mapping::Mapping;

/// Number of pages in a call: half of the kernel's limit for segments (`UIO_MAXIOV`).
const PAGES_A_CALL: usize = 512;

/// Reads one byte of every page, and adds the time of each call to `calls`. Fails with `Wrong` if a
/// byte is not the one written.
pub(super) fn round(mapping: &Mapping, calls: &mut Calls) -> Result<(), Failure> {
    for_pieces(mapping, PAGES_A_CALL, |pieces| {
        let mut bytes = [0_u8; PAGES_A_CALL];
        let bytes = &mut bytes[..pieces.len()];
        calls.time(|| read_own(pieces, bytes))?;
        if bytes.iter().any(|&byte| byte != 1) {
            return Err(Failure::Wrong(
                "process_vm_readv read something else than was written".to_owned(),
            ));
        }
        Ok(())
    })
}

/// Reads the segments at `pieces` of this process's own memory, one byte each, into `bytes`.
fn read_own(pieces: &[libc::iovec], bytes: &mut [u8]) -> Result<(), Failure> {
    let here = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: `here` covers all of `bytes`, and the kernel checks the addresses that it reads from.
    let count = unsafe {
        libc::process_vm_readv(
            libc::getpid(),
            &raw const here,
            1,
            pieces.as_ptr(),
            pieces.len() as libc::c_ulong,
            0,
        )
    };
    moved("process_vm_readv", count, pieces.len())
}
