//! The messages by which a guest reads a tree of the host's files, the lower layer of its root file
//! system. The guest (Ebb's kernel, or `ebb-init` on Linux) sends questions, and `ebb` on the host
//! answers.
//!
//! The guest names files by their paths in the tree, and names the frames into which their bytes
//! are to be read. So the host keeps no state between questions, and no byte of a file passes
//! through QEMU. A question for bytes names the version of the file that the guest knows; the host
//! refuses to read another version.
//!
//! Only one question is in flight at a time. Numbers are little-endian.

/// The kernel parameter whose value is the number of the port for questions about the host's tree
/// of files. Absent if the guest's root has no such tree.
pub const PARAMETER: &str = "ebb.root";
/// The kernel parameter, with any value, that makes the `/tmp` of the host's tree the lower layer
/// of the guest's own `/tmp`. For Ebb's kernel. In Linux guests, `/tmp` is a folder of the root.
pub const TMP_PARAMETER: &str = "ebb.root_tmp";
/// The file of the initramfs with the absolute path of the program's working folder in the guest,
/// without a NUL. Exists only if the guest's root has a tree of files; else the program starts in
/// the root.
pub const FOLDER: &str = "/.ebb/cwd";

/// The largest length in bytes of the path in a question.
pub const PATH_MAX: usize = 4095;
/// The largest number of frames in one question, and in one request for a volume.
pub const FRAMES_MAX: usize = 64;
/// The largest size in bytes of a question or of a request for a volume ([`crate::volume`]), header
/// included.
pub const QUESTION_MAX: usize = QUESTION_HEADER + PATH_MAX + FRAMES_MAX * 8 + 512;
/// The largest size in bytes of an answer, header included. Also for volumes.
pub const ANSWER_MAX: usize = 32 << 10;
/// Size in bytes of a frame of guest memory, as in [`Frames`].
pub const FRAME: usize = 4096;
/// The largest size in bytes of the list of sibling folders in one question
/// ([`Question::siblings`]), the length bytes included.
pub const SIBLINGS_MAX: usize = FRAMES_MAX * 8;
/// The largest length in bytes of the name of a file in its folder.
pub const NAME_MAX: usize = 255;

const QUESTION_HEADER: usize = 32;
const ANSWER_HEADER: usize = 8;
const ENTRY_HEADER: usize = 4 + 48;

/// The kind of a question about a file of the host's tree.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// Asks for the [`Attributes`] of the file at the path, without following a symbolic link at
    /// its end.
    Lookup = 1,
    /// Asks for the [`Attributes`] of the file at the path, following a symbolic link at its end.
    Follow = 2,
    /// Asks for the entries of a folder with their [`Attributes`], from the index `from` on. The
    /// answer begins with the index to continue from, or 0 at the end. After the end, it also has
    /// all entries of the sibling folders `siblings`, each behind a heading, as far as the answer
    /// has space.
    List = 3,
    /// Asks the host to read bytes of a file into frames of the guest. The answer is the number of
    /// bytes.
    Read = 4,
}

impl Opcode {
    fn from_number(number: u8) -> Option<Self> {
        [Self::Lookup, Self::Follow, Self::List, Self::Read]
            .into_iter()
            .find(|opcode| *opcode as u8 == number)
    }
}

/// A question from the guest about a file of the host's tree.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Question<'a> {
    /// The kind of the question.
    pub opcode: Opcode,
    /// The path from the tree's root, without a leading slash. Empty for the root itself.
    pub path: &'a [u8],
    /// The index of the first entry to list, or the offset of the first byte to read.
    pub from: u64,
    /// The version of the file to read ([`Attributes::version`]).
    pub version: u64,
    /// Guest-physical addresses of the frames to read into.
    pub frames: Frames<'a>,
    /// Names of sibling folders of the one to list, in the same parent folder. The host may add
    /// their entries to the answer.
    pub siblings: Names<'a>,
}

/// A list of names of files in one folder. Each name follows a byte with its length. In a question,
/// the list has at most [`SIBLINGS_MAX`] bytes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Names<'a>(&'a [u8]);

impl<'a> Names<'a> {
    /// Returns the list in `bytes`, which [`push_name`] has written. Does not check the bytes.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns whether the bytes consist of complete names only.
    fn is_whole(self) -> bool {
        self.iter().map(|name| 1 + name.len()).sum::<usize>() == self.0.len()
    }

