//! The balloon of a QEMU that runs already, over a monitor socket of its own.
//!
//! The other end may be anything: lines are bounded, whoever is silent is given up, what it says is an allegation.

use crate::system::open_named;
use crate::system::opened::own_path;
use crate::text::one_line;
use rustix::fs::OFlags;
use rustix::net::sockopt::socket_peercred;
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// QEMU answers within this, or it is stopped or no QEMU.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longer than any line of QEMU's that we ask for.
const LINE_MAX: usize = 1 << 20;
/// Events that come before an answer, at most.
const EVENTS_MAX: usize = 1000;
/// Characters of an error of QEMU's that are shown.
const ERROR_MAX: usize = 200;
/// Where QEMU has its devices.
const DEVICES: [&str; 2] = ["/machine/peripheral", "/machine/peripheral-anon"];
const INTERVAL: &str = "guest-stats-polling-interval";

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BalloonError {
    #[error("no monitor can be reached there")]
    Connect(#[source] io::Error),
    #[error("its monitor does not answer within 10 s; another program may be connected to it")]
    Silent,
    #[error("its monitor has closed the connection")]
    Closed,
    #[error("what answers is no monitor of QEMU's: {0}")]
    Protocol(&'static str),
    #[error("QEMU refuses `{command}`: {}", one_line(why))]
    Refused { command: &'static str, why: String },
    #[error("this QEMU has no balloon; start it with `-device virtio-balloon-pci`")]
    None,
    #[error("cannot talk to its monitor")]
    Io(#[source] io::Error),
    #[error("what its process {0} holds of memory cannot be read; it may be another user's")]
    Process(i32),
    #[error("it does not say which process it is")]
    Nobody,
}

impl BalloonError {
    /// The error with what it came from.
    pub(crate) fn whole(&self) -> String {
        match std::error::Error::source(self) {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }
}

/// What the guest told its balloon, in bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Told {
    pub(crate) total: u64,
    /// What could be had without harm; what is free, of guests that do not tell.
    pub(crate) available: u64,
    /// What nothing uses.
    pub(crate) free: Option<u64>,
    /// What files take, of guests that tell.
    pub(crate) files: Option<u64>,
    /// Page faults so far.
    pub(crate) faults: Option<u64>,
    /// Seconds since 1970 at which it told.
    pub(crate) at: u64,
}

impl Told {
    /// Reads `guest-stats`; `None` while the guest has told nothing.
    fn parse(answer: &Value) -> Option<Self> {
        let stats = answer.get("stats")?;
        // What the guest does not tell is all ones.
        let tag = |name: &str| stats.get(name)?.as_u64().filter(|value| *value != u64::MAX);
        let at = answer.get("last-update")?.as_u64().filter(|at| *at != 0)?;
        Some(Self {
            total: tag("stat-total-memory")?,
            available: tag("stat-available-memory").or_else(|| tag("stat-free-memory"))?,
            free: tag("stat-free-memory"),
            files: tag("stat-disk-caches"),
            // Linux counts a major fault among all of them, which it calls minor here.
            faults: tag("stat-minor-faults"),
            at,
        })
    }
}

/// A balloon that can be asked.
#[derive(Debug)]
pub(crate) struct Balloon {
    lines: Lines<UnixStream>,
    device: String,
    /// The process at the other end.
    pub(crate) pid: Option<i32>,
}

impl Balloon {
    /// Connects to the monitor at `path` and finds the balloon.
    pub(crate) fn connect(path: &Path) -> Result<Self, BalloonError> {
        let connect = || {
            // The socket that was found, whatever the path leads to by now.
            let socket = open_named(path, OFlags::PATH)?;
            UnixStream::connect(own_path(&socket))
        };
        Self::over(connect().map_err(BalloonError::Connect)?)
    }

    /// Finds the balloon of the QEMU whose monitor is at the other end.
    pub(crate) fn over(stream: UnixStream) -> Result<Self, BalloonError> {
        let timeouts = stream
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        timeouts.map_err(BalloonError::Io)?;
        let pid = socket_peercred(&stream)
            .ok()
            .map(|peer| peer.pid.as_raw_nonzero().get());
        let mut lines = Lines::new(stream);
        if lines.next()?.get("QMP").is_none() {
            return Err(BalloonError::Protocol("it does not greet like one"));
        }
        lines.ask("qmp_capabilities", &json!({}))?;
        let device = find(&mut lines)?;
        Ok(Self { lines, device, pid })
    }

    /// What the guest is called, if it was given a name.
    pub(crate) fn name(&mut self) -> Result<Option<String>, BalloonError> {
        let answer = self.lines.ask("query-name", &json!({}))?;
        Ok(answer["name"].as_str().map(str::to_owned))
    }

    /// Virtual CPUs.
    pub(crate) fn cpus(&mut self) -> Result<usize, BalloonError> {
        let answer = self.lines.ask("query-cpus-fast", &json!({}))?;
        Ok(answer.as_array().map_or(0, Vec::len))
    }

    /// Whether KVM runs it.
    pub(crate) fn is_on_kvm(&mut self) -> Result<bool, BalloonError> {
        let answer = self.lines.ask("query-kvm", &json!({}))?;
        Ok(answer["enabled"].as_bool().unwrap_or(false))
    }

    /// What QEMU's process holds of the host's memory: the guest's memory and its own.
    pub(crate) fn resident(&self) -> Result<u64, BalloonError> {
        let pid = self.pid.ok_or(BalloonError::Nobody)?;
        resident(pid).ok_or(BalloonError::Process(pid))
    }

    /// Bytes of memory that the guest has now.
    pub(crate) fn memory(&mut self) -> Result<u64, BalloonError> {
        let answer = self.lines.ask("query-balloon", &json!({}))?;
        answer["actual"]
            .as_u64()
            .ok_or(BalloonError::Protocol("`query-balloon` has no `actual`"))
    }

    /// Bytes of memory that the guest has with an empty balloon.
    pub(crate) fn full_memory(&mut self) -> Result<u64, BalloonError> {
        let answer = self.lines.ask("query-memory-size-summary", &json!({}))?;
        let base = answer["base-memory"].as_u64();
        let plugged = answer["plugged-memory"].as_u64().unwrap_or(0);
        base.and_then(|base| base.checked_add(plugged))
            .ok_or(BalloonError::Protocol(
                "`query-memory-size-summary` has no `base-memory`",
            ))
    }

    /// Has the guest come to have so many bytes.
    pub(crate) fn set_memory(&mut self, bytes: u64) -> Result<(), BalloonError> {
        let answer = self.lines.ask("balloon", &json!({ "value": bytes }));
        answer.map(drop)
    }

    /// What the guest told last.
    pub(crate) fn told(&mut self) -> Result<Option<Told>, BalloonError> {
        let property = json!({"path": self.device, "property": "guest-stats"});
        let answer = self.lines.ask("qom-get", &property)?;
        Ok(Told::parse(&answer))
    }

    /// How often QEMU asks the guest, in seconds; 0: never.
    pub(crate) fn interval(&mut self) -> Result<u64, BalloonError> {
        let property = json!({"path": self.device, "property": INTERVAL});
        let answer = self.lines.ask("qom-get", &property)?;
        Ok(answer.as_u64().unwrap_or(0))
    }

    /// Has QEMU ask the guest as often.
    pub(crate) fn set_interval(&mut self, seconds: u64) -> Result<(), BalloonError> {
        let property = json!({"path": self.device, "property": INTERVAL, "value": seconds});
        self.lines.ask("qom-set", &property).map(drop)
    }
}

/// The path of the balloon among the devices.
fn find(lines: &mut Lines<UnixStream>) -> Result<String, BalloonError> {
    for folder in DEVICES {
        let devices = lines.ask("qom-list", &json!({ "path": folder }))?;
        let found = devices.as_array().into_iter().flatten().find_map(|device| {
            let is_balloon = device["type"].as_str()?.contains("virtio-balloon");
            is_balloon.then(|| device["name"].as_str()).flatten()
        });
        if let Some(name) = found {
            return Ok(format!("{folder}/{name}"));
        }
    }
    Err(BalloonError::None)
}

/// What a process holds of the host's memory.
fn resident(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Lines of JSON.
#[derive(Debug)]
struct Lines<S> {
    stream: S,
    input: Vec<u8>,
    /// Questions so far.
    asked: u64,
}

impl<S: Read + Write> Lines<S> {
    fn new(stream: S) -> Self {
        Self {
            stream,
            input: Vec::new(),
            asked: 0,
        }
    }

    /// Asks, and passes over what happens meanwhile.
    fn ask(&mut self, command: &'static str, arguments: &Value) -> Result<Value, BalloonError> {
        self.asked += 1;
        let line = json!({"execute": command, "arguments": arguments, "id": self.asked});
        let written = self.stream.write_all(format!("{line}\n").as_bytes());
        written.map_err(failed)?;
        for _ in 0..EVENTS_MAX {
            let mut answer = self.next()?;
            // One that came too late for the question before.
            if answer.get("id").is_some_and(|id| *id != self.asked) {
                continue;
            }
            if let Some(result) = answer.get_mut("return") {
                return Ok(result.take());
            }
            if let Some(error) = answer.get("error") {
                let why = error["desc"].as_str().unwrap_or("no reason");
                let shown = why.chars().filter(|c| !c.is_control());
                return Err(BalloonError::Refused {
                    command,
                    why: shown.take(ERROR_MAX).collect(),
                });
            }
        }
        Err(BalloonError::Protocol("it sends events without an end"))
    }

    fn next(&mut self) -> Result<Value, BalloonError> {
        let mut bytes = [0; 4096];
        let mut searched = 0;
        loop {
            if let Some(at) = self.input[searched..].iter().position(|b| *b == b'\n') {
                let rest = self.input.split_off(searched + at + 1);
                let line = std::mem::replace(&mut self.input, rest);
                return serde_json::from_slice(&line)
                    .map_err(|_| BalloonError::Protocol("a line is not JSON"));
            }
            searched = self.input.len();
            if searched > LINE_MAX {
                return Err(BalloonError::Protocol("a line has no end"));
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(BalloonError::Closed),
                Ok(count) => self.input.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

fn failed(error: io::Error) -> BalloonError {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut, WouldBlock};
    match error.kind() {
        TimedOut | WouldBlock => BalloonError::Silent,
        BrokenPipe | ConnectionReset => BalloonError::Closed,
        _ => BalloonError::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says what it was given, and takes everything.
    struct Peer<'a>(&'a [u8]);

    impl Read for Peer<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            self.0.read(to)
        }
    }

    impl Write for Peer<'_> {
        fn write(&mut self, from: &[u8]) -> io::Result<usize> {
            Ok(from.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn ask(says: &[u8]) -> Result<Value, BalloonError> {
        Lines::new(Peer(says)).ask("query-balloon", &json!({}))
    }

    #[test]
    fn answers_are_found_among_events() {
        let says = b"{\"event\":\"BALLOON_CHANGE\"}\n{\"return\":{\"actual\":7}}\n";
        assert_eq!(ask(says).unwrap()["actual"], 7);
        let late = b"{\"return\":{\"actual\":9},\"id\":0}\n{\"return\":{\"actual\":8},\"id\":1}\n";
        assert_eq!(ask(late).unwrap()["actual"], 8);
        let refused = ask(b"{\"error\":{\"desc\":\"no \\u001b[31m device\"}}\n").unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("query-balloon") && text.contains("no [31m device"));
    }

    #[test]
    fn whoever_is_no_monitor_is_given_up() {
        let endless = vec![b'x'; 3 << 20];
        let events = b"{\"event\":\"X\"}\n".repeat(EVENTS_MAX + 1);
        for (says, why) in [
            (&endless[..], "no end"),
            (&events[..], "without an end"),
            (b"HTTP/1.1 400 Bad Request\n", "not JSON"),
            (b"", "closed"),
        ] {
            let error = ask(says).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn statistics_that_are_not_told_are_none() {
        let told = |stats: Value, at: u64| Told::parse(&json!({"stats": stats, "last-update": at}));
        let all = json!({"stat-total-memory": 9, "stat-free-memory": 4, "stat-available-memory": u64::MAX});
        assert_eq!(
            told(all.clone(), 5),
            Some(Told {
                total: 9,
                available: 4,
                free: Some(4),
                files: None,
                faults: None,
                at: 5
            })
        );
        assert_eq!(told(all, 0), None);
        assert_eq!(told(json!({"stat-free-memory": 4}), 5), None);
    }

    #[test]
    fn what_a_process_holds_is_known() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(resident(own).is_some_and(|bytes| bytes > 1 << 16));
        assert_eq!(resident(-1), None);
    }
}
