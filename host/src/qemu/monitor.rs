//! QEMU's QMP monitor: the handshake, the start of the VM, commands, and why the VM ended.

use super::monitor_sender::MonitorSender;
use super::process::Handle;
use super::vcpus::Vcpus;
use crate::text::one_line;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The timeout of one answer.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum number of events that are read. A guest of ours causes far fewer.
const EVENTS_MAX: usize = 1_000_000;
/// The maximum length of one line once the CPUs run, in bytes. All events and answers are shorter.
const EVENT_BYTES_MAX: u64 = 1 << 20;

/// The maximum size of one answer with the events before it, in bytes. The greeting and the answers
/// are a few hundred bytes.
const GREETING_MAX: u64 = 1 << 20;

/// The receiving half of the monitor. `limit` limits each answer until the CPUs run.
struct MonitorReader {
    socket: UnixStream,
    limit: Option<AnswerLimit>,
}

/// A limit on the size and the time of one answer.
struct AnswerLimit {
    /// The number of bytes that may still arrive.
    left: u64,
    deadline: Instant,
}

impl AnswerLimit {
    /// Returns the limit for one answer, which starts now.
    fn new() -> Self {
        Self {
            left: GREETING_MAX,
            deadline: Instant::now() + TIMEOUT,
        }
    }
}

impl Read for MonitorReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let Some(limit) = &mut self.limit else {
            return self.socket.read(to);
        };
        let rest = limit.deadline.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("it has not answered within {} s", TIMEOUT.as_secs()),
            ));
        }
        self.socket.set_read_timeout(Some(rest))?;
        let most = usize::try_from(limit.left)
            .unwrap_or(usize::MAX)
            .min(to.len());
        if most == 0 {
            return Err(io::Error::other(format!(
                "it said more than {GREETING_MAX} bytes at once"
            )));
        }
        let count = self.socket.read(&mut to[..most])?;
        limit.left -= count as u64;
        Ok(count)
    }
}

/// A connection to QEMU's monitor after the handshake. Each command waits for its answer, up to 60
/// s.
pub(crate) struct Monitor {
    reader: BufReader<MonitorReader>,
    /// QEMU's version, like `7.2.22`.
    pub(crate) version: String,
}

/// A line from QEMU, in which one of the first four keys is present. Other keys, which a later QEMU
/// may add, are ignored.
#[derive(Debug, Deserialize)]
struct Line {
    #[serde(rename = "QMP")]
    hello: Option<Greeting>,
    #[serde(rename = "return")]
    answer: Option<Value>,
    error: Option<Refusal>,
    event: Option<String>,
    /// Details of the event; `null` without them.
    #[serde(default)]
    data: Value,
}

/// The description of a failed command.
#[derive(Debug, Deserialize)]
struct Refusal {
    desc: String,
}

#[derive(Debug, Deserialize)]
struct Greeting {
    version: Version,
}

#[derive(Debug, Deserialize)]
struct Version {
    qemu: VersionNumbers,
}

#[derive(Debug, Deserialize)]
struct VersionNumbers {
    major: u32,
    minor: u32,
    micro: u32,
}

/// The reason why the monitor cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MonitorError {
    #[error("QEMU ended before its monitor answered")]
    Ended,
    #[error("QEMU's monitor does not answer as it should")]
    Protocol(#[source] io::Error),
}

impl Monitor {
    /// Performs the QMP handshake on `socket`. Fails with `Ended` if QEMU ends before, and with
    /// `Protocol` if it does not answer properly within 60 s for each message.
    pub(crate) fn connect(socket: UnixStream) -> Result<Self, MonitorError> {
        let mut monitor = Self {
            reader: BufReader::new(MonitorReader {
                socket,
                limit: Some(AnswerLimit::new()),
            }),
            version: String::new(),
        };
        let Some(hello) = monitor.line()?.hello else {
            return Err(protocol(io::Error::other("it does not greet")));
        };
        let VersionNumbers {
            major,
            minor,
            micro,
        } = hello.version.qemu;
        monitor.version = format!("{major}.{minor}.{micro}");
        monitor.execute("qmp_capabilities", &json!({}))?;
        Ok(monitor)
    }

