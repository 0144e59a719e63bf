//! [`HostPort`]: the port on which the host answers questions about its files ([`ebb_wire::root`],
//! [`ebb_wire::volume`]).

use crate::failure::Failure;
use crate::frames::Frames;
use crate::ports;
use ebb_wire::port::ROOT_NAME;
use ebb_wire::root::{ANSWER_MAX, QUESTION_MAX, answer, length};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::{Mutex, PoisonError};

/// The port for questions to the host. Several threads may share it; one question is in flight at a
/// time.
#[derive(Debug)]
pub(crate) struct HostPort(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    port: File,
    /// Whether an earlier answer did not arrive completely. The port is then unusable, since the
    /// next bytes may belong to that answer.
    broken: bool,
    frames: Frames,
    question: Vec<u8>,
    answer: Vec<u8>,
}

impl HostPort {
    /// Opens the port and allocates the frames for file contents. Fails if the port does not appear
    /// or the frames cannot be pinned.
    pub(crate) fn open() -> Result<Self, Failure> {
        Ok(Self(Mutex::new(Inner {
            port: ports::open(ROOT_NAME)?,
            broken: false,
            frames: Frames::new()?,
            question: vec![0; QUESTION_MAX],
            answer: vec![0; ANSWER_MAX],
        })))
    }

    /// Asks the host one question, waits for the answer, and returns the result of `read`. `write`
    /// puts the question into a buffer and returns its length. `write` also gets the frames, to
    /// fill them or to put their addresses into the question. `read` gets the contents of the
    /// answer, and the frames again.
    ///
    /// # Errors
    /// Fails with `ENAMETOOLONG` if `write` returns `None`, with `EIO` if the port failed or has
    /// failed before, and otherwise with the host's error or that of `read`.
    pub(crate) fn ask<R>(
        &self,
        write: impl FnOnce(&mut [u8], &mut Frames) -> Option<usize>,
        read: impl FnOnce(&[u8], &Frames) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        // A thread that panicked has left no state behind that the next question does not
        // overwrite.
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner {
            port,
            broken,
            frames,
            question,
            answer: bytes,
        } = &mut *inner;
        let len = write(question, frames).ok_or(Errno::NAMETOOLONG)?;
        if *broken {
            return Err(Errno::IO);
        }
        *broken = true;
        let moved = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        port.write_all(&question[..len]).map_err(moved)?;
        // Only the answer arrives: the lock keeps other questions out.
        let (mut have, mut len) = (0, 4);
        while have < len {
            let room = bytes.get_mut(have..).filter(|room| !room.is_empty());
            match port.read(room.ok_or(Errno::IO)?) {
                Ok(0) => return Err(Errno::IO),
                Ok(count) => have += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(moved(error)),
            }
            if let Some(first) = bytes[..have].first_chunk() {
                len = length(*first);
            }
        }
        *broken = false;
        match answer(&bytes[..have]).ok_or(Errno::IO)? {
            (0, rest) => read(rest, frames),
            (status, _) => Err(i32::try_from(status).map_or(Errno::IO, Errno::from_raw_os_error)),
        }
    }
}
