//! `/dev/xen/xenbus`: the wire protocol of xenstore.
//!
//! A message is a header of four 32-bit words (type, request, transaction, length) and up to 4096
//! bytes. An answer carries the number of its request. Events of watches may come before an answer.

use super::open_device;
use super::store::{Store, StoreError, Transaction, WatchEvent};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Maximum number of bytes of a message behind its header.
const MAX_PAYLOAD: usize = 4096;
/// Bytes of a header.
const HEADER: usize = 16;
/// Time after which a request without an answer fails.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum number of events that wait to be taken. If more come, the last one replaces them all:
/// its path is empty, which means that anything may have changed.
const MAX_EVENTS: usize = 1024;

/// The type of a message, with the numbers of `xs_wire.h`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u32)]
enum Kind {
    Directory = 1,
    Read = 2,
    Watch = 4,
    TransactionStart = 6,
    TransactionEnd = 7,
    Write = 11,
    Event = 15,
    Error = 16,
}

/// The header of a message.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Header {
    kind: u32,
    request: u32,
    transaction: u32,
    bytes: u32,
}

impl Header {
    fn encode(self) -> [u8; HEADER] {
        let mut raw = [0; HEADER];
        let words = [self.kind, self.request, self.transaction, self.bytes];
        for (to, word) in raw.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *to = word.to_ne_bytes();
        }
        raw
    }

    fn decode(raw: &[u8; HEADER]) -> Self {
        let word = |index: usize| u32::from_ne_bytes(raw.as_chunks::<4>().0[index]);
        Self {
            kind: word(0),
            request: word(1),
            transaction: word(2),
            bytes: word(3),
        }
    }
}

/// Takes the first message from `inbox`. Returns `None` if it is not complete. Fails if its length
/// is invalid.
fn message(inbox: &mut Vec<u8>) -> Result<Option<(Header, Vec<u8>)>, StoreError> {
    let Some(raw) = inbox.first_chunk::<HEADER>() else {
        return Ok(None);
    };
    let header = Header::decode(raw);
    let bytes = usize::try_from(header.bytes).unwrap_or(usize::MAX);
    if bytes > MAX_PAYLOAD {
        return Err(StoreError::Nonsense("a message over 4096 bytes"));
    }
    if inbox.len() < HEADER + bytes {
        return Ok(None);
    }
    let payload = inbox[HEADER..HEADER + bytes].to_vec();
    inbox.drain(..HEADER + bytes);
    Ok(Some((header, payload)))
}

/// Returns the strings of a payload. Each string ends with a NUL.
fn strings(payload: &[u8]) -> impl Iterator<Item = String> + '_ {
    let ended = payload.strip_suffix(&[0]).unwrap_or(payload);
    let pieces = ended.split(|byte| *byte == 0);
    pieces
        .filter(|piece| !piece.is_empty())
        .map(|piece| String::from_utf8_lossy(piece).into_owned())
}

/// A connection to xenstore by `/dev/xen/xenbus`.
#[derive(Debug)]
pub struct Xenbus {
    fd: OwnedFd,
    /// Bytes received that are not a complete message yet.
    inbox: Vec<u8>,
    /// Events that wait to be taken, the oldest first.
    events: VecDeque<WatchEvent>,
    /// The number of the last request.
    request: u32,
}

