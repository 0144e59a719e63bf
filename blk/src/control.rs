//! The control socket. Each request is one JSON object on a line, and each is answered by one line.
//!
//! | request | answer |
//! |---|---|
//! | `{"do":"get"}`, `{"do":"get","instance":"a"}` | `{"instances":[…]}`: figures and settings |
//! | `{"do":"set","knob":"max_buffer_pages","value":0}`, also with `instance` | `{"done":N}` |
//! | `{"do":"squeeze"}`, also with `instance` | `{"done":N}`: number of instances |
//! | `{"do":"join","name":"x"}` | `{"done":1}`, then `{"pressure":MICROSECONDS}` for each event |
//!
//! `set` and `squeeze` are answered when each disk's thread has carried them out: its pages are
//! freed and its figures show that. If some threads do not within a second, the answer is an error
//! with the names of their disks; they follow the request when they run again.
//!
//! A request that fails is answered with `{"error":"why"}`. By `join` any other program on the host
//! becomes a member of the registry and is notified of the same pressure events as the disks.

use crate::capabilities::keep_capabilities;
use crate::instance::Handle;
use crate::knobs::{Knob, KnobError, Setting};
use crate::messages::print;
use crate::pressure::ReclaimMemory;
use crate::pressure::registry::Pings;
use crate::server::{self, Server};
use crate::time::Micros;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of bytes of a request.
const MAX_LINE: u64 = 4096;
/// Maximum number of bytes of an answer that a client reads. Reports of a thousand instances fit.
const MAX_ANSWER: usize = 4 << 20;
/// Maximum number of clients at a time. Further ones are refused.
const MAX_CLIENTS: usize = 64;
/// Maximum number of programs that have joined. They do not count as clients, so that programs
/// which wait for pressure events do not keep others from sending requests.
const MAX_MEMBERS: usize = 1024;
/// Time after which the server closes a connection that neither sends nor receives, unless it has
/// joined.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time after which an instance that has not confirmed a request is named in an error.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// A request to the server of disks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "DiskRequest")
)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Returns figures and settings.
    Get {
        /// The disk. Without it, all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance: Option<String>,
    },
    /// Changes a setting.
    Set {
        /// Name of the setting, as `ebb blk set` has it.
        knob: String,
        /// The new value.
        value: u32,
        /// The disk. Without it, all, and those that start later without this setting of their
        /// own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance: Option<String>,
    },
    /// Makes disks act as for a pressure event.
    Squeeze {
        /// The disk or member. Without it, all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance: Option<String>,
    },
    /// Makes the client a member, which is sent every event from now on.
    Join {
        /// A name by which the member can be squeezed alone.
        name: String,
    },
}

/// A message from the server of disks to a client: the answer to a request, or a pressure event,
/// which only members are sent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "DiskAnswer")
)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// To `get`: a report for each disk.
    Instances(Vec<Report>),
    /// The request was carried out. The value is the number of disks and members concerned.
    Done(usize),
    /// To members: a pressure event at this time, in microseconds of the server's clock.
    Pressure(u64),
    /// The request failed, for this reason.
    Error(String),
}

/// Figures and settings of one disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "DiskReport")
)]
#[allow(missing_docs, reason = "the names of knobs and figures say it")]
pub struct Report {
    /// The disk's name.
    pub name: String,
    /// Whether a front-end is connected.
    pub connected: bool,
    /// The I/O mechanism: `io_uring` or `preadv/pwritev`.
    pub io: String,
    /// The setting of this name: maximum number of free pages that a batch of requests leaves in
    /// the pool.
    pub max_buffer_pages: u32,
    /// The setting of this name: time after a pressure event in which each batch of requests
    /// returns its pages.
    pub buffer_squeeze_duration_ms: u32,
    /// The setting of this name: time after a pressure event until which free pages that no request
    /// needs are returned, unless the other setting is longer.
    pub squeeze_hold_ms: u32,
    /// The setting of this name: maximum number of grants that stay mapped.
    pub max_persistent_grants: u32,
    /// The setting of this name: time after which an unused grant is unmapped.
    pub persistent_grant_unused_seconds: u32,
    /// The setting of this name: 1 if the numbers of requests are written to stderr, else 0.
    pub log_stats: u32,
    /// Pages of the pool that are free, at most `max_buffer_pages`.
    pub pages_kept: u32,
    /// Pages of the pool that requests hold. Not limited by `max_buffer_pages`.
    pub pages_in_use: u32,
    /// Pages returned to the system since the start.
    pub pages_released: u64,
    /// Number of requests answered.
    pub requests: u64,
    /// Number of requests answered with an error.
    pub failed: u64,
    /// Number of reads taken.
    pub reads: u64,
    /// Number of writes taken.
    pub writes: u64,
    /// Number of flushes taken.
    pub flushes: u64,
    /// Number of discards and of requests to write zeroes taken.
    pub discards: u64,
    /// Number of times that a request had to wait for free pages of the pool.
    pub starved: u64,
    /// Bytes transferred from or to guest memory in place.
    pub bytes_in_place: u64,
    /// Bytes transferred through pages of the pool.
    pub bytes_bounced: u64,
    /// Number of pressure events after which the pool freed all its free pages.
    pub squeezes: u64,
    /// Number of a Xen front-end's grants that stay mapped.
    pub persistent_grants: u32,
}

