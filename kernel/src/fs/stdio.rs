//! The program's standard streams: byte streams from and to the host that look like pipes.

use super::anonymous::pipe_node;
use super::file::{File, OpenFile};
use super::flags::OpenFlags;
use super::io::{ByteSink, ByteSource};
use super::node::NodeRef;
use super::poll::{Notifier, PollMask};
use crate::drivers::port::{self, Port};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use ebb_wire::boot::{STDERR, STDOUT};
use linux_raw_sys::ioctl::FIONREAD;
use logic::errno::{Errno, SysResult};
use machine::arch::BootInfo;
use machine::arch::header::HEADER;
use machine::memory::{PAGE_SIZE, PageBuffer};
use machine::sync::Once;
use machine::uaccess;

/// A stream of bytes to or from the host.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard input and output.
    InputOutput,
    /// Standard error.
    Error,
    /// The files that the guest sends to the host. Standard error if the host accepts none.
    Files,
}

/// The number of streams.
const STREAMS: usize = 3;

impl Stream {
    fn port(self) -> &'static Port {
        match self {
            Self::InputOutput => port::stdio(),
            Self::Error => port::stderr(),
            Self::Files => port::out().unwrap_or(port::stderr()),
        }
    }

    /// Returns the notifier of changes of the port's readiness.
    fn notifier(self) -> Arc<Notifier> {
        static NOTIFIERS: [Once<Arc<Notifier>>; STREAMS] = [const { Once::new() }; STREAMS];
        NOTIFIERS[self as usize]
            .get_or_init(|| {
                let notifier = Arc::new(Notifier::new());
                let told = notifier.clone();
                let mask = PollMask::READABLE | PollMask::WRITABLE;
                self.port().observe(Box::new(move || {
                    told.notify(mask);
                }));
                notifier
            })
            .clone()
    }
}

/// The file of a stream.
#[derive(Debug)]
struct StreamFile {
    port: &'static Port,
    stream: Stream,
    /// The flags with which this file was opened. They decide its direction, since standard input
    /// and output share a port.
    opened: OpenFlags,
}

/// Returns the file of `stream`, opened with the flags `opened`.
pub fn stream(stream: Stream, opened: OpenFlags) -> Arc<dyn File> {
    Arc::new(StreamFile {
        port: stream.port(),
        stream,
        opened,
    })
}

impl StreamFile {
    fn reads(&self) -> bool {
        self.stream == Stream::InputOutput && self.opened.readable()
    }
}

impl File for StreamFile {
    fn read(&self, to: &mut dyn ByteSink, _: &mut u64, flags: OpenFlags) -> SysResult {
        if !self.reads() || to.room() == 0 {
            return Ok(0);
        }
        let mut buffer = Vec::new();
        let size = to.room().min(PAGE_SIZE);
        buffer.try_reserve_exact(size).map_err(|_| Errno::ENOMEM)?;
        buffer.resize(size, 0);
        // Relaxed: the host may learn of it a moment later.
        if HEADER.awaited_input.load(Ordering::Relaxed) == 0
            && !flags.nonblocking()
            && !self.port.readable()
        {
            HEADER.awaited_input.store(1, Ordering::Relaxed);
        }
        let count = self.port.read(&mut buffer, flags.nonblocking())?;
        to.put(&buffer[..count])
    }

    fn write(&self, from: &mut dyn ByteSource, _: &mut u64, flags: OpenFlags) -> SysResult {
        if from.left() == 0 {
            return Ok(0);
        }
        let mut buffer = PageBuffer::new()?;
        let mut done = 0;
        let end = loop {
            if from.left() == 0 {
                break Ok(());
            }
            let taken = match from.take(&mut buffer) {
                Ok(taken) => taken,
                Err(error) => break Err(error),
            };
            let more = from.left() > 0;
            match self.port.write(&buffer[..taken], flags.nonblocking(), more) {
                Ok(written) => {
                    done += written;
                    if written < taken {
                        break Ok(());
                    }
                }
                Err(Errno::EPIPE) => break Err(Errno::BROKEN_PIPE),
                Err(error) => break Err(error),
            }
        };
        self.port.send();
        match end {
            Err(error) if done == 0 => Err(error),
            _ => Ok(done),
        }
    }