impl Xenbus {
    /// Opens the device `/dev/xen/xenbus`.
    ///
    /// # Errors
    /// Fails if it does not exist, because this is no Xen domain, or may not be opened.
    pub fn open() -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = open_device("/dev/xen/xenbus", flags)?;
        Ok(Self {
            fd,
            inbox: Vec::new(),
            events: VecDeque::new(),
            request: 0,
        })
    }

    /// Sends a request and waits for its answer, which it returns. Events that arrive before are
    /// stored. Fails if xenstore refuses or does not answer; `operation` and `path` are for the
    /// error.
    fn ask(
        &mut self,
        operation: &'static str,
        kind: Kind,
        tx: Transaction,
        path: &str,
        payload: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        let refused = |why: &str| StoreError::Refused {
            operation,
            path: path.to_owned(),
            why: why.to_owned(),
        };
        if payload.len() > MAX_PAYLOAD {
            return Err(refused("E2BIG"));
        }
        self.request = self.request.wrapping_add(1);
        let header = Header {
            kind: kind as u32,
            request: self.request,
            transaction: tx.0,
            bytes: u32::try_from(payload.len()).map_err(io::Error::other)?,
        };
        // In one write, because the device decides by the header whether a message is complete.
        let mut whole = header.encode().to_vec();
        whole.extend_from_slice(payload);
        let mut left = &whole[..];
        while !left.is_empty() {
            match rustix::io::write(&self.fd, left) {
                Ok(written) => left = &left[written..],
                Err(Errno::INTR) => {}
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
        loop {
            while let Some((header, payload)) = message(&mut self.inbox)? {
                match header.kind {
                    kind if kind == Kind::Event as u32 => note(&mut self.events, &payload),
                    _ if header.request != self.request => {
                        return Err(StoreError::Nonsense("an answer to another request"));
                    }
                    kind if kind == Kind::Error as u32 => {
                        let why = strings(&payload).next().unwrap_or_default();
                        return Err(refused(&why));
                    }
                    _ => return Ok(payload),
                }
            }
            self.wait()?;
            self.fill()?;
        }
    }

    /// Waits until the device is readable. Fails with `Silent` after [`PATIENCE`].
    fn wait(&self) -> Result<(), StoreError> {
        let patience = Timespec::try_from(PATIENCE).ok();
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        match poll(&mut fds, patience.as_ref()) {
            Ok(0) => Err(StoreError::Silent),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(io::Error::from(errno).into()),
        }
    }

    /// Reads bytes that have arrived. Returns whether there were any. Does not wait.
    fn fill(&mut self) -> Result<bool, StoreError> {
        let mut bytes = [0; HEADER + MAX_PAYLOAD];
        match rustix::io::read(&self.fd, &mut bytes) {
            Ok(read) => {
                self.inbox.extend_from_slice(&bytes[..read]);
                Ok(read > 0)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(errno) => Err(io::Error::from(errno).into()),
        }
    }
}

/// Appends an event to `events`, unless it equals the last one.
fn note(events: &mut VecDeque<WatchEvent>, payload: &[u8]) {
    let mut words = strings(payload);
    if let (Some(path), Some(token)) = (words.next(), words.next()) {
        let event = WatchEvent { path, token };
        if events.back() == Some(&event) {
            return;
        }
        if events.len() < MAX_EVENTS {
            events.push_back(event);
        } else if let Some(last) = events.back_mut() {
            last.path.clear();
        }
    }
}

/// Returns `path`, a NUL as the protocol requires, and `rest`.
fn ended(path: &str, rest: &[u8]) -> Vec<u8> {
    let mut payload = path.as_bytes().to_vec();
    payload.push(0);
    payload.extend_from_slice(rest);
    payload
}

/// Turns the error that a path does not exist into an empty result.
fn absent<T: Default>(result: Result<T, StoreError>) -> Result<T, StoreError> {
    match result {
        Err(StoreError::Refused { why, .. }) if why == "ENOENT" => Ok(T::default()),
        result => result,
    }
}

impl Store for Xenbus {
    fn read(&mut self, tx: Transaction, path: &str) -> Result<Option<String>, StoreError> {
        let value = self.ask("read", Kind::Read, tx, path, &ended(path, &[]));
        absent(value.map(|value| Some(String::from_utf8_lossy(&value).into_owned())))
    }

    fn write(&mut self, tx: Transaction, path: &str, value: &str) -> Result<(), StoreError> {
        let payload = ended(path, value.as_bytes());
        self.ask("write", Kind::Write, tx, path, &payload)
            .map(|_| ())
    }

    fn list(&mut self, path: &str) -> Result<Vec<String>, StoreError> {
        let none = Transaction::default();
        let names = self.ask("list", Kind::Directory, none, path, &ended(path, &[]));
        absent(names.map(|names| strings(&names).collect()))
    }

    fn watch(&mut self, path: &str, token: &str) -> Result<(), StoreError> {
        let payload = ended(path, &ended(token, &[]));
        let none = Transaction::default();
        self.ask("watch", Kind::Watch, none, path, &payload)
            .map(|_| ())
    }

    fn begin(&mut self) -> Result<Transaction, StoreError> {
        let (none, name) = (Transaction::default(), "a transaction");
        let id = self.ask("begin", Kind::TransactionStart, none, name, &[0])?;
        let id = strings(&id).next().and_then(|id| id.parse().ok());
        id.map(Transaction)
            .ok_or(StoreError::Nonsense("a transaction without a number"))
    }

    fn commit(&mut self, tx: Transaction) -> Result<bool, StoreError> {
        let name = "a transaction";
        match self.ask("end", Kind::TransactionEnd, tx, name, b"T\0") {
            Ok(_) => Ok(true),
            Err(StoreError::Refused { why, .. }) if why == "EAGAIN" => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn abort(&mut self, tx: Transaction) -> Result<(), StoreError> {
        self.ask("end", Kind::TransactionEnd, tx, "a transaction", b"F\0")?;
        Ok(())
    }

    fn event(&mut self) -> Result<Option<WatchEvent>, StoreError> {
        while self.events.is_empty() {
            match message(&mut self.inbox)? {
                Some((header, payload)) if header.kind == Kind::Event as u32 => {
                    note(&mut self.events, &payload);
                }
                Some(_) => return Err(StoreError::Nonsense("an answer to nothing")),
                None if self.fill()? => {}
                None => break,
            }
        }
        Ok(self.events.pop_front())
    }
}

impl AsFd for Xenbus {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_without_room_are_one_that_stands_for_everything() {
        let mut events = VecDeque::new();
        for device in 0..MAX_EVENTS + 9 {
            note(&mut events, format!("backend/{device}\0token\0").as_bytes());
            note(&mut events, format!("backend/{device}\0token\0").as_bytes());
        }
        assert_eq!(events.len(), MAX_EVENTS);
        let last = events.pop_back().unwrap();
        assert_eq!((&*last.path, &*last.token), ("", "token"));
        let before = events.pop_back().unwrap().path;
        assert_eq!(before, format!("backend/{}", MAX_EVENTS - 2));
    }

    #[test]
    fn messages_are_taken_whole_and_bounded() {
        let header = Header {
            kind: Kind::Event as u32,
            request: 0,
            transaction: 0,
            bytes: 4,
        };
        let mut inbox = header.encode().to_vec();
        inbox.extend(b"a\0b");
        assert!(message(&mut inbox).unwrap().is_none(), "a byte is missing");
        inbox.extend(b"\0rest");
        let (got, payload) = message(&mut inbox).unwrap().unwrap();
        assert_eq!(got, header);
        assert_eq!(strings(&payload).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(inbox, b"rest");
        let huge = Header {
            bytes: 4097,
            ..header
        };
        assert!(message(&mut huge.encode().to_vec()).is_err());
    }
}
