//! The queue of operations on one image, by io_uring or by system calls.

use super::calls::Calls;
use super::operation::{Completion, Operation};
use super::uring::Uring;
use crate::image::Image;
use rustix::fd::BorrowedFd;
use std::io;

/// Number of system calls after which the engine should answer requests, see [`Queue::batch`].
const CALLS: usize = 8;

/// The queue of operations on one image: those that were pushed and whose completions were not
/// taken yet.
#[derive(Debug)]
pub enum Queue {
    /// By io_uring.
    Uring(Box<Uring>),
    /// By system calls, each carried out when it is pushed.
    Calls(Calls),
}

impl Queue {
    /// Makes a queue for operations on `image`. It uses io_uring if the kernel lets the process and
    /// the image is not in memory, and system calls otherwise. The queue belongs to the calling
    /// thread.
    pub fn new(image: &Image) -> Self {
        // I/O on such an image only copies bytes, and io_uring is no faster at that.
        if image.in_memory() {
            return Self::calls();
        }
        match Uring::new(image) {
            Ok(ring) => Self::Uring(Box::new(ring)),
            Err(_) => Self::calls(),
        }
    }

    /// Makes a queue that carries each operation out by a system call when it is pushed.
    pub fn calls() -> Self {
        Self::Calls(Calls::default())
    }

    /// Adds the operation `op` to the queue. It starts at the next [`Self::submit`] at the latest;
    /// by system calls, it is carried out before this call returns. `token` names it in its
    /// completion.
    ///
    /// # Errors
    /// Fails if the ring is full and the kernel does not take its entries. The operation is then
    /// not added.
    ///
    /// # Safety
    /// The slices, and the memory that they name, must stay valid until the completion with `token`
    /// was taken. Until then no code may rely on the contents of memory that is read into. `image`
    /// must be the image that the queue was made for.
    pub unsafe fn push(&mut self, image: &Image, op: Operation, token: u64) -> io::Result<()> {
        match self {
            // SAFETY: the caller upholds the same conditions.
            Self::Uring(ring) => unsafe { ring.push(image, op, token) },
            Self::Calls(calls) => {
                // SAFETY: the caller upholds the same conditions.
                unsafe { calls.push(image, op, token) };
                Ok(())
            }
        }
    }

    /// Starts all pushed operations, and waits until at least `wait` completions are ready. Returns
    /// earlier if a signal interrupts the wait or the kernel is busy; the caller then takes
    /// completions and calls again. By system calls, does nothing.
    ///
    /// # Errors
    /// Fails if `io_uring_enter` fails in another way.
    pub fn submit(&mut self, wait: usize) -> io::Result<()> {
        match self {
            Self::Uring(ring) => ring.submit(wait),
            Self::Calls(_) => Ok(()),
        }
    }

    /// Returns whether [`Self::completion`] would return a completion, at the latest after
    /// [`Self::collect`].
    pub fn has_completions(&mut self) -> bool {
        match self {
            Self::Uring(ring) => ring.has_completions(),
            Self::Calls(calls) => calls.has_completions(),
        }
    }

    /// Has the kernel deliver completions that it holds back until the next system call. Does not
    /// wait.
    ///
    /// # Errors
    /// Fails if `io_uring_enter` fails.
    pub fn collect(&mut self) -> io::Result<()> {
        match self {
            Self::Uring(ring) => ring.collect(),
            Self::Calls(_) => Ok(()),
        }
    }

    /// Takes one completion, in no certain order. Returns `None` if none is ready. Does not wait.
    pub fn completion(&mut self) -> Option<Completion> {
        match self {
            Self::Uring(ring) => ring.completion(),
            Self::Calls(calls) => calls.completion(),
        }
    }

    /// Returns a descriptor that polls readable when a completion is ready. Returns `None` for
    /// system calls, whose operations are complete when they are pushed.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Uring(ring) => Some(ring.fd()),
            Self::Calls(_) => None,
        }
    }

    /// Returns the number of operations after which the caller should take completions: without
    /// limit for io_uring, and 8 for system calls, because each delays the answers of those before
    /// it.
    pub fn batch(&self) -> usize {
        match self {
            Self::Uring(_) => usize::MAX,
            Self::Calls(_) => CALLS,
        }
    }

    /// Returns the name of the I/O mechanism for messages: `io_uring` or `preadv/pwritev`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Uring(_) => "io_uring",
            Self::Calls(_) => "preadv/pwritev",
        }
    }
}
