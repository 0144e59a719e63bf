//! Parses ELF program files. Nothing in them is trusted.
//!
//! Independent of the kernel, so that host tests can run it.

use ::elf::abi::{
    EI_NIDENT, ELFMAGIC, EM_X86_64, ET_DYN, ET_EXEC, PF_R, PF_W, PF_X, PT_GNU_STACK, PT_INTERP,
    PT_LOAD,
};
use ::elf::endian::LittleEndian;
use ::elf::file::{Class, Elf64_Ehdr, FileHeader, parse_ident};
use ::elf::segment::{Elf64_Phdr, ProgramHeader, SegmentTable};

/// Size of the file header in bytes.
pub const HEADER_BYTES: usize = size_of::<Elf64_Ehdr>();
/// Size of one program header in bytes.
pub const PROGRAM_HEADER_BYTES: usize = size_of::<Elf64_Phdr>();
/// The most program headers, more than any linker makes. Linux's limit of 64 KiB is the same.
pub const MAX_PROGRAM_HEADERS: usize = 1170;

const PAGE: u64 = 4096;
/// No file has bytes after this offset.
const MAX_FILE_BYTES: u64 = i64::MAX as u64 & !(PAGE - 1);
/// The largest alignment of a program: the size of a gigantic page.
const MAX_ALIGNMENT: u64 = 1 << 30;

/// The reason why a file is refused.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ElfError {
    /// The file does not begin with the magic number of ELF.
    NotElf,
    /// The file is for another machine, class or byte order.
    WrongMachine,
    /// The file is not executable: a relocatable object or a core file.
    NotExecutable,
    /// A field is invalid or contradicts another. The value names the field.
    Malformed(&'static str),
}

/// The place of the program headers, and the kind of program.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whether the program has fixed addresses (`ET_EXEC`). Otherwise it can be loaded anywhere.
    pub fixed: bool,
    /// Address of the first instruction, relative to the load address.
    pub entry: u64,
    /// Offset of the program headers in the file.
    pub table_offset: u64,
    /// Number of program headers.
    pub count: usize,
}

/// A part of the file that is loaded into memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Segment {
    /// First address, relative to the load address.
    pub address: u64,
    /// Size in memory in bytes.
    pub memory_bytes: u64,
    /// Offset in the file; congruent to `address` modulo the page size if `file_bytes` is not 0.
    pub offset: u64,
    /// Number of bytes from the file. The rest of the memory is zero.
    pub file_bytes: u64,
    /// Whether loads are allowed.
    pub read: bool,
    /// Whether stores are allowed.
    pub write: bool,
    /// Whether instruction fetches are allowed.
    pub execute: bool,
}

impl Segment {
    /// Returns the address after the last byte.
    pub const fn end(&self) -> u64 {
        self.address + self.memory_bytes
    }
}

/// The place of the interpreter's path in the file. The interpreter loads the program.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// Offset in the file.
    pub offset: u64,
    /// Length of the path with its NUL, at most [`PATH_BYTES`].
    pub bytes: usize,
}

/// The longest path of an interpreter, with its NUL.
pub const PATH_BYTES: usize = 4096;

impl Interpreter {
    /// Parses `entry`, the program header of an interpreter. Fails with [`ElfError::Malformed`] if
    /// the path with its NUL has less than 2 or more than [`PATH_BYTES`] bytes.
    fn new(entry: &ProgramHeader) -> Result<Self, ElfError> {
        let bytes = usize::try_from(entry.p_filesz).ok();
        match bytes.filter(|bytes| (2..=PATH_BYTES).contains(bytes)) {
            Some(bytes) => Ok(Self {
                offset: entry.p_offset,
                bytes,
            }),
            None => Err(ElfError::Malformed("PT_INTERP")),
        }
    }
}

/// The combined contents of all program headers.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Layout {
    /// Lowest address, a multiple of the page size.
    pub start: u64,
    /// Address after the highest byte.
    pub end: u64,
    /// The lowest address of executable segments, and the address after the highest byte of the
    /// file in them, as Linux counts code.
    pub code: [u64; 2],
    /// The highest address of a segment, and the address after the highest byte of the file in any,
    /// as Linux counts data.
    pub data: [u64; 2],
    /// Power of two by which the load address of a program without fixed addresses must be
    /// divisible.
    pub alignment: u64,
    /// Address of the program headers in memory (`AT_PHDR`), if a segment contains them.
    pub headers: Option<u64>,
    /// Whether the stack must be executable.
    pub executable_stack: bool,
    /// The interpreter, which loads a dynamic program.
    pub interpreter: Option<Interpreter>,
}

/// Returns the program headers in `table`. A part of one at its end is left out.
fn program_headers(table: &[u8]) -> SegmentTable<'_, LittleEndian> {
    SegmentTable::new(LittleEndian, Class::ELF64, table)
}

