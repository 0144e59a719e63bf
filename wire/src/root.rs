//! A tree of the host's files that a guest has below its own: questions of the guest's kernel, answers of `ebb`.
//!
//! The guest names files by their paths in the tree, and the frames that their bytes go to, so the host keeps nothing of what was
//! asked before, and no byte of a file passes through QEMU. A file is known by its version: bytes of another one are refused.
//!
//! One question is under way at a time. Numbers are little-endian.

/// The word on the kernel's command line that says which port the tree has.
pub const WORD: &str = "ebb.root";
/// The word that says, by whatever value, that the guest's own `/tmp` has the tree's below it: something of it is to be seen.
pub const WORD_FOR_TMP: &str = "ebb.root_tmp";
/// The file of the archive that has the program's working folder.
pub const FOLDER: &str = "/.ebb/cwd";

/// The longest path.
pub const PATH_MAX: usize = 4095;
/// The most frames of one question.
pub const FRAMES_MAX: usize = 64;
/// The longest question, be it about a volume ([`crate::volume`]).
pub const QUESTION_MAX: usize = QUESTION_HEADER + PATH_MAX + FRAMES_MAX * 8 + 512;
/// The longest answer.
pub const ANSWER_MAX: usize = 32 << 10;
/// Bytes of a frame.
pub const FRAME: usize = 4096;
/// The most bytes that the names of folders take whose entries may come along.
pub const BESIDE_MAX: usize = FRAMES_MAX * 8;
/// The longest name.
pub const NAME_MAX: usize = 255;

const QUESTION_HEADER: usize = 32;
const ANSWER_HEADER: usize = 8;
const ENTRY_HEADER: usize = 4 + 48;

/// What a guest wants to know.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Ask {
    /// What stands there: [`Facts`].
    Look = 1,
    /// The same, of what a link in last place leads to.
    Follow = 2,
    /// A folder's entries, with what stands there, from a number on; once it is at their end, as far as there is room, all of
    /// those of folders beside it, each behind a heading.
    List = 3,
    /// Bytes of a file, into frames of the guest's.
    Read = 4,
}

impl Ask {
    fn from_number(number: u8) -> Option<Self> {
        [Self::Look, Self::Follow, Self::List, Self::Read]
            .into_iter()
            .find(|ask| *ask as u8 == number)
    }
}

/// A question.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Question<'a> {
    /// What about it.
    pub ask: Ask,
    /// The way there, from the tree's root: without a slash in first place; empty for the root itself.
    pub path: &'a [u8],
    /// Where a listing goes on, or the first byte to read.
    pub from: u64,
    /// The version of the file to read.
    pub version: u64,
    /// Guest-physical addresses of the frames to read to.
    pub frames: Frames<'a>,
    /// Folders beside the one to list, whose entries may come along.
    pub beside: Names<'a>,
}

/// Names of entries of one folder, at most [`BESIDE_MAX`] bytes of them: before each, a byte tells its length.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Names<'a>(&'a [u8]);

impl<'a> Names<'a> {
    /// These, which [`push_name`] has written.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether they are names to the last byte.
    fn is_whole(self) -> bool {
        self.iter().map(|name| 1 + name.len()).sum::<usize>() == self.0.len()
    }

    /// Each; ends at the first that is none.
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let (length, after) = rest.split_first()?;
            let (name, after) = after.split_at_checked(usize::from(*length))?;
            rest = after;
            Some(name)
        })
    }
}

/// Writes a name behind those in the first `len` bytes of a buffer; how many bytes there are then. `None` if there is no room.
pub fn push_name(buffer: &mut [u8], len: usize, name: &[u8]) -> Option<usize> {
    let mut to = Writer { buffer, len };
    let length = u8::try_from(name.len()).ok()?;
    // Both or nothing: the caller goes on with the length that it had.
    to.put(&[length])?;
    to.put(name)?;
    Some(to.len)
}

/// Addresses of frames, as they were sent.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Frames<'a> {
    /// Numbers.
    Addresses(&'a [u64]),
    /// The bytes of numbers.
    Sent(&'a [u8]),
}

impl Frames<'_> {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Self::Addresses(addresses) => addresses.len(),
            Self::Sent(bytes) => bytes.len() / 8,
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One of them.
    pub fn get(&self, index: usize) -> Option<u64> {
        match self {
            Self::Addresses(addresses) => addresses.get(index).copied(),
            Self::Sent(bytes) => number(bytes, index * 8),
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.len()).map_while(|index| self.get(index))
    }
}

