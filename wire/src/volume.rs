//! Volumes: folders of the host's that a guest reads and writes. Requests of the guest's kernel, answers of `ebb`, over the port
//! that the host's tree has ([`crate::root`]).
//!
//! A file is named by a handle that the host gave for it: the guest asks for names one by one, from a volume's own folder on, so
//! there is no path that could lead elsewhere. A handle is good until it is given back as often as it was given.

use crate::root::{Frames, Writer, half, number, quarter};

/// The word on the kernel's command line that says which port the volumes have.
pub const WORD: &str = "ebb.volumes";
/// The file of the archive that lists them: three strings each, `ro` or `rw`, where the guest sees it, and what it is on the host.
pub const LIST: &str = "/.ebb/volumes";
/// The most volumes.
pub const VOLUMES_MAX: usize = 64;

/// The longest name.
pub const NAME_MAX: usize = 255;
/// The longest target of a link.
pub const TARGET_MAX: usize = 4095;
/// Numbers of a request.
pub const NUMBERS: usize = 6;
/// The longest request.
pub const REQUEST_MAX: usize = HEADER + NAME_MAX + TARGET_MAX + crate::root::FRAMES_MAX * 8;

const HEADER: usize = 4 + 1 + 1 + 2 + 2 + 2 + 4 + 8 + NUMBERS * 8;

/// The first byte behind the length from which on it is a request for a volume.
pub const FIRST: u8 = 16;

/// What a guest wants of a file. What the numbers of a [`Request`] are stands with each, in order.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Ask {
    /// The folder of the volume with this number, in place of a handle: [`Facts`], and the nanoseconds since 1970, so that the
    /// guest's clock goes as the host's, whose times files have.
    Top = FIRST,
    /// What has a name in a folder: [`Facts`], with a handle that is given by this.
    Look,
    /// [`Facts`].
    Facts,
    /// Names in a folder; which one is the first.
    List,
    /// Where a link leads.
    Target,
    /// Changes attributes: [`change`] bits; mode; size; seconds and nanoseconds of a time. [`Facts`].
    Change,
    /// Makes a file of a mode, as [`Ask::Look`]; `EEXIST` if there is one.
    File,
    /// Makes a folder of a mode, likewise.
    Folder,
    /// Makes a link to the target, likewise.
    Link,
    /// Gives the file whose handle is the number a further name. [`Facts`].
    Name,
    /// Takes the name of a file away.
    Unlink,
    /// Removes an empty folder.
    RemoveFolder,
    /// Renames to the name that the target is, in the folder of the first number; flags of `renameat2`.
    Rename,
    /// Whether it can be opened: bits 1 to read, 2 to write.
    Open,
    /// Bytes from an offset on, into frames. [`Facts`], and the count.
    Read,
    /// Bytes out of frames: the offset, the first byte in the first frame, the count, and whether they go to the end. [`Facts`], the
    /// count, and where they went.
    Write,
    /// Has it be stable.
    Sync,
    /// Nobody has it open any more.
    Close,
    /// Gives a handle back, so often.
    Forget,
    /// What `statfs` tells: block size, blocks, free, available, files, free files.
    Room,
}

/// What [`Ask::Change`] changes.
pub mod change {
    /// The permissions.
    pub const MODE: u64 = 1;
    /// The size.
    pub const SIZE: u64 = 2;
    /// When it was read last.
    pub const ACCESSED: u64 = 4;
    /// When it was written last.
    pub const MODIFIED: u64 = 8;
}

impl Ask {
    fn from_number(number: u8) -> Option<Self> {
        const ALL: [Ask; 20] = [
            Ask::Top,
            Ask::Look,
            Ask::Facts,
            Ask::List,
            Ask::Target,
            Ask::Change,
            Ask::File,
            Ask::Folder,
            Ask::Link,
            Ask::Name,
            Ask::Unlink,
            Ask::RemoveFolder,
            Ask::Rename,
            Ask::Open,
            Ask::Read,
            Ask::Write,
            Ask::Sync,
            Ask::Close,
            Ask::Forget,
            Ask::Room,
        ];
        ALL.into_iter().find(|ask| *ask as u8 == number)
    }
}

