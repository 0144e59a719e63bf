//! io_uring.

use super::{Completion, Operation, Route};
use crate::image::Image;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::fd::{AsRawFd, BorrowedFd};
use std::fmt;
use std::io;

/// Operations that can wait to be submitted.
const ENTRIES: u32 = 128;
/// Operations whose completion can wait to be seen; the engine never has more under way.
const COMPLETIONS: u32 = 1024;

/// A ring with the image's descriptors registered.
pub struct Uring {
    ring: IoUring<squeue::Entry, cqueue::Entry>,
}

impl fmt::Debug for Uring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uring")
            .field("fd", &self.ring.as_raw_fd())
            .finish_non_exhaustive()
    }
}

impl Uring {
    pub(super) fn new(image: &Image) -> io::Result<Self> {
        let build = |quiet: bool| {
            let mut builder = IoUring::builder();
            builder.setup_cqsize(COMPLETIONS).dontfork();
            if quiet {
                // Completions wait for our next look instead of interrupting us. Since Linux 6.0.
                builder.setup_coop_taskrun().setup_single_issuer();
            }
            builder.build(ENTRIES)
        };
        let ring = build(true).or_else(|_| build(false))?;
        let direct = image.direct().map_or(image.cached(), |(fd, _)| fd);
        ring.submitter()
            .register_files(&[direct.as_raw_fd(), image.cached().as_raw_fd()])?;
        Ok(Self { ring })
    }

    /// # Safety
    /// As for [`super::Queue::push`].
    pub(super) unsafe fn push(
        &mut self,
        _image: &Image,
        op: Operation,
        token: u64,
    ) -> io::Result<()> {
        let fd = |route| types::Fixed(if route == Route::Direct { 0 } else { 1 });
        let entry = match op {
            Operation::Read {
                route,
                slices,
                count,
                offset,
            } => opcode::Readv::new(fd(route), slices, count)
                .offset(offset)
                .build(),
            Operation::Write {
                route,
                slices,
                count,
                offset,
                durable,
            } => {
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                opcode::Writev::new(fd(route), slices, count)
                    .offset(offset)
                    .rw_flags(flags)
                    .build()
            }
            Operation::Flush => opcode::Fsync::new(fd(Route::Cached))
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
            Operation::Allocate {
                mode,
                offset,
                bytes,
            } => opcode::Fallocate::new(fd(Route::Cached), bytes)
                .offset(offset)
                .mode(mode)
                .build(),
        };
        let entry = entry.user_data(token);
        // SAFETY: the caller keeps slices and memory valid until the completion.
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.submit(0)?;
            // SAFETY: as above.
            unsafe { self.ring.submission().push(&entry) }
                .map_err(|_| io::Error::other("the kernel takes no more operations"))?;
        }
        Ok(())
    }

    pub(super) fn submit(&mut self, wait: usize) -> io::Result<()> {
        if wait == 0 && self.ring.submission().is_empty() {
            return Ok(());
        }
        match self.ring.submit_and_wait(wait) {
            Ok(_) => Ok(()),
            // Completions first; what was pushed stays pushed.
            Err(e)
                if matches!(
                    e.raw_os_error(),
                    Some(libc::EBUSY | libc::EAGAIN | libc::EINTR)
                ) =>
            {
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    pub(super) fn completion(&mut self) -> Option<Completion> {
        let entry = self.ring.completion().next()?;
        Some(Completion {
            token: entry.user_data(),
            result: entry.result(),
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring holds the descriptor open for as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}
