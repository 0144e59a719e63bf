//! Carries the program's stdout and stderr from the guest's ports to `ebb`'s own, each by two
//! threads.

use crate::failure::Failure;
use crate::streams::Control;
use crate::streams::Output;
use crate::text::Terminal;
use ebb_wire::port::OutputPort;
use rustix::io::Errno;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// Starts a thread called `name` that runs `body`. Dropping the result lets the thread go on.
///
/// # Errors
/// Fails if the host has no thread left. `body` is dropped then.
pub(crate) fn spawn<T: Send + 'static>(
    name: &'static str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Failure> {
    thread::Builder::new()
        .name(name.into())
        .spawn(body)
        .map_err(|source| Failure::Setup {
            what: "a thread",
            source,
        })
}

/// One output stream of the program, and the thread that writes it.
struct Delivery {
    output: Arc<Output>,
    thread: JoinHandle<Result<(), Errno>>,
}

impl Delivery {
    fn start(
        port: OutputPort,
        socket: UnixStream,
        terminal: &Arc<Terminal>,
        control: &Arc<Control>,
    ) -> Result<Self, Failure> {
        let output = Arc::new(Output::new(port, terminal));
        let receiver = Arc::clone(&output);
        spawn("receive", move || receiver.receive(socket))?;
        let (sender, terminal, control) = (
            Arc::clone(&output),
            Arc::clone(terminal),
            Arc::clone(control),
        );
        let thread = spawn("deliver", move || sender.deliver(&terminal, &control))?;
        Ok(Self { output, thread })
    }
}

/// The threads that carry the program's stdout and stderr from the guest's ports to those of `ebb`.
pub(crate) struct Outputs([Delivery; 2]);

impl Outputs {
    /// Starts two threads for each stream: one receives bytes of the guest from the socket, the
    /// other writes them to `ebb`'s stdout or stderr. They end when QEMU closes the sockets.
    ///
    /// # Errors
    /// Fails if the host has no thread left. Threads that were started before go on.
    pub(crate) fn start(
        [stdout, stderr]: [(OutputPort, UnixStream); 2],
        terminal: &Arc<Terminal>,
        control: &Arc<Control>,
    ) -> Result<Self, Failure> {
        Ok(Self([
            Delivery::start(stdout.0, stdout.1, terminal, control)?,
            Delivery::start(stderr.0, stderr.1, terminal, control)?,
        ]))
    }

    /// Returns whether all bytes of both streams that have arrived so far were written.
    pub(crate) fn idle(&self) -> bool {
        self.0.iter().all(|delivery| delivery.output.idle())
    }

    /// Returns the numbers of bytes that have arrived so far on stdout and on stderr.
    pub(crate) fn received(&self) -> [u64; 2] {
        self.0.each_ref().map(|delivery| delivery.output.received())
    }

    /// Waits until the guest's sockets are closed and all bytes are written. Returns the first
    /// write error, that of stdout if both streams failed. Returns `None` if all bytes were
    /// written.
    pub(crate) fn finish(self) -> Option<Failure> {
        let mut failure = None;
        for (delivery, stream) in self.0.into_iter().zip(["stdout", "stderr"]) {
            if let Ok(Err(errno)) = delivery.thread.join() {
                let source = io::Error::from(errno);
                failure = failure.or(Some(Failure::Output { stream, source }));
            }
        }
        failure
    }
}