/// Parses the file header `bytes`.
///
/// # Errors
/// [`ElfError`] if the file is no program for this machine.
pub fn header(bytes: &[u8; HEADER_BYTES]) -> Result<Header, ElfError> {
    if !bytes.starts_with(&ELFMAGIC) {
        return Err(ElfError::NotElf);
    }
    let (ident, tail) = bytes.split_at(EI_NIDENT);
    // Fails for a file of the other byte order, or of another version of the format.
    let ident = parse_ident::<LittleEndian>(ident).map_err(|_| ElfError::WrongMachine)?;
    let header = FileHeader::parse_tail(ident, tail).map_err(|_| ElfError::WrongMachine)?;
    if header.class != Class::ELF64 || header.e_machine != EM_X86_64 {
        return Err(ElfError::WrongMachine);
    }
    let fixed = match header.e_type {
        ET_EXEC => true,
        ET_DYN => false,
        _ => return Err(ElfError::NotExecutable),
    };
    if usize::from(header.e_phentsize) != PROGRAM_HEADER_BYTES {
        return Err(ElfError::Malformed("e_phentsize"));
    }
    let count = usize::from(header.e_phnum);
    if count == 0 || count > MAX_PROGRAM_HEADERS {
        return Err(ElfError::Malformed("e_phnum"));
    }
    Ok(Header {
        fixed,
        entry: header.e_entry,
        table_offset: header.e_phoff,
        count,
    })
}

/// Returns the segments to load that the program headers in `table` describe, in the order of the
/// file.
pub fn segments(table: &[u8]) -> impl Iterator<Item = Segment> + '_ {
    program_headers(table)
        .iter()
        .filter(|entry| entry.p_type == PT_LOAD)
        .map(|entry| Segment {
            address: entry.p_vaddr,
            memory_bytes: entry.p_memsz,
            offset: entry.p_offset,
            file_bytes: entry.p_filesz,
            read: entry.p_flags & PF_R != 0,
            write: entry.p_flags & PF_W != 0,
            execute: entry.p_flags & PF_X != 0,
        })
}

/// Checks the program headers in `table` of the file with the header `header`, and returns their
/// combined contents. Segments must end at least one page below `user_end`, the first address that
/// programs cannot use. As on Linux, segments may overlap, be in any order, and extend beyond the
/// file.
///
/// # Errors
/// [`ElfError::Malformed`] with the invalid field.
pub fn layout(header: &Header, table: &[u8], user_end: u64) -> Result<Layout, ElfError> {
    let mut layout = Layout {
        alignment: PAGE,
        ..Layout::default()
    };
    let mut first: Option<u64> = None;
    for entry in program_headers(table).iter() {
        match entry.p_type {
            PT_INTERP if layout.interpreter.is_none() => {
                layout.interpreter = Some(Interpreter::new(&entry)?);
            }
            PT_LOAD if entry.p_align.is_power_of_two() => {
                layout.alignment = layout.alignment.max(entry.p_align.min(MAX_ALIGNMENT));
            }
            PT_GNU_STACK => layout.executable_stack = entry.p_flags & PF_X != 0,
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
        let file_end = segment.address + segment.file_bytes;
        if segment.execute {
            let [low, high] = &mut layout.code;
            *low = if *high == 0 {
                segment.address
            } else {
                segment.address.min(*low)
            };
            *high = file_end.max(*high);
        }
        let [last, high] = &mut layout.data;
        *last = segment.address.max(*last);
        *high = file_end.max(*high);
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

/// Returns whether the bytes that `segment` has in the file contain all program headers that
/// `header` describes.
fn covers(segment: &Segment, header: &Header) -> bool {
    let bytes = (header.count * PROGRAM_HEADER_BYTES) as u64;
    let end = header.table_offset.checked_add(bytes);
    segment.file_bytes != 0
        && header.table_offset >= segment.offset
        && end.is_some_and(|end| end <= segment.offset + segment.file_bytes)
}

/// Parses the interpreter line of a script. `start` has the first bytes of the file, at most
/// [`SCRIPT_BYTES`]. Returns the path of the interpreter, and the rest of the line as one argument.
///
/// Only blanks and tabs separate the two. A NUL ends both. The path may be empty if a NUL or the
/// file's end follows `#!`. A line that ends with the file keeps the blanks at its end, so its
/// argument may be empty. All of this is as on Linux.
///
/// Returns `None` if the file is no script, if the line has no path before its newline, or if the
/// path may extend beyond `start`.
pub fn script(start: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let line = start.strip_prefix(b"#!")?;
    let shown = line.split(|&byte| byte == 0).next().unwrap_or(line);
    let line = match shown.iter().position(|&byte| byte == b'\n') {
        Some(end) => {
            let last = shown[..end].iter().rposition(|byte| !blank(byte))?;
            &shown[..=last]
        }
        // The path ends with the file, at the NUL, or before a blank.
        None if start.len() < SCRIPT_BYTES - 1 || shown.len() < line.len() => shown,
        None => {
            if start.len() == SCRIPT_BYTES {
                let first = shown.iter().position(|byte| !blank(byte))?;
                shown[first..].iter().find(|byte| blank(byte))?;
            }
            // The last of the bytes counts as the end of the line.
            let shown = &shown[..SCRIPT_BYTES - 3];
            let last = shown.iter().rposition(|byte| !blank(byte))?;
            &shown[..=last]
        }
    };
    let first = line.iter().position(|byte| !blank(byte));
    let line = &line[first.unwrap_or(line.len())..];
    let Some(end) = line.iter().position(blank) else {
        return Some((line, None));
    };
    let (path, rest) = line.split_at(end);
    let first = rest.iter().position(|byte| !blank(byte));
    Some((path, Some(&rest[first.unwrap_or(rest.len())..])))
}

/// Number of bytes at a file's start in which an interpreter line is looked for.
pub const SCRIPT_BYTES: usize = 256;
