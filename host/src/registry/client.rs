//! Queries the guests of this user over their control sockets.

use super::folder::Folder;
use super::protocol::{
    Body, CpusRequest, DisksRequest, Figures, PROTOCOL, REPLY_MAX, ReclaimRequest, ReclaimStep,
    Reply, Request, SetRequest, Settings,
};
use super::published::shorten;
use super::socket;
use crate::machine::GiveBack;
use crate::qemu::Wish;
use ebb_blk::control;
use ebb_wire::Reclaim;
use ebb_wire::header::{NAME_BYTES, OOM_RECORDS};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The time in which all guests together must answer. A guest that needs more, because its run is
/// stopped or the host is busy, counts as silent. It gets no further request until it has answered.
const TIMEOUT: Duration = Duration::from_millis(700);
/// The time in which a guest must be found and must answer a command. It is long, because a command
/// that was given up may still be carried out.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest number of guests that are queried.
const GUESTS_MAX: usize = 1024;
const NAME_MAX: usize = 64;
const PROGRAM_MAX: usize = 256;

/// The identity of a guest: the path of its control socket. It is valid while the run of the guest
/// lasts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct GuestId(PathBuf);

impl fmt::Display for GuestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

impl GuestId {
    /// Returns the identity of the guest with the control socket `path`, which need not exist or be
    /// in a registry folder.
    pub(crate) fn of_socket(path: PathBuf) -> Self {
        Self(path)
    }
}

#[cfg(test)]
impl GuestId {
    /// Returns an identity for a test, which leads to no socket.
    pub(crate) fn of_test(name: &str) -> Self {
        Self(PathBuf::from(name))
    }
}

/// The result of a request for a guest's figures.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Presence {
    /// The guest answered with these figures.
    Here(Box<Figures>),
    /// The guest is there but did not answer in time.
    Silent,
}

/// The connections of this process to all guests of this user.
#[derive(Debug)]
pub(crate) struct Fleet {
    /// The folder with the sockets. `None` means all registry folders, which are looked up at each
    /// query.
    folder: Option<PathBuf>,
    connections: BTreeMap<GuestId, Connection>,
}

#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    input: Vec<u8>,
    /// Whether a request is unanswered.
    waiting: bool,
    /// An answer that arrived after its deadline.
    late: Option<Body>,
    /// The number of bytes of `input` that are known to contain no newline.
    searched: usize,
}

impl Fleet {
    /// Returns an empty set of connections. [`Self::figures`] connects to the guests.
    pub(crate) fn new() -> Self {
        Self {
            folder: None,
            connections: BTreeMap::new(),
        }
    }

    /// Returns an empty set of connections for the guests with sockets in the folder `path` only.
    #[cfg(test)]
    pub(crate) fn of_folder(path: PathBuf) -> Self {
        Self {
            folder: Some(path),
            connections: BTreeMap::new(),
        }
    }

    /// Connects to new guests of this user, at most 1024 in all, and asks all guests for their
    /// figures. Returns a presence for each guest. Guests that have ended or answer with something
    /// malformed are left out and disconnected. Waits at most 700 ms for all guests together.
    pub(crate) fn figures(&mut self) -> BTreeMap<GuestId, Presence> {
        self.discover();
        let deadline = Instant::now() + TIMEOUT;
        let mut presences = BTreeMap::new();
        let mut gone = Vec::new();
        // All guests get the request before the first answer is awaited. A guest with an unanswered
        // request gets no further one.
        for (id, connection) in &mut self.connections {
            if !connection.waiting && connection.send(&Request::Figures).is_err() {
                gone.push(id.clone());
            }
        }
        for (id, connection) in &mut self.connections {
            if gone.contains(id) {
                continue;
            }
            let presence = match connection.figures(deadline) {
                Ok(Some(figures)) => Presence::Here(Box::new(checked(*figures))),
                Ok(None) => Presence::Silent,
                Err(_) => {
                    gone.push(id.clone());
                    continue;
                }
            };
            presences.insert(id.clone(), presence);
        }
        for id in gone {
            self.connections.remove(&id);
        }
        presences
    }

