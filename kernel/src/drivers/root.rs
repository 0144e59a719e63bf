//! The host's tree of files, which the guest reads by questions over a port ([`ebb_wire::root`]).

use super::port::{self, Port};
use alloc::boxed::Box;
use alloc::vec;
use core::sync::atomic::{AtomicBool, Ordering};
use ebb_wire::root;
use ebb_wire::root::{ANSWER_MAX, FRAME, Frames, Opcode, QUESTION_MAX, Question};
use logic::errno::Errno;
use machine::memory::FrameRef;
use machine::sched::pressure;
use machine::sync::Mutex;

/// The largest number of frames in one read.
pub const FRAMES_MAX: usize = root::FRAMES_MAX;
pub use ebb_wire::root::{Entry, NAME_MAX, Names, SIBLINGS_MAX, entries, push_name};

/// The buffers for one question to the host and for its answer. A request locks both until the
/// answer is read.
struct Desk {
    question: Box<[u8]>,
    answer: Box<[u8]>,
}

static DESK: Mutex<Option<Desk>> = Mutex::new(None);

/// Whether the guest's root has a tree of the host's files.
static THERE: AtomicBool = AtomicBool::new(false);

/// Whether no further answer can come: the host has closed the stream, or its answers cannot be
/// told apart.
static ENDED: AtomicBool = AtomicBool::new(false);

/// Makes [`is_there`] return `true` if there is also a port, because the command line says that the
/// host shares its tree of files.
pub(super) fn note() {
    // Relaxed (both): set once, by the first CPU, before there are tasks.
    THERE.store(true, Ordering::Relaxed);
}

/// Returns whether the guest has a tree of the host's files, and a port for it.
pub fn is_there() -> bool {
    THERE.load(Ordering::Relaxed) && port::root().is_some()
}

