//! The control port: requests on their way to the guest ([`ebb_wire::request`]).

use ebb_wire::port::OutputPort;
use ebb_wire::request::Request;
use ebb_wire::terminal::Size;
use ebb_wire::{GiveBack, Reclaim};
use std::collections::VecDeque;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// More requests than this wait only in a guest that does not read; the oldest is then dropped.
const WAITING_MAX: usize = 64;

/// Requests on their way to the guest. Callers never wait for it: a guest that does not read its
/// control port must not stop ebb's own threads.
#[derive(Debug, Default)]
pub(crate) struct Control {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    requests: VecDeque<Request>,
    // The newest window replaces an unsent one, since totals only grow.
    windows: [Option<u64>; 2],
    // Likewise.
    size: Option<Size>,
    // Likewise: some and full, in microseconds.
    pressure: Option<[u64; 2]>,
    ended: bool,
}

impl Control {
    /// Sends a signal to the program.
    pub(crate) fn signal(&self, signal: i32) {
        self.push(Request::Signal(signal));
    }

    /// Says that stdin ends after `total` bytes.
    pub(crate) fn end_of_input(&self, total: u64) {
        self.push(Request::EndOfInput(total));
    }

    /// Says that nobody reads `port` any more.
    pub(crate) fn closed(&self, port: OutputPort) {
        self.push(Request::Closed(port));
    }

    /// Has memory go back in this way.
    pub(crate) fn give_back(&self, mode: GiveBack) {
        self.push(Request::GiveBack(mode));
    }

    /// Has the guest give memory back by a step; it says so by `number` when it is through.
    pub(crate) fn reclaim(&self, number: u32, step: Reclaim) {
        self.push(Request::Reclaim(number, step));
    }

    /// Says that the machine may end.
    pub(crate) fn end_of_machine(&self) {
        self.push(Request::End);
    }

    /// Allows the guest to have sent `total` bytes on `port`.
    pub(crate) fn window(&self, port: OutputPort, total: u64) {
        self.lock().windows[port.number()] = Some(total);
        self.changed.notify_one();
    }

    /// Says how large the user's terminal is.
    pub(crate) fn size(&self, size: Size) {
        self.lock().size = Some(size);
        self.changed.notify_one();
    }

    /// Tells the guest the host's memory stalls so far, those of some and of all tasks in microseconds.
    pub(crate) fn pressure(&self, stalls: [u64; 2]) {
        self.lock().pressure = Some(stalls);
        self.changed.notify_one();
    }

    /// Lets [`Self::pump`] return.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_one();
    }

    /// Writes them to the port, a line each, until [`Self::end`] is called or the guest is gone.
    pub(crate) fn pump(&self, mut port: UnixStream) {
        while let Some(request) = self.next() {
            if port.write_all(format!("{request}\n").as_bytes()).is_err() {
                return;
            }
        }
    }

    fn next(&self) -> Option<Request> {
        let mut state = self.lock();
        loop {
            if state.ended {
                return None;
            }
            if let Some(request) = state.requests.pop_front() {
                return Some(request);
            }
            if let Some(size) = state.size.take() {
                return Some(Request::Size(size));
            }
            if let Some([some, full]) = state.pressure.take() {
                return Some(Request::Pressure { some, full });
            }
            for port in [OutputPort::Stdout, OutputPort::Stderr] {
                if let Some(total) = state.windows[port.number()].take() {
                    return Some(Request::Window(port, total));
                }
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn push(&self, request: Request) {
        let mut state = self.lock();
        if state.requests.len() == WAITING_MAX {
            state.requests.pop_front();
        }
        state.requests.push_back(request);
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
    fn requests_go_first_and_windows_coalesce() {
        let control = Control::default();
        control.window(OutputPort::Stderr, 10);
        control.window(OutputPort::Stdout, 20);
        control.window(OutputPort::Stdout, 30);
        control.signal(2);
        control.end_of_input(99);
        let requests: Vec<_> = std::iter::from_fn(|| {
            let waiting = {
                let state = control.lock();
                !state.requests.is_empty() || state.windows.iter().any(Option::is_some)
            };
            if waiting { control.next() } else { None }
        })
        .collect();
        assert_eq!(
            requests,
            [
                Request::Signal(2),
                Request::EndOfInput(99),
                Request::Window(OutputPort::Stdout, 30),
                Request::Window(OutputPort::Stderr, 10)
            ]
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
        assert_eq!(control.lock().requests.len(), WAITING_MAX);
        assert_eq!(control.next(), Some(Request::Signal(936)));
    }
}
