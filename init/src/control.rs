//! The control port: requests from the host ([`ebb_wire::request`]) and reports to it
//! ([`ebb_wire::report`]).

use crate::failure::Failure;
use crate::ports;
use ebb_wire::port::{CONTROL, NAMES};
use ebb_wire::report::Report;
use ebb_wire::request::{BYTES_MAX, Request};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

/// The writing side of the control port. Each line is one write, so that the lines of several
/// threads do not mix.
#[derive(Debug)]
pub(crate) struct Port(File);

impl Port {
    /// Writes `report` as one line to the host. Fails if the port cannot be written.
    pub(crate) fn say(&mut self, report: Report<'_>) -> Result<(), Failure> {
        self.0
            .write_all(format!("{report}\n").as_bytes())
            .map_err(|error| Failure::new("write to the control port", error))
    }
}

/// The connection to the host through the control port.
#[derive(Debug)]
pub(crate) struct Host {
    port: Port,
    requests: Option<Receiver<Request>>,
    end: Receiver<()>,
}

impl Host {
    /// Opens the control port and starts a thread that reads it. Fails if the port does not appear
    /// or cannot be opened.
    pub(crate) fn connect() -> Result<Self, Failure> {
        let port = ports::open(NAMES[CONTROL])?;
        let input = port
            .try_clone()
            .map_err(|error| Failure::new("share the control port", error))?;
        let (request, requests) = mpsc::channel();
        let (ended, end) = mpsc::channel();
        thread::spawn(move || read(BufReader::new(input), &request, &ended));
        Ok(Self {
            port: Port(port),
            requests: Some(requests),
            end,
        })
    }

    /// Writes `report` as one line to the host. Fails if the port cannot be written.
    pub(crate) fn say(&mut self, report: Report<'_>) -> Result<(), Failure> {
        self.port.say(report)
    }

    /// Returns a copy of the port for another thread. Returns `None` if it cannot be duplicated.
    pub(crate) fn port(&self) -> Option<Port> {
        self.port.0.try_clone().ok().map(Port)
    }

    /// Returns the channel on which the host's requests about the running program arrive. Returns
    /// `None` after the first call.
    pub(crate) fn requests(&mut self) -> Option<Receiver<Request>> {
        self.requests.take()
    }

    /// Waits until the host has received all output (request `end`), or the port can no longer be
    /// read.
    pub(crate) fn wait_for_end(&self) {
        // An error means that the reading thread has ended, so no `end` can arrive.
        let _ = self.end.recv();
    }
}

/// Reads lines from the port until it ends or fails, and passes the requests on.
fn read(mut input: impl BufRead, request: &Sender<Request>, ended: &Sender<()>) {
    let most = BYTES_MAX as u64;
    let mut line = Vec::new();
    loop {
        line.clear();
        match input.by_ref().take(most).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        match Request::parse(&text) {
            Some(Request::End) => {
                let _ = ended.send(());
            }
            // Linux's ports wait for their reader, so no window is needed.
            Some(Request::Window(..)) | None => {}
            Some(asked) => {
                // Fails if no program runs; the request is then dropped.
                let _ = request.send(asked);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_wire::port::OutputPort;

    #[test]
    fn lines_become_requests() {
        let text = b"window 0 65536\nsignal 2\neof 99\nclosed 1\nsignal x\n\nend\n";
        let (request, requests) = mpsc::channel();
        let (ended, end) = mpsc::channel();
        read(text.as_slice(), &request, &ended);
        drop(request);
        assert_eq!(
            requests.iter().collect::<Vec<_>>(),
            [
                Request::Signal(2),
                Request::EndOfInput(99),
                Request::Closed(OutputPort::Stderr)
            ]
        );
        assert_eq!(end.recv(), Ok(()));
    }
}
