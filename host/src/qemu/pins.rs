//! Takes references to single pages of a guest's RAM, so that the host does not build huge pages
//! there.
//!
//! The host's `khugepaged` would otherwise build a huge page of any 2 MiB in which a page is used.
//! It skips a page to which something else refers, such as a pipe into which the page was spliced.
//! Writes of the guest to the page are visible as before.

use rustix::io::Errno;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// The number of pages in one pipe: the maximum that an unprivileged user may have.
const PIPE_PAGES: usize = 256;
const PAGE: usize = 4096;

/// References to pages of guest RAM, held by pipes until this is dropped.
#[derive(Debug, Default)]
pub(super) struct Pins(Vec<(PipeReader, PipeWriter)>);

impl Pins {
    /// Takes a reference to each page of 4 KiB in `pages`, given by its address in this process.
    /// Each 256 pages take a pipe with two descriptors.
    ///
    /// # Errors
    /// The kernel's, for example if the process has no descriptor left or the user has too many
    /// pipes. The pages that came earlier stay referenced.
    ///
    /// # Safety
    /// Each address in `pages` is inside a readable mapping of this process.
    pub(super) unsafe fn hold(&mut self, pages: &[NonNull<u8>]) -> io::Result<()> {
        for pages in pages.chunks(PIPE_PAGES) {
            let (reader, writer) = io::pipe()?;
            let bytes = libc::c_int::try_from(pages.len() * PAGE).map_err(|_| Errno::INVAL)?;
            // SAFETY: passes only integers. If the call fails, the pipe keeps its default size.
            unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, bytes) };
            let parts: Vec<_> = pages
                .iter()
                .map(|page| libc::iovec {
                    iov_base: page.as_ptr().cast(),
                    iov_len: 1,
                })
                .collect();
            let flags = libc::SPLICE_F_NONBLOCK;
            // SAFETY: each entry of `parts` is one byte that the caller guarantees to be readable.
            // The kernel takes references to the pages and writes nothing.
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