    /// Reads the next line, within the limit of the current answer. Fails with `Ended` if QEMU
    /// closed the connection.
    fn line(&mut self) -> Result<Line, MonitorError> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line).map_err(protocol)?;
        if !line.ends_with(b"\n") {
            return Err(MonitorError::Ended);
        }
        serde_json::from_slice(&line).map_err(|error| protocol(error.into()))
    }

    /// Executes `command` and returns its answer. Events that arrive before the answer are dropped.
    fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value, MonitorError> {
        let reader = self.reader.get_mut();
        reader.limit = Some(AnswerLimit::new());
        let asked = json!({"execute": command, "arguments": arguments});
        let sent = reader.socket.write_all(format!("{asked}\n").as_bytes());
        sent.map_err(protocol)?;
        // This loop ends because bytes and time are limited.
        loop {
            let line = self.line()?;
            if let Some(answer) = line.answer {
                return Ok(answer);
            }
            if let Some(Refusal { desc }) = line.error {
                let refusal = format!("{command}: {desc}");
                return Err(protocol(io::Error::other(refusal)));
            }
        }
    }

    /// Starts the virtual CPUs, with which QEMU was started stopped. Fails if QEMU refuses, does
    /// not answer or has ended.
    pub(crate) fn start(&mut self) -> Result<(), MonitorError> {
        self.execute("cont", &json!({})).map(drop)
    }

    /// Returns the guest's current amount of memory in bytes, without the frames in the balloon.
    /// Fails if QEMU refuses, does not answer or has ended.
    pub(crate) fn balloon(&mut self) -> Result<u64, MonitorError> {
        let answer = self.execute("query-balloon", &json!({}))?;
        let strange = || protocol(io::Error::other("query-balloon: no amount"));
        answer["actual"].as_u64().ok_or_else(strange)
    }

    /// Sets the balloon's target, so that the guest is left with `bytes` of memory. Does not wait
    /// for the guest, which may ignore it. Fails if QEMU refuses, does not answer or has ended.
    pub(crate) fn set_balloon(&mut self, bytes: u64) -> Result<(), MonitorError> {
        // QEMU reads the number as a signed one.
        let bytes = bytes.min(i64::MAX as u64);
        self.execute("balloon", &json!({ "value": bytes }))
            .map(drop)
    }

    /// Returns the value of the property `name` of the QOM object at the path `object`. Fails if
    /// there is no such property, or QEMU refuses, does not answer or has ended.
    pub(crate) fn property(&mut self, object: &str, name: &str) -> Result<Value, MonitorError> {
        self.execute("qom-get", &json!({"path": object, "property": name}))
    }

    /// Sets the property `name` of the QOM object at the path `object` to `value`. Fails if there
    /// is no such property, or QEMU refuses, does not answer or has ended.
    pub(crate) fn set_property(
        &mut self,
        object: &str,
        name: &str,
        value: Value,
    ) -> Result<(), MonitorError> {
        let arguments = json!({"path": object, "property": name, "value": value});
        self.execute("qom-set", &arguments).map(drop)
    }

    /// Returns a handle that sends commands while [`Self::wait_for_end`] reads the answers. Use it
    /// only once the CPUs run. Fails if the socket cannot be duplicated.
    pub(crate) fn sender(&self) -> io::Result<MonitorSender> {
        Ok(MonitorSender::over(
            self.reader.get_ref().socket.try_clone()?,
        ))
    }

    /// Reads events until QEMU ends, and calls `learn` with each answer to a command of a
    /// [`MonitorSender`]. Passes stops and resumes of the CPUs on to `vcpus`. Returns what QEMU
    /// said about the end of the VM. Also returns if a read fails, or after a million other events.
    ///
    /// If the CPUs stop although `vcpus` did not ask for that, KVM met an instruction or a state
    /// that it cannot handle. The guest could never continue, so QEMU is killed.
    pub(crate) fn wait_for_end(
        mut self,
        qemu: &Handle,
        vcpus: &Vcpus,
        mut learn: impl FnMut(&Value),
    ) -> End {
        let mut end = End::default();
        // From here on only the length of a line is limited, not the time.
        let reader = self.reader.get_mut();
        reader.limit = None;
        let _ = reader.socket.set_read_timeout(None);
        let mut line = Vec::new();
        let mut events = 0;
        while events < EVENTS_MAX {
            line.clear();
            let mut bounded = Read::by_ref(&mut self.reader).take(EVENT_BYTES_MAX);
            if let Ok(0) | Err(_) = bounded.read_until(b'\n', &mut line) {
                break;
            }
            let said = serde_json::from_slice::<Line>(&line).ok();
            if let Some(answer) = said.as_ref().and_then(|line| line.answer.as_ref()) {
                learn(answer);
                continue;
            }
            let said = said.and_then(|line| Some((line.event?, line.data)));
            let (event, data) = said.unwrap_or_default();
            match event.as_str() {
                // These are not counted as events: users may stop and resume the guest any number
                // of times.
                "STOP" if vcpus.on_stop_event() => {}
                "RESUME" => vcpus.on_resume_event(),
                name => {
                    events += 1;
                    if name == "SHUTDOWN" {
                        end.cause = data["reason"].as_str().map(str::to_owned);
                    } else if name == "STOP" {
                        end.stopped = true;
                        qemu.kill();
                    }
                }
            }
        }
        end
    }
}

