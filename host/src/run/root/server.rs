//! Serves the guest's questions about its root and its volumes on one port.

use super::source::{Answers, Source};
use crate::qemu::{GuestAddress, GuestRam};
use crate::run::volumes::Volumes;
use ebb_wire::root::{ANSWER_MAX, Answer, FRAME, Opcode, QUESTION_MAX, Question, length};
use ebb_wire::volume::{FIRST, Request};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};

/// A directory with more entries is not listed together with another one. Its names would be read
/// only to find that they do not fit.
const BESIDE_ENTRIES_MAX: usize = 256;

/// Why the guest gets no more answers about its root and its volumes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// A request has an impossible length, so the beginning of the next one is not known.
    #[error("it sent a request of {length} bytes, not of {LENGTH_BYTES} to {QUESTION_MAX}")]
    Length { length: usize },
    /// The descriptor of the guest's memory could not be duplicated.
    #[error("its memory cannot be opened: {0}")]
    Memory(io::Error),
}

/// Size in bytes of the length at the beginning of a request.
const LENGTH_BYTES: usize = 4;

/// An answer with length 0. The guest's kernel takes it for the end of all answers.
const NO_MORE: [u8; LENGTH_BYTES] = [0; LENGTH_BYTES];

/// Answers the guest's requests on `port` until QEMU closes it. Blocks as long. A malformed request
/// gets `EINVAL` as answer. A request about the root gets `ENODEV` if `tree` is `None`, and one
/// about volumes if `volumes` is. File contents are copied into `ram`, the guest's memory.
///
/// # Errors
/// Fails with [`ServeError`] if a request has an impossible length, or if the descriptor of `ram`
/// cannot be duplicated. Before that, it tells the guest's kernel that no more answers come.
pub(crate) fn serve(
    tree: Option<Box<dyn Answers>>,
    volumes: Option<Volumes>,
    ram: &GuestRam,
    mut port: impl Read + Write,
) -> Result<(), ServeError> {
    let result = serve_requests(tree, volumes, ram, &mut port);
    if result.is_err() {
        // If this fails, the guest is gone.
        let _ = port.write_all(&NO_MORE);
    }
    result
}

fn serve_requests(
    mut tree: Option<Box<dyn Answers>>,
    mut volumes: Option<Volumes>,
    ram: &GuestRam,
    port: &mut (impl Read + Write),
) -> Result<(), ServeError> {
    let file = ram.fd().try_clone_to_owned().map(File::from);
    let file = file.map_err(ServeError::Memory)?;
    let frame_offset = |address: u64| {
        let aligned = address.is_multiple_of(FRAME as u64);
        aligned.then(|| ram.file_offset(GuestAddress(address), FRAME as u64))?
    };
    let mut question = vec![0; QUESTION_MAX];
    let mut answer = vec![0; ANSWER_MAX];
    // Ends when QEMU closes the port.
    loop {
        let mut first = [0; LENGTH_BYTES];
        if port.read_exact(&mut first).is_err() {
            return Ok(());
        }
        let length = length(first);
        let Some(rest) = question.get_mut(LENGTH_BYTES..length) else {
            return Err(ServeError::Length { length });
        };
        if port.read_exact(rest).is_err() {
            return Ok(());
        }
        question[..LENGTH_BYTES].copy_from_slice(&first);
        let asked = &question[..length];
        let bytes = if asked.get(LENGTH_BYTES).is_some_and(|ask| *ask >= FIRST) {
            let mut writing = Answer::new(&mut answer);
            let result = match (Request::read(asked), &mut volumes) {
                (Some(request), Some(volumes)) => {
                    volumes.answer(&request, &file, &frame_offset, &mut writing)
                }
                (None, _) => Err(Errno::INVAL),
                (_, None) => Err(Errno::NODEV),
            };
            writing.finish(result.map_or_else(status, |()| 0))
        } else {
            match (Question::read(asked), &mut tree) {
                (Some(question), Some(tree)) => {
                    tree.reply(&question, asked, &file, &frame_offset, &mut answer)
                }
                (None, _) => Answer::new(&mut answer).finish(status(Errno::INVAL)),
                (_, None) => Answer::new(&mut answer).finish(status(Errno::NODEV)),
            }
        };
        if port.write_all(bytes).is_err() {
            return Ok(());
        }
    }
}

