//! Holds single pages of a guest's RAM, so that the host does not join the pages around them to a huge page.
//!
//! The host's `khugepaged` makes a huge page of 2 MiB in which one page is used. It leaves alone a page
//! that something else refers to, such as a pipe into which the page was spliced. What
//! the guest writes to the page is seen as before.

use rustix::io::Errno;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// Pages of one pipe: as many as a user without rights may have.
const PIPE_PAGES: usize = 256;
const PAGE: usize = 4096;

/// Pages that are held until this is dropped.
#[derive(Debug, Default)]
pub(super) struct Pins(Vec<(PipeReader, PipeWriter)>);

impl Pins {
    /// Holds the pages at these addresses.
    ///
    /// # Errors
    /// The kernel's: the host has no descriptor left, or no more pipes for this user. The pages before are held.
    ///
    /// # Safety
    /// Each address is in a mapping of this process that may be read.
    pub(super) unsafe fn hold(&mut self, pages: &[NonNull<u8>]) -> io::Result<()> {
        for pages in pages.chunks(PIPE_PAGES) {
            let (reader, writer) = io::pipe()?;
            let bytes = libc::c_int::try_from(pages.len() * PAGE).map_err(|_| Errno::INVAL)?;
            // SAFETY: numbers alone. Without it the pipe has room for a few.
            unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, bytes) };
            let parts: Vec<_> = pages
                .iter()
                .map(|page| libc::iovec {
                    iov_base: page.as_ptr().cast(),
                    iov_len: 1,
                })
                .collect();
            let flags = libc::SPLICE_F_NONBLOCK;
            // SAFETY: `parts` names single bytes that may be read, by the caller's promise. The kernel refers to
            // their pages, and writes nothing.
            let held =
                unsafe { libc::vmsplice(writer.as_raw_fd(), parts.as_ptr(), parts.len(), flags) };
            if held < 0 {
                return Err(io::Error::last_os_error());
            }
            self.0.push((reader, writer));
        }
        Ok(())
    }
}