/// Asks the host for the file at `path`, and calls `take` with its entry. Returns the result of
/// `take`. With `follow`, a symbolic link at the end of the path is followed.
///
/// # Errors
/// Fails with the host's error, with that of `take`, and with `ENAMETOOLONG` if `path` is too long.
/// Fails with `ENOENT` without a port, and with `EIO` if the answer is invalid or no answer can
/// come.
pub fn look<R>(
    path: &[u8],
    follow: bool,
    take: impl FnOnce(&Entry<'_>) -> Result<R, Errno>,
) -> Result<R, Errno> {
    let opcode = if follow {
        Opcode::Follow
    } else {
        Opcode::Lookup
    };
    let question = Question {
        opcode,
        path,
        from: 0,
        version: 0,
        frames: Frames::Addresses(&[]),
        siblings: Names::default(),
    };
    put(&question, &[], |rest| {
        let entry = entries(rest).next().ok_or(Errno::EIO)?;
        take(&entry)
    })
}

/// Lists the folder `path`: calls `take` with each entry from the index `from` on. Returns the
/// index to continue with, or 0 at the end. If the answer has room, all entries of some of the
/// folders `siblings`, which lie beside `path`, follow. Before those of each such folder, `take`
/// gets an entry with an empty name, whose link target is the name of the folder.
///
/// # Errors
/// Fails as [`look`] does, and with `EIO` if the returned index would not be above `from`.
pub fn list(
    path: &[u8],
    from: u64,
    siblings: Names<'_>,
    mut take: impl FnMut(&Entry<'_>) -> Result<(), Errno>,
) -> Result<u64, Errno> {
    let question = Question {
        opcode: Opcode::List,
        path,
        from,
        version: 0,
        frames: Frames::Addresses(&[]),
        siblings,
    };
    put(&question, &[], |rest| {
        let (next, rest) = root::leading_number(rest).ok_or(Errno::EIO)?;
        entries(rest).try_for_each(|entry| take(&entry))?;
        // The index must grow, or a faulty host could keep the caller in a loop.
        if next != 0 && next <= from {
            return Err(Errno::EIO);
        }
        Ok(next)
    })
}

/// Reads bytes of the file `path` from `offset` into `frames`. Returns the number of bytes read.
/// The rest of the frames is not changed. Frames behind the first [`FRAMES_MAX`] are not used.
///
/// # Errors
/// Fails with `ESTALE` if the file's version is not `version` any more, and otherwise as [`look`]
/// does.
pub fn read(path: &[u8], version: u64, offset: u64, frames: &[FrameRef]) -> Result<usize, Errno> {
    let mut addresses = [0; FRAMES_MAX];
    for (address, frame) in addresses.iter_mut().zip(frames) {
        *address = frame.address();
    }
    let question = Question {
        opcode: Opcode::Read,
        path,
        from: offset,
        version,
        frames: Frames::Addresses(&addresses[..frames.len().min(FRAMES_MAX)]),
        siblings: Names::default(),
    };
    put(&question, frames, |rest| {
        let (count, _) = root::leading_number(rest).ok_or(Errno::EIO)?;
        let count = usize::try_from(count).map_err(|_| Errno::EIO)?;
        if count > frames.len() * FRAME {
            return Err(Errno::EIO);
        }
        Ok(count)
    })
}

/// Asks `question`, calls `take` with the answer and returns the result of `take`. The host may
/// write to `frames` until it answers. Fails as [`exchange`] does.
fn put<R>(
    question: &Question<'_>,
    frames: &[FrameRef],
    take: impl FnOnce(&[u8]) -> Result<R, Errno>,
) -> Result<R, Errno> {
    exchange(|buffer| question.write(buffer), frames, take)
}

/// Sends the request that `write` encodes, waits for the answer, and calls `take` with it. Returns
/// the result of `take`. `write` returns the length of the request, or `None` if it does not fit
/// into the buffer. Signals do not end the wait, since the host answers at once.
///
/// The host may read and write `frames` until it answers. If no answer comes, they are never freed:
/// the next owner's bytes would reach a file of the host, or the host would overwrite them.
///
/// # Errors
/// Fails with the host's error and with that of `take`. Fails with `ENOENT` without a port, with
/// `ENAMETOOLONG` if the request does not fit, and with `EIO` once the stream is broken.
pub(super) fn exchange<'f, R>(
    write: impl FnOnce(&mut [u8]) -> Option<usize>,
    frames: impl IntoIterator<Item = &'f FrameRef>,
    take: impl FnOnce(&[u8]) -> Result<R, Errno>,
) -> Result<R, Errno> {
    let port = port::root().ok_or(Errno::ENOENT)?;
    let _waits = pressure::io_wait();
    let mut desk = DESK.lock();
    let desk = desk.get_or_insert_with(|| Desk {
        question: vec![0; QUESTION_MAX].into(),
        answer: vec![0; ANSWER_MAX].into(),
    });
    // Relaxed: read and changed with the desk held.
    if ENDED.load(Ordering::Relaxed) {
        return Err(Errno::EIO);
    }
    let len = write(&mut desk.question).ok_or(Errno::ENAMETOOLONG)?;
    // The queue is empty between questions, and longer than any of them. If the write fails, no
    // byte of the question was queued.
    let sent = port.write(&desk.question[..len], true, false)?;
    let received = if sent == len {
        receive(port, &mut desk.answer)
    } else {
        Err(Errno::EIO)
    };
    let len = received.inspect_err(|_| {
        ENDED.store(true, Ordering::Relaxed);
        keep_for_ever(frames);
    })?;
    let (status, rest) = root::answer(&desk.answer[..len]).ok_or(Errno::EIO)?;
    match status {
        0 => take(rest),
        status => Err(Errno::from_number(status).unwrap_or(Errno::EIO)),
    }
}

/// Keeps `frames` out of other use for ever, because the host may still read and write them: takes
/// a reference to each that is never dropped.
fn keep_for_ever<'f>(frames: impl IntoIterator<Item = &'f FrameRef>) {
    let mut kept = 0;
    for frame in frames {
        core::mem::forget(frame.clone());
        kept += 1;
    }
    if kept != 0 {
        machine::console!("the host's files: no more answers; {kept} pages are never freed");
    }
}

/// Receives an answer and returns its length.
///
/// # Errors
/// Fails with `EIO` if the stream has ended or its length is impossible. No later answer can be
/// received.
fn receive(port: &Port, answer: &mut [u8]) -> Result<usize, Errno> {
    let mut first = [0; 4];
    read_exact(port, &mut first)?;
    answer[..4].copy_from_slice(&first);
    let len = root::length(first);
    // After an impossible length, answers cannot be told apart any more.
    let rest = answer.get_mut(4..len).ok_or(Errno::EIO)?;
    read_exact(port, rest)?;
    Ok(len)
}

fn read_exact(port: &Port, mut to: &mut [u8]) -> Result<(), Errno> {
    while !to.is_empty() {
        let taken = port.read_steadily(to);
        if taken == 0 {
            return Err(Errno::EIO);
        }
        to = &mut to[taken..];
    }
    Ok(())
}