impl Server {
    /// Carries out a client's request and returns the answer. Waits up to a second for the threads
    /// of the disks to confirm. Every failure is an [`Answer::Error`]: an unknown name or setting,
    /// a value that is too large, a setting for Xen's disks alone where there are none, or disks
    /// that did not confirm in time; these follow the request when they run again.
    /// [`Request::Join`] is always refused, because it needs a connection of its own.
    pub fn perform(&self, request: &Request) -> Answer {
        match request {
            Request::Get { instance } => match self.chosen(instance.as_deref()) {
                Ok(chosen) => Answer::Instances(chosen.values().map(|h| report(h)).collect()),
                Err(error) => error,
            },
            Request::Set {
                knob,
                value,
                instance,
            } => {
                let set = || -> Result<Answer, Answer> {
                    let refuse = |error: KnobError| Answer::Error(error.to_string());
                    let knob = knob.parse().map_err(refuse)?;
                    let setting = Setting::new(knob, *value).map_err(refuse)?;
                    if !self.can_apply(setting, instance.as_deref())? {
                        let setting = setting.to_string();
                        return Err(refuse(KnobError::ForXenAlone { setting, knob }));
                    }
                    // The defaults are set before the disks are listed, so that a disk which starts
                    // later has the value.
                    if instance.is_none() {
                        self.knobs().apply(setting);
                    }
                    let chosen = self.chosen(instance.as_deref())?;
                    for handle in chosen.values() {
                        handle.knobs().apply(setting);
                    }
                    // Programs that have joined have no settings.
                    let asked = self.registry().ping(|name| chosen.contains_key(name));
                    let ended = chosen.keys().filter(|name| !asked.include(name));
                    let ended = ended.cloned().collect();
                    Ok(answered(asked, ended))
                };
                set().unwrap_or_else(|error| error)
            }
            Request::Squeeze { instance } => {
                // Members that joined under this name are notified, too.
                let (name, now) = (instance.as_deref(), self.clock().now());
                let asked = match name {
                    None => self.registry().pressure(now),
                    Some(name) => self.registry().squeeze(name, now),
                };
                match name {
                    Some(name) if asked == 0 => unknown(name),
                    _ => {
                        let wanted = |member: &str| name.is_none_or(|name| name == member);
                        answered(self.registry().ping(wanted), Vec::new())
                    }
                }
            }
            Request::Join { .. } => Answer::Error("only a connection of its own can join".into()),
        }
    }

    /// Returns whether `setting` has an effect on the instance called `name`, or without a name on
    /// any, now or later. The error is an answer that no instance has this name.
    fn can_apply(&self, setting: Setting, name: Option<&str>) -> Result<bool, Answer> {
        let chosen = self.chosen(name)?;
        let is_for_any = name.is_none() && self.serves_xen();
        let has_effect = |handle: &Arc<Handle>| handle.is_of_xen();
        Ok(!setting.knob().is_for_xen_alone() || is_for_any || chosen.values().any(has_effect))
    }

    /// Returns the instance called `name`, or all. The error is an answer that no instance has this
    /// name.
    fn chosen(&self, name: Option<&str>) -> Result<BTreeMap<String, Arc<Handle>>, Answer> {
        let mut chosen = self.instances();
        if let Some(name) = name {
            chosen.retain(|other, _| other == name);
            if chosen.is_empty() {
                return Err(unknown(name));
            }
        }
        Ok(chosen)
    }
}

