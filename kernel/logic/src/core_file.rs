//! Builds the beginning of a core file: ELF header, program headers, notes.
//!
//! The contents of memory follow, at the offsets in the program headers.

use super::elf::{HEADER_BYTES, PROGRAM_HEADER_BYTES};
use alloc::collections::TryReserveError;
use alloc::vec::Vec;

const PAGE: u64 = 4096;
/// The most areas in a core file. The ELF header can count fewer than 0xffff program headers,
/// including the one of the notes.
pub const MAX_SEGMENTS: usize = 0xfffd;
/// Number of registers of a thread in a note: `user_regs_struct`.
pub const REGISTERS: usize = 27;

/// Types of the notes in a core file.
mod kind {
    /// `NT_PRSTATUS`: the status and the registers of a thread.
    pub(super) const PRSTATUS: u32 = 1;
    /// `NT_PRFPREG`: the floating-point registers of a thread.
    pub(super) const PRFPREG: u32 = 2;
    /// `NT_PRPSINFO`: data about the process.
    pub(super) const PRPSINFO: u32 = 3;
    /// `NT_AUXV`: the auxiliary vector.
    pub(super) const AUXV: u32 = 6;
    /// `NT_FILE`: the mapped files.
    pub(super) const FILE: u32 = 0x4649_4c45;
    /// `NT_SIGINFO`: the signal that ended the process.
    pub(super) const SIGINFO: u32 = 0x5349_4749;
}

/// An area of the address space of the process, for its program header.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First address.
    pub start: u64,
    /// Address after the last byte.
    pub end: u64,
    /// Number of bytes of the area that the core file contains.
    pub file_bytes: u64,
    /// Whether loads are allowed.
    pub read: bool,
    /// Whether stores are allowed.
    pub write: bool,
    /// Whether instruction fetches are allowed.
    pub execute: bool,
}

/// A mapping of a file in the address space of the process.
#[derive(Copy, Clone, Debug)]
pub struct Mapped<'a> {
    /// First address.
    pub start: u64,
    /// Address after the last byte.
    pub end: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Path of the file.
    pub path: &'a [u8],
}

/// The IDs of a process or thread and of its relatives.
#[derive(Copy, Clone, Debug)]
pub struct Kin {
    /// ID of the process or thread.
    pub number: u32,
    /// ID of the parent.
    pub parent: u32,
    /// ID of the process group.
    pub group: u32,
    /// ID of the session.
    pub session: u32,
}

impl Kin {
    fn words(self) -> [u32; 4] {
        [self.number, self.parent, self.group, self.session]
    }
}

/// The state of a process's main thread while the core file is written.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum MainThread {
    /// It writes the file.
    Dumps,
    /// It waits until another thread has written the file.
    Waits,
    /// It has ended before.
    Ended,
}

impl MainThread {
    /// Returns `pr_state` and `pr_sname` of Linux's note.
    fn state(self) -> [u8; 2] {
        match self {
            Self::Dumps => [0, b'R'],
            Self::Waits => [2, b'D'],
            Self::Ended => [8, b'.'],
        }
    }
}

/// Data about a process as a whole, for [`Notes::process`].
#[derive(Copy, Clone, Debug)]
pub struct Process<'a> {
    /// The process and its relatives.
    pub kin: Kin,
    /// Real user and group ID.
    pub owner: [u32; 2],
    /// What the main thread does.
    pub main: MainThread,
    /// Nice value of the main thread.
    pub nice: i8,
    /// The name for `pr_fname` of the note, padded with NULs.
    pub name: &'a [u8; 16],
    /// The arguments, separated by NULs.
    pub arguments: &'a [u8],
}

/// Data about a thread, for [`Notes::thread`].
#[derive(Copy, Clone, Debug)]
pub struct Thread<'a> {
    /// The thread and its relatives.
    pub kin: Kin,
    /// The signal that ends the process.
    pub signal: u32,
    /// Pending signals. Bit `n` - 1 is signal `n`.
    pub pending: u64,
    /// Blocked signals. Bit `n` - 1 is signal `n`.
    pub blocked: u64,
    /// Times in nanoseconds: in user mode, in the kernel, and the same two of children.
    pub times: [u64; 4],
    /// Registers in the order of `user_regs_struct`.
    pub registers: &'a [u64; REGISTERS],
}

