//! QEMU's monitor: says hello, starts the VM, and tells afterwards why it ended.

use super::process::Handle;
use qapi::{Qmp, Stream, qmp};
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// QEMU answers its monitor within this, or something is badly wrong.
const PATIENCE: Duration = Duration::from_secs(20);
/// Events that are read, and bytes of one: far more than a guest of ours causes.
const EVENTS_MAX: usize = 1_000_000;
const EVENT_BYTES_MAX: u64 = 1 << 20;
/// How QEMU begins an answer.
const ANSWER: &[u8] = b"{\"return\":";

/// A connected monitor.
pub(crate) struct Monitor {
    qmp: Qmp<Stream<BufReader<UnixStream>, UnixStream>>,
    /// QEMU's version, like `7.2.22`.
    pub(crate) version: String,
}

/// Why the monitor does not work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MonitorError {
    #[error("QEMU ended before its monitor answered")]
    Ended,
    #[error("QEMU's monitor does not answer as it should")]
    Protocol(#[source] io::Error),
}

impl Monitor {
    /// Waits for QEMU's greeting and answers it.
    pub(crate) fn connect(socket: UnixStream) -> Result<Self, MonitorError> {
        let result = (|| {
            socket.set_read_timeout(Some(PATIENCE))?;
            let mut reader = BufReader::new(socket.try_clone()?);
            // The crate takes an early end for a programmer's error, so look first.
            loop {
                match reader.fill_buf() {
                    Ok([]) => return Ok(None),
                    Ok(_) => break,
                    // A signal for the program: a read with a timeout is not taken up again.
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            let mut qmp = Qmp::new(Stream::new(reader, socket));
            let greeting = qmp.handshake().map_err(io::Error::from)?;
            let version = greeting.version.qemu;
            let version = format!("{}.{}.{}", version.major, version.minor, version.micro);
            Ok(Some(Self { qmp, version }))
        })();
        match result {
            Ok(Some(monitor)) => Ok(monitor),
            Ok(None) => Err(MonitorError::Ended),
            Err(error) => Err(protocol(error)),
        }
    }

    /// Lets the CPUs run (QEMU was started with them stopped).
    pub(crate) fn start(&mut self) -> Result<(), MonitorError> {
        let started = self.qmp.execute(&qmp::cont {});
        started.map(drop).map_err(|error| protocol(error.into()))
    }

    /// What the balloon leaves to the guest, in bytes.
    pub(crate) fn balloon(&mut self) -> Result<u64, MonitorError> {
        let answer = self.qmp.execute(&qmp::query_balloon {});
        let answer = answer.map_err(|error| protocol(error.into()))?;
        Ok(u64::try_from(answer.actual).unwrap_or(0))
    }

    /// Has the balloon leave so many bytes to the guest, as far as the guest goes along.
    pub(crate) fn set_balloon(&mut self, bytes: u64) -> Result<(), MonitorError> {
        let value = i64::try_from(bytes).unwrap_or(i64::MAX);
        let answer = self.qmp.execute(&qmp::balloon { value });
        answer.map(drop).map_err(|error| protocol(error.into()))
    }

    /// A way to ask QEMU while [`Self::wait_for_end`] reads, once the CPUs run.
    pub(crate) fn inquiries(&self) -> io::Result<Inquiries> {
        Ok(Inquiries(self.qmp.inner().get_ref_write().try_clone()?))
    }

    /// Reads events until QEMU ends, and hands its answers to `learn`. A guest that stops without our
    /// asking never goes on (KVM met what it cannot do), so it is ended then.
    pub(crate) fn wait_for_end(mut self, qemu: &Handle, mut learn: impl FnMut(&Value)) -> End {
        let mut end = End::default();
        let stream = self.qmp.inner_mut();
        let _ = stream.get_ref_write().set_read_timeout(None);
        let mut line = Vec::new();
        let mut events = 0;
        while events < EVENTS_MAX {
            line.clear();
            match Read::by_ref(stream)
                .take(EVENT_BYTES_MAX)
                .read_until(b'\n', &mut line)
            {
                Ok(0) | Err(_) => break,
                // What the crate does not know is news of a later QEMU, and nothing to us.
                Ok(_) if line.starts_with(ANSWER) => {
                    if let Ok(mut answer) = serde_json::from_slice::<Value>(&line) {
                        learn(&answer["return"].take());
                    }
                }
                Ok(_) => {
                    events += 1;
                    match serde_json::from_slice(&line) {
                        Ok(qmp::Event::SHUTDOWN { data, .. }) => end.cause = Some(data.reason),
                        Ok(qmp::Event::STOP { .. }) => {
                            end.stopped = true;
                            qemu.kill();
                        }
                        _ => {}
                    }
                }
            }
        }
        end
    }
}

/// Asks QEMU; the answers come to [`Monitor::wait_for_end`], as many as were asked for.
#[derive(Debug)]
pub(crate) struct Inquiries(UnixStream);

impl Inquiries {
    /// Sends a command.
    pub(crate) fn ask(&mut self, command: &Value) -> io::Result<()> {
        self.0.write_all(format!("{command}\n").as_bytes())
    }
}

/// What the monitor told of a VM's end.
#[derive(Debug, Default)]
pub(crate) struct End {
    /// Why the guest shut down, if it did.
    pub(crate) cause: Option<qmp::ShutdownCause>,
    /// QEMU could not run the guest any further.
    pub(crate) stopped: bool,
}

fn protocol(error: io::Error) -> MonitorError {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    match error.kind() {
        BrokenPipe | ConnectionReset | UnexpectedEof => MonitorError::Ended,
        _ => MonitorError::Protocol(error),
    }
}
