//! The control socket: one JSON object a line, each answered by one.
//!
//! | request | answer |
//! |---|---|
//! | `{"do":"get"}`, `{"do":"get","instance":"a"}` | `{"instances":[…]}`: figures and knobs |
//! | `{"do":"set","knob":"max_buffer_pages","value":0}`, also with `instance` | `{"done":N}` |
//! | `{"do":"squeeze"}`, also with `instance` | `{"done":N}`: how many did |
//! | `{"do":"join","name":"x"}` | `{"done":1}`, then `{"pressure":MICROSECONDS}` for each event |
//!
//! `set` and `squeeze` are done when each disk has shown that it is there. Those that do not within a
//! second are named in an error: they do it when they go on, if they do.
//!
//! What cannot be done is answered with `{"error":"why"}`. By `join` any other program on the host
//! becomes a member of the same registry: it is asked whenever the disks are.

use crate::capabilities::keep_capabilities;
use crate::instance::Handle;
use crate::knobs::Knob;
use crate::pressure::ReclaimMemory;
use crate::pressure::registry::Questions;
use crate::server::Server;
use crate::time::Micros;
use crate::words::say;
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

/// Bytes of a request at most.
const MAX_LINE: u64 = 4096;
/// Bytes of an answer that a client reads: a thousand instances fit.
const MAX_ANSWER: usize = 4 << 20;
/// Clients at a time. More are turned away.
const MAX_CLIENTS: usize = 64;
/// Programs that have joined. They are not among the clients: who waits for pressure keeps nobody from
/// asking.
const MAX_MEMBERS: usize = 1024;
/// Who neither reads nor writes for so long is given up, unless it has joined.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who does not answer for so long is named.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// What a client asks for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Figures and knobs.
    Get {
        /// Of this one; of all without.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance: Option<String>,
    },
    /// Set a knob.
    Set {
        /// By its name.
        knob: String,
        /// To this.
        value: u32,
        /// Of this one; of all without.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance: Option<String>,
    },
    /// Act as if memory were tight.
    Squeeze {
        /// Of this one; of all without.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance: Option<String>,
    },
    /// Be told of every event from now on.
    Join {
        /// By which it can be squeezed alone.
        name: String,
    },
}

/// What it is answered.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// To `get`.
    Instances(Vec<Report>),
    /// How many instances it was done to.
    Done(usize),
    /// Memory is tight since then, by the server's clock.
    Pressure(u64),
    /// Why it was not done.
    Error(String),
}

/// One instance, as the control socket tells of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names of knobs and figures say it")]
pub struct Report {
    pub name: String,
    pub connected: bool,
    pub io: String,
    pub max_buffer_pages: u32,
    pub buffer_squeeze_duration_ms: u32,
    pub max_persistent_grants: u32,
    pub persistent_grant_unused_seconds: u32,
    pub pages_kept: u32,
    pub pages_in_use: u32,
    pub pages_released: u64,
    pub requests: u64,
    pub failed: u64,
    pub bytes_in_place: u64,
    pub bytes_bounced: u64,
    pub squeezes: u64,
    pub persistent_grants: u32,
}

impl Server {
    /// Does what a client asks for, but for [`Request::Join`].
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
                    let refuse = |error: crate::knobs::KnobError| Answer::Error(error.to_string());
                    let knob: Knob = knob.parse().map_err(refuse)?;
                    // Before the disks are listed: one that is listed later begins with it.
                    if instance.is_none() {
                        self.knobs().set(knob, *value).map_err(refuse)?;
                    }
                    let chosen = self.chosen(instance.as_deref())?;
                    for handle in chosen.values() {
                        handle.knobs().set(knob, *value).map_err(refuse)?;
                    }
                    let asked = self.registry().question(instance.as_deref());
                    let ended = chosen.keys().filter(|name| !asked.include(name));
                    let ended = ended.cloned().collect();
                    Ok(answered(asked, ended))
                };
                set().unwrap_or_else(|error| error)
            }
            Request::Squeeze { instance } => {
                // Not only disks: also whoever joined under this name.
                let (name, now) = (instance.as_deref(), self.clock().now());
                let asked = match name {
                    None => self.registry().pressure(now),
                    Some(name) => self.registry().squeeze(name, now),
                };
                match name {
                    Some(name) if asked == 0 => unknown(name),
                    _ => answered(self.registry().question(name), Vec::new()),
                }
            }
            Request::Join { .. } => Answer::Error("only a connection of its own can join".into()),
        }
    }

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

/// Who did what all were asked to. Threads of some may have `ended`.
fn answered(asked: Questions, ended: Vec<String>) -> Answer {
    let count = asked.len() + ended.len();
    let silent = [ended, asked.silent(ANSWER_LIMIT)].concat();
    if silent.is_empty() {
        return Answer::Done(count);
    }
    let names = silent.join(", ");
    let silent = silent.len();
    Answer::Error(format!(
        "{silent} of {count} did not answer within {ANSWER_LIMIT:?}: {names}"
    ))
}