/// A request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// What about it.
    pub ask: Ask,
    /// The file, or the folder that a name is in.
    pub handle: u64,
    /// As [`Ask`] says.
    pub numbers: [u64; NUMBERS],
    /// A name in the folder.
    pub name: &'a [u8],
    /// Where a link leads, or another name.
    pub target: &'a [u8],
    /// Guest-physical addresses of frames.
    pub frames: Frames<'a>,
}

impl<'a> Request<'a> {
    /// About a file, with nothing else.
    pub fn new(ask: Ask, handle: u64) -> Self {
        Self {
            ask,
            handle,
            numbers: [0; NUMBERS],
            name: b"",
            target: b"",
            frames: Frames::Addresses(&[]),
        }
    }

    /// Writes it; how long it is. `None` if it is longer than may be, or than the buffer.
    pub fn write(&self, buffer: &mut [u8]) -> Option<usize> {
        let fits = self.name.len() <= NAME_MAX
            && self.target.len() <= TARGET_MAX
            && self.frames.len() <= crate::root::FRAMES_MAX;
        if !fits {
            return None;
        }
        let length = HEADER + self.name.len() + self.target.len() + self.frames.len() * 8;
        let mut to = Writer { buffer, len: 0 };
        to.put(&u32::try_from(length).ok()?.to_le_bytes())?;
        to.put(&[self.ask as u8, 0])?;
        for len in [self.name.len(), self.target.len(), self.frames.len()] {
            to.put(&u16::try_from(len).ok()?.to_le_bytes())?;
        }
        to.put(&[0; 4])?;
        to.put(&self.handle.to_le_bytes())?;
        for number in self.numbers {
            to.put(&number.to_le_bytes())?;
        }
        to.put(self.name)?;
        to.put(self.target)?;
        for index in 0..self.frames.len() {
            to.put(&self.frames.get(index)?.to_le_bytes())?;
        }
        Some(to.len)
    }

    /// What was written so. `None` if it cannot have been.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() > REQUEST_MAX || half(bytes, 0)? as usize != bytes.len() {
            return None;
        }
        let ask = Ask::from_number(*bytes.get(4)?)?;
        let (name, target) = (quarter(bytes, 6)?.into(), usize::from(quarter(bytes, 8)?));
        let frames = usize::from(quarter(bytes, 10)?);
        let mut numbers = [0; NUMBERS];
        for (at, place) in (24..).step_by(8).zip(&mut numbers) {
            *place = number(bytes, at)?;
        }
        let (name, rest) = bytes.get(HEADER..)?.split_at_checked(name)?;
        let (target, sent) = rest.split_at_checked(target)?;
        let fits = name.len() <= NAME_MAX
            && target.len() <= TARGET_MAX
            && frames <= crate::root::FRAMES_MAX
            && sent.len() == frames * 8;
        fits.then_some(Self {
            ask,
            handle: number(bytes, 16)?,
            numbers,
            name,
            target,
            frames: Frames::Sent(sent),
        })
    }
}

/// Numbers of [`Facts`].
const FACTS: usize = 16;

/// What is known of a file.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The handle.
    pub handle: u64,
    /// The number that tells it from others of the volume.
    pub inode: u64,
    /// `st_mode`.
    pub mode: u64,
    /// Names.
    pub links: u64,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes that it takes.
    pub blocks: u64,
    /// Seconds and nanoseconds of the last read, the last change of its bytes, and of anything.
    pub times: [(i64, u64); 3],
    /// Another number if it has changed.
    pub version: u64,
    /// What that was before this request changed it.
    pub version_before: u64,
}

