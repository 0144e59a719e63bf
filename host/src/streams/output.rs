//! The program's stdout and stderr, carried from their ports to ours.
//!
//! QEMU drops what a guest writes to a console whose socket is full. So a thread for each output
//! takes everything off the socket at once, and the guest kernel is told how far it may write
//! ([`Control::window`]): it then blocks the program that writes, as a full pipe would.

use super::control::Control;
use crate::text::Terminal;
use ebb_wire::port::{FIRST_WINDOW, OutputPort};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::termios;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The window moves in steps of this, so that a line of control serves many writes.
const WINDOW_STEP: u64 = 64 << 10;
/// Held here of a guest that ignores its window; then its socket fills and the VM waits.
const BUFFER_MAX: usize = 1 << 20;
/// Moved by one read or write.
const CHUNK: usize = 64 << 10;

/// One output of the program.
#[derive(Debug)]
pub(crate) struct Output {
    port: OutputPort,
    shared_with_terminal: bool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    bytes: VecDeque<u8>,
    // Of all that has arrived.
    received: u64,
    ended: bool,
    // Somebody waits in a write to ours.
    writing: bool,
}

impl Output {
    /// The output that arrives on `port`.
    pub(crate) fn new(port: OutputPort, terminal: &Terminal) -> Self {
        let shared_with_terminal = terminal.interactive() && termios::isatty(target(port));
        Self {
            port,
            shared_with_terminal,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Takes what the guest writes until QEMU ends.
    pub(crate) fn receive(&self, mut socket: UnixStream) {
        let mut chunk = vec![0; CHUNK];
        loop {
            let read = match socket.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            let mut state = self.lock();
            while state.bytes.len() >= BUFFER_MAX {
                state = self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            state.bytes.extend(&chunk[..read]);
            state.received += u64::try_from(read).unwrap_or(0);
            self.changed.notify_all();
        }
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Writes to our own stream until the guest has ended and all is written. An error other than
    /// a closed pipe is returned at the end; what could not be written is dropped, so that the
    /// guest goes on.
    pub(crate) fn deliver(&self, terminal: &Terminal, control: &Control) -> Result<(), Errno> {
        let mut chunk = Vec::with_capacity(CHUNK);
        let mut result = Ok(());
        let mut gone = false;
        let (mut delivered, mut announced) = (0u64, FIRST_WINDOW);
        while self.take(&mut chunk) {
            let mut rest = chunk.as_slice();
            while !rest.is_empty() && !gone {
                match terminal.write(target(self.port), rest, self.shared_with_terminal) {
                    Ok(written) => rest = &rest[written..],
                    Err(error) => {
                        gone = true;
                        control.closed(self.port);
                        if error != Errno::PIPE {
                            result = Err(error);
                        }
                    }
                }
            }
            delivered += u64::try_from(chunk.len()).unwrap_or(u64::MAX);
            if delivered + FIRST_WINDOW >= announced + WINDOW_STEP {
                announced = delivered + FIRST_WINDOW;
                control.window(self.port, announced);
            }
        }
        result
    }

    /// Bytes that have arrived.
    pub(crate) fn received(&self) -> u64 {
        self.lock().received
    }

    /// Whether all that has arrived was written.
    pub(crate) fn idle(&self) -> bool {
        let state = self.lock();
        state.bytes.is_empty() && !state.writing
    }

    /// Waits for bytes; false once there will be none.
    fn take(&self, chunk: &mut Vec<u8>) -> bool {
        let mut state = self.lock();
        state.writing = false;
        loop {
            if !state.bytes.is_empty() {
                let count = state.bytes.len().min(CHUNK);
                chunk.clear();
                chunk.extend(state.bytes.drain(..count));
                state.writing = true;
                self.changed.notify_all();
                return true;
            }
            if state.ended {
                return false;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn target(port: OutputPort) -> BorrowedFd<'static> {
    match port {
        OutputPort::Stdout => rustix::stdio::stdout(),
        OutputPort::Stderr => rustix::stdio::stderr(),
    }
}

/// Whether stdout and stderr lead to the same place, so that what a program writes to one and the
/// other must arrive in that order.
pub(crate) fn outputs_are_one() -> bool {
    let stat = |port| rustix::fs::fstat(target(port)).ok();
    match (stat(OutputPort::Stdout), stat(OutputPort::Stderr)) {
        (Some(out), Some(err)) => (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino),
        _ => false,
    }
}