    /// Returns the names in order. Ends at the end of the list or at the first incomplete name.
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

/// Appends `name` to the list of names in the first `len` bytes of `buffer`. Returns the new length
/// of the list in bytes. Returns `None` if the buffer is too small or `name` is longer than
/// [`NAME_MAX`]; the first `len` bytes are then unchanged.
pub fn push_name(buffer: &mut [u8], len: usize, name: &[u8]) -> Option<usize> {
    let mut to = Writer { buffer, len };
    let length = u8::try_from(name.len()).ok()?;
    // If the name does not fit after its length byte, the caller keeps its old `len`.
    to.put(&[length])?;
    to.put(name)?;
    Some(to.len)
}

/// A list of guest-physical addresses of frames.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Frames<'a> {
    /// The addresses as numbers, on the sending side.
    Addresses(&'a [u64]),
    /// The addresses as little-endian bytes of 8 each, as received.
    Sent(&'a [u8]),
}

impl Frames<'_> {
    /// Returns the number of addresses in the list.
    pub fn len(&self) -> usize {
        match self {
            Self::Addresses(addresses) => addresses.len(),
            Self::Sent(bytes) => bytes.len() / 8,
        }
    }

    /// Returns whether the list has no address.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the address at `index`, counted from 0. Returns `None` past the end.
    pub fn get(&self, index: usize) -> Option<u64> {
        match self {
            Self::Addresses(addresses) => addresses.get(index).copied(),
            Self::Sent(bytes) => u64_at(bytes, index * 8),
        }
    }

    /// Returns all addresses of the list in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.len()).map_while(|index| self.get(index))
    }
}

/// The attributes of a file of the host's tree.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// File type and permissions, as in `st_mode`.
    pub mode: u32,
    /// User ID of the owner.
    pub uid: u32,
    /// ID of the group.
    pub gid: u32,
    /// The device number of a device file, its major number in the upper 32 bits.
    pub device: u64,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change of the contents, in seconds since 1970.
    pub seconds: i64,
    /// The nanoseconds of that time.
    pub nanos: u32,
    /// A number that differs if the path names another file or the file has changed.
    pub version: u64,
}

/// An entry of a listing. An entry with an empty name is a heading: its target is the name of a
/// sibling folder ([`Question::siblings`]), and all entries of that folder follow.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The entry's name in its folder.
    pub name: &'a [u8],
    /// The entry's attributes.
    pub attributes: Attributes,
    /// The target of a symbolic link.
    pub target: &'a [u8],
}

/// A buffer and the number of bytes written to it so far.
pub(crate) struct Writer<'a> {
    pub(crate) buffer: &'a mut [u8],
    pub(crate) len: usize,
}

impl Writer<'_> {
    /// Appends `bytes`. Returns `None`, with nothing written, if the buffer has no space for them.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.len.checked_add(bytes.len())?;
        self.buffer.get_mut(self.len..end)?.copy_from_slice(bytes);
        self.len = end;
        Some(())
    }
}

/// Reads the 64-bit number at offset `at`. Returns `None` if `bytes` is too short.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Reads the 32-bit number at offset `at`. Returns `None` if `bytes` is too short.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// Reads the 16-bit number at offset `at`. Returns `None` if `bytes` is too short.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

/// Returns the length in bytes of a whole question, request or answer, from its first four bytes
/// `first`. The value comes from the sender and is not checked.
pub fn length(first: [u8; 4]) -> usize {
    u32::from_le_bytes(first) as usize
}

impl<'a> Question<'a> {
    /// Writes the question into `buffer` and returns its length in bytes. Returns `None` if the
    /// path, the frames or the siblings exceed their limit ([`PATH_MAX`], [`FRAMES_MAX`],
    /// [`SIBLINGS_MAX`]) or the buffer is too small. Part of the buffer may be overwritten
    /// nevertheless.
    pub fn write(&self, buffer: &mut [u8]) -> Option<usize> {
        let siblings = self.siblings.0;
        if self.path.len() > PATH_MAX
            || self.frames.len() > FRAMES_MAX
            || siblings.len() > SIBLINGS_MAX
        {
            return None;
        }
        let length = QUESTION_HEADER + self.path.len() + self.frames.len() * 8 + siblings.len();
        let mut to = Writer { buffer, len: 0 };
        to.put(&u32::try_from(length).ok()?.to_le_bytes())?;
        to.put(&[self.opcode as u8, 0])?;
        to.put(&u16::try_from(self.path.len()).ok()?.to_le_bytes())?;
        to.put(&self.from.to_le_bytes())?;
        to.put(&self.version.to_le_bytes())?;
        to.put(&(self.frames.len() as u64).to_le_bytes())?;
        to.put(self.path)?;
        for index in 0..self.frames.len() {
            to.put(&self.frames.get(index)?.to_le_bytes())?;
        }
        to.put(siblings)?;
        Some(to.len)
    }

