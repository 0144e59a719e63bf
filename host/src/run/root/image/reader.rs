//! The confined process that reads an image. It knows the archive's bytes, and the guest's memory
//! once a guest runs. See [`crate::confine::Reader`] for its rights.

use super::super::server;
use super::messages::{
    CONTENT, FAILED, FrameOffsets, HAS, LINK, MEMORY, NO, OPEN, OPENED, PROGRAM, PROGRESS,
    QUESTION, SCRATCH, Unpacked, YES,
};
use super::reader_service::ReaderService;
use super::{Image, ImageError};
use crate::confine::frames::{Frame, receive, send};
use ebb_wire::root::{ANSWER_MAX, Question};
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Runs in the confined process. Opens the image of the first message on `socket`, and answers
/// questions until `socket` closes or a malformed message comes. If the image cannot be opened,
/// sends the reason and returns.
pub(super) fn serve(socket: &UnixStream) {
    // After an error of the socket the process ends.
    let _ = answer_all(socket);
}

fn answer_all(socket: &UnixStream) -> io::Result<()> {
    let image = match opened(socket, receive(socket)?) {
        Ok(image) => image,
        Err(error) => return send(socket, FAILED, error.to_string().as_bytes(), &[]),
    };
    send(socket, OPENED, &serde_json::to_vec(image.config())?, &[])?;
    let mut image = Arc::new(image);
    let mut memory = None;
    let mut buffer = vec![0; ANSWER_MAX];
    loop {
        let mut frame = receive(socket)?;
        let path = frame.bytes.as_slice();
        let yes = |is: bool| if is { YES } else { NO };
        match frame.kind {
            HAS => send(socket, yes(image.has(path)), &[], &[])?,
            PROGRAM => send(socket, yes(image.has_program(path)), &[], &[])?,
            CONTENT => {
                let content = image.content(path);
                send(
                    socket,
                    yes(content.is_some()),
                    &content.unwrap_or_default(),
                    &[],
                )?;
            }
            LINK => {
                let target = image.link_at(path);
                send(
                    socket,
                    yes(target.is_some()),
                    target.unwrap_or_default(),
                    &[],
                )?;
            }
            MEMORY => memory = frame.descriptors.pop().map(File::from),
            QUESTION => {
                let (Some((offsets, asked)), Some(memory)) = (FrameOffsets::read(path), &memory)
                else {
                    return Ok(());
                };
                let Some(question) = Question::read(asked) else {
                    return Ok(());
                };
                let frame_offset = |frame| offsets.get(frame);
                let bytes =
                    server::reply_to(&mut image, &question, memory, &frame_offset, &mut buffer);
                send(socket, YES, bytes, &[])?;
            }
            _ => return Ok(()),
        }
    }
}

fn opened(socket: &UnixStream, mut first: Frame) -> Result<Image, ImageError> {
    let archive = first.descriptors.pop().filter(|_| first.kind == OPEN);
    let archive = archive.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let name = String::from_utf8_lossy(&first.bytes).into_owned();
    let mut service = RemoteService {
        socket,
        scratch: None,
    };
    Image::read(File::from(archive), &name, &mut service)
}

/// Sends the reader's requests to `ebb`.
struct RemoteService<'a> {
    socket: &'a UnixStream,
    /// The file for decompressed bytes. `None` until it is needed.
    scratch: Option<Arc<File>>,
}

impl ReaderService for RemoteService<'_> {
    fn scratch(&mut self) -> io::Result<Arc<File>> {
        if let Some(file) = &self.scratch {
            return Ok(Arc::clone(file));
        }
        send(self.socket, SCRATCH, &[], &[])?;
        let mut answer = receive(self.socket)?;
        match answer.descriptors.pop() {
            Some(file) => Ok(Arc::clone(self.scratch.insert(Arc::new(File::from(file))))),
            None => Err(io::Error::other(
                String::from_utf8_lossy(&answer.bytes).into_owned(),
            )),
        }
    }

    fn progress(&mut self, what: &str, done: u64) {
        let unpacked = Unpacked {
            what: what.to_owned(),
            done,
        };
        // An error of the socket shows again at the next message.
        let _ = serde_json::to_vec(&unpacked).map(|bytes| send(self.socket, PROGRESS, &bytes, &[]));
    }
}
