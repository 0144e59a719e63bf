//! What `ebb` and the reader of an image say to each other ([`crate::confine::frames`]): a question has
//! one answer, but for what the reader needs while it opens the image.

use serde::{Deserialize, Serialize};

/// Opens an image: its file comes along, and the bytes are its name.
pub(super) const OPEN: u8 = 1;
/// Asks whether something stands at a path.
pub(super) const HAS: u8 = 2;
/// Asks whether a program stands at a path.
pub(super) const PROGRAM: u8 = 3;
/// Asks for the bytes of a small file.
pub(super) const CONTENT: u8 = 4;
/// Asks where a link leads.
pub(super) const LINK: u8 = 5;
/// Hands over the guest's memory. It has no answer.
pub(super) const MEMORY: u8 = 6;
/// A question of the guest's, behind the places of its frames in that memory.
pub(super) const QUESTION: u8 = 7;

/// The reader wants an empty file; the answer has it, or none and the reason.
pub(super) const SCRATCH: u8 = 20;
/// The reader unpacks: [`Unpacked`]. It has no answer.
pub(super) const PROGRESS: u8 = 21;
/// The image is open: what it says of its program.
pub(super) const OPENED: u8 = 22;
/// It cannot be opened: why.
pub(super) const FAILED: u8 = 23;

/// The answer to a question that has one.
pub(super) const YES: u8 = 30;
/// The answer to one that has none.
pub(super) const NO: u8 = 31;

/// How far the reader is.
#[derive(Serialize, Deserialize)]
pub(super) struct Unpacked {
    pub(super) what: String,
    pub(super) done: u64,
}

/// Frames of a question, and where they stand in the guest's memory.
pub(super) struct Places(Vec<(u64, u64)>);

impl Places {
    /// `frames` are those of a question, `place` says where each stands. `None` if one is no memory.
    pub(super) fn of(
        frames: impl Iterator<Item = u64>,
        place: &dyn Fn(u64) -> Option<u64>,
    ) -> Option<Self> {
        let places = frames.map(|frame| Some((frame, place(frame)?)));
        places.collect::<Option<_>>().map(Self)
    }

    /// Writes them, and the question behind them.
    pub(super) fn write(&self, question: &[u8]) -> Vec<u8> {
        let count = u16::try_from(self.0.len()).unwrap_or(0);
        let mut bytes = count.to_le_bytes().to_vec();
        for (frame, place) in &self.0 {
            bytes.extend(frame.to_le_bytes());
            bytes.extend(place.to_le_bytes());
        }
        bytes.extend(question);
        bytes
    }

    /// Reads them; returns the question, too. `None` if they are cut off.
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (count, mut rest) = bytes.split_first_chunk()?;
        let mut places = Vec::new();
        for _ in 0..u16::from_le_bytes(*count) {
            let (frame, after) = rest.split_first_chunk()?;
            let (place, after) = after.split_first_chunk()?;
            places.push((u64::from_le_bytes(*frame), u64::from_le_bytes(*place)));
            rest = after;
        }
        Some((Self(places), rest))
    }

    /// Where a frame stands.
    pub(super) fn place(&self, frame: u64) -> Option<u64> {
        let found = self.0.iter().find(|(known, _)| *known == frame);
        found.map(|(_, place)| *place)
    }
}