/// What is known of a file.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device, major in the upper half.
    pub device: u64,
    /// Bytes.
    pub size: u64,
    /// Seconds since 1970 of the last change of its bytes.
    pub seconds: i64,
    /// And nanoseconds.
    pub nanos: u32,
    /// Another number if it is another file, or has changed.
    pub version: u64,
}

/// An entry of a listing, or a heading: without a name of its own, its target is the name of the folder beside the one that was asked for,
/// all of whose entries follow.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// What stands there.
    pub facts: Facts,
    /// Where a link leads.
    pub target: &'a [u8],
}

/// Bytes in a buffer that was big enough for the sender.
pub(crate) struct Writer<'a> {
    pub(crate) buffer: &'a mut [u8],
    pub(crate) len: usize,
}

impl Writer<'_> {
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.len.checked_add(bytes.len())?;
        self.buffer.get_mut(self.len..end)?.copy_from_slice(bytes);
        self.len = end;
        Some(())
    }
}

pub(crate) fn number(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

pub(crate) fn half(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

pub(crate) fn quarter(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

/// The bytes that a message has in all, which its first four tell.
pub fn length(first: [u8; 4]) -> usize {
    u32::from_le_bytes(first) as usize
}

impl<'a> Question<'a> {
    /// Writes it; how long it is. `None` if it is longer than [`QUESTION_MAX`] or the buffer.
    pub fn write(&self, buffer: &mut [u8]) -> Option<usize> {
        let beside = self.beside.0;
        if self.path.len() > PATH_MAX || self.frames.len() > FRAMES_MAX || beside.len() > BESIDE_MAX
        {
            return None;
        }
        let length = QUESTION_HEADER + self.path.len() + self.frames.len() * 8 + beside.len();
        let mut to = Writer { buffer, len: 0 };
        to.put(&u32::try_from(length).ok()?.to_le_bytes())?;
        to.put(&[self.ask as u8, 0])?;
        to.put(&u16::try_from(self.path.len()).ok()?.to_le_bytes())?;
        to.put(&self.from.to_le_bytes())?;
        to.put(&self.version.to_le_bytes())?;
        to.put(&(self.frames.len() as u64).to_le_bytes())?;
        to.put(self.path)?;
        for index in 0..self.frames.len() {
            to.put(&self.frames.get(index)?.to_le_bytes())?;
        }
        to.put(beside)?;
        Some(to.len)
    }

    /// What was written so. `None` if it cannot have been.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() > QUESTION_MAX || half(bytes, 0)? as usize != bytes.len() {
            return None;
        }
        let ask = Ask::from_number(*bytes.get(4)?)?;
        let path_end = QUESTION_HEADER + usize::from(quarter(bytes, 6)?);
        let frames = usize::try_from(number(bytes, 24)?).ok()?;
        let path = bytes.get(QUESTION_HEADER..path_end)?;
        let (sent, beside) = bytes
            .get(path_end..)?
            .split_at_checked(frames.checked_mul(8)?)?;
        let beside = Names(beside);
        let fits = path.len() <= PATH_MAX
            && frames <= FRAMES_MAX
            && beside.0.len() <= BESIDE_MAX
            && beside.is_whole();
        fits.then_some(Self {
            ask,
            path,
            from: number(bytes, 8)?,
            version: number(bytes, 16)?,
            frames: Frames::Sent(sent),
            beside,
        })
    }
}

impl Facts {
    fn write(&self, to: &mut Writer<'_>) -> Option<()> {
        to.put(&self.mode.to_le_bytes())?;
        to.put(&self.uid.to_le_bytes())?;
        to.put(&self.gid.to_le_bytes())?;
        to.put(&self.device.to_le_bytes())?;
        to.put(&self.size.to_le_bytes())?;
        to.put(&self.seconds.to_le_bytes())?;
        to.put(&self.nanos.to_le_bytes())?;
        to.put(&self.version.to_le_bytes())
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            mode: half(bytes, 0)?,
            uid: half(bytes, 4)?,
            gid: half(bytes, 8)?,
            device: number(bytes, 12)?,
            size: number(bytes, 20)?,
            seconds: number(bytes, 28)?.cast_signed(),
            nanos: half(bytes, 36)?,
            version: number(bytes, 40)?,
        })
    }
}

/// An answer that is being written: a status, then entries, or a number.
#[derive(Debug)]
pub struct Answer<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

/// A place in an answer.
#[derive(Copy, Clone, Debug)]
pub struct Mark(usize);

/// Where a number of an answer stands.
#[derive(Copy, Clone, Debug)]
pub struct Later(usize);

