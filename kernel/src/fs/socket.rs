//! Connected pairs of `AF_UNIX` sockets: two pipes, one each way, or two queues of messages.

use super::anonymous;
use super::file::{File, OpenFile};
use super::flags::{FileKind, OpenFlags};
use super::io::{ByteSink, ByteSource};
use super::message::{self, MessageEnd, Received};
use super::pipe::{Pipe, PipeEnd};
use super::poll::{Notifier, PollMask};
use crate::vm::uaccess;
use alloc::sync::Arc;
use linux_raw_sys::ioctl::FIONREAD;
use logic::errno::{Errno, SysResult};
use machine::sync::SpinLock;

/// What a socket carries, with Linux's numbers (`SOCK_*`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SocketKind {
    /// Bytes without boundaries.
    Stream = 1,
    /// Messages.
    Datagram = 2,
    /// Messages, with an end.
    SequencedPacket = 5,
}

/// An end of one way between two sockets.
#[derive(Debug)]
enum End {
    Bytes(PipeEnd),
    Messages(MessageEnd),
}

impl End {
    fn poll(&self) -> PollMask {
        match self {
            Self::Bytes(end) => end.poll(),
            Self::Messages(end) => end.poll(),
        }
    }
}

/// One socket of a pair.
#[derive(Debug)]
pub struct SocketFile {
    /// What the other side writes; gone after `shutdown(SHUT_RD)`.
    incoming: SpinLock<Option<Arc<End>>>,
    /// What the other side reads; gone after `shutdown(SHUT_WR)`.
    outgoing: SpinLock<Option<Arc<End>>>,
    kind: SocketKind,
    notifier: Arc<Notifier>,
}

/// A new pair of connected sockets.
pub fn pair(kind: SocketKind, flags: OpenFlags) -> Result<(Arc<OpenFile>, Arc<OpenFile>), Errno> {
    // One notifier for all: each change on either pipe may concern either side.
    let notifier = Arc::new(Notifier::new());
    let way = || -> Result<(End, End), Errno> {
        if kind == SocketKind::Stream {
            let pipe = Pipe::of_socket(notifier.clone())?;
            let (reader, writer) = (PipeEnd::reading(&pipe), PipeEnd::writing(&pipe));
            return Ok((End::Bytes(reader), End::Bytes(writer)));
        }
        let (reader, writer) = message::queue(&notifier);
        Ok((End::Messages(reader), End::Messages(writer)))
    };
    let ((read_there, write_there), (read_back, write_back)) = (way()?, way()?);
    let socket = |reader: End, writer: End| {
        let file = Arc::new(SocketFile {
            incoming: SpinLock::new(Some(Arc::new(reader))),
            outgoing: SpinLock::new(Some(Arc::new(writer))),
            kind,
            notifier: notifier.clone(),
        });
        let flags = (flags & OpenFlags::NONBLOCK) | OpenFlags::READ_WRITE;
        anonymous::open(file, FileKind::Socket, "socket", flags)
    };
    Ok((
        socket(read_back, write_there),
        socket(read_there, write_back),
    ))
}

impl SocketFile {
    fn incoming(&self) -> Option<Arc<End>> {
        self.incoming.lock().clone()
    }

    fn outgoing(&self) -> Option<Arc<End>> {
        self.outgoing.lock().clone()
    }

    /// What it carries.
    pub fn kind(&self) -> SocketKind {
        self.kind
    }

    /// Reads bytes or one message; 0 is the end, or an empty message.
    pub fn receive(&self, to: &mut dyn ByteSink, flags: OpenFlags) -> Result<Received, Errno> {
        let count = match self.incoming().as_deref() {
            Some(End::Messages(end)) => return end.receive(to, flags.nonblocking()),
            Some(End::Bytes(end)) => end.pipe().read(to, flags.nonblocking())?,
            None => 0,
        };
        Ok(Received {
            count,
            length: count,
        })
    }

    /// Writes bytes or one message. Streams alone give `SIGPIPE`.
    pub fn send(&self, from: &mut dyn ByteSource, flags: OpenFlags) -> SysResult {
        match self.outgoing().as_deref() {
            Some(End::Bytes(end)) => end.pipe().write(from, flags.nonblocking()),
            Some(End::Messages(end)) => end.send(from, flags.nonblocking()),
            None if self.kind == SocketKind::Stream => Err(Errno::BROKEN_PIPE),
            None => Err(Errno::EPIPE),
        }
    }

    /// Closes one direction or both.
    pub fn shut_down(&self, reading: bool, writing: bool) {
        if reading {
            let end = self.incoming.lock().take();
            drop(end);
        }
        if writing {
            let end = self.outgoing.lock().take();
            drop(end);
        }
    }
}

impl File for SocketFile {
    fn read(&self, to: &mut dyn ByteSink, _: &mut u64, flags: OpenFlags) -> SysResult {
        // Reading nothing takes no message, as it does on Linux; `recv` of nothing does.
        if to.room() == 0 {
            return Ok(0);
        }
        self.receive(to, flags).map(|received| received.count)
    }

    fn write(&self, from: &mut dyn ByteSource, _: &mut u64, flags: OpenFlags) -> SysResult {
        self.send(from, flags)
    }

    fn poll(&self) -> PollMask {
        let (incoming, outgoing) = (self.incoming(), self.outgoing());
        let mut mask = PollMask::empty();
        match &incoming {
            Some(end) => {
                let state = end.poll();
                mask |= state & PollMask::READABLE;
                if state.contains(PollMask::HUP) {
                    // The other side has stopped writing: a read gives 0 at once.
                    mask |= PollMask::READABLE | PollMask::RDHUP;
                }
            }
            None => mask |= PollMask::READABLE | PollMask::RDHUP,
        }
        match &outgoing {
            Some(end) => {
                let state = end.poll();
                mask |= state & PollMask::WRITABLE;
                if state.contains(PollMask::ERR) {
                    mask |= PollMask::WRITABLE;
                }
            }
            None => mask |= PollMask::WRITABLE,
        }
        let gone = incoming.is_none_or(|end| end.poll().contains(PollMask::HUP))
            && outgoing.is_none_or(|end| end.poll().contains(PollMask::ERR));
        if gone {
            mask |= PollMask::HUP;
        }
        mask
    }

    fn notifier(&self) -> Option<Arc<Notifier>> {
        Some(self.notifier.clone())
    }

    fn ioctl(&self, command: u32, argument: u64) -> SysResult {
        match self.incoming().as_deref() {
            Some(End::Bytes(end)) => end.ioctl(command, argument),
            Some(End::Messages(end)) if command == FIONREAD => {
                let count = i32::try_from(end.waiting()).unwrap_or(i32::MAX);
                uaccess::copy_out(argument, &count.to_le_bytes())?;
                Ok(0)
            }
            _ => Err(Errno::ENOTTY),
        }
    }
}
