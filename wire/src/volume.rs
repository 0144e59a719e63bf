//! The messages by which a guest uses volumes: folders of the host that it may read and write. The
//! guest (Ebb's kernel, or `ebb-init` on Linux) sends requests, and `ebb` on the host answers, over
//! the port of the host's file tree ([`crate::root`]).
//!
//! A request names a file by a handle that the host has issued. The guest looks names up one by
//! one, from the volume's top folder on, so no path can lead out of the volume. The host counts how
//! often it issued a handle. The handle is valid until [`Opcode::Forget`] has returned all of them.

use crate::root::{Frames, Writer, u16_at, u32_at, u64_at};

/// The kernel parameter whose value is the number of the port for requests about volumes. Absent if
/// there are no volumes.
pub const PARAMETER: &str = "ebb.volumes";
/// The file of the initramfs with the list of volumes. Each has three strings, each ended by a NUL:
/// `ro` or `rw`, its path in the guest, and its path on the host.
pub const LIST: &str = "/.ebb/volumes";
/// The largest number of volumes of one guest.
pub const VOLUMES_MAX: usize = 64;

/// The largest length in bytes of the name in a request.
pub const NAME_MAX: usize = 255;
/// The largest length in bytes of the target in a request: the target of a link, or a new name.
pub const TARGET_MAX: usize = 4095;
/// How many numbers each request has. Those that its kind does not use are 0.
pub const NUMBERS: usize = 6;
/// The largest size in bytes of a request, header included.
pub const REQUEST_MAX: usize = HEADER + NAME_MAX + TARGET_MAX + crate::root::FRAMES_MAX * 8;

const HEADER: usize = 4 + 1 + 1 + 2 + 2 + 2 + 4 + 8 + NUMBERS * 8;

/// The smallest number of an [`Opcode`]. A message whose byte after the length has this value or a
/// larger one is a request for a volume. Smaller values are questions of [`crate::root`].
pub const FIRST: u8 = 16;

/// The kind of a request about a volume. Each variant lists what the request's numbers mean, in
/// order, and what the answer holds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// Looks up the top folder of a volume, whose number is passed instead of a handle. The answer
    /// is [`Attributes`], then the host's time in nanoseconds since 1970. The guest sets its clock
    /// by it, since the files have the host's times.
    Top = FIRST,
    /// Looks up a name in a folder. The answer is [`Attributes`], and the host counts the handle in
    /// them as issued.
    Lookup,
    /// The answer is the [`Attributes`] of the file.
    GetAttributes,
    /// Lists names of a folder. Number: the index of the first one. The answer begins with the
    /// index to continue from, or 0 at the end.
    List,
    /// The answer is the target of a link.
    ReadLink,
    /// Changes attributes. Numbers: [`change`] bits, mode, size, and the seconds and nanoseconds of
    /// a time. The answer is [`Attributes`].
    SetAttributes,
    /// Creates a file. Number: its mode. The answer is as for [`Opcode::Lookup`]. Fails with
    /// `EEXIST` if the name exists.
    CreateFile,
    /// Creates a folder. Number: its mode. Answer and failure are as for [`Opcode::CreateFile`].
    CreateFolder,
    /// Creates a symbolic link to the target. Answer and failure are as for [`Opcode::CreateFile`].
    CreateSymlink,
    /// Adds a name (a hard link) for an existing file. Number: that file's handle. The answer is
    /// [`Attributes`].
    CreateLink,
    /// Removes a name of a file.
    Unlink,
    /// Removes an empty folder.
    RemoveFolder,
    /// Renames the name to the request's target. Numbers: the handle of the new folder, and the
    /// flags of `renameat2`.
    Rename,
    /// Checks that the file can be opened. Number: 1 to read, 2 to write, 3 for both.
    Open,
    /// Reads bytes into frames. Number: the offset. The answer is [`Attributes`] and the number of
    /// bytes.
    Read,
    /// Writes bytes from frames. Numbers: the offset in the file, the offset in the first frame,
    /// the number of bytes, and whether to append. The answer is [`Attributes`], the number of
    /// bytes written, and their offset in the file.
    Write,
    /// Writes the file's data to stable storage.
    Sync,
    /// Tells the host that the guest no longer has the file open.
    Close,
    /// Returns a handle. Number: how many of its counts to return.
    Forget,
    /// The answer is six numbers of `statfs`: block size, blocks, free blocks, available blocks,
    /// files, free files.
    StatFs,
}

/// The bits in the first number of [`Opcode::SetAttributes`]: the attributes to change.
pub mod change {
    /// Bit: change the permissions, to the second number.
    pub const MODE: u64 = 1;
    /// Bit: change the size, to the third number in bytes.
    pub const SIZE: u64 = 2;
    /// Bit: change the time of the last read, to the time in the fourth and fifth number.
    pub const ACCESSED: u64 = 4;
    /// Bit: change the time of the last write, to the time in the fourth and fifth number.
    pub const MODIFIED: u64 = 8;
}

impl Opcode {
    fn from_number(number: u8) -> Option<Self> {
        const ALL: [Opcode; 20] = [
            Opcode::Top,
            Opcode::Lookup,
            Opcode::GetAttributes,
            Opcode::List,
            Opcode::ReadLink,
            Opcode::SetAttributes,
            Opcode::CreateFile,
            Opcode::CreateFolder,
            Opcode::CreateSymlink,
            Opcode::CreateLink,
            Opcode::Unlink,
            Opcode::RemoveFolder,
            Opcode::Rename,
            Opcode::Open,
            Opcode::Read,
            Opcode::Write,
            Opcode::Sync,
            Opcode::Close,
            Opcode::Forget,
            Opcode::StatFs,
        ];
        ALL.into_iter().find(|opcode| *opcode as u8 == number)
    }
}

