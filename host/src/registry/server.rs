//! The thread of a run that answers requests on its control socket.
//!
//! The thread does a bounded amount of work for each client and never waits for a client. The
//! thread that watches the guest waits for this one only while a few KiB are copied.

use super::block_map::Mapper;
use super::folder::Folder;
use super::protocol::{self, Body, Question, REQUEST_MAX, Request, Settings};
use super::published::Published;
use super::socket::Listening;
use crate::machine::GiveBack;
use crate::qemu::{StoppedBy, Wish};
use crate::reclaim::{FreeMemory, PauseWatcher, ReclaimQueue, stopped_reason};
use crate::streams::Control;
use crate::text::Terminal;
use ebb_blk::server::Server as Disks;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The largest number of clients. A further client replaces the one that has been idle for longest.
const CLIENTS_MAX: usize = 16;
/// The time after which an idle client is disconnected.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// The pause before the next answer to the same client, so at most 100 answers a second.
const PAUSE: Duration = Duration::from_millis(10);
/// The time for which a map is reused.
const MAP_KEPT: Duration = Duration::from_millis(200);
/// The pause between two new clients, so that clients that only connect cost little.
const CONNECT_PAUSE: Duration = Duration::from_millis(1);
/// The pause before the next accept(2) after one has failed.
const RETRY: Duration = Duration::from_millis(200);

/// The parts of a run that requests on its control socket read or change.
#[derive(Debug)]
pub(crate) struct RunParts {
    /// The guest's figures and curve.
    pub(crate) published: Arc<Published>,
    /// Produces the map, if the guest's kernel has an allocator that the host can read.
    pub(crate) mapper: Option<Mapper>,
    /// The server of the guest's disks, if it has disks.
    pub(crate) disks: Option<Arc<Disks>>,
    /// The control port of the guest's kernel, if it accepts requests.
    pub(crate) control: Option<Arc<Control>>,
    /// The free memory that the host may take by itself, if the guest's kernel has an allocator for
    /// that.
    pub(crate) free_memory: Option<Arc<FreeMemory>>,
    /// The thread that performs reclaim steps. `None` if the guest cannot be asked for memory.
    pub(crate) reclaim_queue: Option<Arc<ReclaimQueue>>,
    /// The state of the virtual CPUs: running or stopped.
    pub(crate) pause_watcher: Arc<PauseWatcher>,
}