    /// Asks all guests for their figures, and returns each guest whose figures `wanted` accepts.
    /// While it accepts none and a guest is silent, waits for that guest, at most 10 s.
    pub(crate) fn matching(
        &mut self,
        wanted: impl Fn(&Figures) -> bool,
    ) -> Vec<(GuestId, Box<Figures>)> {
        let deadline = Instant::now() + COMMAND_TIMEOUT;
        loop {
            let mut found = Vec::new();
            let mut is_one_silent = false;
            for (id, presence) in self.figures() {
                match presence {
                    Presence::Here(figures) if wanted(&figures) => found.push((id, figures)),
                    Presence::Here(_) => {}
                    Presence::Silent => is_one_silent = true,
                }
            }
            if !found.is_empty() || !is_one_silent || Instant::now() >= deadline {
                return found;
            }
        }
    }

    /// Sends `request` to the guest `id` and returns its answer, which may be an error of the
    /// guest. May return a late answer to an earlier request of the same kind instead. Returns
    /// `None` if the guest is unknown, has ended, does not answer within 700 ms, or still owes
    /// another answer.
    pub(crate) fn ask(&mut self, id: &GuestId, request: Request) -> Option<Body> {
        let connection = self.connections.get_mut(id)?;
        // A large guest on a busy host may need longer for its map than the deadline. The late
        // answer is used for the next request.
        if let Some(late) = connection.late.take_if(|late| answers(late, request)) {
            return Some(late);
        }
        if connection.waiting {
            return None;
        }
        let answer = connection
            .send(&request)
            .and_then(|()| connection.receive(Instant::now() + TIMEOUT));
        match answer {
            Ok(body) => body,
            Err(_) => {
                self.connections.remove(id);
                None
            }
        }
    }