/// A request from the guest about a file of a volume.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The kind of the request.
    pub opcode: Opcode,
    /// The handle of the file, or of the folder that has `name`.
    pub handle: u64,
    /// Numbers whose meaning depends on [`Opcode`].
    pub numbers: [u64; NUMBERS],
    /// A name in the folder.
    pub name: &'a [u8],
    /// The target of a link, or the new name of [`Opcode::Rename`].
    pub target: &'a [u8],
    /// Guest-physical addresses of the frames to read into or write from.
    pub frames: Frames<'a>,
}

impl<'a> Request<'a> {
    /// Returns a request about the file `handle`. All numbers are 0; the name, the target and the
    /// list of frames are empty.
    pub fn new(opcode: Opcode, handle: u64) -> Self {
        Self {
            opcode,
            handle,
            numbers: [0; NUMBERS],
            name: b"",
            target: b"",
            frames: Frames::Addresses(&[]),
        }
    }

    /// Writes the request into `buffer` and returns its length in bytes. Returns `None` if the
    /// name, the target or the frames exceed their limit ([`NAME_MAX`], [`TARGET_MAX`],
    /// [`FRAMES_MAX`](crate::root::FRAMES_MAX)) or the buffer is too small.
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
        to.put(&[self.opcode as u8, 0])?;
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

    /// Reads a request that [`write`](Self::write) has written. Returns `None` if `bytes` is not
    /// exactly one request: the length differs, the kind is unknown, or a part exceeds its limit.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() > REQUEST_MAX || u32_at(bytes, 0)? as usize != bytes.len() {
            return None;
        }
        let opcode = Opcode::from_number(*bytes.get(4)?)?;
        let (name, target) = (u16_at(bytes, 6)?.into(), usize::from(u16_at(bytes, 8)?));
        let frames = usize::from(u16_at(bytes, 10)?);
        let mut numbers = [0; NUMBERS];
        for (at, place) in (24..).step_by(8).zip(&mut numbers) {
            *place = u64_at(bytes, at)?;
        }
        let (name, rest) = bytes.get(HEADER..)?.split_at_checked(name)?;
        let (target, sent) = rest.split_at_checked(target)?;
        let fits = name.len() <= NAME_MAX
            && target.len() <= TARGET_MAX
            && frames <= crate::root::FRAMES_MAX
            && sent.len() == frames * 8;
        fits.then_some(Self {
            opcode,
            handle: u64_at(bytes, 16)?,
            numbers,
            name,
            target,
            frames: Frames::Sent(sent),
        })
    }
}

/// The number of numbers that encode [`Attributes`].
const ATTRIBUTES: usize = 16;

/// The attributes of a file of a volume.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The handle that the host has issued for the file.
    pub handle: u64,
    /// The inode number, which identifies the file within the volume.
    pub inode: u64,
    /// File type and permissions, as in `st_mode`.
    pub mode: u64,
    /// Number of names (hard links).
    pub links: u64,
    /// User ID of the owner.
    pub uid: u64,
    /// ID of the group.
    pub gid: u64,
    /// Size in bytes.
    pub size: u64,
    /// Disk space that the file takes, in units of 512 bytes.
    pub blocks: u64,
    /// Seconds and nanoseconds since 1970 of the last read, the last write, and the last change of
    /// attributes.
    pub times: [(i64, u64); 3],
    /// A number that differs if the file has changed.
    pub version: u64,
    /// The `version` before this request changed the file.
    pub version_before: u64,
}

impl Attributes {
    fn numbers(&self) -> [u64; ATTRIBUTES] {
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

    /// Appends the attributes to `answer`. Numbers for which the answer has no space are left out,
    /// without any sign of it.
    pub fn write(&self, answer: &mut crate::root::Answer<'_>) {
        for number in self.numbers() {
            answer.number(number);
        }
    }

    /// Reads the attributes at the start of `rest`, the contents of an answer. Returns them and the
    /// bytes after them. Returns `None` if `rest` is too short.
    pub fn read(rest: &[u8]) -> Option<(Self, &[u8])> {
        let at = |index: usize| u64_at(rest, index * 8);
        let time = |index| Some((at(index)?.cast_signed(), at(index + 1)?));
        let attributes = Self {
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
        Some((attributes, rest.get(ATTRIBUTES * 8..)?))
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
            ..Request::new(Opcode::Rename, 77)
        };
        let mut buffer = [0; REQUEST_MAX];
        let len = request.write(&mut buffer).unwrap();
        let read = Request::read(&buffer[..len]).unwrap();
        assert_eq!((read.opcode, read.handle), (Opcode::Rename, 77));
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
            ..Request::new(Opcode::CreateSymlink, 0)
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
        let attributes = Attributes {
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
        attributes.write(&mut writing);
        writing.number(99);
        let (_, rest) = answer(writing.finish(0)).unwrap();
        let (read, rest) = Attributes::read(rest).unwrap();
        assert_eq!((read, rest.len()), (attributes, 8));
        assert_eq!(Attributes::read(&rest[..7]), None);
    }
}
