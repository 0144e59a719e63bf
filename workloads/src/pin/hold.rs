//! Pages that are held by one call and let go by another: `vmsplice` and `splice`.
//!
//! On Linux `vmsplice` takes a reference to each page for the pipe. `splice` to `/dev/null` drops
//! what is in the pipe, and the references. Ebb's `vmsplice` finds each page and copies the byte,
//! so that the page is not held in between; the pipe then drops bytes.

use super::{Calls, for_pieces, moved};
use crate::Failure;
use crate::mapping::{Mapping, PAGE_BYTES};
use std::fs::File;
use std::io::{PipeReader, PipeWriter};
use std::os::fd::AsRawFd;

/// Number of pages in a call. A pipe may have this number of places for each user, and Linux takes
/// a place for each page.
const PAGES_A_CALL: usize = 256;

/// A pipe that holds pages, and the file that they are thrown into.
#[derive(Debug)]
pub(super) struct Holder {
    reader: PipeReader,
    writer: PipeWriter,
    sink: File,
}

impl Holder {
    /// Creates the pipe, with a place for each page of a call. Fails with `System` if the kernel
    /// refuses the size, or `/dev/null` cannot be opened.
    pub(super) fn new() -> Result<Self, Failure> {
        let (reader, writer) = std::io::pipe().map_err(Failure::system("make a pipe"))?;
        let bytes = libc::c_int::try_from(PAGES_A_CALL * PAGE_BYTES).expect("a MiB");
        // SAFETY: the call takes numbers only.
        if unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, bytes) } < 0 {
            return Err(Failure::last_os(format!("make a pipe of {bytes} bytes")));
        }
        let sink = File::options()
            .write(true)
            .open("/dev/null")
            .map_err(Failure::system("open /dev/null"))?;
        Ok(Self {
            reader,
            writer,
            sink,
        })
    }

    /// Holds every page of `mapping` and lets it go, a call's pages at a time. Adds the times of
    /// the calls that hold to `held`, and of those that let go to `released`.
    pub(super) fn round(
        &mut self,
        mapping: &Mapping,
        held: &mut Calls,
        released: &mut Calls,
    ) -> Result<(), Failure> {
        for_pieces(mapping, PAGES_A_CALL, |pieces| {
            // SAFETY: `pieces` is an array of as many segments. Nothing changes their memory while
            // the pipe holds it.
            let count = held.time(|| unsafe {
                libc::vmsplice(self.writer.as_raw_fd(), pieces.as_ptr(), pieces.len(), 0)
            });
            moved("vmsplice", count, pieces.len())?;
            // SAFETY: without positions the call takes numbers only.
            let count = released.time(|| unsafe {
                libc::splice(
                    self.reader.as_raw_fd(),
                    std::ptr::null_mut(),
                    self.sink.as_raw_fd(),
                    std::ptr::null_mut(),
                    pieces.len(),
                    0,
                )
            });
            moved("splice", count, pieces.len())
        })
    }
}