    fn poll(&self) -> PollMask {
        let mut mask = PollMask::empty();
        if self.reads() && self.port.readable() {
            mask |= PollMask::READABLE;
        }
        if self.reads() && self.port.at_end() {
            mask |= PollMask::HUP;
        }
        if self.opened.writable() {
            if self.port.writable() {
                mask |= PollMask::WRITABLE;
            }
            if self.port.is_closed() {
                mask |= PollMask::ERR;
            }
        }
        mask
    }

    fn signals(&self) -> Result<Option<Arc<Notifier>>, Errno> {
        // The port may notify with a lock held, so no signal can be sent then.
        Err(Errno::EINVAL)
    }

    fn notifier(&self) -> Option<Arc<Notifier>> {
        Some(self.stream.notifier())
    }

    fn ioctl(&self, command: u32, argument: u64) -> SysResult {
        if command != FIONREAD {
            return Err(Errno::ENOTTY);
        }
        let waiting = i32::from(self.reads() && self.port.readable());
        uaccess::copy_out(argument, &waiting.to_le_bytes())?;
        Ok(0)
    }
}

/// Returns the node of a stream. It belongs to the owner of the first call: the program, which is
/// first.
fn node(which: Stream, owner: [u32; 2]) -> NodeRef {
    static NODES: [Once<NodeRef>; STREAMS] = [const { Once::new() }; STREAMS];
    let slot = &NODES[which as usize];
    if let Some(node) = slot.get() {
        return node.clone();
    }
    let node = pipe_node(owner, move |flags| Ok(stream(which, flags)));
    let _ = slot.set(node.clone());
    slot.get().cloned().unwrap_or(node)
}

/// The user and the group root.
const ROOT: [u32; 2] = [0; 2];

/// Whether the host's standard output and error lead to the same place.
static ONE_OUTPUT: AtomicBool = AtomicBool::new(false);

/// Reads from the command line whether the host's standard output and error lead to the same place.
/// If so, descriptors 1 and 2 of the program share one open file, and their writes keep their
/// order.
pub(super) fn init(boot: &BootInfo) {
    let one = boot.option(STDERR) == Some(STDOUT);
    // Relaxed: tasks start later.
    ONE_OUTPUT.store(one, Ordering::Relaxed);
}

fn open(which: Stream, flags: OpenFlags, owner: [u32; 2]) -> Arc<OpenFile> {
    OpenFile::new(
        node(which, owner),
        stream(which, flags),
        None,
        flags | OpenFlags::LARGE,
    )
}

/// Returns the open files for descriptors 0, 1 and 2 of the first program. `owner` has the user and
/// the group that the program runs as.
pub fn open_program_streams(owner: [u32; 2]) -> [Arc<OpenFile>; 3] {
    let output = open(Stream::InputOutput, OpenFlags::WRITE_ONLY, owner);
    let error = if ONE_OUTPUT.load(Ordering::Relaxed) {
        output.clone()
    } else {
        open(Stream::Error, OpenFlags::WRITE_ONLY, owner)
    };
    [
        open(Stream::InputOutput, OpenFlags::empty(), owner),
        output,
        error,
    ]
}

/// Returns the open files for descriptors 0, 1 and 2 of the program that sends files to the host.
/// Returns `None` if the host accepts no files.
pub fn open_sender_streams() -> Option<[Arc<OpenFile>; 3]> {
    port::out()?;
    let errors = open(Stream::Error, OpenFlags::WRITE_ONLY, ROOT);
    Some([
        open(Stream::InputOutput, OpenFlags::empty(), ROOT),
        open(Stream::Files, OpenFlags::WRITE_ONLY, ROOT),
        errors,
    ])
}
