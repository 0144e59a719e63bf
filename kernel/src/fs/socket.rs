//! Connected pairs of `AF_UNIX` stream sockets: two pipes, one each way.

use super::anonymous;
use super::file::{File, OpenFile};
use super::flags::{FileKind, OpenFlags};
use super::io::{ByteSink, ByteSource};
use super::pipe::{Pipe, PipeEnd};
use super::poll::{Notifier, PollMask};
use crate::errno::{Errno, SysResult};
use crate::sync::SpinLock;
use alloc::sync::Arc;

/// One socket of a pair.
#[derive(Debug)]
pub struct SocketFile {
    /// What the other side writes; gone after `shutdown(SHUT_RD)`.
    incoming: SpinLock<Option<Arc<PipeEnd>>>,
    /// What the other side reads; gone after `shutdown(SHUT_WR)`.
    outgoing: SpinLock<Option<Arc<PipeEnd>>>,
    notifier: Arc<Notifier>,
}

/// A new pair of connected sockets.
pub fn pair(flags: OpenFlags) -> Result<(Arc<OpenFile>, Arc<OpenFile>), Errno> {
    // One notifier for all: each change on either pipe may concern either side.
    let notifier = Arc::new(Notifier::new());
    let (there, back) = (
        Pipe::with_notifier(notifier.clone())?,
        Pipe::with_notifier(notifier.clone())?,
    );
    let socket = |read: &Arc<Pipe>, write: &Arc<Pipe>| {
        let file = Arc::new(SocketFile {
            incoming: SpinLock::new(Some(Arc::new(PipeEnd::reading(read)))),
            outgoing: SpinLock::new(Some(Arc::new(PipeEnd::writing(write)))),
            notifier: notifier.clone(),
        });
        let flags = (flags & OpenFlags::NONBLOCK) | OpenFlags::READ_WRITE;
        anonymous::open(file, FileKind::Socket, "socket", flags)
    };
    Ok((socket(&back, &there), socket(&there, &back)))
}

impl SocketFile {
    fn incoming(&self) -> Option<Arc<PipeEnd>> {
        self.incoming.lock().clone()
    }

    fn outgoing(&self) -> Option<Arc<PipeEnd>> {
        self.outgoing.lock().clone()
    }

    /// Reads; 0 is the end of the stream.
    pub fn receive(&self, to: &mut dyn ByteSink, flags: OpenFlags) -> SysResult {
        match self.incoming() {
            Some(end) => end.pipe().read(to, flags.nonblocking()),
            None => Ok(0),
        }
    }

    /// Writes; `quiet` spares the caller `SIGPIPE`.
    pub fn send(&self, from: &mut dyn ByteSource, flags: OpenFlags, quiet: bool) -> SysResult {
        match self.outgoing() {
            Some(end) => end.pipe().write(from, flags.nonblocking(), quiet),
            None => {
                if !quiet {
                    super::current::broken_pipe();
                }
                Err(Errno::EPIPE)
            }
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
        self.receive(to, flags)
    }

    fn write(&self, from: &mut dyn ByteSource, _: &mut u64, flags: OpenFlags) -> SysResult {
        self.send(from, flags, false)
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
        match self.incoming() {
            Some(end) => end.ioctl(command, argument),
            None => Err(Errno::ENOTTY),
        }
    }

    fn as_socket(&self) -> Option<&SocketFile> {
        Some(self)
    }
}
