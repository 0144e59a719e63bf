//! Messages between `ebb` and the reader of an image ([`crate::confine::frames`]).
//!
//! Each question has one answer. While an image is opened, the reader may ask for a file and tell
//! its progress first.

use serde::{Deserialize, Serialize};

/// Message to the confined reader of the image: open an image. It has the archive's descriptor and
/// its name.
pub(super) const OPEN: u8 = 1;
/// Question to the confined reader of the image: whether the path in the message exists.
pub(super) const HAS: u8 = 2;
/// Question to the confined reader of the image: whether the path in the message is an executable
/// regular file.
pub(super) const PROGRAM: u8 = 3;
/// Question to the confined reader of the image: the bytes of the file at the path in the message,
/// at most 16 MiB.
pub(super) const CONTENT: u8 = 4;
/// Question to the confined reader of the image: the target of the symbolic link at the path in the
/// message.
pub(super) const LINK: u8 = 5;
/// Message to the confined reader of the image with the descriptor of the guest's memory. It gets
/// no answer.
pub(super) const MEMORY: u8 = 6;
/// Question of the guest, passed on to the confined reader of the image. The message has the
/// offsets of its frames in the guest's memory ([`FrameOffsets`]), then the question's bytes.
pub(super) const QUESTION: u8 = 7;

/// Request of the confined reader of the image for an empty file. The answer has the same kind,
/// with the file's descriptor, or only with the reason as text if there is none.
pub(super) const SCRATCH: u8 = 20;
/// Message of the confined reader of the image about the progress of decompression ([`Unpacked`]).
/// It gets no answer.
pub(super) const PROGRESS: u8 = 21;
/// Message of the confined reader of the image: the image is open. It has the image's program and
/// settings as JSON.
pub(super) const OPENED: u8 = 22;
/// Message of the confined reader of the image: the image cannot be opened. It has the reason as
/// text.
pub(super) const FAILED: u8 = 23;

/// Answer of the confined reader of the image: yes, or the bytes asked for.
pub(super) const YES: u8 = 30;
/// Answer of the confined reader of the image: no, or there are no such bytes.
pub(super) const NO: u8 = 31;

/// The progress of decompression, as the confined reader of an image sends it to `ebb`.
#[derive(Serialize, Deserialize)]
pub(super) struct Unpacked {
    /// The name of the layer or archive.
    pub(super) what: String,
    /// Number of decompressed bytes.
    pub(super) done: u64,
}

/// The frames of a guest's question by guest-physical address, each with its byte offset in the
/// guest's memory.
pub(super) struct FrameOffsets(Vec<(u64, u64)>);

impl FrameOffsets {
    /// Finds the offset of each of `frames` by `frame_offset`. Returns `None` if that returns
    /// `None` for one of them, because it is outside of the guest's memory.
    pub(super) fn of(
        frames: impl Iterator<Item = u64>,
        frame_offset: &dyn Fn(u64) -> Option<u64>,
    ) -> Option<Self> {
        let offsets = frames.map(|frame| Some((frame, frame_offset(frame)?)));
        offsets.collect::<Option<_>>().map(Self)
    }

    /// Encodes the frames and their offsets, and the bytes `question` behind them.
    pub(super) fn write(&self, question: &[u8]) -> Vec<u8> {
        let count = u16::try_from(self.0.len()).unwrap_or(0);
        let mut bytes = count.to_le_bytes().to_vec();
        for (frame, offset) in &self.0 {
            bytes.extend(frame.to_le_bytes());
            bytes.extend(offset.to_le_bytes());
        }
        bytes.extend(question);
        bytes
    }

    /// Decodes a message of [`Self::write`]. Returns the frames, and the bytes of the question
    /// behind them. Returns `None` if the message ends before the last frame.
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (count, mut rest) = bytes.split_first_chunk()?;
        let mut offsets = Vec::new();
        for _ in 0..u16::from_le_bytes(*count) {
            let (frame, after) = rest.split_first_chunk()?;
            let (offset, after) = after.split_first_chunk()?;
            offsets.push((u64::from_le_bytes(*frame), u64::from_le_bytes(*offset)));
            rest = after;
        }
        Some((Self(offsets), rest))
    }

    /// Returns the byte offset in the guest's memory of the frame with the guest-physical address
    /// `frame`. Returns `None` if the question does not have that frame.
    pub(super) fn get(&self, frame: u64) -> Option<u64> {
        let found = self.0.iter().find(|(known, _)| *known == frame);
        found.map(|(_, offset)| *offset)
    }
}
