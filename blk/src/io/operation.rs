//! What is asked of an image, and how it ends.

use crate::request::HostSlice;

/// Which descriptor of the image an operation goes to.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Route {
    /// Without the page cache.
    Direct,
    /// Through it.
    Cached,
}

/// One operation. Memory is named by pointer: see [`Queue::push`](super::Queue::push).
#[derive(Copy, Clone, Debug)]
pub enum Operation {
    /// Image to memory.
    Read {
        /// By which descriptor.
        route: Route,
        /// To where.
        slices: *const HostSlice,
        /// How many slices.
        count: u32,
        /// From which byte of the image.
        offset: u64,
    },
    /// Memory to image.
    Write {
        /// By which descriptor.
        route: Route,
        /// From where.
        slices: *const HostSlice,
        /// How many slices.
        count: u32,
        /// To which byte of the image.
        offset: u64,
        /// Whether it is to be on the medium when it completes.
        durable: bool,
    },
    /// All that was written goes to the medium.
    Flush,
    /// `fallocate` with this mode.
    Allocate {
        /// `FALLOC_FL_*`.
        mode: i32,
        /// First byte.
        offset: u64,
        /// How many.
        bytes: u64,
    },
}

/// The end of an operation: its token, and what the system call would have returned.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// As given to [`Queue::push`](super::Queue::push).
    pub token: u64,
    /// Bytes, or a negative error number.
    pub result: i32,
}
