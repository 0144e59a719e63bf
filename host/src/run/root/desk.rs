//! The guest's questions, answered.

use super::source::{Answers, Source};
use crate::qemu::{GuestAddress, GuestRam};
use crate::run::volumes::Volumes;
use ebb_wire::root::{ANSWER_MAX, Answer, Ask, FRAME, QUESTION_MAX, Question, length};
use ebb_wire::volume::{FIRST, Request};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Write};

/// Folders of more entries do not come along with others: all their names would be read to find that they do not fit.
const BESIDE_ENTRIES_MAX: usize = 256;

/// Answers until the guest asks no more. A guest that sends what is no question gets no further answer.
pub(crate) fn serve(
    mut tree: Option<Box<dyn Answers>>,
    mut volumes: Option<Volumes>,
    ram: &GuestRam,
    mut port: impl Read + Write,
) {
    let Ok(file) = ram.fd().try_clone_to_owned().map(File::from) else {
        return;
    };
    let mut question = vec![0; QUESTION_MAX];
    let mut answer = vec![0; ANSWER_MAX];
    // Ends with the port: QEMU closes it.
    loop {
        let mut first = [0; 4];
        if port.read_exact(&mut first).is_err() {
            return;
        }
        let Some(rest) = question.get_mut(4..length(first)) else {
            return;
        };
        if port.read_exact(rest).is_err() {
            return;
        }
        question[..4].copy_from_slice(&first);
        let place = |address| {
            let address: u64 = address;
            let aligned = address.is_multiple_of(FRAME as u64);
            aligned.then(|| ram.file_offset(GuestAddress(address), FRAME as u64))?
        };
        let asked = &question[..length(first)];
        let bytes = if asked.get(4).is_some_and(|ask| *ask >= FIRST) {
            let (Some(request), Some(volumes)) = (Request::read(asked), &mut volumes) else {
                return;
            };
            let mut writing = Answer::new(&mut answer);
            let result = volumes.answer(&request, &file, &place, &mut writing);
            writing.finish(result.map_or_else(status, |()| 0))
        } else {
            let (Some(question), Some(tree)) = (Question::read(asked), &mut tree) else {
                return;
            };
            tree.reply(&question, asked, &file, &place, &mut answer)
        };
        if port.write_all(bytes).is_err() {
            return;
        }
    }
}

/// The answer to a question; `place` says where in `ram` a frame stands.
pub(super) fn reply_to<'a>(
    tree: &mut dyn Source,
    asked: &Question<'_>,
    ram: &File,
    place: &dyn Fn(u64) -> Option<u64>,
    buffer: &'a mut [u8],
) -> &'a [u8] {
    let mut answer = Answer::new(buffer);
    let result = match asked.ask {
        Ask::Look => tree.look(asked.path, false, &mut answer),
        Ask::Follow => tree.look(asked.path, true, &mut answer),
        Ask::List => list(tree, asked, &mut answer),
        Ask::Read => {
            let read = tree.read(
                asked.path,
                asked.version,
                asked.from,
                &asked.frames,
                ram,
                place,
            );
            read.map(|count| answer.number(count))
        }
    };
    answer.finish(match result {
        Ok(()) => 0,
        Err(error) => status(error),
    })
}

/// The entries of a folder, then as many of the folders beside it as fit whole.
fn list(tree: &mut dyn Source, asked: &Question<'_>, answer: &mut Answer<'_>) -> Result<(), Errno> {
    let later = answer.later();
    let next = tree.list(asked.path, asked.from, usize::MAX, answer)?;
    answer.put(later, next);
    if next != 0 {
        return Ok(());
    }
    let above = asked.path.iter().rposition(|byte| *byte == b'/');
    let above = above.map_or(&b""[..], |slash| &asked.path[..=slash]);
    for name in asked.beside.iter() {
        if !answer.has_room_for_an_entry() {
            break;
        }
        let path = [above, name].concat();
        let mark = answer.mark();
        let listed = answer
            .heading(name)
            .then(|| tree.list(&path, 0, BESIDE_ENTRIES_MAX, answer));
        match listed {
            Some(Ok(0)) => {}
            // What cannot be listed is told to who asks for it alone.
            Some(Err(_)) => answer.back_to(mark),
            // No room.
            Some(Ok(_)) | None => {
                answer.back_to(mark);
                break;
            }
        }
    }
    Ok(())
}

pub(super) fn status(error: Errno) -> u32 {
    u32::try_from(error.raw_os_error()).unwrap_or(5)
}
