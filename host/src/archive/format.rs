//! Determines the format of a program. Files may be hostile, so this code runs in a confined
//! process ([`super::examiner`]).

use crate::text::one_line;
use elf::ElfStream;
use elf::endian::LittleEndian;
use elf::segment::ProgramHeader;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The number of bytes of a script's first line that Linux reads.
const SHEBANG_MAX: usize = 256;
/// The largest length of a path in bytes.
const PATH_MAX: usize = 4096;
/// The largest length in bytes of a library's name that is no path. No file system has longer
/// names.
const NAME_MAX: usize = 255;
/// The largest length in bytes of a list of folders.
const LIST_MAX: usize = 16 << 10;
/// The largest number of entries of a dynamic section that are read.
const DYNAMIC_MAX: u64 = 16 << 10;
/// The largest number of libraries that one file may name.
const NEEDED_MAX: usize = 1024;

/// The format of a program file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Format {
    /// A static x86-64 ELF program, position-independent or not.
    Static,
    /// A dynamic x86-64 ELF program. `interpreter` is the absolute path of its loader.
    Dynamic { interpreter: OsString },
    /// An x86-64 ELF library that is no program.
    Library,
    /// A script, with the absolute path of its interpreter and the optional argument from its first
    /// line.
    Script {
        interpreter: OsString,
        argument: Option<OsString>,
    },
}

/// The libraries that an ELF file needs, and the folders that it names for them.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Links {
    /// `DT_NEEDED`: names or paths of the libraries.
    pub(crate) needed: Vec<OsString>,
    /// `DT_RPATH`: folders for the libraries of this file and of its libraries.
    pub(crate) rpath: Option<OsString>,
    /// `DT_RUNPATH`: folders for the libraries of this file. If it is present, `DT_RPATH` is
    /// ignored.
    pub(crate) runpath: Option<OsString>,
}

/// The format of a program, library or script, and the libraries that it needs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) format: Format,
    pub(crate) links: Links,
}

/// The reason why a guest cannot run a file as a program.
#[derive(Clone, Debug, thiserror::Error, Serialize, Deserialize)]
pub(crate) enum FormatError {
    #[error("cannot read it: {}", one_line(.0))]
    Read(String),
    #[error("it is empty")]
    Empty,
    #[error("it is neither an x86-64 ELF program nor a script that begins with `#!`")]
    Unknown,
    #[error("it is an ELF file for {}, not for x86-64", one_line(.0))]
    Machine(String),
    #[error("it is an ELF {}, not a program", one_line(.0))]
    Type(String),
    #[error("it is {0}, not a program")]
    NotAFile(String),
    #[error("its ELF headers are broken: {}", one_line(.0))]
    Elf(String),
    #[error("it is a dynamic program whose interpreter `{}` is no absolute path", one_line(.0))]
    ElfInterpreter(String),
    #[error("its first line names no interpreter")]
    NoInterpreter,
    #[error("it is a script, not an ELF file")]
    Script,
}

impl From<io::Error> for FormatError {
    fn from(error: io::Error) -> Self {
        Self::Read(error.to_string())
    }
}

impl Program {
    /// Returns `self` unless it is a library, which cannot be executed.
    ///
    /// # Errors
    /// `Type` for a library.
    pub(crate) fn runnable(self) -> Result<Self, FormatError> {
        match self.format {
            Format::Library => Err(FormatError::Type("shared library".into())),
            _ => Ok(self),
        }
    }

    /// Returns `self` unless it is a script.
    ///
    /// # Errors
    /// `Script` for a script.
    pub(crate) fn elf_only(self) -> Result<Self, FormatError> {
        match self.format {
            Format::Script { .. } => Err(FormatError::Script),
            _ => Ok(self),
        }
    }
}

/// Returns the format and the libraries of `file`, from its first 256 bytes and its ELF headers. A
/// script has no libraries. Moves the offset of `file`.
///
/// # Errors
/// If `file` is empty, is neither an x86-64 ELF program or library nor a script, or cannot be read.
/// Also if its ELF headers are malformed or exceed a limit, or if its interpreter has no absolute
/// path.
pub(super) fn read(file: &mut File) -> Result<Program, FormatError> {
    let mut start = Vec::with_capacity(SHEBANG_MAX);
    let limit = u64::try_from(SHEBANG_MAX).unwrap_or(u64::MAX);
    file.rewind()?;
    file.by_ref().take(limit).read_to_end(&mut start)?;
    if start.is_empty() {
        return Err(FormatError::Empty);
    }
    if start.starts_with(b"\x7fELF") {
        return read_elf(&start, file);
    }
    Ok(Program {
        format: inspect_script(&start)?,
        links: Links::default(),
    })
}