    /// Sends `request` to the disks of the guest `id`, which [`Self::figures`] must have found.
    /// Returns their answer, which may be an error of the disks.
    ///
    /// # Errors
    /// `NotConnected` if the guest is unknown; `TimedOut` if it does not answer within 10 s;
    /// `InvalidData` for an answer of another kind; an error of the socket if the guest is gone.
    pub(crate) fn ask_disks(
        &mut self,
        id: &GuestId,
        request: control::Request,
    ) -> io::Result<control::Answer> {
        let gone = || io::Error::from(io::ErrorKind::NotConnected);
        let connection = self.connections.get_mut(id).ok_or_else(gone)?;
        connection.send(&DisksRequest { disks: request })?;
        match connection.receive(Instant::now() + COMMAND_TIMEOUT)? {
            Some(Body::Disks(answer)) => Ok(answer),
            Some(Body::Error(why)) => Ok(control::Answer::Error(why)),
            Some(_) => Err(io::ErrorKind::InvalidData.into()),
            None => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Asks the guest `id`, which [`Self::figures`] must have found, to change how it gives memory
    /// back to `mode`. Returns once the guest's run has accepted the mode.
    ///
    /// # Errors
    /// `Other` with the text of the guest if it refuses; otherwise as [`Self::ask_disks`].
    pub(crate) fn set_give_back(&mut self, id: &GuestId, mode: GiveBack) -> io::Result<()> {
        let gone = || io::Error::from(io::ErrorKind::NotConnected);
        let connection = self.connections.get_mut(id).ok_or_else(gone)?;
        let give_back = mode.name().to_owned();
        connection.send(&SetRequest {
            set: Settings { give_back },
        })?;
        match connection.receive(Instant::now() + COMMAND_TIMEOUT)? {
            Some(Body::Set(_)) => Ok(()),
            Some(Body::Error(why)) => Err(io::Error::other(shorten(&why, PROGRAM_MAX))),
            Some(_) => Err(io::ErrorKind::InvalidData.into()),
            None => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Asks the run of the guest `id`, which [`Self::figures`] must have found, to have QEMU stop
    /// or resume its virtual CPUs. Returns once the run has answered.
    ///
    /// # Errors
    /// `Other` with the text of the guest if it refuses; otherwise as [`Self::ask_disks`].
    pub(crate) fn cpus(&mut self, id: &GuestId, wish: Wish) -> io::Result<()> {
        let gone = || io::Error::from(io::ErrorKind::NotConnected);
        let connection = self.connections.get_mut(id).ok_or_else(gone)?;
        connection.send(&CpusRequest { cpus: wish })?;
        match connection.receive(Instant::now() + COMMAND_TIMEOUT)? {
            Some(Body::Cpus(_)) => Ok(()),
            Some(Body::Error(why)) => Err(io::Error::other(shorten(&why, PROGRAM_MAX))),
            Some(_) => Err(io::ErrorKind::InvalidData.into()),
            None => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Asks the guest `id`, which [`Self::figures`] must have found, for a reclaim step. Returns
    /// the number that `reclaimed` in its figures shows when the step is done. Does not wait for
    /// that.
    ///
    /// # Errors
    /// `Other` with the text of the guest if it refuses; otherwise as [`Self::ask_disks`].
    pub(crate) fn reclaim(&mut self, id: &GuestId, step: Reclaim) -> io::Result<u32> {
        let gone = || io::Error::from(io::ErrorKind::NotConnected);
        let connection = self.connections.get_mut(id).ok_or_else(gone)?;
        let step = step.name().to_owned();
        connection.send(&ReclaimRequest {
            reclaim: ReclaimStep { step },
        })?;
        match connection.receive(Instant::now() + COMMAND_TIMEOUT)? {
            Some(Body::Reclaim { number }) => Ok(number),
            Some(Body::Error(why)) => Err(io::Error::other(shorten(&why, PROGRAM_MAX))),
            Some(_) => Err(io::ErrorKind::InvalidData.into()),
            None => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    fn discover(&mut self) {
        let folders = match &self.folder {
            Some(path) => Folder::open(path).into_iter().collect(),
            None => Folder::all(),
        };
        for folder in folders {
            for name in socket::live(&folder) {
                let id = GuestId(folder.path().join(&name));
                if self.connections.len() >= GUESTS_MAX || self.connections.contains_key(&id) {
                    continue;
                }
                if let Some(stream) = socket::reach(&folder, &name) {
                    self.connections.insert(id, Connection::new(stream));
                }
            }
        }
    }
}

/// Returns `figures` with shortened texts that are safe for a terminal, because another process has
/// written them. Also removes records of the out-of-memory killer beyond the largest number.
pub(crate) fn checked(mut figures: Figures) -> Figures {
    figures.name = shorten(&figures.name, NAME_MAX);
    figures.program = shorten(&figures.program, PROGRAM_MAX);
    figures.accel = shorten(&figures.accel, NAME_MAX);
    figures.give_back = shorten(&figures.give_back, NAME_MAX);
    figures.host_pages = shorten(&figures.host_pages, NAME_MAX);
    figures.oom_last.truncate(OOM_RECORDS);
    for killed in &mut figures.oom_last {
        killed.name = shorten(&killed.name, NAME_BYTES);
    }
    figures
}

/// Returns whether `body` is an answer to `request`, judged by its kind.
fn answers(body: &Body, request: Request) -> bool {
    match request {
        Request::Figures => matches!(body, Body::Figures(_)),
        Request::History { .. } => matches!(body, Body::History(_)),
        Request::Map => matches!(body, Body::Map(_)),
    }
}

impl Connection {
    /// Returns the figures. They must have been requested, or a late answer to another request is
    /// pending. In that case, stores the late answer and requests the figures. Returns `None` if
    /// they do not arrive before `deadline`. Fails as [`Self::receive`].
    fn figures(&mut self, deadline: Instant) -> io::Result<Option<Box<Figures>>> {
        match self.receive(deadline)? {
            Some(Body::Figures(figures)) => Ok(Some(figures)),
            Some(late) => {
                self.late = Some(late);
                self.send(&Request::Figures)?;
                match self.receive(deadline)? {
                    Some(Body::Figures(figures)) => Ok(Some(figures)),
                    _ => Ok(None),
                }
            }
            None => Ok(None),
        }
    }

    fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            input: Vec::new(),
            waiting: false,
            late: None,
            searched: 0,
        }
    }

    fn send(&mut self, request: &impl Serialize) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(request)?;
        bytes.push(b'\n');
        // A request fits into an empty socket buffer. If it does not, the peer is no run of ebb.
        if self.stream.write(&bytes)? != bytes.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.waiting = true;
        Ok(())
    }

    /// Returns the next answer. Returns `None` if it does not arrive before `deadline`. Fails if
    /// the peer has closed the socket, the answer is malformed or too long, or the protocol version
    /// differs.
    fn receive(&mut self, deadline: Instant) -> io::Result<Option<Body>> {
        let mut bytes = [0; 1 << 16];
        loop {
            if let Some(at) = self.input[self.searched..].iter().position(|b| *b == b'\n') {
                let rest = self.input.split_off(self.searched + at + 1);
                let line = std::mem::replace(&mut self.input, rest);
                self.searched = 0;
                self.waiting = false;
                let reply: Reply = serde_json::from_slice(&line)?;
                if reply.protocol != PROTOCOL {
                    return Err(io::ErrorKind::Unsupported.into());
                }
                return Ok(Some(reply.body));
            }
            self.searched = self.input.len();
            if self.input.len() > REPLY_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.input.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.wait(deadline)? {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until the socket is readable. Returns `false` if `deadline` passes first. Fails as
    /// poll(2).
    fn wait(&self, deadline: Instant) -> io::Result<bool> {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        let mut fds = [PollFd::new(&self.stream, PollFlags::IN)];
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(0) => Ok(false),
            Ok(_) | Err(Errno::INTR) => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::scratch::Scratch;
    use std::os::unix::net::UnixListener;

    #[test]
    fn runs_that_are_not_there_are_none() {
        let scratch = Scratch::new("client-none");
        let mut fleet = Fleet::of_folder(scratch.path().join("ebb"));
        assert!(fleet.figures().is_empty());
        drop(UnixListener::bind(scratch.folder().address_of("77.sock")).unwrap());
        assert!(fleet.figures().is_empty());
        assert!(scratch.folder().sockets().is_empty(), "stale ones go");
    }

    #[test]
    fn a_run_that_does_not_answer_is_silent() {
        let scratch = Scratch::new("client-silent");
        let folder = scratch.folder();
        let listener = UnixListener::bind(folder.address_of("77.sock")).unwrap();
        let mut fleet = Fleet::of_folder(folder.path().to_owned());
        let id = GuestId(folder.path().join("77.sock"));
        for _ in 0..2 {
            let found = fleet.figures();
            assert_eq!(
                found.into_iter().collect::<Vec<_>>(),
                [(id.clone(), Presence::Silent)]
            );
            assert_eq!(fleet.ask(&id, Request::Map), None);
        }
        // It got one request.
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; 100];
        let count = stream.read(&mut bytes).unwrap();
        assert_eq!(&bytes[..count], b"{\"get\":\"figures\"}\n");
        // Its answer is late, and it gets the next request at once.
        stream
            .write_all(b"{\"protocol\":1,\"history\":{\"interval_ms\":250,\"points\":[]}}\n")
            .unwrap();
        assert_eq!(fleet.figures().len(), 1);
        let count = stream.read(&mut bytes).unwrap();
        assert_eq!(&bytes[..count], b"{\"get\":\"figures\"}\n");
        let request = Request::History { after_ms: None };
        assert!(matches!(fleet.ask(&id, request), Some(Body::History(_))));
        // A peer that answers with something else is no run.
        stream
            .write_all(b"{\"protocol\":99,\"error\":\"\"}\n")
            .unwrap();
        assert!(fleet.figures().is_empty());
    }
}
