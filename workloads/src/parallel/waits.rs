//! `poll` of eventfds, and switches to another thread.

use super::{Call, Watch};
use crate::Failure;
use crate::tasks::Kind;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Number of polls in a batch.
const POLLS: u64 = 64;
/// Number of polls of many files in a batch.
const POLLS_OF_MANY: u64 = 8;
const MANY: usize = 128;
/// Number of round trips in a batch.
const TRIPS: u64 = 32;

/// The call `poll`: polls one eventfd that is ready.
pub(super) const POLL: Call = Call {
    name: "poll",
    kind: Kind::Threads,
    batch: POLLS,
    work: |watch| poll(watch, &events(1, 1)?, POLLS, 1),
};

/// The call `poll-128`: polls 128 eventfds that are not ready, without waiting.
pub(super) const POLL_MANY: Call = Call {
    name: "poll-128",
    kind: Kind::Threads,
    batch: POLLS_OF_MANY,
    work: |watch| poll(watch, &events(MANY, 0)?, POLLS_OF_MANY, 0),
};

/// The call `switch`: sends a byte to another thread through a pipe and waits for the byte that it
/// sends back through another.
pub(super) const SWITCH: Call = Call {
    name: "switch",
    kind: Kind::Threads,
    batch: TRIPS,
    work: switch,
};

/// Returns `number` eventfds whose counters begin at `count`.
fn events(number: usize, count: libc::c_uint) -> Result<Vec<OwnedFd>, Failure> {
    let event = |_| {
        // SAFETY: the call takes two numbers only.
        let event = unsafe { libc::eventfd(count, libc::EFD_CLOEXEC) };
        if event < 0 {
            return Err(Failure::last_os("eventfd"));
        }
        // SAFETY: the descriptor is new, and nothing else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(event) })
    };
    (0..number).map(event).collect()
}

fn poll(watch: &mut Watch, files: &[OwnedFd], polls: u64, ready: i32) -> Result<(), Failure> {
    let mut asked: Vec<libc::pollfd> = files
        .iter()
        .map(|file| libc::pollfd {
            fd: file.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    while watch.again() {
        for _ in 0..polls {
            // SAFETY: the length is that of the vector of records.
            let found = unsafe { libc::poll(asked.as_mut_ptr(), asked.len() as u64, 0) };
            if found < 0 {
                return Err(Failure::last_os("poll"));
            }
            if found != ready {
                return Err(Failure::Wrong(format!("{found} files are ready")));
            }
        }
    }
    Ok(())
}

/// Sends a byte to another thread and waits for its answer.
fn switch(watch: &mut Watch) -> Result<(), Failure> {
    let pipe = || std::io::pipe().map_err(Failure::system("make a pipe"));
    let ((mut there_reads, mut here_writes), (mut here_reads, mut there_writes)) =
        (pipe()?, pipe()?);
    std::thread::scope(|scope| {
        let other = scope.spawn(move || answer(&mut there_reads, &mut there_writes));
        let mut byte = [0];
        while watch.again() {
            for _ in 0..TRIPS {
                here_writes
                    .write_all(&byte)
                    .and_then(|()| here_reads.read_exact(&mut byte))
                    .map_err(Failure::system("send a byte around"))?;
            }
        }
        // The other thread ends when the pipe ends.
        drop(here_writes);
        match other.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Sends each byte back until the pipe ends.
fn answer(from: &mut PipeReader, to: &mut PipeWriter) -> Result<(), Failure> {
    let mut byte = [0];
    loop {
        let count = from
            .read(&mut byte)
            .map_err(Failure::system("read a byte"))?;
        if count == 0 {
            return Ok(());
        }
        to.write_all(&byte)
            .map_err(Failure::system("send a byte back"))?;
    }
}
