//! Operations on an image, and their completions.

use crate::request::HostSlice;

/// The file descriptor of an image by which a read or write is carried out.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Route {
    /// The one with direct I/O, without the page cache.
    Direct,
    /// The one that uses the page cache.
    Cached,
}

/// One operation on an image. It names memory by pointers: see [`Queue::push`](super::Queue::push).
#[derive(Copy, Clone, Debug)]
pub enum Operation {
    /// Reads from the image into memory.
    Read {
        /// The descriptor to use.
        route: Route,
        /// The slices of memory to fill.
        slices: *const HostSlice,
        /// Number of slices.
        count: u32,
        /// First byte in the image.
        offset: u64,
    },
    /// Writes memory to the image.
    Write {
        /// The descriptor to use.
        route: Route,
        /// The slices of memory to write.
        slices: *const HostSlice,
        /// Number of slices.
        count: u32,
        /// First byte in the image.
        offset: u64,
        /// Whether the bytes must be durable when the operation completes.
        durable: bool,
    },
    /// Makes all completed writes durable.
    Flush,
    /// Calls `fallocate` with this mode.
    Allocate {
        /// A combination of `FALLOC_FL_*`.
        mode: i32,
        /// First byte in the image.
        offset: u64,
        /// Length in bytes.
        bytes: u64,
    },
}

/// A completed operation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The token passed to [`Queue::push`](super::Queue::push).
    pub token: u64,
    /// The result of the system call: a number of bytes, or a negative error number.
    pub result: i32,
}
