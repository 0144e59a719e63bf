//! QEMU's monitor: says hello, starts the VM, and tells afterwards why it ended.

use qapi::{Qmp, Stream, qmp};
use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// QEMU answers its monitor within this, or something is badly wrong.
const PATIENCE: Duration = Duration::from_secs(20);
/// Events that are kept of a QEMU that never stops telling.
const EVENTS_MAX: usize = 1000;

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
            if reader.fill_buf()?.is_empty() {
                return Ok(None);
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

    /// Reads events until QEMU ends, and returns why the VM shut down, if QEMU said so.
    pub(crate) fn wait_for_end(mut self) -> Option<qmp::ShutdownCause> {
        let _ = self.qmp.inner().get_ref_write().set_read_timeout(None);
        let mut cause = None;
        for _ in 0..EVENTS_MAX {
            // No command is under way, so this returns only at the end, or at an event that the
            // crate does not know.
            let result = self.qmp.read_response::<qmp::query_version>();
            for event in self.qmp.events() {
                if let qmp::Event::SHUTDOWN { data, .. } = event {
                    cause = Some(data.reason);
                }
            }
            match result.map_err(io::Error::from) {
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                _ => break,
            }
        }
        cause
    }
}

fn protocol(error: io::Error) -> MonitorError {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    match error.kind() {
        BrokenPipe | ConnectionReset | UnexpectedEof => MonitorError::Ended,
        _ => MonitorError::Protocol(error),
    }
}