    /// Reads a question that [`write`](Self::write) has written. Returns `None` if `bytes` is not
    /// exactly one question: the length differs, the kind is unknown, a part exceeds its limit, or
    /// a sibling's name is incomplete.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() > QUESTION_MAX || u32_at(bytes, 0)? as usize != bytes.len() {
            return None;
        }
        let opcode = Opcode::from_number(*bytes.get(4)?)?;
        let path_end = QUESTION_HEADER + usize::from(u16_at(bytes, 6)?);
        let frames = usize::try_from(u64_at(bytes, 24)?).ok()?;
        let path = bytes.get(QUESTION_HEADER..path_end)?;
        let (sent, siblings) = bytes
            .get(path_end..)?
            .split_at_checked(frames.checked_mul(8)?)?;
        let siblings = Names(siblings);
        let fits = path.len() <= PATH_MAX
            && frames <= FRAMES_MAX
            && siblings.0.len() <= SIBLINGS_MAX
            && siblings.is_whole();
        fits.then_some(Self {
            opcode,
            path,
            from: u64_at(bytes, 8)?,
            version: u64_at(bytes, 16)?,
            frames: Frames::Sent(sent),
            siblings,
        })
    }
}

impl Attributes {
    /// Appends the attributes in their encoded form of 48 bytes. Returns `None` if there is no
    /// space.
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

    /// Decodes the attributes at the start of `bytes`. Returns `None` if `bytes` is too short.
    fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            mode: u32_at(bytes, 0)?,
            uid: u32_at(bytes, 4)?,
            gid: u32_at(bytes, 8)?,
            device: u64_at(bytes, 12)?,
            size: u64_at(bytes, 20)?,
            seconds: u64_at(bytes, 28)?.cast_signed(),
            nanos: u32_at(bytes, 36)?,
            version: u64_at(bytes, 40)?,
        })
    }
}

/// An answer while the host writes it into a buffer: its length and status, then entries or
/// numbers.
#[derive(Debug)]
pub struct Answer<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

/// The length of an answer at one moment, to which [`Answer::truncate`] can cut it back.
#[derive(Copy, Clone, Debug)]
pub struct Position(usize);

/// The place of a number in an answer that [`Answer::fill`] sets later.
#[derive(Copy, Clone, Debug)]
pub struct Placeholder(usize);

impl<'a> Answer<'a> {
    /// Begins an empty answer in `buffer`.
    ///
    /// # Panics
    /// If `buffer` is shorter than [`ANSWER_MAX`].
    pub fn new(buffer: &'a mut [u8]) -> Self {
        assert!(buffer.len() >= ANSWER_MAX, "an answer has its full room");
        Self {
            buffer,
            len: ANSWER_HEADER,
        }
    }

    /// Appends `entry`. Returns `false`, with the answer unchanged, if fewer bytes are left of
    /// [`ANSWER_MAX`], or if the name or the target is longer than 65,535 bytes.
    pub fn entry(&mut self, entry: &Entry<'_>) -> bool {
        let mut to = Writer {
            buffer: &mut self.buffer[..ANSWER_MAX],
            len: self.len,
        };
        let written = (|| {
            to.put(&u16::try_from(entry.name.len()).ok()?.to_le_bytes())?;
            to.put(&u16::try_from(entry.target.len()).ok()?.to_le_bytes())?;
            entry.attributes.write(&mut to)?;
            to.put(entry.name)?;
            to.put(entry.target)
        })();
        if written.is_some() {
            self.len = to.len;
        }
        written.is_some()
    }

    /// Appends the heading that precedes the entries of the sibling folder `name`. Returns `false`,
    /// with the answer unchanged, if the answer has no space for it.
    pub fn heading(&mut self, name: &[u8]) -> bool {
        self.entry(&Entry {
            name: b"",
            attributes: Attributes::default(),
            target: name,
        })
    }

    /// Returns whether a heading and one entry surely fit. The name and the link target of the
    /// entry must then have at most [`NAME_MAX`] bytes together.
    pub fn has_room_for_an_entry(&self) -> bool {
        self.len + 2 * (ENTRY_HEADER + NAME_MAX) <= ANSWER_MAX
    }

    /// Returns the current end of the answer, for [`Self::truncate`].
    pub fn position(&self) -> Position {
        Position(self.len)
    }

    /// Removes everything that was appended after `position` was taken. Does nothing if the answer
    /// is shorter.
    pub fn truncate(&mut self, position: Position) {
        self.len = self.len.min(position.0);
    }

    /// Appends the number 0 and returns its place, so that [`Self::fill`] can set it later. If the
    /// answer has no space, it stays unchanged, and `fill` does nothing.
    pub fn placeholder(&mut self) -> Placeholder {
        let at = self.len;
        self.number(0);
        Placeholder(at)
    }

    /// Sets the number at `placeholder`, which [`Self::placeholder`] of the same answer has
    /// returned.
    pub fn fill(&mut self, placeholder: Placeholder, number: u64) {
        if let Some(bytes) = self.buffer.get_mut(placeholder.0..placeholder.0 + 8) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
    }