/// The entry of a run in the registry: a thread with a control socket. Dropping it ends the thread,
/// waits for its end, and removes the socket.
#[derive(Debug)]
pub(crate) struct Registration {
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Registration {
    /// Registers this run. A new thread creates the control socket and answers requests, so the
    /// guest's start does not wait. If registration fails, the run goes on without it. The path of
    /// the socket, or the reason of a failure, is written to `verbose`. Returns `None` if the
    /// thread cannot be started.
    pub(crate) fn start(parts: RunParts, verbose: Option<Arc<Terminal>>) -> Option<Self> {
        let told = verbose.clone();
        let started = UnixStream::pair().and_then(|(stop, stopped)| {
            let body = move || {
                let listening = Folder::for_runs()
                    .map_err(io::Error::other)
                    .and_then(Listening::new);
                match listening {
                    Ok(listening) => {
                        let path = listening.path();
                        tell(
                            verbose.as_ref(),
                            &format!("listening on {}", path.display()),
                        );
                        Server::new(listening, parts).serve(&stopped);
                    }
                    Err(error) => tell(verbose.as_ref(), &unseen(&error)),
                }
            };
            let thread = thread::Builder::new().name("registry".into()).spawn(body)?;
            Ok(Self {
                stop,
                thread: Some(thread),
            })
        });
        match started {
            Ok(registration) => Some(registration),
            Err(error) => {
                tell(told.as_ref(), &unseen(&error));
                None
            }
        }
    }
}

fn unseen(error: &io::Error) -> String {
    format!("`ebb top` will not show this run: {error}")
}

fn tell(verbose: Option<&Arc<Terminal>>, text: &str) {
    if let Some(terminal) = verbose {
        terminal.message(&format!("ebb: {text}"));
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // The thread sees the end of the stream.
        let _ = self.stop.shutdown(std::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A connected client.
#[derive(Debug)]
struct Client {
    stream: UnixStream,
    input: Vec<u8>,
    /// The bytes of the answer and the number of bytes already sent.
    output: Option<(Rc<[u8]>, usize)>,
    /// The client has shut down its sending side.
    ending: bool,
    /// The client has sent a request that is too long, so the rest of its input cannot be parsed.
    broken: bool,
    active: Instant,
    /// The time before which its next request is not processed.
    next: Instant,
}

/// Whether a client stays connected.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Stays {
    Yes,
    No,
}

struct Server {
    listening: Listening,
    parts: RunParts,
    map: Option<(Instant, Rc<[u8]>)>,
    clients: Vec<Client>,
    listen_again: Instant,
}

impl Server {
    fn new(listening: Listening, parts: RunParts) -> Self {
        Self {
            listening,
            parts,
            map: None,
            clients: Vec::with_capacity(CLIENTS_MAX),
            listen_again: Instant::now(),
        }
    }

    /// Answers requests until the other end of `stop` is shut down.
    fn serve(mut self, stop: &UnixStream) {
        loop {
            let now = Instant::now();
            let events = match self.wait(stop, now) {
                Ok(events) => events,
                // The host is out of memory at the moment.
                Err(_) => {
                    thread::sleep(RETRY);
                    continue;
                }
            };
            let [stopped, connecting, clients @ ..] = events.as_slice() else {
                return;
            };
            if !stopped.is_empty() {
                return;
            }
            let now = Instant::now();
            let mut stays = Vec::with_capacity(self.clients.len());
            for (at, ready) in clients.iter().enumerate() {
                stays.push(self.serve_client(at, *ready, now));
            }
            let mut stays = stays.into_iter();
            self.clients.retain(|_| stays.next() == Some(Stays::Yes));
            if !connecting.is_empty() {
                self.accept(now);
            }
        }
    }

    /// Waits until a descriptor is ready or a deadline has passed. Returns the ready events of
    /// `stop`, of the listener, and of each client. Fails as poll(2).
    fn wait(&self, stop: &UnixStream, now: Instant) -> Result<Vec<PollFlags>, Errno> {
        let mut until = now + IDLE_MAX;
        let listens = now >= self.listen_again;
        if !listens {
            until = until.min(self.listen_again);
        }
        let wanted = |wanted: bool, flags| if wanted { flags } else { PollFlags::empty() };
        let mut fds = Vec::with_capacity(2 + self.clients.len());
        fds.push(PollFd::new(stop, PollFlags::IN));
        let listener = &self.listening.listener;
        fds.push(PollFd::new(listener, wanted(listens, PollFlags::IN)));
        for client in &self.clients {
            until = until.min(client.active + IDLE_MAX);
            let flags = if client.output.is_some() {
                PollFlags::OUT
            } else if now >= client.next {
                if client.has_line() {
                    // The client's next request has already been received.
                    until = now;
                }
                PollFlags::IN
            } else {
                until = until.min(client.next);
                PollFlags::empty()
            };
            fds.push(PollFd::new(&client.stream, flags));
        }
        let timeout = Timespec::try_from(until.saturating_duration_since(now)).ok();
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        Ok(fds.iter().map(PollFd::revents).collect())
    }

    fn accept(&mut self, now: Instant) {
        // One connection per turn, so that connected clients are served.
        self.listen_again = now + CONNECT_PAUSE;
        let stream = match self.listening.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => {
                self.listen_again = now + RETRY;
                return;
            }
        };
        // The mode of the folder keeps other users out. This check holds even if the mode was
        // changed.
        if !is_friend(&stream) || stream.set_nonblocking(true).is_err() {
            return;
        }
        if self.clients.len() == CLIENTS_MAX {
            let quiet = self.clients.iter().enumerate();
            if let Some((at, _)) = quiet.min_by_key(|(_, client)| client.active) {
                self.clients.swap_remove(at);
            }
        }
        self.clients.push(Client {
            stream,
            input: Vec::new(),
            output: None,
            ending: false,
            broken: false,
            active: now,
            next: now,
        });
    }

    fn serve_client(&mut self, at: usize, ready: PollFlags, now: Instant) -> Stays {
        let client = &mut self.clients[at];
        // Both directions are closed, so an answer could not be read.
        if ready.intersects(PollFlags::ERR | PollFlags::NVAL | PollFlags::HUP) {
            return Stays::No;
        }
        if client.output.is_some() {
            if ready.is_empty() {
                return client.stays_idle(now);
            }
            return client.send(now);
        }
        if now < client.next {
            return Stays::Yes;
        }
        if !ready.is_empty() && !client.has_line() && client.receive(now) == Stays::No {
            return Stays::No;
        }
        let answer = match client.take_line() {
            Line::Asked(line) => self.answer(&line, now),
            Line::TooLong => {
                client.broken = true;
                error(format!("a request has at most {REQUEST_MAX} bytes"))
            }
            Line::Unfinished if client.ending => return Stays::No,
            Line::Unfinished => return client.stays_idle(now),
        };
        let client = &mut self.clients[at];
        client.output = Some((answer, 0));
        client.next = now + PAUSE;
        client.send(now)
    }

    fn answer(&mut self, line: &[u8], now: Instant) -> Rc<[u8]> {
        match Question::read(line) {
            Ok(Question::Get(request)) => self.get(request, now),
            Ok(Question::Disks(asked)) => match &self.parts.disks {
                Some(disks) => protocol::line(Body::Disks(disks.perform(&asked.disks))).into(),
                None => error("this guest has no disks".to_owned()),
            },
            Ok(Question::Set(asked)) => self.set(&asked.set),
            Ok(Question::Reclaim(asked)) => self.reclaim(&asked.reclaim.step),
            Ok(Question::Cpus(asked)) => self.cpus(asked.cpus),
            Err(why) => error(format!("not a request: {why}")),
        }
    }

    /// Answers a question for information.
    fn get(&mut self, request: Request, now: Instant) -> Rc<[u8]> {
        let published = &self.parts.published;
        let body = match request {
            Request::Figures => Body::Figures(Box::new(published.figures())),
            Request::History { after_ms } => Body::History(published.history(after_ms)),
            Request::Map => return self.map(now),
        };
        protocol::line(body).into()
    }

    /// Asks the guest to change how it gives memory back. The answer only confirms the request. The
    /// figures show the result.
    fn set(&self, wanted: &Settings) -> Rc<[u8]> {
        let Some(mode) = GiveBack::from_name(&wanted.give_back) else {
            let known = GiveBack::ALL.map(GiveBack::name).join(", ");
            return error(format!("give_back is one of: {known}"));
        };
        let Some(control) = &self.parts.control else {
            return error("only a guest with the Ebb kernel changes its mode".to_owned());
        };
        if mode == GiveBack::Shared
            && let Some(Err(why)) = self.parts.free_memory.as_ref().map(|free| free.check())
        {
            return error(why.to_string());
        }
        control.give_back(mode);
        self.parts.pause_watcher.set_give_back(mode);
        let set = Settings {
            give_back: mode.name().to_owned(),
        };
        protocol::line(Body::Set(set)).into()
    }

    /// Asks QEMU to stop or resume the virtual CPUs. The answer only confirms the request. The
    /// figures show the result.
    fn cpus(&self, wish: Wish) -> Rc<[u8]> {
        let vcpus = self.parts.pause_watcher.vcpus();
        if vcpus.look() == Some(StoppedBy::Signal) {
            return error(StoppedBy::BY_SIGNAL.to_owned());
        }
        match vcpus.ask(wish) {
            Ok(()) => protocol::line(Body::Cpus(wish)).into(),
            Err(why) => error(format!("QEMU does not read its monitor: {why}")),
        }
    }

    /// Starts a reclaim step by its name. The answer has the number of the request. The figures
    /// show when it is done.
    fn reclaim(&self, name: &str) -> Rc<[u8]> {
        let Some(queue) = &self.parts.reclaim_queue else {
            return error(
                "memory cannot be reclaimed from a guest that runs with --icount".to_owned(),
            );
        };
        let Some(step) = queue.steps().iter().find(|step| step.name() == name) else {
            let known: Vec<_> = queue.steps().iter().map(|step| step.name()).collect();
            return error(format!(
                "a step of this guest is one of: {}",
                known.join(", ")
            ));
        };
        let stopped_by = self.parts.pause_watcher.vcpus().look();
        if let (Some(by), false) = (stopped_by, queue.is_done_by_host(*step)) {
            return error(format!("step `{name}`: {}", stopped_reason(by)));
        }
        match queue.ask(*step) {
            Some(number) => protocol::line(Body::Reclaim { number }).into(),
            None => {
                error("the guest has been asked for too much already; try again later".to_owned())
            }
        }
    }

    fn map(&mut self, now: Instant) -> Rc<[u8]> {
        if let Some((drawn, map)) = &self.map
            && now.saturating_duration_since(*drawn) < MAP_KEPT
        {
            return Rc::clone(map);
        }
        let Some(mapper) = &self.parts.mapper else {
            return error("only a guest with the Ebb kernel has a map".to_owned());
        };
        let map: Rc<[u8]> = match mapper.map() {
            Ok(map) => protocol::line(Body::Map(map)).into(),
            Err(why) => error(why),
        };
        self.map = Some((now, Rc::clone(&map)));
        map
    }
}

fn error(text: String) -> Rc<[u8]> {
    protocol::line(Body::Error(text)).into()
}

/// Returns whether the peer runs as this user or as root.
fn is_friend(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream).is_ok_and(|credentials| {
        credentials.uid == rustix::process::geteuid() || credentials.uid.is_root()
    })
}

/// The result of a search for a request in a client's input.
enum Line {
    Asked(Vec<u8>),
    Unfinished,
    TooLong,
}

impl Client {
    fn has_line(&self) -> bool {
        self.input.contains(&b'\n') || self.input.len() > REQUEST_MAX
    }