/// The notes of a core file, one after the other, in the format of the file.
#[derive(Debug, Default)]
pub struct Notes(Vec<u8>);

impl Notes {
    /// Returns the size of all notes in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no notes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn note(&mut self, kind: u32, parts: &[&[u8]]) -> Result<(), TryReserveError> {
        const NAME: &[u8; 8] = b"CORE\0\0\0\0";
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let padding = bytes.next_multiple_of(4) - bytes;
        self.0.try_reserve(12 + NAME.len() + bytes + padding)?;
        #[expect(clippy::cast_possible_truncation, reason = "notes are cut before that")]
        for word in [5, bytes as u32, kind] {
            self.0.extend_from_slice(&word.to_le_bytes());
        }
        self.0.extend_from_slice(NAME);
        for part in parts {
            self.0.extend_from_slice(part);
        }
        self.0.extend_from_slice(&[0; 4][..padding]);
        Ok(())
    }

    /// Adds the status of `thread`: its registers, its signals and its times (`NT_PRSTATUS`).
    ///
    /// # Errors
    /// [`TryReserveError`] if memory is short.
    pub fn thread(&mut self, thread: &Thread<'_>) -> Result<(), TryReserveError> {
        let mut status = [0; 336];
        let mut put = |at: usize, bytes: &[u8]| {
            status[at..at + bytes.len()].copy_from_slice(bytes);
        };
        put(0, &thread.signal.to_le_bytes());
        #[expect(clippy::cast_possible_truncation, reason = "at most 64")]
        put(12, &(thread.signal as u16).to_le_bytes());
        put(16, &thread.pending.to_le_bytes());
        put(24, &thread.blocked.to_le_bytes());
        for (i, word) in thread.kin.words().into_iter().enumerate() {
            put(32 + 4 * i, &word.to_le_bytes());
        }
        for (i, time) in thread.times.into_iter().enumerate() {
            put(48 + 16 * i, &(time / 1_000_000_000).to_le_bytes());
            put(56 + 16 * i, &(time % 1_000_000_000 / 1000).to_le_bytes());
        }
        for (i, register) in thread.registers.iter().enumerate() {
            put(112 + 8 * i, &register.to_le_bytes());
        }
        put(328, &1_u32.to_le_bytes());
        self.note(kind::PRSTATUS, &[&status])
    }

    /// Adds the floating-point registers of a thread (`NT_PRFPREG`). `image` is their FXSAVE image.
    ///
    /// # Errors
    /// [`TryReserveError`] if memory is short.
    pub fn floats(&mut self, image: &[u8]) -> Result<(), TryReserveError> {
        self.note(kind::PRFPREG, &[image])
    }

    /// Adds the data in `process` about the process as a whole (`NT_PRPSINFO`). At most 79 bytes of
    /// its arguments are kept.
    ///
    /// # Errors
    /// [`TryReserveError`] if memory is short.
    pub fn process(&mut self, process: &Process<'_>) -> Result<(), TryReserveError> {
        let mut about = [0; 136];
        about[..2].copy_from_slice(&process.main.state());
        about[3] = process.nice.cast_unsigned();
        let mut put = |at: usize, bytes: &[u8]| {
            about[at..at + bytes.len()].copy_from_slice(bytes);
        };
        for (i, word) in process.owner.into_iter().enumerate() {
            put(16 + 4 * i, &word.to_le_bytes());
        }
        for (i, word) in process.kin.words().into_iter().enumerate() {
            put(24 + 4 * i, &word.to_le_bytes());
        }
        put(40, process.name);
        // The last of the 80 bytes is a NUL.
        let arguments = &process.arguments[..process.arguments.len().min(79)];
        put(56, arguments);
        for byte in about[56..56 + arguments.len()].iter_mut() {
            if *byte == 0 {
                *byte = b' ';
            }
        }
        self.note(kind::PRPSINFO, &[&about])
    }

    /// Adds the signal that ended the process (`NT_SIGINFO`). `info` is its `siginfo_t`, as a
    /// handler would see it.
    ///
    /// # Errors
    /// [`TryReserveError`] if memory is short.
    pub fn signal(&mut self, info: &[u8]) -> Result<(), TryReserveError> {
        self.note(kind::SIGINFO, &[info])
    }

    /// Adds the auxiliary vector `words`, which the program found after its environment
    /// (`NT_AUXV`).
    ///
    /// # Errors
    /// [`TryReserveError`] if memory is short.
    pub fn auxiliary(&mut self, words: &[u8]) -> Result<(), TryReserveError> {
        self.note(kind::AUXV, &[words])
    }

    /// Adds the list of mapped files `files` (`NT_FILE`). If the list would exceed 4 MiB, it is
    /// omitted, as on Linux.
    ///
    /// # Errors
    /// [`TryReserveError`] if memory is short.
    pub fn files<'a>(
        &mut self,
        files: impl Iterator<Item = Mapped<'a>> + Clone,
    ) -> Result<(), TryReserveError> {
        const MOST: usize = 4 << 20;
        let mut bytes = Vec::new();
        let (mut count, mut room) = (0_u64, 16);
        for file in files.clone() {
            count += 1;
            room += 24 + file.path.len() + 1;
        }
        if room > MOST {
            return Ok(());
        }
        bytes.try_reserve_exact(room)?;
        for word in [count, PAGE] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for file in files.clone() {
            for word in [file.start, file.end, file.offset / PAGE] {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
        }
        for file in files {
            bytes.extend_from_slice(file.path);
            bytes.push(0);
        }
        self.note(kind::FILE, &[&bytes])
    }
}

