//! Byte streams to and from the host: one virtio console a port.

use crate::errno::{Errno, SysResult};

/// A byte stream to the host, and from it where it is stdio or control.
#[derive(Debug)]
pub struct Port {}

/// Standard input and output of the program.
pub fn stdio() -> Option<&'static Port> {
    None
}

/// Standard error of the program.
pub fn stderr() -> Option<&'static Port> {
    None
}

/// The host's control lines.
pub fn control() -> Option<&'static Port> {
    None
}

impl Port {
    /// Queues all bytes for the host; waits while the queue is full. `EAGAIN` when nothing fits and
    /// `nonblocking`; `ERESTARTSYS` when a signal came before the first byte, else what was queued.
    pub fn write(&self, bytes: &[u8], nonblocking: bool) -> SysResult {
        let _ = (bytes, nonblocking);
        Err(Errno::EIO)
    }

    /// Takes what has come, at least one byte, waiting for it; 0 at the end of the stream.
    pub fn read(&self, buffer: &mut [u8], nonblocking: bool) -> SysResult {
        let _ = (buffer, nonblocking);
        Err(Errno::EIO)
    }

    /// Whether a read would not wait.
    pub fn readable(&self) -> bool {
        false
    }

    /// Whether a write would not wait.
    pub fn writable(&self) -> bool {
        false
    }

    /// Waits, bounded, until the host has taken everything.
    pub fn flush(&self) {}
}

/// Waits, bounded, until the host has taken all output.
pub fn flush_all() {}
