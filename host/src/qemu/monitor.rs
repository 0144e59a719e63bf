//! QEMU's monitor: says hello, starts the VM, and tells afterwards why it ended.

use super::inquiries::Inquiries;
use super::process::Handle;
use super::vcpus::Vcpus;
use crate::text::one_line;
use qapi::{Qmp, Stream, qmp};
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// QEMU answers its monitor within this, or something is badly wrong.
const PATIENCE: Duration = Duration::from_secs(60);
/// Events that are read, and bytes of one: far more than a guest of ours causes.
const EVENTS_MAX: usize = 1_000_000;
const EVENT_BYTES_MAX: u64 = 1 << 20;
/// How QEMU begins an answer.
const ANSWER: &[u8] = b"{\"return\":";

/// What QEMU may say at once, in bytes: a greeting, and an answer with the events before it, are a few
/// hundred.
const GREETING_MAX: u64 = 1 << 20;

/// QEMU's side of its monitor. An answer is bounded, and so is what comes until the CPUs run.
struct Words {
    socket: UnixStream,
    bound: Option<Bound>,
}

/// How much may be said, and until when.
struct Bound {
    left: u64,
    deadline: Instant,
}

impl Bound {
    /// That of one answer.
    fn new() -> Self {
        Self {
            left: GREETING_MAX,
            deadline: Instant::now() + PATIENCE,
        }
    }
}

impl Read for Words {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let Some(bound) = &mut self.bound else {
            return self.socket.read(to);
        };
        let rest = bound.deadline.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("it has not answered within {} s", PATIENCE.as_secs()),
            ));
        }
        self.socket.set_read_timeout(Some(rest))?;
        let most = usize::try_from(bound.left)
            .unwrap_or(usize::MAX)
            .min(to.len());
        if most == 0 {
            return Err(io::Error::other(format!(
                "it said more than {GREETING_MAX} bytes at once"
            )));
        }
        let count = self.socket.read(&mut to[..most])?;
        bound.left -= count as u64;
        Ok(count)
    }
}

/// A connected monitor.
pub(crate) struct Monitor {
    qmp: Qmp<Stream<BufReader<Words>, UnixStream>>,
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
            let mut reader = BufReader::new(Words {
                socket: socket.try_clone()?,
                bound: Some(Bound::new()),
            });
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

    /// Gives the next answer a bound of its own.
    fn renew(&mut self) {
        let words = self.qmp.inner_mut().get_mut_read().get_mut();
        words.bound = Some(Bound::new());
    }

    /// Lets the CPUs run (QEMU was started with them stopped).
    pub(crate) fn start(&mut self) -> Result<(), MonitorError> {
        self.renew();
        let started = self.qmp.execute(&qmp::cont {});
        started.map(drop).map_err(|error| protocol(error.into()))
    }

    /// What the balloon leaves to the guest, in bytes.
    pub(crate) fn balloon(&mut self) -> Result<u64, MonitorError> {
        self.renew();
        let answer = self.qmp.execute(&qmp::query_balloon {});
        let answer = answer.map_err(|error| protocol(error.into()))?;
        Ok(u64::try_from(answer.actual).unwrap_or(0))
    }

    /// Has the balloon leave so many bytes to the guest, as far as the guest goes along.
    pub(crate) fn set_balloon(&mut self, bytes: u64) -> Result<(), MonitorError> {
        self.renew();
        let value = i64::try_from(bytes).unwrap_or(i64::MAX);
        let answer = self.qmp.execute(&qmp::balloon { value });
        answer.map(drop).map_err(|error| protocol(error.into()))
    }

    /// What QEMU says of a property of one of its objects.
    pub(crate) fn property(&mut self, object: &str, name: &str) -> Result<Value, MonitorError> {
        self.renew();
        let answer = self.qmp.execute(&qmp::qom_get {
            path: object.to_owned(),
            property: name.to_owned(),
        });
        answer.map_err(|error| protocol(error.into()))
    }

    /// Sets a property of one of QEMU's objects.
    pub(crate) fn set_property(
        &mut self,
        object: &str,
        name: &str,
        value: Value,
    ) -> Result<(), MonitorError> {
        self.renew();
        let answer = self.qmp.execute(&qmp::qom_set {
            path: object.to_owned(),
            property: name.to_owned(),
            value,
        });
        answer.map(drop).map_err(|error| protocol(error.into()))
    }

    /// A way to ask QEMU while [`Self::wait_for_end`] reads, once the CPUs run.
    pub(crate) fn inquiries(&self) -> io::Result<Inquiries> {
        Ok(Inquiries::over(
            self.qmp.inner().get_ref_write().try_clone()?,
        ))
    }

    /// Reads events until QEMU ends, and hands its answers to `learn`. A guest that stops without our
    /// asking `vcpus` for it never goes on (KVM met what it cannot do), so it is ended then.
    pub(crate) fn wait_for_end(
        mut self,
        qemu: &Handle,
        vcpus: &Vcpus,
        mut learn: impl FnMut(&Value),
    ) -> End {
        let mut end = End::default();
        let stream = self.qmp.inner_mut();
        // Lines are bounded from here on.
        stream.get_mut_read().get_mut().bound = None;
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
                Ok(_) => match serde_json::from_slice(&line) {
                    // As many as users ask for.
                    Ok(qmp::Event::STOP { .. }) if vcpus.have_stopped() => {}
                    Ok(qmp::Event::RESUME { .. }) => vcpus.go_on(),
                    event => {
                        events += 1;
                        match event {
                            Ok(qmp::Event::SHUTDOWN { data, .. }) => end.cause = Some(data.reason),
                            Ok(qmp::Event::STOP { .. }) => {
                                end.stopped = true;
                                qemu.kill();
                            }
                            _ => {}
                        }
                    }
                },
            }
        }
        end
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
        // A refusal may quote as much as an answer has.
        kind => {
            let text = one_line(&error.to_string()).to_string();
            MonitorError::Protocol(io::Error::new(kind, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::thread;

    #[test]
    fn what_is_quoted_of_a_refusal_is_bounded() {
        let refusal = io::Error::other("\u{1b}".repeat(200_000));
        let MonitorError::Protocol(quoted) = protocol(refusal) else {
            panic!("a refusal is no end");
        };
        assert!(quoted.to_string().len() < 2_000);
        assert!(!quoted.to_string().contains('\u{1b}'));
    }

    #[test]
    fn a_greeting_without_an_end_is_an_error() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let flood = thread::spawn(move || {
            // Ends once nothing reads it.
            while theirs.write_all(&[b' '; 4096]).is_ok() {}
        });
        let error = Monitor::connect(ours).err().unwrap();
        assert!(matches!(error, MonitorError::Protocol(_)), "{error}");
        flood.join().unwrap();
    }
}
