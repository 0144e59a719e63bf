//! I/O on an image by io_uring.

use super::operation::{Completion, Operation, Route};
use crate::image::Image;
use io_uring::register::Restriction;
use io_uring::{Builder, IoUring, Submitter, cqueue, opcode, squeue, types};
use rustix::fd::{AsRawFd, BorrowedFd};
use std::fmt;
use std::io;

/// Number of submission entries of a ring.
const ENTRIES: u32 = 128;
/// Number of completion entries of a ring. The engine never has more operations under way.
const COMPLETIONS: u32 = 1024;

/// An io_uring instance in which the descriptors of one image are registered. It carries out reads,
/// writes, flushes and `fallocate` on them, and no other operation.
pub struct Uring {
    ring: Ring,
}

impl fmt::Debug for Uring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uring")
            .field("fd", &self.ring.as_raw_fd())
            .finish_non_exhaustive()
    }
}

type Ring = IoUring<squeue::Entry, cqueue::Entry>;

/// Makes a disabled ring, which takes no operations yet. `choose` sets further flags. Fails if the
/// kernel refuses.
fn build(choose: impl Fn(&mut Builder)) -> io::Result<Ring> {
    let mut builder = IoUring::builder();
    builder
        .setup_cqsize(COMPLETIONS)
        .setup_r_disabled()
        .dontfork();
    choose(&mut builder);
    builder.build(ENTRIES)
}

/// The operations that the ring may carry out.
const OPERATIONS: [u8; 4] = [
    opcode::Readv::CODE,
    opcode::Writev::CODE,
    opcode::Fsync::CODE,
    opcode::Fallocate::CODE,
];

/// Restricts the ring, for ever, to these operations on registered descriptors, which are those of
/// the image. seccomp cannot filter operations that go through a ring.
fn restrict(submitter: &Submitter<'_>) -> io::Result<()> {
    let fixed = squeue::Flags::FIXED_FILE.bits();
    let mut all: Vec<_> = OPERATIONS.into_iter().map(Restriction::sqe_op).collect();
    all.push(Restriction::sqe_flags_required(fixed));
    submitter.register_restrictions(&mut all)
}

impl Uring {
    /// Makes a ring for `image`, for the calling thread. Fails if the kernel refuses io_uring, the
    /// image's descriptors or a restriction.
    pub(super) fn new(image: &Image) -> io::Result<Self> {
        // Completion work waits for the thread's next system call instead of interrupting it (Linux
        // 5.19). It still ends a wait by epoll, unlike that of a ring with
        // IORING_SETUP_DEFER_TASKRUN.
        let ring = build(|ring| {
            ring.setup_single_issuer()
                .setup_coop_taskrun()
                .setup_taskrun_flag();
        })
        .or_else(|_| build(|_| {}))?;
        let direct = image.direct().map_or(image.cached(), |(fd, _)| fd);
        let submitter = ring.submitter();
        submitter.register_files(&[direct.as_raw_fd(), image.cached().as_raw_fd()])?;
        restrict(&submitter)?;
        submitter.register_enable_rings()?;
        Ok(Self { ring })
    }

    /// Adds `op` to the submission queue, without starting it. `token` names it in its completion.
    /// If the queue is full, submits its entries first. Fails if the kernel does not take them;
    /// `op` is then not added.
    ///
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
            // SAFETY: the caller keeps slices and memory valid until the completion.
            unsafe { self.ring.submission().push(&entry) }
                .map_err(|_| io::Error::other("the kernel takes no more operations"))?;
        }
        Ok(())
    }

    /// Submits all entries and waits until `wait` completions are ready. Returns `Ok` earlier if a
    /// signal interrupts the wait or the kernel is busy; entries may then still be in the
    /// submission queue. Fails if `io_uring_enter` fails in another way.
    pub(super) fn submit(&mut self, wait: usize) -> io::Result<()> {
        if wait == 0 && self.ring.submission().is_empty() {
            return Ok(());
        }
        self.enter(wait)
    }

    /// Returns whether completions are ready or can be collected.
    pub(super) fn has_completions(&mut self) -> bool {
        self.ring.submission().taskrun() || !self.ring.completion().is_empty()
    }

    /// Has the kernel deliver pending completions, without waiting. Submits entries, too. Does
    /// nothing if no completion is pending. Fails if `io_uring_enter` fails.
    pub(super) fn collect(&mut self) -> io::Result<()> {
        if self.ring.submission().taskrun() {
            self.enter(0)
        } else {
            Ok(())
        }
    }

    fn enter(&mut self, wait: usize) -> io::Result<()> {
        match self.ring.submit_and_wait(wait) {
            Ok(_) => Ok(()),
            // The kernel wants completions to be taken first; entries stay in the submission queue.
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

    /// Takes one completion. Returns `None` if none is ready. Does not wait.
    pub(super) fn completion(&mut self) -> Option<Completion> {
        let entry = self.ring.completion().next()?;
        Some(Completion {
            token: entry.user_data(),
            result: entry.result(),
        })
    }

    /// Returns the ring's descriptor, which polls readable when a completion is ready.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: `self` is borrowed as long as the descriptor, and the ring keeps it open.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Location, Spec};

    #[test]
    fn a_ring_takes_what_disks_need_and_nothing_else() {
        let path = std::env::temp_dir().join(format!("ebb-blk-uring-{}", std::process::id()));
        std::fs::write(&path, vec![0x5a; 8192]).unwrap();
        let image = Image::open(&Spec {
            location: Location::Path(path.clone()),
            read_only: false,
            cached: true,
        })
        .unwrap();
        std::fs::remove_file(&path).unwrap();
        let Ok(mut uring) = Uring::new(&image) else {
            println!("io_uring is not permitted here");
            return;
        };
        let mut buffer = [0_u8; 16];
        let bytes = u32::try_from(buffer.len()).unwrap();
        let plain = types::Fd(image.cached().as_raw_fd());
        let refused = [
            opcode::Nop::new().build(),
            opcode::Read::new(types::Fixed(1), buffer.as_mut_ptr(), bytes).build(),
            opcode::Fsync::new(plain).build(),
        ];
        for entry in refused {
            // SAFETY: the ring refuses these operations, and the buffer outlives them in any case.
            unsafe { uring.ring.submission().push(&entry.user_data(1)) }.unwrap();
            uring.submit(1).unwrap();
            let result = uring.completion().map(|completion| completion.result);
            assert_eq!(result, Some(-libc::EACCES));
        }
        let slice = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        let read = Operation::Read {
            route: Route::Cached,
            slices: &raw const slice,
            count: 1,
            offset: 0,
        };
        // SAFETY: slice and buffer live until the completion, which the test waits for.
        unsafe { uring.push(&image, read, 2) }.unwrap();
        uring.submit(1).unwrap();
        let result = uring.completion().map(|completion| completion.result);
        assert_eq!(result, Some(16));
        assert_eq!(buffer, [0x5a; 16]);
    }
}