/// Waits for the instances in `asked` to confirm a request. Returns an error with the names of
/// those that did not, and of those in `ended`, whose threads have ended. Otherwise returns the
/// number of instances.
fn answered(asked: Pings, ended: Vec<String>) -> Answer {
    let count = asked.len() + ended.len();
    let silent = [ended, asked.wait_unanswered(ANSWER_LIMIT)].concat();
    if silent.is_empty() {
        return Answer::Done(count);
    }
    let names = silent.join(", ");
    let silent = silent.len();
    Answer::Error(format!(
        "{silent} of {count} did not answer within {ANSWER_LIMIT:?}: {names}"
    ))
}

/// Makes the report of an instance.
fn report(handle: &Handle) -> Report {
    let figures = handle.figures();
    Report {
        name: handle.name().to_owned(),
        connected: figures.connected,
        io: handle.io_kind().to_owned(),
        max_buffer_pages: handle.knobs().get(Knob::MaxBufferPages),
        buffer_squeeze_duration_ms: handle.knobs().get(Knob::BufferSqueezeDurationMs),
        squeeze_hold_ms: handle.knobs().get(Knob::SqueezeHoldMs),
        max_persistent_grants: handle.knobs().get(Knob::MaxPersistentGrants),
        persistent_grant_unused_seconds: handle.knobs().get(Knob::PersistentGrantUnusedSeconds),
        log_stats: handle.knobs().get(Knob::LogStats),
        pages_kept: figures.pool.free,
        pages_in_use: figures.pool.in_use,
        pages_released: figures.pool.released,
        requests: figures.counters.requests,
        failed: figures.counters.failed,
        reads: figures.counters.reads,
        writes: figures.counters.writes,
        flushes: figures.counters.flushes,
        discards: figures.counters.discards,
        starved: figures.counters.starved,
        bytes_in_place: figures.counters.in_place_bytes,
        bytes_bounced: figures.counters.bounced_bytes,
        squeezes: figures.counters.squeezes,
        persistent_grants: figures.persistent_grants,
    }
}

/// Makes the answer that no instance or member is called `name`.
fn unknown(name: &str) -> Answer {
    Answer::Error(format!("there is no instance named {name}"))
}

/// One of a limited number of connections. Dropping it makes it free again.
#[derive(Debug)]
struct Place(Arc<AtomicUsize>);

impl Place {
    /// Takes one of `most` connections, which `taken` counts. Returns `None` if all are taken.
    fn among(taken: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        // Relaxed: the count orders no other memory access.
        let before = taken.fetch_add(1, Ordering::Relaxed);
        let place = Self(taken.clone());
        (before < most).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Starts a thread that serves control clients at `listener` for the rest of the process, with a
/// further thread for each client. If the thread cannot drop its capabilities, it writes this to
/// stderr and serves no client.
///
/// # Errors
/// Fails if the system refuses the first thread.
pub fn serve(server: Arc<Server>, listener: UnixListener) -> io::Result<()> {
    let (clients, members) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    thread::Builder::new()
        .name("control".into())
        .spawn(move || {
            if let Err(error) = keep_capabilities(CapabilitySet::empty()) {
                print(format_args!(
                    "the control socket takes no requests: cannot give up privileges: {error}"
                ));
                return;
            }
            for stream in listener.incoming() {
                let Ok(stream) = stream else {
                    // Probably no descriptor is left, so the thread waits until other connections
                    // end.
                    thread::sleep(Duration::from_millis(100));
                    continue;
                };
                let Some(client) = Place::among(&clients, MAX_CLIENTS) else {
                    let why = format!("there are {MAX_CLIENTS} clients already");
                    let _ = send(&stream, &Answer::Error(why));
                    continue;
                };
                let (server, members) = (server.clone(), members.clone());
                // No code joins these threads. If a thread cannot be started, the stream is closed.
                let _ = thread::Builder::new().name("client".into()).spawn(move || {
                    // An error of a client's connection concerns that client only.
                    let _ = talk(&server, client, &members, &stream);
                });
            }
        })?;
    Ok(())
}

/// Answers requests on a client's connection until it closes. Fails if the connection fails.
fn talk(
    server: &Server,
    client: Place,
    members: &Arc<AtomicUsize>,
    stream: &UnixStream,
) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        let read = reader
            .by_ref()
            .take(MAX_LINE)
            .read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        // Bytes that are not UTF-8 are replaced, and then fail to parse as JSON.
        let line = String::from_utf8_lossy(&line);
        if !line.ends_with('\n') {
            return send(
                stream,
                &Answer::Error(format!("a request has at most {MAX_LINE} bytes")),
            );
        }
        match serde_json::from_str(&line) {
            Ok(Request::Join { name }) => {
                let Some(_member) = Place::among(members, MAX_MEMBERS) else {
                    let why = format!("{MAX_MEMBERS} programs have joined already");
                    return send(stream, &Answer::Error(why));
                };
                drop(client);
                return member(server, stream, &name);
            }
            Ok(request) => send(stream, &server.perform(&request))?,
            Err(error) => send(stream, &Answer::Error(format!("{}: {error}", line.trim())))?,
        }
    }
}

