//! Operations by plain system calls, for processes that may not use io_uring.

use super::operation::{Completion, Operation, Route};
use crate::image::Image;
use rustix::fd::AsRawFd;
use std::collections::VecDeque;

/// Operations carried out by system calls when they are pushed. Holds the completions that the
/// engine has not taken yet.
#[derive(Debug, Default)]
pub struct Calls {
    done: VecDeque<Completion>,
}

impl Calls {
    /// Carries `op` out at once, which may block, and stores its completion with `token`. A failure
    /// is the result in the completion.
    ///
    /// # Safety
    /// As for [`super::Queue::push`].
    pub(super) unsafe fn push(&mut self, image: &Image, op: Operation, token: u64) {
        // SAFETY: the caller upholds the conditions of this function, which are those of `perform`.
        let result = unsafe { perform(image, op) };
        self.done.push_back(Completion { token, result });
    }

    /// Returns whether a completion waits to be taken.
    pub(super) fn has_completions(&self) -> bool {
        !self.done.is_empty()
    }

    /// Takes the oldest completion. Returns `None` if there is none.
    pub(super) fn completion(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }
}

/// Carries `op` out by a system call. Returns its result, or a negative error number.
///
/// # Safety
/// The slices of `op` and their memory are valid.
unsafe fn perform(image: &Image, op: Operation) -> i32 {
    let fd = |route| match (route, image.direct()) {
        (Route::Direct, Some((fd, _))) => fd.as_raw_fd(),
        _ => image.cached().as_raw_fd(),
    };
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let size = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
    let result = match op {
        Operation::Read {
            route,
            slices,
            count,
            offset,
        } => {
            // SAFETY: the caller guarantees that `slices` names `count` slices of valid memory.
            unsafe { libc::preadv(fd(route), slices, size(count), signed(offset)) }
        }
        Operation::Write {
            route,
            slices,
            count,
            offset,
            durable,
        } => {
            let flags = if durable { libc::RWF_DSYNC } else { 0 };
            // SAFETY: the caller guarantees that `slices` names `count` slices of valid memory.
            unsafe { libc::pwritev2(fd(route), slices, size(count), signed(offset), flags) }
        }
        // SAFETY: no memory is involved.
        Operation::Flush => unsafe { libc::fdatasync(fd(Route::Cached)) as isize },
        Operation::Allocate {
            mode,
            offset,
            bytes,
        } => {
            // SAFETY: no memory is involved.
            unsafe {
                libc::fallocate(fd(Route::Cached), mode, signed(offset), signed(bytes)) as isize
            }
        }
    };
    if result < 0 {
        let error = std::io::Error::last_os_error();
        -error.raw_os_error().unwrap_or(libc::EIO)
    } else {
        i32::try_from(result).unwrap_or(i32::MAX)
    }
}