impl<'a> Answer<'a> {
    /// Nothing yet.
    ///
    /// # Panics
    /// If the buffer is shorter than [`ANSWER_MAX`].
    pub fn new(buffer: &'a mut [u8]) -> Self {
        assert!(buffer.len() >= ANSWER_MAX, "an answer has its full room");
        Self {
            buffer,
            len: ANSWER_HEADER,
        }
    }

    /// Adds an entry; false if there is no room for it.
    pub fn entry(&mut self, entry: &Entry<'_>) -> bool {
        let mut to = Writer {
            buffer: &mut self.buffer[..ANSWER_MAX],
            len: self.len,
        };
        let written = (|| {
            to.put(&u16::try_from(entry.name.len()).ok()?.to_le_bytes())?;
            to.put(&u16::try_from(entry.target.len()).ok()?.to_le_bytes())?;
            entry.facts.write(&mut to)?;
            to.put(entry.name)?;
            to.put(entry.target)
        })();
        if written.is_some() {
            self.len = to.len;
        }
        written.is_some()
    }

    /// Adds the heading of another folder's entries.
    pub fn heading(&mut self, name: &[u8]) -> bool {
        self.entry(&Entry {
            name: b"",
            facts: Facts::default(),
            target: name,
        })
    }

    /// Whether an entry surely fits behind a heading, but for one of a link that leads far.
    pub fn has_room_for_an_entry(&self) -> bool {
        self.len + 2 * (ENTRY_HEADER + NAME_MAX) <= ANSWER_MAX
    }

    /// What there is so far.
    pub fn mark(&self) -> Mark {
        Mark(self.len)
    }

    /// Takes all back that was added since.
    pub fn back_to(&mut self, mark: Mark) {
        self.len = self.len.min(mark.0);
    }

    /// Adds a number that is not known yet, 0 until [`Self::put`] says it.
    pub fn later(&mut self) -> Later {
        let at = self.len;
        self.number(0);
        Later(at)
    }

    /// Says a number that was added before.
    pub fn put(&mut self, later: Later, number: u64) {
        if let Some(bytes) = self.buffer.get_mut(later.0..later.0 + 8) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
    }

    /// Adds a number.
    pub fn number(&mut self, number: u64) {
        let mut to = Writer {
            buffer: self.buffer,
            len: self.len,
        };
        if to.put(&number.to_le_bytes()).is_some() {
            self.len = to.len;
        }
    }

    /// The answer with this status, an error of Linux's or 0. With an error it has nothing else.
    pub fn finish(self, status: u32) -> &'a [u8] {
        let len = if status == 0 { self.len } else { ANSWER_HEADER };
        let head = u32::try_from(len).unwrap_or(0);
        self.buffer[..4].copy_from_slice(&head.to_le_bytes());
        self.buffer[4..8].copy_from_slice(&status.to_le_bytes());
        &self.buffer[..len]
    }
}

/// An answer: the status, and what follows. `None` if it is none.
pub fn answer(bytes: &[u8]) -> Option<(u32, &[u8])> {
    if half(bytes, 0)? as usize != bytes.len() {
        return None;
    }
    Some((half(bytes, 4)?, bytes.get(ANSWER_HEADER..)?))
}

/// The number that an answer begins with, and the rest.
pub fn leading_number(rest: &[u8]) -> Option<(u64, &[u8])> {
    Some((number(rest, 0)?, rest.get(8..)?))
}

