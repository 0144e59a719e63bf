//! Control lines, by which the host sends requests to the kernel: signals, the end of input, output
//! windows and more.
//!
//! [`ebb_wire::request`] defines the requests.

use super::{give_back, port, reclaim};
use ebb_wire::request::{BYTES_MAX, Request};
use ebb_wire::terminal::Size;
use logic::stalls::Totals;
use machine::sync::{Once, SpinLock};

/// A line that is not complete yet.
struct Line {
    bytes: [u8; BYTES_MAX],
    len: usize,
}

static LINE: SpinLock<Line> = SpinLock::new(Line {
    bytes: [0; BYTES_MAX],
    len: 0,
});

/// The function to call for a signal from the host.
static SIGNAL: Once<fn(u32)> = Once::new();

/// The function to call when the size of the host's window changes.
static RESIZE: Once<fn(Size)> = Once::new();

/// Sets `resize`, the function to call when the size of the host's window changes. Only the first
/// call has an effect.
pub fn set_resize(resize: fn(Size)) {
    let _ = RESIZE.set(resize);
}

/// The function to call with the host's memory stalls.
static PRESSURE: Once<fn(Totals)> = Once::new();

/// Sets `told`, the function to call when the host sends its memory stalls. Only the first call has
/// an effect.
pub fn set_pressure(told: fn(Totals)) {
    let _ = PRESSURE.set(told);
}

/// Starts the kernel thread that reads control lines from the host and serves them. The thread
/// calls `signal` with the number of each signal that the host sends to the program. Does nothing
/// if there is no control port.
pub(super) fn start(signal: fn(u32)) {
    if port::control().is_some() {
        let _ = SIGNAL.set(signal);
        machine::sched::spawn_kernel("kcontrold", run);
    }
}

fn run() {
    let Some(port) = port::control() else { return };
    let mut buffer = [0; 256];
    loop {
        match port.read(&mut buffer, false) {
            Ok(0) => return,
            Ok(len) => take(&buffer[..len]),
            // Kernel threads have no signals, so any error is a reason to try again.
            Err(_) => machine::sched::yield_now(),
        }
    }
}

/// Serves the control lines that have arrived, and does not wait for more. Called while the VM
/// shuts down and waits for the host to take its output.
pub(super) fn poll() {
    let Some(port) = port::control() else { return };
    let mut buffer = [0; 256];
    if let Ok(len) = port.read(&mut buffer, true) {
        take(&buffer[..len]);
    }
}

fn take(bytes: &[u8]) {
    for &byte in bytes {
        let request = {
            let mut line = LINE.lock();
            if byte == b'\n' {
                let request = line.bytes.get(..line.len).and_then(parse);
                line.len = 0;
                request
            } else {
                let at = line.len;
                if let Some(slot) = line.bytes.get_mut(at) {
                    *slot = byte;
                }
                // One more than fits marks a line that is too long.
                line.len = (at + 1).min(BYTES_MAX + 1);
                None
            }
        };
        if let Some(request) = request {
            serve(request);
        }
    }
}

fn parse(line: &[u8]) -> Option<Request> {
    Request::parse(core::str::from_utf8(line).ok()?)
}

fn serve(request: Request) {
    match request {
        Request::Signal(number) => {
            // Before the program starts no process can receive a signal.
            if let Some(signal) = SIGNAL.get() {
                signal(number.cast_unsigned());
            }
        }
        Request::EndOfInput(total) => port::stdio().set_end(total),
        Request::Window(output, total) => {
            if let Some(port) = port::output_port(output.number()) {
                port.raise_window(total);
            }
        }
        Request::Closed(output) => {
            if let Some(port) = port::output_port(output.number()) {
                port.close();
            }
        }
        Request::GiveBack(mode) => {
            if let Err(error) = give_back::set_mode(mode) {
                give_back::explain(mode, error);
            }
        }
        Request::Reclaim(number, step) => reclaim::ask(number, step),
        Request::Size(size) => {
            if let Some(resize) = RESIZE.get() {
                resize(size);
            }
        }
        Request::Pressure { some, full } => {
            if let Some(told) = PRESSURE.get() {
                told(Totals { some, full });
            }
        }
        // Of guests that ask for it.
        Request::End => {}
    }
}
