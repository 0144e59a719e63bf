//! The control port: requests from the host ([`ebb_wire::request`]), and lines to it
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

/// Where lines to the host go, each by one write, so that those of several threads do not mix.
#[derive(Debug)]
pub(crate) struct Port(File);

impl Port {
    /// Writes a line.
    pub(crate) fn say(&mut self, report: Report<'_>) -> Result<(), Failure> {
        self.0
            .write_all(format!("{report}\n").as_bytes())
            .map_err(|error| Failure::new("write to the control port", error))
    }
}

/// The host, at the other end of the control port.
#[derive(Debug)]
pub(crate) struct Host {
    port: Port,
    requests: Option<Receiver<Request>>,
    end: Receiver<()>,
}

impl Host {
    /// Opens the port and begins to read it.
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

    /// Writes a line.
    pub(crate) fn say(&mut self, report: Report<'_>) -> Result<(), Failure> {
        self.port.say(report)
    }

    /// For another thread that has something to say.
    pub(crate) fn port(&self) -> Option<Port> {
        self.port.0.try_clone().ok().map(Port)
    }

    /// Where requests arrive; to be taken once.
    pub(crate) fn requests(&mut self) -> Option<Receiver<Request>> {
        self.requests.take()
    }

    /// Waits until the host has everything.
    pub(crate) fn wait_for_end(&self) {
        // An error: nobody reads the port any more, so nobody is left to wait for.
        let _ = self.end.recv();
    }
}

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
            // These ports wait for their reader by themselves.
            Some(Request::Window(..)) | None => {}
            Some(asked) => {
                // Without a program there is nobody to tell.
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