/// Answers the question `asked` from `tree`, and returns the answer, which it writes into `buffer`.
/// A failed question gets an answer with the error's number. File contents are written to `ram`,
/// the guest's memory. `frame_offset` returns the offset of a frame in it, and `None` if there is
/// no such frame.
pub(super) fn reply_to<'a>(
    tree: &mut dyn Source,
    asked: &Question<'_>,
    ram: &File,
    frame_offset: &dyn Fn(u64) -> Option<u64>,
    buffer: &'a mut [u8],
) -> &'a [u8] {
    let mut answer = Answer::new(buffer);
    let result = match asked.opcode {
        Opcode::Lookup => tree.look(asked.path, false, &mut answer),
        Opcode::Follow => tree.look(asked.path, true, &mut answer),
        Opcode::List => list(tree, asked, &mut answer),
        Opcode::Read => {
            let read = tree.read(
                asked.path,
                asked.version,
                asked.from,
                &asked.frames,
                ram,
                frame_offset,
            );
            read.map(|count| answer.number(count))
        }
    };
    answer.finish(match result {
        Ok(()) => 0,
        Err(error) => status(error),
    })
}

/// Lists the directory, and then those sibling directories of the question whose entries all fit.
fn list(tree: &mut dyn Source, asked: &Question<'_>, answer: &mut Answer<'_>) -> Result<(), Errno> {
    let placeholder = answer.placeholder();
    let next = tree.list(asked.path, asked.from, usize::MAX, answer)?;
    answer.fill(placeholder, next);
    if next != 0 {
        return Ok(());
    }
    let above = asked.path.iter().rposition(|byte| *byte == b'/');
    let above = above.map_or(&b""[..], |slash| &asked.path[..=slash]);
    for name in asked.siblings.iter() {
        if !answer.has_room_for_an_entry() {
            break;
        }
        let path = [above, name].concat();
        let position = answer.position();
        let listed = answer
            .heading(name)
            .then(|| tree.list(&path, 0, BESIDE_ENTRIES_MAX, answer));
        match listed {
            Some(Ok(0)) => {}
            // A directory that cannot be listed is left out. The guest sees the error when it asks
            // for that one alone.
            Some(Err(_)) => answer.truncate(position),
            // There is no room for all of its entries.
            Some(Ok(_)) | None => {
                answer.truncate(position);
                break;
            }
        }
    }
    Ok(())
}