/// Returns the offset at which the contents of memory begin in a core file with `segments` areas
/// and `notes` bytes of notes. It is a multiple of the page size.
pub fn data_offset(segments: usize, notes: usize) -> u64 {
    let front = HEADER_BYTES + PROGRAM_HEADER_BYTES * (segments + 1) + notes;
    (front as u64).next_multiple_of(PAGE)
}

fn push(bytes: &mut Vec<u8>, words: &[(u64, usize)]) {
    for (word, width) in words {
        bytes.extend_from_slice(&word.to_le_bytes()[..*width]);
    }
}

/// Returns the ELF header and the program headers of a core file with the areas `segments`. The
/// notes follow the headers in the file, with `notes` bytes.
///
/// # Errors
/// [`TryReserveError`] if memory is short.
///
/// # Panics
/// If there are more than [`MAX_SEGMENTS`] areas.
pub fn headers(segments: &[Segment], notes: usize) -> Result<Vec<u8>, TryReserveError> {
    const ET_CORE: u64 = 4;
    const EM_X86_64: u64 = 62;
    const PT_LOAD: u64 = 1;
    const PT_NOTE: u64 = 4;
    assert!(
        segments.len() <= MAX_SEGMENTS,
        "more than the header counts"
    );
    let count = segments.len() + 1;
    let front = HEADER_BYTES + PROGRAM_HEADER_BYTES * count;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(front)?;
    // 64 bits, little-endian, version 1, System V.
    bytes.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    push(
        &mut bytes,
        &[
            (ET_CORE, 2),
            (EM_X86_64, 2),
            (1, 4),
            // No entry point; the program headers follow; no sections, no flags.
            (0, 8),
            (HEADER_BYTES as u64, 8),
            (0, 8),
            (0, 4),
            (HEADER_BYTES as u64, 2),
            (PROGRAM_HEADER_BYTES as u64, 2),
            (count as u64, 2),
            (0, 2),
            (0, 2),
            (0, 2),
        ],
    );
    // Type and flags have 4 bytes each; offset, addresses, sizes and alignment have 8.
    let mut header = |kind: u64, flags: u64, words: [u64; 6]| {
        push(&mut bytes, &[(kind, 4), (flags, 4)]);
        push(&mut bytes, &words.map(|word| (word, 8)));
    };
    header(PT_NOTE, 0, [front as u64, 0, 0, notes as u64, 0, 4]);
    let mut offset = data_offset(segments.len(), notes);
    for segment in segments {
        let flags = u64::from(segment.execute)
            | u64::from(segment.write) << 1
            | u64::from(segment.read) << 2;
        let memory = segment.end - segment.start;
        header(
            PT_LOAD,
            flags,
            [offset, segment.start, 0, segment.file_bytes, memory, PAGE],
        );
        offset += segment.file_bytes;
    }
    Ok(bytes)
}

impl AsRef<[u8]> for Notes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
