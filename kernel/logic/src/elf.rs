//! Reading ELF program files. Everything in them is an allegation.
//!
//! Knows nothing of the kernel, so that host tests can run it.

/// Bytes of the file header.
pub const HEADER_BYTES: usize = 64;
/// Bytes of one program header.
pub const PROGRAM_HEADER_BYTES: usize = 56;
/// More program headers than any linker makes; Linux allows 64 KiB of them too.
pub const MAX_PROGRAM_HEADERS: usize = 1170;

const PAGE: u64 = 4096;
/// No file has bytes beyond this offset.
const MAX_FILE_BYTES: u64 = i64::MAX as u64 & !(PAGE - 1);
/// The largest alignment that a program gets: that of a gigantic page.
const MAX_ALIGNMENT: u64 = 1 << 30;
const PT_LOAD: u32 = 1;
const PT_INTERP: u32 = 3;
const PT_GNU_STACK: u32 = 0x6474_e551;
const PF_X: u32 = 1;
const PF_W: u32 = 2;
const PF_R: u32 = 4;

/// What is wrong with a file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ElfError {
    /// It does not begin as an ELF file does.
    NotElf,
    /// It is for another machine, or of another class or byte order.
    WrongMachine,
    /// It is no program: a relocatable object, a core file.
    NotExecutable,
    /// A field contradicts another; which one.
    Malformed(&'static str),
}

/// Where the program headers are, and what kind of program it is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The program says where it wants to be (`ET_EXEC`); otherwise it can be anywhere.
    pub fixed: bool,
    /// First instruction, relative to where it is loaded.
    pub entry: u64,
    /// Offset of the program headers in the file.
    pub table_offset: u64,
    /// How many there are.
    pub count: usize,
}

/// A part of the file in memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Segment {
    /// First address, relative to where the program is loaded.
    pub address: u64,
    /// Bytes in memory.
    pub memory_bytes: u64,
    /// Where its bytes are in the file; congruent to `address` modulo a page if there are any.
    pub offset: u64,
    /// Bytes of the file, which may end before; the rest of the memory is zero.
    pub file_bytes: u64,
    /// Loads are allowed.
    pub read: bool,
    /// Stores are allowed.
    pub write: bool,
    /// Instruction fetches are allowed.
    pub execute: bool,
}

impl Segment {
    /// The address after its last byte.
    pub const fn end(&self) -> u64 {
        self.address + self.memory_bytes
    }
}

/// Where the file has the path of the program that loads it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// Offset in the file.
    pub offset: u64,
    /// Bytes with the NUL, [`PATH_BYTES`] at most.
    pub bytes: usize,
}

/// The longest path of an interpreter, with its NUL.
pub const PATH_BYTES: usize = 4096;

impl Interpreter {
    /// The one that a program header names.
    fn new(entry: &[u8]) -> Result<Self, ElfError> {
        let bytes = usize::try_from(u64_at(entry, 32)).ok();
        match bytes.filter(|bytes| (2..=PATH_BYTES).contains(bytes)) {
            Some(bytes) => Ok(Self {
                offset: u64_at(entry, 8),
                bytes,
            }),
            None => Err(ElfError::Malformed("PT_INTERP")),
        }
    }
}

/// What all program headers together say.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Layout {
    /// Lowest address, a multiple of a page.
    pub start: u64,
    /// Address after the highest byte.
    pub end: u64,
    /// The address 0 of a program that can be anywhere is to be a multiple of this power of two.
    pub alignment: u64,
    /// Address of the program headers in memory (`AT_PHDR`), if they are there.
    pub headers: Option<u64>,
    /// The stack must be executable.
    pub executable_stack: bool,
    /// A dynamic program is loaded by another.
    pub interpreter: Option<Interpreter>,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Reads the file header.
///
/// # Errors
/// See [`ElfError`].
pub fn header(bytes: &[u8; HEADER_BYTES]) -> Result<Header, ElfError> {
    if bytes[..4] != *b"\x7fELF" {
        return Err(ElfError::NotElf);
    }
    // 64 bits, little-endian, version 1, x86-64.
    if bytes[4] != 2 || bytes[5] != 1 || bytes[6] != 1 || u16_at(bytes, 18) != 62 {
        return Err(ElfError::WrongMachine);
    }
    let fixed = match u16_at(bytes, 16) {
        2 => true,
        3 => false,
        _ => return Err(ElfError::NotExecutable),
    };
    if usize::from(u16_at(bytes, 54)) != PROGRAM_HEADER_BYTES {
        return Err(ElfError::Malformed("e_phentsize"));
    }
    let count = usize::from(u16_at(bytes, 56));
    if count == 0 || count > MAX_PROGRAM_HEADERS {
        return Err(ElfError::Malformed("e_phnum"));
    }
    Ok(Header {
        fixed,
        entry: u64_at(bytes, 24),
        table_offset: u64_at(bytes, 32),
        count,
    })
}