    fn take_line(&mut self) -> Line {
        match self.input.iter().position(|byte| *byte == b'\n') {
            Some(end) if end > REQUEST_MAX => Line::TooLong,
            Some(end) => {
                let rest = self.input.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.input, rest);
                line.pop();
                Line::Asked(line)
            }
            None if self.input.len() > REQUEST_MAX => Line::TooLong,
            None => Line::Unfinished,
        }
    }

    /// Reads available bytes, at most two requests long.
    fn receive(&mut self, now: Instant) -> Stays {
        let mut bytes = [0; REQUEST_MAX + 1];
        match self.stream.read(&mut bytes) {
            Ok(0) => self.ending = true,
            Ok(count) => {
                self.active = now;
                self.input.extend_from_slice(&bytes[..count]);
            }
            Err(error) if is_passing(&error) => {}
            Err(_) => return Stays::No,
        }
        Stays::Yes
    }

    /// Sends as much of the answer as the socket accepts.
    fn send(&mut self, now: Instant) -> Stays {
        let Some((bytes, sent)) = &mut self.output else {
            return Stays::Yes;
        };
        match self.stream.write(&bytes[*sent..]) {
            Ok(count) => {
                *sent += count;
                self.active = now;
            }
            Err(error) if is_passing(&error) => {}
            Err(_) => return Stays::No,
        }
        if *sent == bytes.len() {
            self.output = None;
            if self.broken {
                return Stays::No;
            }
        }
        Stays::Yes
    }

    fn stays_idle(&self, now: Instant) -> Stays {
        if now.saturating_duration_since(self.active) >= IDLE_MAX {
            Stays::No
        } else {
            Stays::Yes
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