fn read_elf(start: &[u8], file: &File) -> Result<Program, FormatError> {
    // The byte order and class decide how the rest is read, so they are checked first.
    let class = start.get(4).copied().unwrap_or(0);
    let order = start.get(5).copied().unwrap_or(0);
    let machine = match start.get(18..20) {
        Some(&[low, high]) if order == elf::abi::ELFDATA2LSB => u16::from_le_bytes([low, high]),
        Some(&[high, low]) => u16::from_le_bytes([low, high]),
        _ => return Err(FormatError::Unknown),
    };
    if class != elf::abi::ELFCLASS64 || machine != elf::abi::EM_X86_64 {
        let bits = if class == elf::abi::ELFCLASS64 {
            64
        } else {
            32
        };
        let name = elf::to_str::e_machine_to_human_str(machine)
            .map_or_else(|| format!("machine {machine}"), str::to_owned);
        return Err(FormatError::Machine(format!("{name}, {bits}-bit")));
    }
    let broken = |error: elf::ParseError| FormatError::Elf(error.to_string());
    let stream = ElfStream::<LittleEndian, _>::open_stream(file).map_err(broken)?;
    let refuse = |kind: &str| Err(FormatError::Type(kind.into()));
    match stream.ehdr.e_type {
        elf::abi::ET_EXEC | elf::abi::ET_DYN => {}
        elf::abi::ET_REL => return refuse("object file"),
        elf::abi::ET_CORE => return refuse("core dump"),
        _ => return refuse("file of unknown type"),
    }
    let segments = stream.segments();
    let links = read_links(file, segments)?;
    // Linux uses the first such segment.
    let named = segments
        .iter()
        .find(|one| one.p_type == elf::abi::PT_INTERP);
    let format = match named {
        Some(segment) => Format::Dynamic {
            interpreter: interpreter(file, segment)?,
        },
        None if stream.ehdr.e_entry == 0 => Format::Library,
        None => Format::Static,
    };
    Ok(Program { format, links })
}

/// Returns the path in a `PT_INTERP` segment. Fails if it is too long or not absolute.
fn interpreter(file: &File, segment: &ProgramHeader) -> Result<OsString, FormatError> {
    let len = usize::try_from(segment.p_filesz).unwrap_or(usize::MAX);
    if len > PATH_MAX {
        return Err(FormatError::Elf(format!(
            "an interpreter's path of {len} bytes"
        )));
    }
    let mut data = vec![0; len];
    file.read_exact_at(&mut data, segment.p_offset)?;
    let name = data.split(|byte| *byte == 0).next().unwrap_or_default();
    let path = Path::new(OsStr::from_bytes(name));
    if !path.is_absolute() || path.file_name().is_none() {
        return Err(FormatError::ElfInterpreter(
            String::from_utf8_lossy(name).into_owned(),
        ));
    }
    Ok(path.as_os_str().to_owned())
}

/// Returns the libraries that the dynamic section names. There are none without a dynamic section.
/// Fails if the section is malformed or too large.
fn read_links(file: &File, segments: &[ProgramHeader]) -> Result<Links, FormatError> {
    let mut links = Links::default();
    // glibc uses the last such segment.
    let found = segments
        .iter()
        .rfind(|one| one.p_type == elf::abi::PT_DYNAMIC);
    let Some(segment) = found else {
        return Ok(links);
    };
    let (mut needed, mut rpath, mut runpath, mut strings) = (Vec::new(), None, None, None);
    for number in 0..(segment.p_filesz / 16).min(DYNAMIC_MAX) {
        let mut entry = [0; 16];
        let at = segment.p_offset.checked_add(number * 16);
        let at = at.ok_or_else(|| FormatError::Elf("a dynamic section at no offset".into()))?;
        file.read_exact_at(&mut entry, at)?;
        let [tag, value] = [&entry[..8], &entry[8..]].map(|half| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(half);
            u64::from_le_bytes(bytes)
        });
        match tag.cast_signed() {
            elf::abi::DT_NULL => break,
            elf::abi::DT_NEEDED => needed.push(value),
            elf::abi::DT_RPATH => rpath = Some(value),
            elf::abi::DT_RUNPATH => runpath = Some(value),
            elf::abi::DT_STRTAB => strings = Some(value),
            _ => {}
        }
    }
    if needed.len() > NEEDED_MAX {
        return Err(FormatError::Elf(format!(
            "{} libraries, of which there may be {NEEDED_MAX}",
            needed.len()
        )));
    }
    let text = |offset: u64| {
        let address = strings.and_then(|table: u64| table.checked_add(offset));
        let at = address.and_then(|address| file_offset(segments, address));
        let at = at.ok_or_else(|| FormatError::Elf("a name outside of the file".into()))?;
        Ok::<_, FormatError>(at)
    };
    for offset in needed {
        let name = name_at(file, text(offset)?, PATH_MAX)?;
        let bytes = name.as_bytes();
        if bytes.len() > NAME_MAX && !bytes.contains(&b'/') {
            return Err(FormatError::Elf(format!(
                "a library's name of {} bytes",
                bytes.len()
            )));
        }
        links.needed.push(name);
    }
    let list = |offset: Option<u64>| {
        let found = offset.map(|offset| name_at(file, text(offset)?, LIST_MAX));
        found.transpose()
    };
    links.rpath = list(rpath)?;
    links.runpath = list(runpath)?;
    Ok(links)
}

