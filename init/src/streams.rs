//! The program's streams, and the threads that copy them from and to ebb's ports.

use crate::copy::{Input, Output};
use crate::terminal::{Terminal, resize};
use ebb_wire::port::OutputPort;
use ebb_wire::terminal::Size;
use rustix::process::{Gid, Uid};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// The choice between pipes and a terminal for the program's stdin, stdout and stderr.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Kind {
    /// Pipes.
    Pipes {
        /// Whether stderr goes to stdout's pipe.
        one_output: bool,
        /// Whether stdin is at its end from the start.
        no_input: bool,
    },
    /// A terminal of this size.
    Terminal(Size),
}

/// This process's ends of the program's streams.
#[derive(Debug)]
pub(crate) struct Ends {
    /// The end to which the program's stdin is written. `None` if stdin is at its end from the
    /// start.
    input: Option<File>,
    /// The ends from which stdout and stderr are read. A terminal has one for both.
    outputs: [Option<File>; 2],
    terminal: Option<Terminal>,
}

fn file(end: impl Into<OwnedFd>) -> File {
    File::from(end.into())
}

impl Ends {
    /// Sets `command` up with streams of this `kind` and returns the other ends. The program's ends
    /// then belong to `owner`, if there is one. Fails if a pipe or terminal cannot be created.
    pub(crate) fn connect(
        command: &mut Command,
        kind: Kind,
        owner: Option<(Uid, Gid)>,
    ) -> io::Result<Self> {
        // The owner may open the streams again, as `/dev/stdout`.
        let give = |end: BorrowedFd<'_>| match owner {
            Some((uid, gid)) => rustix::fs::fchown(end, Some(uid), Some(gid)),
            None => Ok(()),
        };
        let (one_output, no_input) = match kind {
            Kind::Terminal(size) => {
                let terminal = Terminal::new(size)?;
                give(terminal.programs.as_fd())?;
                terminal.give_to(command)?;
                return Ok(Self {
                    input: Some(terminal.ours.try_clone()?),
                    outputs: [Some(terminal.ours.try_clone()?), None],
                    terminal: Some(terminal),
                });
            }
            Kind::Pipes {
                one_output,
                no_input,
            } => (one_output, no_input),
        };
        let (stdin_reader, stdin_writer) = io::pipe()?;
        let (stdout_reader, stdout_writer) = io::pipe()?;
        let (stderr_reader, stderr_writer) = io::pipe()?;
        for end in [
            stdin_reader.as_fd(),
            stdout_writer.as_fd(),
            stderr_writer.as_fd(),
        ] {
            give(end)?;
        }
        command.process_group(0).stdin(stdin_reader);
        // The unused writer must be closed, or its pipe would never end.
        command.stderr(if one_output {
            drop(stderr_writer);
            stdout_writer.try_clone()?
        } else {
            stderr_writer
        });
        command.stdout(stdout_writer);
        Ok(Self {
            input: (!no_input).then(|| file(stdin_writer)),
            outputs: [Some(file(stdout_reader)), Some(file(stderr_reader))],
            terminal: None,
        })
    }

    /// Returns the end to which the program's stdin is written. Returns `None` if stdin is at its
    /// end from the start.
    pub(crate) fn input(&self) -> Option<&File> {
        self.input.as_ref()
    }

    /// Starts the threads that copy the streams from and to ebb's ports. Returns the handles to
    /// control them and to wait for their end. Fails if an eventfd cannot be created or a
    /// descriptor cannot be duplicated.
    pub(crate) fn start_copying(self, stdio: File, stderr: File) -> io::Result<(Streams, Copied)> {
        let streams = Streams {
            input: Arc::new(Input::new()?),
            outputs: [Arc::new(Output::new()?), Arc::new(Output::new()?)],
            screen: self
                .terminal
                .as_ref()
                .map(|own| own.ours.try_clone())
                .transpose()?,
        };
        if let Some(end) = self.input {
            let (copier, port) = (Arc::clone(&streams.input), stdio.try_clone()?);
            thread::spawn(move || copier.copy_stream(port, end));
        }
        let mut threads = [None, None];
        let ports = [stdio, stderr];
        let pairs = self.outputs.into_iter().zip(ports).zip(&streams.outputs);
        for (place, ((end, port), output)) in threads.iter_mut().zip(pairs) {
            let output = Arc::clone(output);
            *place = end.map(|end| thread::spawn(move || output.copy_stream(end, port)));
        }
        let copied = Copied {
            threads,
            terminal: self.terminal.map(|own| own.programs),
        };
        Ok((streams, copied))
    }
}

/// The streams of a running program.
#[derive(Debug)]
pub(crate) struct Streams {
    input: Arc<Input>,
    outputs: [Arc<Output>; 2],
    screen: Option<File>,
}

impl Streams {
    /// Ends stdin when `total` bytes have been copied to it since boot.
    pub(crate) fn end_input(&self, total: u64) {
        self.input.ends_after(total);
    }

    /// Stops copying the output `port`, which has no reader on the host any more. With a terminal,
    /// stops copying stdin, too, which hangs the terminal up.
    pub(crate) fn close(&mut self, port: OutputPort) {
        if self.screen.take().is_some() {
            self.input.ends_after(0);
        }
        if let Some(output) = self.outputs.get(port.number()) {
            output.close();
        }
    }

    /// Sets the size of the program's terminal. Has no effect if the program has none.
    pub(crate) fn resize(&self, size: Size) {
        if let Some(screen) = &self.screen {
            resize(screen, size);
        }
    }
}

/// The threads that copy the program's stdout and stderr to ebb's ports.
#[derive(Debug)]
pub(crate) struct Copied {
    threads: [Option<JoinHandle<io::Result<u64>>>; 2],
    /// The program's side of its terminal. It stays open while the program runs, so that the
    /// program may close and open it again.
    terminal: Option<OwnedFd>,
}

impl Copied {
    /// Waits until no process has the outputs open any more. Returns the numbers of bytes written
    /// to stdout and stderr. Fails if a port failed.
    pub(crate) fn finish(self) -> io::Result<[u64; 2]> {
        drop(self.terminal);
        let mut written = [0; 2];
        for (thread, written) in self.threads.into_iter().zip(&mut written) {
            if let Some(thread) = thread {
                let joined = thread.join();
                *written = joined.unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))?;
            }
        }
        Ok(written)
    }
}