fn report(handle: &Handle) -> Report {
    let figures = handle.figures();
    Report {
        name: handle.name().to_owned(),
        connected: figures.connected,
        io: handle.io_kind().to_owned(),
        max_buffer_pages: handle.knobs().get(Knob::MaxBufferPages),
        buffer_squeeze_duration_ms: handle.knobs().get(Knob::BufferSqueezeDurationMs),
        max_persistent_grants: handle.knobs().get(Knob::MaxPersistentGrants),
        persistent_grant_unused_seconds: handle.knobs().get(Knob::PersistentGrantUnusedSeconds),
        pages_kept: figures.pool.kept,
        pages_in_use: figures.pool.in_use,
        pages_released: figures.pool.released,
        requests: figures.counters.requests,
        failed: figures.counters.failed,
        bytes_in_place: figures.counters.in_place_bytes,
        bytes_bounced: figures.counters.bounced_bytes,
        squeezes: figures.counters.squeezes,
        persistent_grants: figures.persistent_grants,
    }
}

fn unknown(name: &str) -> Answer {
    Answer::Error(format!("there is no instance named {name}"))
}

/// One of a number of places, until this is dropped.
#[derive(Debug)]
struct Place(Arc<AtomicUsize>);

impl Place {
    fn among(taken: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        // Relaxed: a count by itself.
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

/// Serves control clients at `listener` from a thread of its own, for the rest of the process.
///
/// # Errors
/// If the system has no thread left.
pub fn serve(server: Arc<Server>, listener: UnixListener) -> io::Result<()> {
    let (clients, members) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    thread::Builder::new()
        .name("control".into())
        .spawn(move || {
            if let Err(error) = keep_capabilities(CapabilitySet::empty()) {
                say(format_args!(
                    "nobody is answered: cannot give up privileges: {error}"
                ));
                return;
            }
            for stream in listener.incoming() {
                let Ok(stream) = stream else {
                    // No descriptor left, most likely: others must end first.
                    thread::sleep(Duration::from_millis(100));
                    continue;
                };
                let Some(client) = Place::among(&clients, MAX_CLIENTS) else {
                    let why = format!("there are {MAX_CLIENTS} clients already");
                    let _ = send(&stream, &Answer::Error(why));
                    continue;
                };
                let (server, members) = (server.clone(), members.clone());
                // Threads are joined by nobody. One that cannot be started takes its stream along.
                let _ = thread::Builder::new().name("client".into()).spawn(move || {
                    // A client that goes or babbles is its own loss.
                    let _ = talk(&server, client, &members, &stream);
                });
            }
        })?;
    Ok(())
}

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
        // What is no text is nonsense within JSON too, and answered as such.
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

/// Tells a client of every event until it goes.
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
            // A member has nothing more to say: it is gone.
            return Ok(());
        }
        registration.deliver(&mut tell);
    }
}

fn send(mut stream: &UnixStream, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_string(answer)?;
    line.push('\n');
    stream.write_all(line.as_bytes())
}

/// How long a client waits for all of an answer: a server that names silent disks does so after
/// [`ANSWER_LIMIT`].
const CLIENT_PATIENCE: Duration = Duration::from_secs(10);

/// Asks the server at `path`.
///
/// # Errors
/// If no server answers there; `TimedOut` if it has not answered after [`CLIENT_PATIENCE`].
pub fn ask(path: &Path, request: &Request) -> io::Result<Answer> {
    ask_within(path, request, CLIENT_PATIENCE)
}

fn ask_within(path: &Path, request: &Request, patience: Duration) -> io::Result<Answer> {
    let late = || {
        let text = format!("it did not answer within {patience:?}");
        io::Error::new(io::ErrorKind::TimedOut, text)
    };
    let end = Instant::now() + patience;
    let mut stream = UnixStream::connect(path)?;
    stream.set_write_timeout(Some(patience))?;
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    match stream.write_all(line.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(late()),
        written => written?,
    }
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    let mut is_whole = false;
    // A server that sends a little now and then has no more time than a silent one.
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
    // The parser's errors quote the server, whose text need not be one line.
    serde_json::from_slice(line).map_err(|_| {
        let text = "what it says is no answer";
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::image::{Location, Spec};
    use crate::server::{Disk, Options, bind};

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
                    })
                    .unwrap(),
            );
        }
        let server = Arc::new(server);
        let path = std::env::temp_dir().join(format!("ebb-{name}-{}.sock", std::process::id()));
        serve(server.clone(), bind(&path).unwrap()).unwrap();
        (server, path, fronts)
    }

    fn line(path: &Path, text: &str) -> String {
        let stream = UnixStream::connect(path).unwrap();
        (&stream).write_all(text.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        BufReader::new(&stream).read_line(&mut answer).unwrap();
        answer
    }

    /// Asks a server that does this with its only client.
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
    fn a_server_that_does_not_answer_is_given_up() {
        let patience = Duration::from_millis(50);
        let silent = ask_one("silent", patience, |mut stream| {
            // Until the client has gone.
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
        assert_eq!(bad.unwrap_err().to_string(), "what it says is no answer");
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
        // As a disk whose thread waits for something that does not come.
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
        // However many join, others are answered.
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
        // It leaves by going.
        while server.registry().len() > 2 {
            thread::sleep(Duration::from_millis(1));
        }
        std::fs::remove_file(&path).unwrap();
    }
}