/// Sends a client every pressure event until it closes the connection. Fails if sending fails.
fn member(server: &Server, stream: &UnixStream, name: &str) -> io::Result<()> {
    struct Tell<'a>(&'a UnixStream, io::Result<()>);
    impl ReclaimMemory for Tell<'_> {
        fn reclaim_memory(&mut self, event: Micros) {
            self.1 = send(self.0, &Answer::Pressure(event.0));
        }
    }
    let mut registration = server.registry().register(name)?;
    let mut tell = Tell(stream, send(stream, &Answer::Done(1)));
    loop {
        std::mem::replace(&mut tell.1, Ok(()))?;
        let mut fds = [
            PollFd::new(&registration, PollFlags::IN),
            PollFd::new(stream, PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        if !fds[1].revents().is_empty() {
            // A member sends nothing more, so this is the end of its connection.
            return Ok(());
        }
        registration.deliver(&mut tell);
        registration.confirm();
    }
}

/// Sends one answer as a line.
fn send(mut stream: &UnixStream, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_string(answer)?;
    line.push('\n');
    stream.write_all(line.as_bytes())
}

/// Time that a client waits for a complete answer. A server that names silent disks answers after
/// [`ANSWER_LIMIT`].
const CLIENT_PATIENCE: Duration = Duration::from_secs(10);

/// Sends `request` to the control socket at `path` and returns the server's answer, which may be
/// [`Answer::Error`]. For [`Request::Join`], the connection closes after the first answer.
///
/// # Errors
/// Fails if no server listens there, if it closes the connection without an answer, or if its
/// answer is malformed (`InvalidData`). Fails with `TimedOut` if the answer is not complete after
/// ten seconds.
pub fn ask(path: &Path, request: &Request) -> io::Result<Answer> {
    ask_within(path, request, CLIENT_PATIENCE)
}

/// Does the work of [`ask`] with the time limit `patience`.
fn ask_within(path: &Path, request: &Request, patience: Duration) -> io::Result<Answer> {
    let late = || {
        let text = format!("it did not answer within {patience:?}");
        io::Error::new(io::ErrorKind::TimedOut, text)
    };
    let end = Instant::now() + patience;
    let mut stream = match server::connect(path, patience) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(late()),
        connected => connected?,
    };
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    match stream.write_all(line.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(late()),
        written => written?,
    }
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    let mut is_whole = false;
    // The time limit is for the whole answer, however small the parts in which it arrives.
    while !is_whole && answer.len() <= MAX_ANSWER {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => {
                is_whole = piece[..count].contains(&b'\n');
                answer.extend_from_slice(&piece[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(late()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if answer.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let end = answer.iter().position(|byte| *byte == b'\n');
    let line = &answer[..end.unwrap_or(answer.len())];
    // The parser's errors quote the server's text, which may hold line ends.
    serde_json::from_slice(line).map_err(|_| {
        let text = "its answer is malformed";
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::image::{Location, Spec};
    use crate::server::{Disk, Options, bind};

    /// Starts a server with the disks `a` and `b`. Returns it with the path of its control socket
    /// and the front-ends' sockets.
    fn served(name: &str) -> (Arc<Server>, std::path::PathBuf, Vec<UnixStream>) {
        let server = Server::new(Options::default());
        let mut fronts = Vec::new();
        for disk in ["a", "b"] {
            let location = Location::Ram { bytes: 1 << 20 };
            let spec = Spec {
                location,
                read_only: false,
                cached: false,
            };
            fronts.push(
                server
                    .attach(&Disk {
                        name: disk.into(),
                        spec,
                        settings: Vec::new(),
                    })
                    .unwrap(),
            );
        }
        let server = Arc::new(server);
        let path = std::env::temp_dir().join(format!("ebb-{name}-{}.sock", std::process::id()));
        serve(server.clone(), bind(&path).unwrap()).unwrap();
        (server, path, fronts)
    }

    /// Sends `text` to the server at `path` and returns the first line of the answer.
    fn line(path: &Path, text: &str) -> String {
        let stream = UnixStream::connect(path).unwrap();
        (&stream).write_all(text.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        BufReader::new(&stream).read_line(&mut answer).unwrap();
        answer
    }

    /// Sends a request to a server that handles its only client by `server`.
    fn ask_one(
        name: &str,
        patience: Duration,
        server: impl FnOnce(UnixStream) + Send,
    ) -> io::Result<Answer> {
        let path = std::env::temp_dir().join(format!("ebb-{name}-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| server(listener.accept().unwrap().0));
            let answer = ask_within(&path, &Request::Get { instance: None }, patience);
            std::fs::remove_file(&path).unwrap();
            answer
        })
    }

    #[test]
    fn settings_of_xens_disks_are_refused_where_there_are_none() {
        let set = |server: &Server, knob: Knob, instance: Option<&str>| {
            server.perform(&Request::Set {
                knob: knob.name().into(),
                value: 7,
                instance: instance.map(str::to_owned),
            })
        };
        let (server, path, _fronts) = served("settings");
        for knob in [
            Knob::MaxPersistentGrants,
            Knob::PersistentGrantUnusedSeconds,
        ] {
            for instance in [None, Some("a")] {
                let why =
                    format!("`{knob}=7` has no effect here: {knob} is for disks of Xen's domains");
                assert_eq!(set(&server, knob, instance), Answer::Error(why));
            }
            assert_ne!(server.knobs().get(knob), 7);
            assert_eq!(set(&server, knob, Some("c")), unknown("c"));
        }
        assert_eq!(
            set(&server, Knob::MaxBufferPages, Some("a")),
            Answer::Done(1)
        );
        std::fs::remove_file(path).unwrap();
        // Disks of Xen's domains may come later.
        let server = Server::new(Options {
            xen: true,
            ..Options::default()
        });
        let knob = Knob::MaxPersistentGrants;
        assert_eq!(set(&server, knob, None), Answer::Done(0));
        assert_eq!(server.knobs().get(knob), 7);
        assert_eq!(set(&server, knob, Some("a")), unknown("a"));
    }

    #[test]
    fn a_server_that_does_not_answer_is_given_up() {
        let patience = Duration::from_millis(50);
        let silent = ask_one("silent", patience, |mut stream| {
            // Blocks until the client has closed the connection.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        assert_eq!(silent.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let slow = ask_one("slow", patience, |mut stream| {
            while stream.write_all(b" ").is_ok() {
                thread::sleep(patience / 10);
            }
        });
        assert_eq!(slow.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_server_that_accepts_no_connection_is_given_up() {
        let name = format!("ebb-deaf-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        let _listener = bind(&path).unwrap();
        // Clients that have given up stay in its queue.
        let patience = Duration::from_millis(1);
        for _ in 0..30 {
            let deaf = ask_within(&path, &Request::Get { instance: None }, patience);
            assert_eq!(deaf.unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn an_answer_comes_in_pieces_and_no_text_of_a_bad_one_is_shown() {
        let patience = CLIENT_PATIENCE * 100;
        let pieces = ask_one("pieces", patience, |mut stream| {
            for piece in ["{\"do", "ne\":", "2}", "\nmore"] {
                let _ = stream.write_all(piece.as_bytes());
            }
        });
        assert_eq!(pieces.unwrap(), Answer::Done(2));
        let bad = ask_one("bad", patience, |mut stream| {
            let _ = stream.write_all(b"{\"red\\nebb: fine\":1}\n");
        });
        assert_eq!(bad.unwrap_err().to_string(), "its answer is malformed");
        let nothing = ask_one("nothing", patience, drop).unwrap_err();
        assert!(matches!(
            nothing.kind(),
            io::ErrorKind::UnexpectedEof
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::ConnectionReset
        ));
    }

    #[test]
    fn knobs_are_set_for_one_and_for_all() {
        let (_server, path, _fronts) = served("knobs");
        let pages = |name: &str| {
            let request = Request::Get {
                instance: Some(name.into()),
            };
            let Answer::Instances(reports) = ask(&path, &request).unwrap() else {
                panic!()
            };
            reports[0].max_buffer_pages
        };
        let set = |value, instance: Option<&str>| {
            let knob = "max_buffer_pages".into();
            let instance = instance.map(str::to_owned);
            ask(
                &path,
                &Request::Set {
                    knob,
                    value,
                    instance,
                },
            )
            .unwrap()
        };
        assert_eq!(set(7, None), Answer::Done(2));
        assert_eq!(set(9, Some("b")), Answer::Done(1));
        assert_eq!((pages("a"), pages("b")), (7, 9));
        assert!(matches!(set(1 << 30, None), Answer::Error(why) if why.contains("16384")));
        assert!(matches!(set(1, Some("c")), Answer::Error(why) if why.contains('c')));
        let babble = line(&path, "{\"do\":\"dance\"}\n");
        assert!(
            babble.contains("error") && babble.contains("dance"),
            "{babble}"
        );
        let bytes = UnixStream::connect(&path).unwrap();
        (&bytes).write_all(b"\xff{\"do\":\"get\"}\n").unwrap();
        let mut answer = String::new();
        BufReader::new(&bytes).read_line(&mut answer).unwrap();
        assert!(answer.starts_with("{\"error\":"), "{answer}");
        let endless = line(&path, &"x".repeat(5000));
        assert!(endless.contains("4096"), "{endless}");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn who_does_not_answer_is_named() {
        let (server, path, _fronts) = served("stuck");
        // It acts as a disk whose thread is blocked.
        let _silent = server.registry().register("stuck").unwrap();
        let squeeze = |name: Option<&str>| Request::Squeeze {
            instance: name.map(str::to_owned),
        };
        for name in [None, Some("stuck")] {
            let Answer::Error(why) = ask(&path, &squeeze(name)).unwrap() else {
                panic!("it is said to be done");
            };
            assert!(why.contains("stuck") && why.contains("1 of"), "{why}");
        }
        assert_eq!(ask(&path, &squeeze(Some("a"))).unwrap(), Answer::Done(1));
        let set = |name: Option<&str>| Request::Set {
            knob: "max_buffer_pages".into(),
            value: 5,
            instance: name.map(str::to_owned),
        };
        assert_eq!(ask(&path, &set(Some("a"))).unwrap(), Answer::Done(1));
        // It has no settings, so it is not asked.
        assert_eq!(ask(&path, &set(None)).unwrap(), Answer::Done(2));
        let ended = server.instances()["b"].clone();
        ended.request_stop();
        ended.stopped();
        let Answer::Error(why) = ask(&path, &set(Some("b"))).unwrap() else {
            panic!("it is said to be done");
        };
        assert!(why.contains("1 of 1") && why.ends_with(": b"), "{why}");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_confirmed_squeeze_is_in_the_figures() {
        let (_server, path, _fronts) = served("figures");
        for squeezes in 1..=100 {
            let squeeze = Request::Squeeze { instance: None };
            assert_eq!(ask(&path, &squeeze).unwrap(), Answer::Done(2));
            let Answer::Instances(reports) = ask(&path, &Request::Get { instance: None }).unwrap()
            else {
                panic!()
            };
            assert!(reports.iter().all(|report| report.squeezes == squeezes));
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn another_program_joins_with_a_line_and_is_asked() {
        let (server, path, _fronts) = served("join");
        let member = UnixStream::connect(&path).unwrap();
        (&member)
            .write_all(b"{\"do\":\"join\",\"name\":\"cache\"}\n")
            .unwrap();
        let mut lines = BufReader::new(&member).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "{\"done\":1}");
        assert_eq!(
            ask(&path, &Request::Squeeze { instance: None }).unwrap(),
            Answer::Done(3)
        );
        assert!(lines.next().unwrap().unwrap().starts_with("{\"pressure\":"));
        let alone = Request::Squeeze {
            instance: Some("cache".into()),
        };
        assert_eq!(ask(&path, &alone).unwrap(), Answer::Done(1));
        assert!(lines.next().unwrap().unwrap().starts_with("{\"pressure\":"));
        // Members do not count as clients, so requests are still answered.
        let more: Vec<_> = (0..MAX_CLIENTS + 10)
            .map(|n| {
                let member = UnixStream::connect(&path).unwrap();
                let join = format!("{{\"do\":\"join\",\"name\":\"member {n}\"}}\n");
                (&member).write_all(join.as_bytes()).unwrap();
                let mut answer = String::new();
                BufReader::new(&member).read_line(&mut answer).unwrap();
                assert_eq!(answer, "{\"done\":1}\n", "{n}");
                member
            })
            .collect();
        assert_eq!(
            ask(&path, &Request::Squeeze { instance: None }).unwrap(),
            Answer::Done(3 + more.len())
        );
        drop(more);
        drop(lines);
        drop(member);
        // A member leaves when its connection closes.
        while server.registry().len() > 2 {
            thread::sleep(Duration::from_millis(1));
        }
        std::fs::remove_file(&path).unwrap();
    }
}
