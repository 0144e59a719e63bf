//! The control port: lines from the host, and lines to it.
//!
//! | from the host           | meaning                                                          |
//! |-------------------------|------------------------------------------------------------------|
//! | `signal <n>`            | send signal n to the program's process group                     |
//! | `eof <total>`           | stdin ends after exactly that many bytes                         |
//! | `window <port> <total>` | passed over: these ports wait for their reader by themselves     |
//! | `closed <port>`         | nobody reads an output any more: writes to it get SIGPIPE        |
//! | `end`                   | all output has arrived: end the machine                          |
//!
//! | to the host                      | meaning                                                 |
//! |----------------------------------|---------------------------------------------------------|
//! | `up`                             | the drivers work                                        |
//! | `running <ns>`                   | the program is about to start; the guest's clock        |
//! | `exited <wait> <out> <err>`      | its wait status, and the bytes that it wrote            |
//! | `cannot-run <why>`               | it could not be started                                 |
//! | `failed <why>`                   | the guest is at fault                                   |

use crate::{Failure, ports};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

/// A longer line is none of ebb's.
const LINE_MAX: u64 = 4096;

/// What the host asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    Signal(i32),
    EndOfInput(u64),
    Closed(usize),
}

impl Request {
    fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ')?;
        match word {
            "signal" => Some(Self::Signal(rest.parse().ok()?)),
            "eof" => Some(Self::EndOfInput(rest.parse().ok()?)),
            "closed" => Some(Self::Closed(rest.parse().ok()?)),
            _ => None,
        }
    }
}

/// The host, at the other end of the control port.
#[derive(Debug)]
pub(crate) struct Host {
    port: File,
    requests: Option<Receiver<Request>>,
    end: Receiver<()>,
}

impl Host {
    /// Opens the port and begins to read it.
    pub(crate) fn connect() -> Result<Self, Failure> {
        let port = ports::open("ebb.control")?;
        let input = port
            .try_clone()
            .map_err(|error| Failure::new("share the control port", error))?;
        let (request, requests) = mpsc::channel();
        let (ended, end) = mpsc::channel();
        thread::spawn(move || read(BufReader::new(input), &request, &ended));
        Ok(Self {
            port,
            requests: Some(requests),
            end,
        })
    }

    /// Writes a line.
    pub(crate) fn say(&mut self, line: &str) -> Result<(), Failure> {
        self.port
            .write_all(format!("{line}\n").as_bytes())
            .map_err(|error| Failure::new("write to the control port", error))
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
    let mut line = Vec::new();
    loop {
        line.clear();
        match input.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if text == "end" {
            let _ = ended.send(());
        } else if let Some(parsed) = Request::parse(text) {
            // Without a program there is nobody to tell.
            let _ = request.send(parsed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
                Request::Closed(1)
            ]
        );
        assert_eq!(end.recv(), Ok(()));
    }
}
