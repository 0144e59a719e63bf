//! Commands to QEMU's monitor whose answers another thread reads.

use rustix::net::{SendFlags, send};
use serde_json::Value;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;

/// Asks QEMU; the answers come to [`Monitor::wait_for_end`](super::monitor::Monitor::wait_for_end),
/// as many as were asked for.
#[derive(Debug)]
pub(crate) struct Inquiries(UnixStream);

impl Inquiries {
    /// Sends a command.
    pub(crate) fn ask(&mut self, command: &Value) -> io::Result<()> {
        self.0.write_all(format!("{command}\n").as_bytes())
    }

    /// Sends a short command, unless QEMU leaves too much unread.
    ///
    /// # Errors
    /// If there is no room for all of it, or QEMU has ended.
    pub(super) fn ask_now(&mut self, command: &Value) -> io::Result<()> {
        let line = format!("{command}\n");
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = send(&self.0, line.as_bytes(), flags)?;
        // The kernel takes a line of this length whole or not at all.
        if sent == line.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    /// Asks over this socket.
    pub(super) fn over(socket: UnixStream) -> Self {
        Self(socket)
    }
}