    /// Appends `number` as 8 bytes. If the buffer has no space, the answer stays unchanged, without
    /// any sign of it.
    pub fn number(&mut self, number: u64) {
        let mut to = Writer {
            buffer: self.buffer,
            len: self.len,
        };
        if to.put(&number.to_le_bytes()).is_some() {
            self.len = to.len;
        }
    }

    /// Completes the answer and returns its bytes. `status` is 0 for success or an `errno` of
    /// Linux. With an `errno`, the appended contents are left out.
    pub fn finish(self, status: u32) -> &'a [u8] {
        let len = if status == 0 { self.len } else { ANSWER_HEADER };
        let head = u32::try_from(len).unwrap_or(0);
        self.buffer[..4].copy_from_slice(&head.to_le_bytes());
        self.buffer[4..8].copy_from_slice(&status.to_le_bytes());
        &self.buffer[..len]
    }
}

/// Splits a whole answer into its status (0 or an `errno`) and the bytes after it. Returns `None`
/// if `bytes` is shorter than 8 bytes or its length is not the one in its first four bytes.
pub fn answer(bytes: &[u8]) -> Option<(u32, &[u8])> {
    if u32_at(bytes, 0)? as usize != bytes.len() {
        return None;
    }
    Some((u32_at(bytes, 4)?, bytes.get(ANSWER_HEADER..)?))
}

/// Splits off the 64-bit number at the start of `rest`, the contents of an answer. Returns the
/// number and the bytes after it. Returns `None` if there are fewer than 8 bytes.
pub fn leading_number(rest: &[u8]) -> Option<(u64, &[u8])> {
    Some((u64_at(rest, 0)?, rest.get(8..)?))
}

/// Returns the entries in `rest`, the contents of an answer after any leading number, in order.
/// Headings are among them. Ends at the end of `rest` or at the first incomplete entry.
pub fn entries(rest: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    let mut rest = rest;
    core::iter::from_fn(move || {
        let (name, target) = (u16_at(rest, 0)?.into(), usize::from(u16_at(rest, 2)?));
        let attributes = Attributes::read(rest.get(4..)?)?;
        let after = rest.get(ENTRY_HEADER..)?;
        let (name, after) = after.split_at_checked(name)?;
        let (target, after) = after.split_at_checked(target)?;
        rest = after;
        Some(Entry {
            name,
            attributes,
            target,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{vec, vec::Vec};

    const ATTRIBUTES_OF_ONE: Attributes = Attributes {
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
            opcode: Opcode::Read,
            path: b"usr/lib/x",
            from: 8192,
            version: 77,
            frames: Frames::Addresses(&addresses),
            siblings: Names::new(b"\x03abc\x01d"),
        };
        let mut buffer = [0; QUESTION_MAX];
        let len = question.write(&mut buffer).unwrap();
        assert_eq!(length(buffer[..4].try_into().unwrap()), len);
        let read = Question::read(&buffer[..len]).unwrap();
        assert_eq!(
            (read.opcode, read.path, read.from, read.version),
            (Opcode::Read, question.path, 8192, 77)
        );
        assert_eq!(
            (0..3).map(|i| read.frames.get(i)).collect::<Vec<_>>(),
            [Some(addresses[0]), Some(addresses[1]), None]
        );
        let siblings: Vec<_> = read.siblings.iter().collect();
        assert_eq!(siblings, [&b"abc"[..], b"d"]);
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
        let mut buffer = [0xff; SIBLINGS_MAX];
        let mut len = 0;
        let names = [&[b'x'; NAME_MAX][..], b"y", &[b'z'; 253]];
        for name in names {
            len = push_name(&mut buffer, len, name).unwrap();
        }
        assert_eq!(push_name(&mut buffer, len, b"z"), None);
        let read: Vec<_> = Names::new(&buffer[..len]).iter().collect();
        assert_eq!(read, names);
        // A name that is cut off is left out.
        let cut = Names::new(&buffer[..len - 1]);
        assert_eq!(cut.iter().count(), 2);
        assert_eq!(push_name(&mut [0; 300], 0, &[0; NAME_MAX + 1]), None);
    }

    #[test]
    fn what_does_not_fit_is_taken_back() {
        let mut buffer = vec![0; ANSWER_MAX];
        let mut writing = Answer::new(&mut buffer);
        writing.number(0);
        let position = writing.position();
        assert!(writing.heading(b"beside"));
        writing.truncate(position);
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
            opcode: Opcode::Lookup,
            path,
            from: 0,
            version: 0,
            frames: Frames::Addresses(frames),
            siblings: Names::default(),
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
        let placeholder = writing.placeholder();
        let entry = Entry {
            name: b"link",
            attributes: ATTRIBUTES_OF_ONE,
            target: b"where it leads",
        };
        let mut written = 0;
        while writing.entry(&entry) {
            written += 1;
        }
        writing.fill(placeholder, 5);
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