impl Facts {
    fn numbers(&self) -> [u64; FACTS] {
        let [accessed, modified, changed] = self.times;
        [
            self.handle,
            self.inode,
            self.mode,
            self.links,
            self.uid,
            self.gid,
            self.size,
            self.blocks,
            accessed.0.cast_unsigned(),
            accessed.1,
            modified.0.cast_unsigned(),
            modified.1,
            changed.0.cast_unsigned(),
            changed.1,
            self.version,
            self.version_before,
        ]
    }

    /// Adds it to an answer.
    pub fn write(&self, answer: &mut crate::root::Answer<'_>) {
        for number in self.numbers() {
            answer.number(number);
        }
    }

    /// Reads it from an answer, and the rest.
    pub fn read(rest: &[u8]) -> Option<(Self, &[u8])> {
        let at = |index: usize| number(rest, index * 8);
        let time = |index| Some((at(index)?.cast_signed(), at(index + 1)?));
        let facts = Self {
            handle: at(0)?,
            inode: at(1)?,
            mode: at(2)?,
            links: at(3)?,
            uid: at(4)?,
            gid: at(5)?,
            size: at(6)?,
            blocks: at(7)?,
            times: [time(8)?, time(10)?, time(12)?],
            version: at(14)?,
            version_before: at(15)?,
        };
        Some((facts, rest.get(FACTS * 8..)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::{ANSWER_MAX, Answer, QUESTION_MAX, answer};
    use std::vec;

    #[test]
    fn requests_are_read_as_they_are_written() {
        let addresses = [0x1000, 0x2000];
        let request = Request {
            numbers: [1, 2, 3, u64::MAX, 5, 6],
            name: b"name",
            target: b"target",
            frames: Frames::Addresses(&addresses),
            ..Request::new(Ask::Rename, 77)
        };
        let mut buffer = [0; REQUEST_MAX];
        let len = request.write(&mut buffer).unwrap();
        let read = Request::read(&buffer[..len]).unwrap();
        assert_eq!((read.ask, read.handle), (Ask::Rename, 77));
        assert_eq!(read.numbers, request.numbers);
        assert_eq!((read.name, read.target), (request.name, request.target));
        assert_eq!(read.frames.get(1), Some(0x2000));
        for len in 0..len {
            assert_eq!(Request::read(&buffer[..len]), None, "{len} bytes");
        }
        for (at, byte) in [(4, 15), (4, 36), (6, 9), (10, 3), (11, 1)] {
            let mut bad = buffer;
            bad[at] = byte;
            assert_eq!(Request::read(&bad[..len]), None, "byte {at} is {byte}");
        }
    }

    #[test]
    fn requests_have_room_where_questions_have() {
        let most = [b'x'; TARGET_MAX];
        let request = Request {
            name: &most[..NAME_MAX],
            target: &most,
            frames: Frames::Addresses(&[0; crate::root::FRAMES_MAX]),
            ..Request::new(Ask::Link, 0)
        };
        let mut buffer = [0; REQUEST_MAX];
        assert_eq!(request.write(&mut buffer), Some(REQUEST_MAX));
        const { assert!(REQUEST_MAX <= QUESTION_MAX) };
        let long = Request {
            name: &most[..=NAME_MAX],
            ..request
        };
        assert_eq!(long.write(&mut buffer), None);
    }

    #[test]
    fn facts_are_read_as_they_are_written() {
        let facts = Facts {
            handle: 1,
            inode: 2,
            mode: 3,
            links: 4,
            uid: 5,
            gid: 6,
            size: 7,
            blocks: 8,
            times: [(-9, 10), (11, 12), (13, 14)],
            version: 15,
            version_before: 16,
        };
        let mut buffer = vec![0; ANSWER_MAX];
        let mut writing = Answer::new(&mut buffer);
        facts.write(&mut writing);
        writing.number(99);
        let (_, rest) = answer(writing.finish(0)).unwrap();
        let (read, rest) = Facts::read(rest).unwrap();
        assert_eq!((read, rest.len()), (facts, 8));
        assert_eq!(Facts::read(&rest[..7]), None);
    }
}