/// Returns the file offset from which `address` is loaded. Returns `None` if no segment loads it
/// from the file.
fn file_offset(segments: &[ProgramHeader], address: u64) -> Option<u64> {
    let mut loaded = segments
        .iter()
        .filter(|one| one.p_type == elf::abi::PT_LOAD);
    loaded.find_map(|segment| {
        let inside = address.checked_sub(segment.p_vaddr)?;
        (inside < segment.p_filesz).then(|| segment.p_offset.checked_add(inside))?
    })
}

/// Returns the bytes from offset `at` to the next NUL. Fails if there are more than `most`.
fn name_at(file: &File, at: u64, most: usize) -> Result<OsString, FormatError> {
    let mut bytes = vec![0; most];
    let count = file.read_at(&mut bytes, at)?;
    bytes.truncate(count);
    match bytes.iter().position(|byte| *byte == 0) {
        Some(end) => {
            bytes.truncate(end);
            Ok(OsString::from_vec(bytes))
        }
        None => Err(FormatError::Elf(format!(
            "a name of more than {most} bytes"
        ))),
    }
}

fn inspect_script(start: &[u8]) -> Result<Format, FormatError> {
    let line = start.strip_prefix(b"#!").ok_or(FormatError::Unknown)?;
    let line = line
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default()
        .trim_ascii();
    let (interpreter, argument) = match line.iter().position(u8::is_ascii_whitespace) {
        Some(blank) => (&line[..blank], Some(line[blank..].trim_ascii())),
        None => (line, None),
    };
    if interpreter.first() != Some(&b'/') {
        return Err(FormatError::NoInterpreter);
    }
    let text = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    Ok(Format::Script {
        interpreter: text(interpreter),
        argument: argument.map(text),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::env;

    #[test]
    fn first_lines() {
        let script = |interpreter: &str, argument: Option<&str>| Format::Script {
            interpreter: interpreter.into(),
            argument: argument.map(Into::into),
        };
        assert_eq!(
            inspect_script(b"#!/bin/sh\necho").unwrap(),
            script("/bin/sh", None)
        );
        let awk = inspect_script(b"#! /usr/bin/awk  -f \n").unwrap();
        assert_eq!(awk, script("/usr/bin/awk", Some("-f")));
        let env = inspect_script(b"#!/usr/bin/env -S sh -e").unwrap();
        assert_eq!(env, script("/usr/bin/env", Some("-S sh -e")));
        assert!(matches!(
            inspect_script(b"#!\n"),
            Err(FormatError::NoInterpreter)
        ));
        assert!(matches!(
            inspect_script(b"#!sh\n"),
            Err(FormatError::NoInterpreter)
        ));
        assert!(matches!(
            inspect_script(b"echo hello\n"),
            Err(FormatError::Unknown)
        ));
    }

    #[test]
    fn dynamic_program_names_its_interpreter() {
        let own = env::current_exe().unwrap();
        let program = read(&mut File::open(own).unwrap()).unwrap();
        let Format::Dynamic { interpreter } = program.format else {
            panic!("a test program is dynamic")
        };
        let needed = &program.links.needed;
        assert!(needed.iter().any(|name| name == "libc.so.6"), "{needed:?}");
        let name = interpreter.to_string_lossy();
        assert!(name.contains("ld-linux"), "{name}");
    }

    #[test]
    fn foreign_and_broken_files_are_refused() {
        let elf = |class: u8, machine: u8| {
            let mut bytes = b"\x7fELF".to_vec();
            bytes.extend([class, 1, 1, 0]);
            bytes.resize(18, 0);
            bytes.extend([machine, 0]);
            bytes
        };
        let refused = |bytes: &[u8]| {
            let file = File::open("/dev/null").unwrap();
            read_elf(bytes, &file).unwrap_err()
        };
        assert!(matches!(refused(&elf(2, 183)), FormatError::Machine(_)));
        assert!(matches!(refused(&elf(1, 3)), FormatError::Machine(_)));
        assert!(matches!(refused(&elf(2, 62)), FormatError::Elf(_)));
        assert!(matches!(refused(b"\x7fELF"), FormatError::Unknown));
        assert!(matches!(
            read(&mut File::open("/dev/null").unwrap()),
            Err(FormatError::Empty)
        ));
    }

    /// Returns an ELF file with these program headers, each with its bytes after them.
    pub(crate) fn elf_with(segments: &[(u32, &[u8])]) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(16, 0);
        for half in [3_u16, 62] {
            bytes.extend(half.to_le_bytes());
        }
        bytes.extend(1_u32.to_le_bytes());
        for long in [0x1000_u64, 64, 0] {
            bytes.extend(long.to_le_bytes());
        }
        bytes.extend(0_u32.to_le_bytes());
        let count = u16::try_from(segments.len()).unwrap();
        for half in [64_u16, 56, count, 64, 0, 0] {
            bytes.extend(half.to_le_bytes());
        }
        let mut at = 64 + 56 * segments.len() as u64;
        for (kind, data) in segments {
            bytes.extend(kind.to_le_bytes());
            bytes.extend(4_u32.to_le_bytes());
            let len = data.len() as u64;
            for long in [at, at, at, len, len, 1] {
                bytes.extend(long.to_le_bytes());
            }
            at += len;
        }
        for (_, data) in segments {
            bytes.extend(*data);
        }
        bytes
    }

    fn of_bytes(bytes: &[u8]) -> Result<Program, FormatError> {
        let mut file = crate::system::memory_file("test").unwrap();
        io::Write::write_all(&mut file, bytes).unwrap();
        read(&mut file)
    }

    #[test]
    fn of_several_interpreters_the_first_counts() {
        let interp = elf::abi::PT_INTERP;
        let bytes = elf_with(&[(interp, b"/lib64/ld.so\0"), (interp, b"/etc/shadow\0")]);
        let program = of_bytes(&bytes).unwrap();
        let interpreter = "/lib64/ld.so".into();
        assert_eq!(program.format, Format::Dynamic { interpreter });
    }

    #[test]
    fn interpreters_that_are_no_files_are_refused() {
        let interp = elf::abi::PT_INTERP;
        for path in [&b"/\0"[..], b"\0", b"ld.so\0", b"/..\0", b""] {
            let error = of_bytes(&elf_with(&[(interp, path)])).unwrap_err();
            assert!(matches!(error, FormatError::ElfInterpreter(_)), "{error}");
        }
        let long = vec![b'a'; PATH_MAX + 1];
        assert!(of_bytes(&elf_with(&[(interp, &long)])).is_err());
    }

    #[test]
    fn broken_dynamic_sections_are_errors() {
        let dynamic = elf::abi::PT_DYNAMIC;
        let mut entries = Vec::new();
        for (tag, value) in [
            (elf::abi::DT_NEEDED, 1_u64),
            (elf::abi::DT_STRTAB, u64::MAX),
        ] {
            entries.extend(tag.to_le_bytes());
            entries.extend(value.to_le_bytes());
        }
        assert!(matches!(
            of_bytes(&elf_with(&[(dynamic, &entries)])),
            Err(FormatError::Elf(_))
        ));
        let mut many = Vec::new();
        for _ in 0..=NEEDED_MAX {
            many.extend(elf::abi::DT_NEEDED.to_le_bytes());
            many.extend(0_u64.to_le_bytes());
        }
        let error = of_bytes(&elf_with(&[(dynamic, &many)])).unwrap_err();
        assert!(error.to_string().contains("1025 libraries"), "{error}");
        // The segment ends beyond the end of the file.
        let mut bytes = elf_with(&[(dynamic, &entries)]);
        bytes.truncate(bytes.len() - 8);
        assert!(of_bytes(&bytes).is_err());
    }
}
