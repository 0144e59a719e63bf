//! Copies the program's stdout and stderr from their ports to `ebb`'s own.
//!
//! QEMU drops output of a console whose socket is full. So a thread for each output empties the
//! socket at once. The guest kernel gets a window ([`Control::window`]), beyond which it blocks the
//! program that writes, as a full pipe would.

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

/// The step by which the window grows, so that one control message serves many writes.
const WINDOW_STEP: u64 = 64 << 10;
/// The maximum number of bytes that are buffered for a guest that ignores its window. Beyond that
/// its socket fills and the VM blocks.
const BUFFER_MAX: usize = 1 << 20;
/// The maximum number of bytes per read or write.
const CHUNK: usize = 64 << 10;

/// One output of the program, stdout or stderr, with a buffer of 1 MiB between the thread that
/// receives and the one that writes.
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
    // The number of bytes that have arrived in total.
    received: u64,
    ended: bool,
    // A write of taken bytes to `ebb`'s own output is in progress.
    writing: bool,
}

impl Output {
    /// Creates the output that arrives on `port`. `terminal` is where `ebb` shows its messages,
    /// which may be the same terminal.
    pub(crate) fn new(port: OutputPort, terminal: &Terminal) -> Self {
        let shared_with_terminal = terminal.interactive() && termios::isatty(target(port));
        Self {
            port,
            shared_with_terminal,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Buffers the bytes from `socket` until QEMU closes it or a read fails. Blocks while the
    /// buffer is full. Then wakes the writer for the last time.
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

    /// Writes the buffered bytes to `ebb`'s own stdout or stderr until the guest's output has ended
    /// and all is written. Queues in `control` how far the guest may write, and after a failed
    /// write that the host does not read this output any more.
    ///
    /// After a failed write the remaining output is dropped, so that the guest continues. Returns
    /// that error at the end. Returns `Ok` if the error is a closed pipe.
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

    /// Returns the number of bytes that have arrived on the port so far.
    pub(crate) fn received(&self) -> u64 {
        self.lock().received
    }

    /// Returns whether all bytes that have arrived were written or dropped, and no write is in
    /// progress.
    pub(crate) fn idle(&self) -> bool {
        let state = self.lock();
        state.bytes.is_empty() && !state.writing
    }

    /// Blocks until bytes are buffered and moves them to `chunk`. Returns `false` once the output
    /// has ended.
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

/// Returns `ebb`'s own output for `port`.
fn target(port: OutputPort) -> BorrowedFd<'static> {
    match port {
        OutputPort::Stdout => rustix::stdio::stdout(),
        OutputPort::Stderr => rustix::stdio::stderr(),
    }
}

/// Returns whether `ebb`'s stdout and stderr are the same file, so that output to both must keep
/// its order. Returns `false` if one of them cannot be examined.
pub(crate) fn outputs_are_one() -> bool {
    let stat = |port| rustix::fs::fstat(target(port)).ok();
    match (stat(OutputPort::Stdout), stat(OutputPort::Stderr)) {
        (Some(out), Some(err)) => (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino),
        _ => false,
    }
}
