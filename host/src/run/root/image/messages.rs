//! Messages between `ebb` and the reader of an image ([`crate::confine::frames`]).
//!
//! Each question has one answer. While an image is opened, the reader may ask for a file and tell
//! its progress first.

use serde::{Deserialize, Serialize};

/// Request to open an image. It has the archive's descriptor and its name.
pub(super) const OPEN: u8 = 1;
/// Asks whether a path exists.
pub(super) const HAS: u8 = 2;
/// Asks whether a path is a program.
pub(super) const PROGRAM: u8 = 3;
/// Asks for the bytes of a small file.
pub(super) const CONTENT: u8 = 4;
/// Asks for the target of a symbolic link.
pub(super) const LINK: u8 = 5;
/// Has the descriptor of the guest's memory. It gets no answer.
pub(super) const MEMORY: u8 = 6;
/// A question of the guest, behind the offsets of its frames in that memory ([`FrameOffsets`]).
pub(super) const QUESTION: u8 = 7;

/// The reader wants an empty file. The answer has its descriptor, or only the reason why there is
/// none.
pub(super) const SCRATCH: u8 = 20;
/// The progress of decompression ([`Unpacked`]). It gets no answer.
pub(super) const PROGRESS: u8 = 21;
/// The image is open. The message has its program and settings as JSON.
pub(super) const OPENED: u8 = 22;
/// The image cannot be opened. The message has the reason as text.
pub(super) const FAILED: u8 = 23;

/// The answer to a question: yes, or the bytes asked for.
pub(super) const YES: u8 = 30;
/// The answer to a question: no, or there are no such bytes.
pub(super) const NO: u8 = 31;

/// The progress of decompression.
#[derive(Serialize, Deserialize)]
pub(super) struct Unpacked {
    /// The name of the layer or archive.
    pub(super) what: String,
    /// Number of decompressed bytes.
    pub(super) done: u64,
}

/// The frames of a question by guest-physical address, each with its offset in the guest's memory.
pub(super) struct FrameOffsets(Vec<(u64, u64)>);

impl FrameOffsets {
    /// Finds the offsets of `frames` by `frame_offset`. Returns `None` if one is outside of the
    /// guest's memory.
    pub(super) fn of(
        frames: impl Iterator<Item = u64>,
        frame_offset: &dyn Fn(u64) -> Option<u64>,
    ) -> Option<Self> {
        let offsets = frames.map(|frame| Some((frame, frame_offset(frame)?)));
        offsets.collect::<Option<_>>().map(Self)
    }

    /// Encodes the frames, and `question` behind them.
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

    /// Decodes a message. Returns the frames and the question, and `None` if the message is cut
    /// off.
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

    /// Returns the offset of `frame`. Returns `None` if the question does not have it.
    pub(super) fn get(&self, frame: u64) -> Option<u64> {
        let found = self.0.iter().find(|(known, _)| *known == frame);
        found.map(|(_, offset)| *offset)
    }
}
