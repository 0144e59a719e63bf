//! A client for the virtio balloon of a QEMU that already runs, over a QMP socket of its own.
//!
//! The peer is not trusted. The length of a line, the number of events before an answer and the
//! time of an answer are bounded, and every value it sends is treated as a claim.

use crate::system::open_named;
use crate::system::opened::own_path;
use crate::text::one_line;
use rustix::fs::OFlags;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The timeout of each read and write on the monitor socket.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum length of one line from the monitor, in bytes. All answers used here are shorter.
const LINE_MAX: usize = 1 << 20;
/// The maximum number of other messages, such as events, before the answer to a command.
const EVENTS_MAX: usize = 1000;
/// The maximum number of characters of QEMU's error text that are shown.
const ERROR_MAX: usize = 200;
/// The folders of QEMU's object model (QOM) that are searched for the balloon device.
const DEVICES: [&str; 2] = ["/machine/peripheral", "/machine/peripheral-anon"];
/// The balloon's property for the interval at which QEMU polls the guest's statistics, in seconds.
const INTERVAL: &str = "guest-stats-polling-interval";

/// The reason why the balloon cannot be reached or a command to it failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BalloonError {
    #[error("no monitor can be reached there")]
    Connect(#[source] io::Error),
    #[error("its monitor does not answer within 10 s; another program may be connected to it")]
    Silent,
    #[error("its monitor has closed the connection")]
    Closed,
    #[error("the socket does not belong to a QEMU monitor: {0}")]
    Protocol(&'static str),
    #[error("QEMU refuses `{command}`: {}", one_line(why))]
    Refused { command: &'static str, why: String },
    #[error("this QEMU has no balloon; start it with `-device virtio-balloon-pci`")]
    None,
    #[error("cannot talk to its monitor")]
    Io(#[source] io::Error),
    #[error("what its process {0} holds of memory cannot be read; it may be another user's")]
    Process(i32),
    #[error("cannot find out QEMU's process number")]
    UnknownProcess,
}

impl BalloonError {
    /// Returns the error's message, followed by that of its source if it has one, after a colon.
    pub(crate) fn whole(&self) -> String {
        match std::error::Error::source(self) {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }
}

/// Memory statistics that the guest sent to its balloon device. Amounts are in bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct BalloonStats {
    /// All memory that the guest's kernel manages.
    pub(crate) total: u64,
    /// Memory that programs can get without swapping. For guests that do not send this statistic,
    /// the free memory.
    pub(crate) available: u64,
    /// Free memory, or `None` if the guest does not send this statistic.
    pub(crate) free: Option<u64>,
    /// Memory of the page cache, or `None` if the guest does not send this statistic.
    pub(crate) files: Option<u64>,
    /// Page faults since boot, or `None` if the guest does not send this statistic.
    pub(crate) faults: Option<u64>,
    /// When the statistics arrived, in seconds since 1970.
    pub(crate) at: u64,
}

impl BalloonStats {
    /// Reads the answer to a query of `guest-stats`. Returns `None` if the guest has not sent any
    /// statistics yet, or has not sent its total memory or neither its available nor its free
    /// memory.
    fn parse(answer: &Value) -> Option<Self> {
        let stats = answer.get("stats")?;
        // QEMU sets a statistic that the guest does not send to all ones.
        let tag = |name: &str| stats.get(name)?.as_u64().filter(|value| *value != u64::MAX);
        let at = answer.get("last-update")?.as_u64().filter(|at| *at != 0)?;
        Some(Self {
            total: tag("stat-total-memory")?,
            available: tag("stat-available-memory").or_else(|| tag("stat-free-memory"))?,
            free: tag("stat-free-memory"),
            files: tag("stat-disk-caches"),
            // Linux includes major faults in this count, although the statistic is named minor
            // faults.
            faults: tag("stat-minor-faults"),
            at,
        })
    }
}

/// A guest's amounts of memory with an empty balloon, in bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct FullMemory {
    /// All memory of the guest.
    pub(crate) all: u64,
    /// The amount that [`Balloon::memory`] then tells: the memory from the start and DIMMs. QEMU's
    /// balloon does not count other memory that was plugged in, such as that of virtio-mem.
    pub(crate) balloonable: u64,
}

impl FullMemory {
    /// Reads the answers to `query-memory-size-summary` and `query-memory-devices`. Returns `None`
    /// if they have no memory from the start, or more bytes than can be counted.
    fn parse(sizes: &Value, devices: &Value) -> Option<Self> {
        let base = sizes["base-memory"].as_u64()?;
        let plugged = sizes["plugged-memory"].as_u64().unwrap_or(0);
        let devices = devices.as_array().into_iter().flatten();
        let mut dimms = devices.filter(|device| device["type"] == "dimm");
        let balloonable = dimms.try_fold(base, |sum, dimm| {
            sum.checked_add(dimm["data"]["size"].as_u64().unwrap_or(0))
        });
        Some(Self {
            all: base.checked_add(plugged)?,
            balloonable: balloonable?,
        })
    }
}

/// A connection to the QMP monitor of a running QEMU that has a virtio balloon. Each method that
/// sends a command waits up to 10 s for each part of the answer.
#[derive(Debug)]
pub(crate) struct Balloon {
    lines: Lines<UnixStream>,
    device: String,
    /// The process at the other end of the socket, or `None` if the host does not say which.
    pub(crate) pid: Option<i32>,
}

impl Balloon {
    /// Connects to the QMP socket at `path` and finds the balloon device of that QEMU.
    ///
    /// Fails with `Connect` if there is no socket or the connection is refused, and with `None` if
    /// QEMU has no balloon device. Fails, too, if the peer does not speak QMP or does not answer in
    /// 10 s.
    pub(crate) fn connect(path: &Path) -> Result<Self, BalloonError> {
        Self::over(connect(path, TIMEOUT)?)
    }

    /// Performs the QMP handshake on `stream` and finds the balloon device of that QEMU. Sets
    /// timeouts of 10 s on `stream`.
    ///
    /// Fails if the peer does not speak QMP or does not answer in time, or with
    /// [`BalloonError::None`] if QEMU has no balloon device.
    fn over(stream: UnixStream) -> Result<Self, BalloonError> {
        let (mut lines, pid) = open(stream)?;
        if lines.next()?.get("QMP").is_none() {
            return Err(BalloonError::Protocol("it does not greet like one"));
        }
        lines.ask("qmp_capabilities", &json!({}))?;
        let device = find(&mut lines)?;
        Ok(Self { lines, device, pid })
    }

    /// Does the same as [`Self::over`] on a monitor that only this process uses, maybe once more
    /// after a failure: QEMU may have greeted already, and have ended the handshake later.
    ///
    /// Fails as [`Self::over`], but not for a missing greeting.
    pub(crate) fn over_own(stream: UnixStream) -> Result<Self, BalloonError> {
        let (mut lines, pid) = open(stream)?;
        match lines.ask("qmp_capabilities", &json!({})) {
            // QEMU refuses a second handshake.
            Ok(_) | Err(BalloonError::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
        let device = find(&mut lines)?;
        Ok(Self { lines, device, pid })
    }

    /// Returns the guest's name, or `None` if QEMU was started without `-name`. Fails if the
    /// monitor does not answer or QEMU refuses.
    pub(crate) fn name(&mut self) -> Result<Option<String>, BalloonError> {
        let answer = self.lines.ask("query-name", &json!({}))?;
        Ok(answer["name"].as_str().map(str::to_owned))
    }

    /// Returns the number of virtual CPUs, or 0 if the answer is not a list. Fails if the monitor
    /// does not answer or QEMU refuses.
    pub(crate) fn cpus(&mut self) -> Result<usize, BalloonError> {
        let answer = self.lines.ask("query-cpus-fast", &json!({}))?;
        Ok(answer.as_array().map_or(0, Vec::len))
    }

    /// Returns whether the guest runs on KVM, and `false` if the answer does not say so. Fails if
    /// the monitor does not answer or QEMU refuses.
    pub(crate) fn is_on_kvm(&mut self) -> Result<bool, BalloonError> {
        let answer = self.lines.ask("query-kvm", &json!({}))?;
        Ok(answer["enabled"].as_bool().unwrap_or(false))
    }

    /// Returns the resident set size of the QEMU process in bytes: the guest's memory and QEMU's
    /// own.
    ///
    /// Fails with `UnknownProcess` if the process is not known, and with `Process` if its
    /// `/proc/PID/smaps_rollup` cannot be read.
    pub(crate) fn resident(&self) -> Result<u64, BalloonError> {
        let pid = self.pid.ok_or(BalloonError::UnknownProcess)?;
        resident(pid).ok_or(BalloonError::Process(pid))
    }

    /// Returns the guest's current amount of memory in bytes, without the frames in the balloon.
    /// Fails if the monitor does not answer, QEMU refuses, or the answer has no amount.
    pub(crate) fn memory(&mut self) -> Result<u64, BalloonError> {
        let answer = self.lines.ask("query-balloon", &json!({}))?;
        answer["actual"]
            .as_u64()
            .ok_or(BalloonError::Protocol("`query-balloon` has no `actual`"))
    }

    /// Returns the guest's amounts of memory with an empty balloon. Fails if the monitor does not
    /// answer, QEMU refuses, or the answer has no amount.
    pub(crate) fn full_memory(&mut self) -> Result<FullMemory, BalloonError> {
        let sizes = self.lines.ask("query-memory-size-summary", &json!({}))?;
        let devices = self.lines.ask("query-memory-devices", &json!({}))?;
        FullMemory::parse(&sizes, &devices).ok_or(BalloonError::Protocol(
            "`query-memory-size-summary` has no `base-memory`",
        ))
    }

    /// Returns whether the guest may take pages back out of the balloon when its memory is out
    /// (`deflate-on-oom`), and `false` if the answer does not say so. Fails if the monitor does not
    /// answer or QEMU refuses.
    pub(crate) fn yields(&mut self) -> Result<bool, BalloonError> {
        let property = json!({"path": self.device, "property": "deflate-on-oom"});
        let answer = self.lines.ask("qom-get", &property)?;
        Ok(answer.as_bool().unwrap_or(false))
    }

    /// Sets the balloon's target, so that the guest is left with `bytes` of memory. Returns as soon
    /// as QEMU accepts the target; the guest inflates or deflates the balloon afterwards, and may
    /// ignore it. Fails if the monitor does not answer or QEMU refuses.
    pub(crate) fn set_memory(&mut self, bytes: u64) -> Result<(), BalloonError> {
        let answer = self.lines.ask("balloon", &json!({ "value": bytes }));
        answer.map(drop)
    }

    /// Returns the memory statistics that the guest sent last. Returns `None` if it has not sent
    /// any yet, or without its total memory or its available and free memory. Does not ask the
    /// guest. Fails if the monitor does not answer or QEMU refuses.
    pub(crate) fn stats(&mut self) -> Result<Option<BalloonStats>, BalloonError> {
        let property = json!({"path": self.device, "property": "guest-stats"});
        let answer = self.lines.ask("qom-get", &property)?;
        Ok(BalloonStats::parse(&answer))
    }

    /// Returns the interval at which QEMU polls the guest's statistics, in seconds. 0 means never,
    /// or that the answer is no number. Fails if the monitor does not answer or QEMU refuses.
    pub(crate) fn interval(&mut self) -> Result<u64, BalloonError> {
        let property = json!({"path": self.device, "property": INTERVAL});
        let answer = self.lines.ask("qom-get", &property)?;
        Ok(answer.as_u64().unwrap_or(0))
    }

    /// Has QEMU poll the guest's statistics every `seconds`, or never if `seconds` is 0. Fails if
    /// the monitor does not answer or QEMU refuses.
    pub(crate) fn set_interval(&mut self, seconds: u64) -> Result<(), BalloonError> {
        let property = json!({"path": self.device, "property": INTERVAL, "value": seconds});
        self.lines.ask("qom-set", &property).map(drop)
    }
}

/// Connects to the QMP socket at `path`. A monitor serves one client, and keeps the next ones in a
/// short queue. If that is full, waits at most `limit`, and fails with [`BalloonError::Silent`]
/// then. Fails with [`BalloonError::Connect`] if there is no socket or the connection is refused.
fn connect(path: &Path, limit: Duration) -> Result<UnixStream, BalloonError> {
    let connected = || -> io::Result<UnixStream> {
        // Connects to the socket that was opened, even if `path` leads to another file by now.
        let named = open_named(path, OFlags::PATH)?;
        let family = AddressFamily::UNIX;
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // Linux applies the limit for sending to connect(2), too.
        set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(own_path(&named))?)?;
        Ok(socket.into())
    };
    connected().map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => BalloonError::Silent,
        _ => BalloonError::Connect(error),
    })
}

/// Returns `stream` as lines, with timeouts of 10 s, and the process at its other end. Fails if the
/// timeouts cannot be set.
fn open(stream: UnixStream) -> Result<(Lines<UnixStream>, Option<i32>), BalloonError> {
    let timeouts = stream
        .set_read_timeout(Some(TIMEOUT))
        .and_then(|()| stream.set_write_timeout(Some(TIMEOUT)));
    timeouts.map_err(BalloonError::Io)?;
    let peer = socket_peercred(&stream).ok();
    let pid = peer.map(|peer| peer.pid.as_raw_nonzero().get());
    Ok((Lines::new(stream), pid))
}

/// Returns the QOM path of the balloon device. Fails with `BalloonError::None` if QEMU has none.
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

/// Returns the resident set size of process `pid` in bytes, or `None` if `/proc` does not tell.
fn resident(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// A QMP connection as a sequence of lines of JSON.
#[derive(Debug)]
struct Lines<S> {
    stream: S,
    /// Bytes that were received but not returned as a line yet.
    input: Vec<u8>,
    /// The number of commands sent so far, which is the `id` of the last one.
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

    /// Executes `command` and returns its answer. Events that arrive before the answer are dropped.
    fn ask(&mut self, command: &'static str, arguments: &Value) -> Result<Value, BalloonError> {
        self.asked += 1;
        let line = json!({"execute": command, "arguments": arguments, "id": self.asked});
        let written = self.stream.write_all(format!("{line}\n").as_bytes());
        written.map_err(failed)?;
        for _ in 0..EVENTS_MAX {
            let mut answer = self.next()?;
            // An answer to an earlier command, which arrived after its timeout.
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

    /// Returns the next line as JSON. Fails if the peer closed the connection, sent no whole line
    /// in time, or the line is too long or not JSON.
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

/// Turns an I/O error of the socket into a [`BalloonError`]; a timeout becomes `Silent`.
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

    /// A peer that sends the given bytes and accepts everything that is written to it.
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

    #[test]
    fn a_monitor_whose_queue_of_clients_is_full_is_given_up() {
        let name = format!("ebb-monitor-queue-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        let monitor = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&monitor, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        // The queue has place for one client.
        rustix::net::listen(&monitor, 0).unwrap();
        let _first = connect(&path, TIMEOUT).unwrap();
        let error = connect(&path, Duration::from_millis(10)).unwrap_err();
        assert!(matches!(error, BalloonError::Silent), "{error}");
        std::fs::remove_file(&path).unwrap();
        let error = connect(&path, TIMEOUT).unwrap_err();
        assert!(matches!(error, BalloonError::Connect(_)), "{error}");
    }

    /// The handshake is the first, or an earlier one was given up before QEMU answered it.
    #[test]
    fn a_handshake_can_be_tried_again() {
        let greeting = r#"{"QMP": {}}"#;
        let agreed = r#"{"return": {}, "id": 1}"#;
        let refused = r#"{"error": {"desc": "already complete"}, "id": 1}"#;
        let late = r#"{"return": [], "id": 2}"#;
        let devices =
            r#"{"return": [{"name": "b", "type": "child<virtio-balloon-pci>"}], "id": 2}"#;
        for before in [[greeting, agreed], [agreed, refused], [late, refused]] {
            let (ours, mut monitor) = UnixStream::pair().unwrap();
            let before = format!("{}\n{}\n", before[0], before[1]);
            monitor.write_all(before.as_bytes()).unwrap();
            let told = std::thread::spawn(move || {
                let mut lines = Lines::new(monitor);
                let asked = [lines.next().unwrap(), lines.next().unwrap()];
                let answer = format!("{devices}\n");
                lines.stream.write_all(answer.as_bytes()).unwrap();
                asked.map(|command| command["execute"].as_str().unwrap().to_owned())
            });
            let balloon = Balloon::over_own(ours).unwrap();
            assert_eq!(balloon.device, "/machine/peripheral/b");
            assert_eq!(told.join().unwrap(), ["qmp_capabilities", "qom-list"]);
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
    fn a_peer_that_is_no_monitor_is_given_up() {
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
        let told = |stats: Value, at: u64| {
            BalloonStats::parse(&json!({"stats": stats, "last-update": at}))
        };
        let all = json!({"stat-total-memory": 9, "stat-free-memory": 4, "stat-available-memory": u64::MAX});
        assert_eq!(
            told(all.clone(), 5),
            Some(BalloonStats {
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
    fn a_balloon_counts_dimms_and_no_other_plugged_memory() {
        let sizes = json!({"base-memory": 100, "plugged-memory": 70});
        let devices = json!([
            {"type": "dimm", "data": {"size": 20}},
            {"type": "virtio-mem", "data": {"size": 40}},
            {"type": "dimm", "data": {"size": 10}}
        ]);
        let told = FullMemory::parse(&sizes, &devices);
        let expected = FullMemory {
            all: 170,
            balloonable: 130,
        };
        assert_eq!(told, Some(expected));
        let plain = FullMemory::parse(&json!({"base-memory": 100}), &json!([]));
        let expected = FullMemory {
            all: 100,
            balloonable: 100,
        };
        assert_eq!(plain, Some(expected));
        let endless = json!([{"type": "dimm", "data": {"size": u64::MAX}}]);
        assert_eq!(FullMemory::parse(&sizes, &endless), None);
        assert_eq!(FullMemory::parse(&json!({}), &devices), None);
    }

    #[test]
    fn what_a_process_holds_is_known() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(resident(own).is_some_and(|bytes| bytes > 1 << 16));
        assert_eq!(resident(-1), None);
    }
}
