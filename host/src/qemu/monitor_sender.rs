//! Sends commands to QEMU's monitor while another thread reads the answers.

use rustix::net::{SendFlags, send};
use serde_json::Value;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;

/// The sending half of QEMU's monitor. Each command causes one answer, which
/// [`Monitor::wait_for_end`](super::monitor::Monitor::wait_for_end) hands to its caller.
#[derive(Debug)]
pub(crate) struct MonitorSender(UnixStream);

impl MonitorSender {
    /// Sends `command` and blocks until it is written. Does not wait for the answer. Fails if QEMU
    /// has ended.
    pub(crate) fn ask(&mut self, command: &Value) -> io::Result<()> {
        self.0.write_all(format!("{command}\n").as_bytes())
    }

    /// Sends the short `command` without blocking. Does not wait for the answer.
    ///
    /// # Errors
    /// `EAGAIN` or `WriteZero` if the socket's buffer is too full for the line, and `EPIPE` if QEMU
    /// has ended.
    pub(super) fn ask_now(&mut self, command: &Value) -> io::Result<()> {
        let line = format!("{command}\n");
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = send(&self.0, line.as_bytes(), flags)?;
        // The kernel takes a line of this length either whole or not at all.
        if sent == line.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    /// Creates the sender of commands over `socket`, a duplicate of the monitor's socket.
    pub(super) fn over(socket: UnixStream) -> Self {
        Self(socket)
    }
}