/// The entries of an answer; it ends at the first that is none.
pub fn entries(rest: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    let mut rest = rest;
    core::iter::from_fn(move || {
        let (name, target) = (quarter(rest, 0)?.into(), usize::from(quarter(rest, 2)?));
        let facts = Facts::read(rest.get(4..)?)?;
        let after = rest.get(ENTRY_HEADER..)?;
        let (name, after) = after.split_at_checked(name)?;
        let (target, after) = after.split_at_checked(target)?;
        rest = after;
        Some(Entry {
            name,
            facts,
            target,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{vec, vec::Vec};

    const FACTS_OF_ONE: Facts = Facts {
        mode: 0o100_644,
        uid: 1,
        gid: 2,
        device: 0x8_0000_0001,
        size: 1 << 40,
        seconds: -3,
        nanos: 999_999_999,
        version: u64::MAX,
    };

    #[test]
    fn questions_are_read_as_they_are_written() {
        let addresses = [0x1000, u64::MAX - 4095];
        let question = Question {
            ask: Ask::Read,
            path: b"usr/lib/x",
            from: 8192,
            version: 77,
            frames: Frames::Addresses(&addresses),
            beside: Names::new(b"\x03abc\x01d"),
        };
        let mut buffer = [0; QUESTION_MAX];
        let len = question.write(&mut buffer).unwrap();
        assert_eq!(length(buffer[..4].try_into().unwrap()), len);
        let read = Question::read(&buffer[..len]).unwrap();
        assert_eq!(
            (read.ask, read.path, read.from, read.version),
            (Ask::Read, question.path, 8192, 77)
        );
        assert_eq!(
            (0..3).map(|i| read.frames.get(i)).collect::<Vec<_>>(),
            [Some(addresses[0]), Some(addresses[1]), None]
        );
        let beside: Vec<_> = read.beside.iter().collect();
        assert_eq!(beside, [&b"abc"[..], b"d"]);
        for len in 0..len {
            assert_eq!(Question::read(&buffer[..len]), None, "{len} bytes");
        }
        for (at, byte) in [(4, 0), (4, 5), (6, 10), (24, 3), (31, 0x80)] {
            let mut bad = buffer;
            bad[at] = byte;
            assert_eq!(Question::read(&bad[..len]), None, "byte {at} is {byte}");
        }
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        let mut buffer = [0xff; BESIDE_MAX];
        let mut len = 0;
        let names = [&[b'x'; NAME_MAX][..], b"y", &[b'z'; 253]];
        for name in names {
            len = push_name(&mut buffer, len, name).unwrap();
        }
        assert_eq!(push_name(&mut buffer, len, b"z"), None);
        let read: Vec<_> = Names::new(&buffer[..len]).iter().collect();
        assert_eq!(read, names);
        // One that is cut off is none.
        let cut = Names::new(&buffer[..len - 1]);
        assert_eq!(cut.iter().count(), 2);
        assert_eq!(push_name(&mut [0; 300], 0, &[0; NAME_MAX + 1]), None);
    }

    #[test]
    fn what_does_not_fit_is_taken_back() {
        let mut buffer = vec![0; ANSWER_MAX];
        let mut writing = Answer::new(&mut buffer);
        writing.number(0);
        let mark = writing.mark();
        assert!(writing.heading(b"beside"));
        writing.back_to(mark);
        assert!(writing.heading(b"other"));
        let (_, rest) = answer(writing.finish(0)).unwrap();
        let (_, rest) = leading_number(rest).unwrap();
        let read: Vec<_> = entries(rest)
            .map(|entry| (entry.name, entry.target))
            .collect();
        assert_eq!(read, [(&b""[..], &b"other"[..])]);
    }

    #[test]
    fn too_much_is_not_written() {
        let question = |path, frames| Question {
            ask: Ask::Look,
            path,
            from: 0,
            version: 0,
            frames: Frames::Addresses(frames),
            beside: Names::default(),
        };
        let mut buffer = [0; QUESTION_MAX + 8];
        let path = [b'x'; PATH_MAX + 1];
        let frames = [0; FRAMES_MAX + 1];
        assert_eq!(question(&path, &[]).write(&mut buffer), None);
        assert_eq!(question(b"", &frames).write(&mut buffer), None);
        let most = question(&path[1..], &frames[1..]);
        let len = most.write(&mut buffer).unwrap();
        assert!(len <= QUESTION_MAX);
        assert_eq!(most.write(&mut buffer[..len - 1]), None);
    }

    #[test]
    fn answers_are_read_as_they_are_written() {
        let mut buffer = vec![0; ANSWER_MAX];
        let mut writing = Answer::new(&mut buffer);
        let later = writing.later();
        let entry = Entry {
            name: b"link",
            facts: FACTS_OF_ONE,
            target: b"where it leads",
        };
        let mut written = 0;
        while writing.entry(&entry) {
            written += 1;
        }
        writing.put(later, 5);
        let bytes = writing.finish(0).to_vec();
        assert!(bytes.len() <= ANSWER_MAX && written > 300);
        let (status, rest) = answer(&bytes).unwrap();
        let (number, rest) = leading_number(rest).unwrap();
        assert_eq!((status, number), (0, 5));
        assert_eq!(entries(rest).count(), written);
        assert!(entries(rest).all(|read| read == entry));
        assert_eq!(entries(&rest[..rest.len() - 1]).count(), written - 1);
        assert_eq!(answer(&bytes[1..]), None);
        let mut writing = Answer::new(&mut buffer);
        writing.number(5);
        assert_eq!(answer(writing.finish(2)), Some((2, &[][..])));
    }
}
