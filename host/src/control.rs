//! The control port: short lines from the host to the guest kernel.
//!
//! | line                    | meaning                                                          |
//! |-------------------------|------------------------------------------------------------------|
//! | `signal <n>`            | send signal n to the program's process group                     |
//! | `eof <total>`           | stdin ends after exactly that many bytes                         |
//! | `window <port> <total>` | so many bytes may have been sent on an output port since boot    |
//! | `closed <port>`         | nobody reads an output port any more: writes to it get SIGPIPE   |
//! | `end`                   | all output has arrived (to guests that ask for it)               |

use std::collections::VecDeque;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// More lines than this wait only in a guest that does not read; the oldest is then dropped.
const WAITING_MAX: usize = 64;

/// An output port of the guest.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum OutputPort {
    Stdout = 0,
    Stderr = 1,
}

/// Lines on their way to the guest. Callers never wait for it: a guest that does not read its
/// control port must not stop ebb's own threads.
#[derive(Debug, Default)]
pub(crate) struct Control {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<String>,
    // The newest window replaces an unsent one, since totals only grow.
    windows: [Option<u64>; 2],
    ended: bool,
}

impl Control {
    /// Sends a signal to the program.
    pub(crate) fn signal(&self, signal: i32) {
        self.push(format!("signal {signal}\n"));
    }

    /// Says that stdin ends after `total` bytes.
    pub(crate) fn end_of_input(&self, total: u64) {
        self.push(format!("eof {total}\n"));
    }

    /// Says that nobody reads `port` any more.
    pub(crate) fn closed(&self, port: OutputPort) {
        self.push(format!("closed {}\n", port as u8));
    }

    /// Says that the machine may end.
    pub(crate) fn end_of_machine(&self) {
        self.push("end\n".into());
    }

    /// Allows the guest to have sent `total` bytes on `port`.
    pub(crate) fn window(&self, port: OutputPort, total: u64) {
        self.lock().windows[port as usize] = Some(total);
        self.changed.notify_one();
    }

    /// Lets [`Self::pump`] return.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_one();
    }

    /// Writes the lines to the port until [`Self::end`] is called or the guest is gone.
    pub(crate) fn pump(&self, mut port: UnixStream) {
        while let Some(line) = self.next() {
            if port.write_all(line.as_bytes()).is_err() {
                return;
            }
        }
    }

    fn next(&self) -> Option<String> {
        let mut state = self.lock();
        loop {
            if state.ended {
                return None;
            }
            if let Some(line) = state.lines.pop_front() {
                return Some(line);
            }
            for (port, window) in state.windows.iter_mut().enumerate() {
                if let Some(total) = window.take() {
                    return Some(format!("window {port} {total}\n"));
                }
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn push(&self, line: String) {
        let mut state = self.lock();
        if state.lines.len() == WAITING_MAX {
            state.lines.pop_front();
        }
        state.lines.push_back(line);
        self.changed.notify_one();
    }

    // A panic elsewhere cannot leave the state half-changed, so poison says nothing.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_first_and_windows_coalesce() {
        let control = Control::default();
        control.window(OutputPort::Stderr, 10);
        control.window(OutputPort::Stdout, 20);
        control.window(OutputPort::Stdout, 30);
        control.signal(2);
        control.end_of_input(99);
        let lines: Vec<_> = std::iter::from_fn(|| {
            let waiting = {
                let state = control.lock();
                !state.lines.is_empty() || state.windows.iter().any(Option::is_some)
            };
            if waiting { control.next() } else { None }
        })
        .collect();
        assert_eq!(
            lines,
            ["signal 2\n", "eof 99\n", "window 0 30\n", "window 1 10\n"]
        );
        control.end();
        assert_eq!(control.next(), None);
    }

    #[test]
    fn deaf_guest_costs_bounded_memory() {
        let control = Control::default();
        for signal in 0..1000 {
            control.signal(signal);
        }
        assert_eq!(control.lock().lines.len(), WAITING_MAX);
        assert_eq!(control.next().as_deref(), Some("signal 936\n"));
    }
}