/// The segments to load, in the order of the file.
pub fn segments(table: &[u8]) -> impl Iterator<Item = Segment> + '_ {
    table
        .chunks_exact(PROGRAM_HEADER_BYTES)
        .filter(|entry| u32_at(entry, 0) == PT_LOAD)
        .map(|entry| {
            let flags = u32_at(entry, 4);
            Segment {
                address: u64_at(entry, 16),
                memory_bytes: u64_at(entry, 40),
                offset: u64_at(entry, 8),
                file_bytes: u64_at(entry, 32),
                read: flags & PF_R != 0,
                write: flags & PF_W != 0,
                execute: flags & PF_X != 0,
            }
        })
}

/// Checks the program headers against each other and `user_end`, the first address that programs cannot
/// use. As on Linux, segments may lie on each other, in any order, and reach beyond the file.
///
/// # Errors
/// See [`ElfError`].
pub fn layout(header: &Header, table: &[u8], user_end: u64) -> Result<Layout, ElfError> {
    let mut layout = Layout {
        alignment: PAGE,
        ..Layout::default()
    };
    let mut first: Option<u64> = None;
    for entry in table.chunks_exact(PROGRAM_HEADER_BYTES) {
        match u32_at(entry, 0) {
            PT_INTERP if layout.interpreter.is_none() => {
                layout.interpreter = Some(Interpreter::new(entry)?);
            }
            PT_LOAD => {
                let alignment = u64_at(entry, 48);
                if alignment.is_power_of_two() {
                    layout.alignment = layout.alignment.max(alignment.min(MAX_ALIGNMENT));
                }
            }
            PT_GNU_STACK => layout.executable_stack = u32_at(entry, 4) & PF_X != 0,
            _ => {}
        }
    }
    for segment in segments(table) {
        check(&segment, user_end)?;
        if segment.memory_bytes == 0 {
            continue;
        }
        let start = segment.address & !(PAGE - 1);
        first = Some(first.map_or(start, |first| first.min(start)));
        layout.end = layout.end.max(segment.end());
        if covers(&segment, header) {
            layout.headers = Some(segment.address + (header.table_offset - segment.offset));
        }
    }
    layout.start = first.ok_or(ElfError::Malformed("no PT_LOAD"))?;
    if header.entry < layout.start || header.entry >= layout.end {
        return Err(ElfError::Malformed("e_entry"));
    }
    Ok(layout)
}

fn check(segment: &Segment, user_end: u64) -> Result<(), ElfError> {
    let end = segment.address.checked_add(segment.memory_bytes);
    if end.is_none_or(|end| end > user_end - PAGE) {
        return Err(ElfError::Malformed("p_memsz"));
    }
    if segment.file_bytes > segment.memory_bytes {
        return Err(ElfError::Malformed("p_filesz"));
    }
    if segment.file_bytes == 0 {
        return Ok(());
    }
    let file_end = segment.offset.checked_add(segment.file_bytes);
    if file_end.is_none_or(|end| end > MAX_FILE_BYTES) {
        return Err(ElfError::Malformed("p_offset"));
    }
    if segment.address % PAGE != segment.offset % PAGE {
        return Err(ElfError::Malformed("p_align"));
    }
    Ok(())
}

/// Returns whether the segment has the program headers in memory.
fn covers(segment: &Segment, header: &Header) -> bool {
    let bytes = (header.count * PROGRAM_HEADER_BYTES) as u64;
    let end = header.table_offset.checked_add(bytes);
    segment.file_bytes != 0
        && header.table_offset >= segment.offset
        && end.is_some_and(|end| end <= segment.offset + segment.file_bytes)
}

/// The interpreter line of a script: the path, and the rest of the line as one argument.
///
/// # Errors
/// `None` when `start` (the file's first bytes) is no script, or its first line is too long.
pub fn script(start: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let line = start.strip_prefix(b"#!")?;
    let end = line.iter().position(|&byte| byte == b'\n');
    // Without an end the path may be cut, unless it is followed by a blank.
    let (line, whole) = match end {
        Some(end) => (&line[..end], true),
        None => (line, start.len() < SCRIPT_BYTES),
    };
    let line = line.trim_ascii();
    let path_end = line.iter().position(|byte| matches!(byte, b' ' | b'\t'));
    let (path, rest) = match path_end {
        Some(at) => (&line[..at], line[at..].trim_ascii()),
        None if whole => (line, &line[..0]),
        None => return None,
    };
    if path.is_empty() || path.contains(&0) {
        return None;
    }
    let rest = &rest[..rest
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(rest.len())];
    Some((path, if rest.is_empty() { None } else { Some(rest) }))
}

/// How much of a file's start is looked at for an interpreter line.
pub const SCRIPT_BYTES: usize = 256;