/// Returns the Linux number of `error` (`errno`), for the status of an answer to the guest.
pub(super) fn status(error: Errno) -> u32 {
    u32::try_from(error.raw_os_error()).unwrap_or(5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::run::root::View;
    use crate::run::root::tree::Tree;
    use crate::run::volumes::VolumeOption;
    use ebb_wire::root::{Frames, Names};
    use ebb_wire::volume::{Attributes, Opcode as VolumeOpcode};
    use std::ffi::OsStr;
    use std::os::unix::net::UnixStream;
    use std::thread::{self, JoinHandle};

    const EINVAL: u32 = 22;
    const ENODEV: u32 = 19;

    /// The guest's end of a port, and the thread that serves it.
    struct Guest {
        port: UnixStream,
        served: JoinHandle<Result<(), ServeError>>,
    }

    impl Guest {
        fn new(has_tree: bool, has_volume: bool) -> Self {
            let folder = env!("CARGO_MANIFEST_DIR");
            let (port, other) = UnixStream::pair().unwrap();
            let served = thread::spawn(move || {
                let view = View::folder(folder.as_ref()).unwrap();
                let tree: Box<dyn Answers> = Box::new(Tree::new(view));
                let option = VolumeOption::parse(OsStr::new(&format!("{folder}:/v:ro"))).unwrap();
                let volumes = Volumes::open(&[option]).unwrap().try_clone().unwrap();
                let ram = GuestRam::new(Machine::Microvm, 1 << 20).unwrap();
                serve(
                    has_tree.then_some(tree),
                    has_volume.then_some(volumes),
                    &ram,
                    other,
                )
            });
            Self { port, served }
        }

        /// Sends `bytes`. Returns the answer's status and content.
        fn ask(&mut self, bytes: &[u8]) -> (u32, Vec<u8>) {
            self.port.write_all(bytes).unwrap();
            let mut answer = [0; LENGTH_BYTES].to_vec();
            self.port.read_exact(&mut answer).expect("an answer");
            let first = [answer[0], answer[1], answer[2], answer[3]];
            answer.resize(length(first), 0);
            let rest = &mut answer[LENGTH_BYTES..];
            self.port.read_exact(rest).expect("all of it");
            let (status, rest) = ebb_wire::root::answer(&answer).expect("an answer");
            (status, rest.to_vec())
        }

        fn is_served(&mut self) {
            let (status, rest) = self.ask(&request());
            assert_eq!(status, 0);
            assert!(Attributes::read(&rest).is_some());
            assert_eq!(self.ask(&question()).0, 0);
        }
    }

    fn request() -> Vec<u8> {
        let mut bytes = vec![0; QUESTION_MAX];
        let len = Request::new(VolumeOpcode::Top, 0)
            .write(&mut bytes)
            .unwrap();
        bytes.truncate(len);
        bytes
    }

    fn question() -> Vec<u8> {
        let mut bytes = vec![0; QUESTION_MAX];
        let question = Question {
            opcode: Opcode::Lookup,
            path: b"Cargo.toml",
            from: 0,
            version: 0,
            frames: Frames::Addresses(&[]),
            siblings: Names::default(),
        };
        let len = question.write(&mut bytes).unwrap();
        bytes.truncate(len);
        bytes
    }

    /// Builds a message of `length` bytes with `bytes` behind the length, filled up with zeros.
    fn message(length: usize, bytes: &[u8]) -> Vec<u8> {
        let mut message = u32::try_from(length).unwrap().to_le_bytes().to_vec();
        message.extend_from_slice(bytes);
        message.resize(length, 0);
        message
    }

    #[test]
    fn one_bad_request_is_not_the_end() {
        let mut guest = Guest::new(true, true);
        guest.is_served();
        let mut changed = request();
        changed[6] = 9;
        let mut bad_question = question();
        bad_question[6] = 200;
        for bytes in [
            message(4, b""),
            message(5, &[FIRST]),
            message(5, &[0]),
            message(5, &[4]),
            message(72, &[FIRST - 1]),
            message(72, &[FIRST + 20]),
            message(72, &[255]),
            message(QUESTION_MAX, &[255; 64]),
            message(QUESTION_MAX, &[FIRST]),
            changed,
            bad_question,
        ] {
            let (status, rest) = guest.ask(&bytes);
            assert_eq!((status, rest.len()), (EINVAL, 0), "{bytes:?}");
            guest.is_served();
        }
        drop(guest.port);
        guest
            .served
            .join()
            .unwrap()
            .expect("the port's end is none of these");
    }

    #[test]
    fn what_is_not_shown_is_no_device() {
        let mut guest = Guest::new(false, true);
        assert_eq!(guest.ask(&question()).0, ENODEV);
        assert_eq!(guest.ask(&request()).0, 0);
        let mut guest = Guest::new(true, false);
        assert_eq!(guest.ask(&request()).0, ENODEV);
        assert_eq!(guest.ask(&question()).0, 0);
    }

    /// After an impossible length the guest learns that no answer comes, and the user of `ebb`
    /// learns why.
    #[test]
    fn a_length_that_cannot_be_is_the_end_and_said() {
        for length in [0, 3, QUESTION_MAX + 1, u32::MAX as usize] {
            let mut guest = Guest::new(true, true);
            guest.is_served();
            let first = u32::try_from(length).unwrap().to_le_bytes();
            guest.port.write_all(&first).unwrap();
            let mut last = Vec::new();
            guest.port.read_to_end(&mut last).unwrap();
            assert_eq!(last, NO_MORE);
            let error = guest.served.join().unwrap().expect_err("it has ended");
            let text = error.to_string();
            assert!(text.contains(&length.to_string()), "{text}");
            assert!(text.contains(&QUESTION_MAX.to_string()), "{text}");
        }
    }
}