/// What [`Monitor::wait_for_end`] read about the end of a VM.
#[derive(Debug, Default)]
pub(crate) struct End {
    /// QEMU's reason for the shutdown, such as `guest-reset`, or `None` if the guest did not shut
    /// down.
    pub(crate) cause: Option<String>,
    /// Whether QEMU could not run the guest any further and was killed.
    pub(crate) stopped: bool,
}

/// Turns an I/O error of the socket into a [`MonitorError`]. A closed connection becomes `Ended`.
fn protocol(error: io::Error) -> MonitorError {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    match error.kind() {
        BrokenPipe | ConnectionReset | UnexpectedEof => MonitorError::Ended,
        // QEMU's error text may be as long as an answer and may contain control characters.
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

    /// Connects to a QEMU that sends `text` and then nothing more. Returns QEMU's end of the
    /// socket, too.
    fn connect(text: &str) -> (UnixStream, Result<Monitor, MonitorError>) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(text.as_bytes()).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        (theirs, Monitor::connect(ours))
    }

    const HELLO: &str = r#"{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7},
        "package": "Debian"}, "capabilities": ["oob"]}}"#;

    #[test]
    fn answers_are_told_from_events_and_refusals_quoted() {
        let hello = HELLO.replace('\n', "");
        let event =
            r#"{"timestamp": {"seconds": 1, "microseconds": 2}, "event": "NIC", "data": {}}"#;
        let refused = r#"{"error": {"class": "GenericError", "desc": "no balloon"}}"#;
        let answer = r#"{"return": {"actual": 4096}, "id": 7}"#;
        let strange = r#"{"return": {"actual": -1}}"#;
        let lines = [
            &hello,
            event,
            r#"{"return": {}}"#,
            event,
            refused,
            answer,
            strange,
        ];
        let (_theirs, monitor) = connect(&(lines.join("\r\n") + "\r\n"));
        let mut monitor = monitor.unwrap();
        assert_eq!(monitor.version, "7.2.22");
        let error = monitor.balloon().unwrap_err();
        let MonitorError::Protocol(why) = error else {
            panic!("{error}");
        };
        assert_eq!(why.to_string(), "query-balloon: no balloon");
        assert_eq!(monitor.balloon().unwrap(), 4096);
        assert!(matches!(monitor.balloon(), Err(MonitorError::Protocol(_))));
        assert!(matches!(monitor.balloon(), Err(MonitorError::Ended)));
    }

    #[test]
    fn who_does_not_greet_is_no_qemu() {
        for text in ["", "{\"QMP\"", HELLO.lines().next().unwrap()] {
            assert!(
                matches!(connect(text).1, Err(MonitorError::Ended)),
                "{text}"
            );
        }
        for text in ["hello\n", "{\"return\": {}}\n", "[]\n", "{\"QMP\": 1}\n"] {
            let error = connect(text).1.err().unwrap();
            assert!(matches!(error, MonitorError::Protocol(_)), "{text}");
        }
    }

    #[test]
    fn a_greeting_without_an_end_is_an_error() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let flood = thread::spawn(move || {
            // The loop ends when the socket is closed at the other end.
            while theirs.write_all(&[b' '; 4096]).is_ok() {}
        });
        let error = Monitor::connect(ours).err().unwrap();
        assert!(matches!(error, MonitorError::Protocol(_)), "{error}");
        flood.join().unwrap();
    }
}
