//! Control lines from the host: signals, end of input, output windows.
//!
//! | line | meaning |
//! |---|---|
//! | `signal N` | send signal N to the program's process group |
//! | `eof TOTAL` | standard input ends after TOTAL bytes since boot |
//! | `window PORT TOTAL` | the host takes up to TOTAL bytes since boot from an output port |
//! | `closed PORT` | nobody reads an output port any more: writing to it is an error |
//!
//! Lines that are not known are for later kernels, and ignored.

use super::port;
use machine::sync::{Once, SpinLock};

/// The longest line; a longer one is ignored.
const LINE_BYTES: usize = 80;
/// Linux's highest signal number.
const MAX_SIGNAL: u32 = 64;

/// A line that is not complete yet.
struct Line {
    bytes: [u8; LINE_BYTES],
    len: usize,
}

static LINE: SpinLock<Line> = SpinLock::new(Line {
    bytes: [0; LINE_BYTES],
    len: 0,
});

/// What a line asks for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Request {
    Signal(u32),
    End(u64),
    Window(usize, u64),
    Closed(usize),
}

/// What is called for a signal.
static SIGNAL: Once<fn(u32)> = Once::new();

/// Starts the thread that waits for lines; `signal` is called for signals to the program.
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
            // Kernel threads have no signals; whatever it was, ask again.
            Err(_) => machine::sched::yield_now(),
        }
    }
}

/// Serves lines that are there, without waiting; while the VM waits for its windows at its end.
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
                line.len = (at + 1).min(LINE_BYTES + 1);
                None
            }
        };
        if let Some(request) = request {
            serve(request);
        }
    }
}

fn parse(line: &[u8]) -> Option<Request> {
    let mut words = core::str::from_utf8(line).ok()?.split_ascii_whitespace();
    match words.next()? {
        "signal" => {
            let number = words.next()?.parse().ok()?;
            (1..=MAX_SIGNAL)
                .contains(&number)
                .then_some(Request::Signal(number))
        }
        "eof" => Some(Request::End(words.next()?.parse().ok()?)),
        "window" => {
            let port = words.next()?.parse().ok()?;
            Some(Request::Window(port, words.next()?.parse().ok()?))
        }
        "closed" => Some(Request::Closed(words.next()?.parse().ok()?)),
        _ => None,
    }
}

fn serve(request: Request) {
    match request {
        Request::Signal(number) => {
            // Before the program starts there is nobody to get it.
            if let Some(signal) = SIGNAL.get() {
                signal(number);
            }
        }
        Request::End(total) => port::stdio().set_end(total),
        Request::Window(number, total) => {
            if let Some(port) = port::output(number) {
                port.raise_window(total);
            }
        }
        Request::Closed(number) => {
            if let Some(port) = port::output(number) {
                port.close();
            }
        }
    }
}
