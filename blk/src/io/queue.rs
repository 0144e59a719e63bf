//! Operations under way on one image.

use super::calls::Calls;
use super::operation::{Completion, Operation};
use super::uring::Uring;
use crate::image::Image;
use rustix::fd::BorrowedFd;
use std::io;

/// System calls in a row.
const CALLS: usize = 8;

/// Operations under way on one image.
#[derive(Debug)]
pub enum Queue {
    /// By io_uring.
    Uring(Box<Uring>),
    /// By system calls, each done when it is pushed.
    Calls(Calls),
}

impl Queue {
    /// A queue on `image`, by io_uring if that is permitted here and worth it. Belongs to the
    /// thread that makes it.
    pub fn new(image: &Image) -> Self {
        // All there is to do is to copy bytes, which a ring does no sooner.
        if image.in_memory() {
            return Self::calls();
        }
        match Uring::new(image) {
            Ok(ring) => Self::Uring(Box::new(ring)),
            Err(_) => Self::calls(),
        }
    }

    /// A queue that does not use io_uring.
    pub fn calls() -> Self {
        Self::Calls(Calls::default())
    }

    /// Takes on an operation, to be started no later than by [`Self::submit`].
    ///
    /// # Errors
    /// If the kernel does not take what was pushed before. The operation was not taken on.
    ///
    /// # Safety
    /// The slices, and the memory that they name, stay valid until the completion with `token`
    /// was seen, and nobody relies on the memory of a read before that. `image` is the image that
    /// the queue was made for.
    pub unsafe fn push(&mut self, image: &Image, op: Operation, token: u64) -> io::Result<()> {
        match self {
            // SAFETY: as promised by the caller.
            Self::Uring(ring) => unsafe { ring.push(image, op, token) },
            Self::Calls(calls) => {
                // SAFETY: as promised by the caller.
                unsafe { calls.push(image, op, token) };
                Ok(())
            }
        }
    }

    /// Starts what was pushed; waits until at least `wait` operations are complete.
    ///
    /// # Errors
    /// What `io_uring_enter` says.
    pub fn submit(&mut self, wait: usize) -> io::Result<()> {
        match self {
            Self::Uring(ring) => ring.submit(wait),
            Self::Calls(_) => Ok(()),
        }
    }

    /// Whether [`Self::collect`] and [`Self::completion`] would find something.
    pub fn has_completions(&mut self) -> bool {
        match self {
            Self::Uring(ring) => ring.has_completions(),
            Self::Calls(calls) => calls.has_completions(),
        }
    }

    /// Has the kernel hand over completions that it holds back until it is asked.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub fn collect(&mut self) -> io::Result<()> {
        match self {
            Self::Uring(ring) => ring.collect(),
            Self::Calls(_) => Ok(()),
        }
    }

    /// One operation that is complete.
    pub fn completion(&mut self) -> Option<Completion> {
        match self {
            Self::Uring(ring) => ring.completion(),
            Self::Calls(calls) => calls.completion(),
        }
    }

    /// What polls readable when there is a completion; `None` if they are there at once.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Uring(ring) => Some(ring.fd()),
            Self::Calls(_) => None,
        }
    }

    /// Operations after which completions had better be looked at: those that are done when they
    /// are pushed hold up their answers.
    pub fn batch(&self) -> usize {
        match self {
            Self::Uring(_) => usize::MAX,
            Self::Calls(_) => CALLS,
        }
    }

    /// How it is done, for people.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Uring(_) => "io_uring",
            Self::Calls(_) => "preadv/pwritev",
        }
    }
}
