//! What kind of program a file is.

use elf::ElfStream;
use elf::endian::LittleEndian;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Linux reads no more of a script's first line.
const SHEBANG_MAX: usize = 256;

/// What kind of program a file is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    /// A static x86-64 ELF program, position-independent or not.
    Static,
    /// One that another loads, with its libraries.
    Dynamic { interpreter: PathBuf },
    /// A script: its interpreter and the one argument that it may have.
    Script {
        interpreter: PathBuf,
        argument: Option<OsString>,
    },
}

/// Why a file is not a program that a guest can run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FormatError {
    #[error("cannot read it")]
    Read(#[source] io::Error),
    #[error("it is a directory")]
    Directory,
    #[error("it is empty")]
    Empty,
    #[error("it is neither an x86-64 ELF program nor a script that begins with `#!`")]
    Unknown,
    #[error("it is an ELF file for {0}, not for x86-64")]
    Machine(String),
    #[error("it is an ELF {0}, not a program")]
    Type(&'static str),
    #[error("its ELF headers are broken")]
    Elf(#[source] elf::ParseError),
    #[error("it is a dynamic program whose interpreter `{0}` is no absolute path")]
    ElfInterpreter(String),
    #[error("its first line names no interpreter")]
    NoInterpreter,
}

/// Reads enough of a file to say what it is.
pub(crate) fn inspect(path: &Path) -> Result<Format, FormatError> {
    let mut file = File::open(path).map_err(FormatError::Read)?;
    if file.metadata().map_err(FormatError::Read)?.is_dir() {
        return Err(FormatError::Directory);
    }
    let mut start = Vec::with_capacity(SHEBANG_MAX);
    let limit = u64::try_from(SHEBANG_MAX).unwrap_or(u64::MAX);
    (&mut file)
        .take(limit)
        .read_to_end(&mut start)
        .map_err(FormatError::Read)?;
    if start.is_empty() {
        return Err(FormatError::Empty);
    }
    if start.starts_with(b"\x7fELF") {
        inspect_elf(&start, file)
    } else {
        inspect_script(&start)
    }
}

fn inspect_elf(start: &[u8], mut file: File) -> Result<Format, FormatError> {
    // Byte order and class decide how the rest is read, so look before parsing.
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
    io::Seek::rewind(&mut file).map_err(FormatError::Read)?;
    let mut stream = ElfStream::<LittleEndian, _>::open_stream(file).map_err(FormatError::Elf)?;
    match stream.ehdr.e_type {
        elf::abi::ET_EXEC | elf::abi::ET_DYN => {}
        elf::abi::ET_REL => return Err(FormatError::Type("object file")),
        elf::abi::ET_CORE => return Err(FormatError::Type("core dump")),
        _ => return Err(FormatError::Type("file of unknown type")),
    }
    let interpreter = stream
        .segments()
        .iter()
        .find(|segment| segment.p_type == elf::abi::PT_INTERP)
        .copied();
    if let Some(segment) = interpreter {
        let data = stream.segment_data(&segment).map_err(FormatError::Elf)?;
        let name = data.split(|byte| *byte == 0).next().unwrap_or_default();
        let interpreter = Path::new(OsStr::from_bytes(name));
        if !interpreter.is_absolute() || interpreter.file_name().is_none() {
            return Err(FormatError::ElfInterpreter(
                String::from_utf8_lossy(name).into_owned(),
            ));
        }
        return Ok(Format::Dynamic {
            interpreter: interpreter.to_owned(),
        });
    }
    if stream.ehdr.e_entry == 0 {
        return Err(FormatError::Type("shared library"));
    }
    Ok(Format::Static)
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
        interpreter: PathBuf::from(text(interpreter)),
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
        let Ok(Format::Dynamic { interpreter }) = inspect(&own) else {
            panic!("a test program is dynamic")
        };
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
            inspect_elf(bytes, file).unwrap_err()
        };
        assert!(matches!(refused(&elf(2, 183)), FormatError::Machine(_)));
        assert!(matches!(refused(&elf(1, 3)), FormatError::Machine(_)));
        assert!(matches!(refused(&elf(2, 62)), FormatError::Elf(_)));
        assert!(matches!(refused(b"\x7fELF"), FormatError::Unknown));
        assert!(matches!(
            inspect(Path::new("/")),
            Err(FormatError::Directory)
        ));
        assert!(matches!(
            inspect(Path::new("/dev/null")),
            Err(FormatError::Empty)
        ));
    }
}
