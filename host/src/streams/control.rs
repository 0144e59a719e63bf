//! The control port, on which requests are sent to the guest ([`ebb_wire::request`]).

use ebb_wire::port::OutputPort;
use ebb_wire::request::Request;
use ebb_wire::terminal::Size;
use ebb_wire::{GiveBack, Reclaim};
use std::collections::VecDeque;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The maximum number of queued requests. Only a guest that does not read reaches it; the oldest
/// request is dropped then.
const WAITING_MAX: usize = 64;

/// The queue of requests to the guest. Methods that add a request never block, since a guest that
/// does not read its control port must not stop `ebb`'s own threads. If 64 requests are queued, the
/// oldest one is dropped for a new one. [`Self::pump`] sends them.
#[derive(Debug, Default)]
pub(crate) struct Control {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    requests: VecDeque<Request>,
    // The newest window of each port replaces an unsent one, since totals only grow.
    windows: [Option<u64>; 2],
    // The newest size replaces an unsent one.
    size: Option<Size>,
    // The newest stalls replace unsent ones: some and full, in microseconds.
    pressure: Option<[u64; 2]>,
    ended: bool,
}

impl Control {
    /// Queues a request that the guest sends the signal with the number `signal` to its program.
    pub(crate) fn signal(&self, signal: i32) {
        self.push(Request::Signal(signal));
    }

    /// Queues a message to the guest: the program's stdin ends after `total` bytes, counted from
    /// its start.
    pub(crate) fn end_of_input(&self, total: u64) {
        self.push(Request::EndOfInput(total));
    }

    /// Queues a message to the guest: the host does not read the output of `port` any more, so
    /// writes to it must fail there.
    pub(crate) fn closed(&self, port: OutputPort) {
        self.push(Request::Closed(port));
    }

    /// Queues a request that the guest gives free memory back in this `mode` from then on.
    pub(crate) fn give_back(&self, mode: GiveBack) {
        self.push(Request::GiveBack(mode));
    }

    /// Queues a request that the guest gives memory back by one `step`. Ebb's kernel publishes
    /// `number` in its header when the step is done.
    pub(crate) fn reclaim(&self, number: u32, step: Reclaim) {
        self.push(Request::Reclaim(number, step));
    }

    /// Queues the permission that the guest may end its machine, which it waits for.
    pub(crate) fn end_of_machine(&self) {
        self.push(Request::End);
    }

    /// Queues the permission that the guest may send up to `total` bytes on `port`, counted from
    /// the program's start. Replaces an older one for `port` that is not sent yet.
    pub(crate) fn window(&self, port: OutputPort, total: u64) {
        self.lock().windows[port.number()] = Some(total);
        self.changed.notify_one();
    }

    /// Queues the present size of the user's terminal for the guest. Replaces an older one that is
    /// not sent yet.
    pub(crate) fn size(&self, size: Size) {
        self.lock().size = Some(size);
        self.changed.notify_one();
    }

    /// Queues the host's total memory stalls in microseconds for the guest: those of some tasks,
    /// and those of all tasks at the same time. Replaces older ones that are not sent yet.
    pub(crate) fn pressure(&self, stalls: [u64; 2]) {
        self.lock().pressure = Some(stalls);
        self.changed.notify_one();
    }

    /// Makes [`Self::pump`] return. Requests that are still queued are not sent.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_one();
    }

    /// Writes requests to `port`, one per line, in the order in which they were queued; sizes,
    /// stalls and windows come after the others. Blocks while there is none. Returns when
    /// [`Self::end`] was called or a write fails, since the guest is gone then.
    pub(crate) fn pump(&self, mut port: UnixStream) {
        while let Some(request) = self.next() {
            if port.write_all(format!("{request}\n").as_bytes()).is_err() {
                return;
            }
        }
    }

    /// Blocks until a request is queued and returns it. Returns `None` after [`Self::end`].
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

    /// Appends a request, and drops the oldest if the queue is full.
    fn push(&self, request: Request) {
        let mut state = self.lock();
        if state.requests.len() == WAITING_MAX {
            state.requests.pop_front();
        }
        state.requests.push_back(request);
        self.changed.notify_one();
    }

    // A panic elsewhere cannot leave the state half-changed, so a poisoned lock is used as it is.
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
