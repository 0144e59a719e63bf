//! What `PROGRAM` means: a static ELF file, a script, or a command of busybox.

use crate::busybox::{Busybox, BusyboxError};
use crate::initramfs::{GuestPath, Initramfs, Node, PackError, Source};
use elf::ElfStream;
use elf::endian::LittleEndian;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Linux reads no more of a script's first line.
const SHEBANG_MAX: usize = 256;

/// What kind of program a file is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    /// A static x86-64 ELF program, position-independent or not.
    Static,
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
    #[error("it is a dynamic program: it wants the interpreter {0}")]
    Dynamic(String),
    #[error("its first line names no interpreter")]
    NoInterpreter,
}

/// Why a program cannot be run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    #[error("{} cannot run in a guest", path.display())]
    Format { path: PathBuf, source: FormatError },
    #[error("{}: no such file", .0.display())]
    NotFound(PathBuf),
    #[error("`{0}` is neither a file here, nor a command of busybox, nor in PATH")]
    UnknownCommand(String),
    #[error("{script} wants the interpreter {interpreter}, which the guest has not")]
    Interpreter { script: String, interpreter: String },
    #[error("{what} needs busybox in the guest")]
    Busybox { what: String, source: BusyboxError },
    #[error(transparent)]
    Pack(#[from] PackError),
}

/// Puts what `command[0]` means into `tree` and returns the guest's argv, whose first item is the
/// path to execute.
pub(crate) fn pack(
    tree: &mut Initramfs,
    command: &[OsString],
) -> Result<Vec<OsString>, ProgramError> {
    let (name, arguments) = command
        .split_first()
        .map_or((OsStr::new(""), command), |(n, a)| (n, a));
    let (path, format) = locate(tree, name)?;
    let mut argv = Vec::new();
    match format {
        Some(Format::Script {
            interpreter,
            argument,
        }) => {
            argv.push(provide_interpreter(tree, name, &interpreter)?);
            argv.extend(argument);
        }
        Some(Format::Static) => {}
        None => pack_busybox(tree, &format!("`{}`", name.to_string_lossy()))?,
    }
    argv.push(OsString::from_vec(path.as_bytes().to_vec()));
    argv.extend(arguments.iter().cloned());
    Ok(argv)
}

/// The guest path of the program, packed; no format: a busybox applet.
fn locate(tree: &mut Initramfs, name: &OsStr) -> Result<(GuestPath, Option<Format>), ProgramError> {
    // A path that --file has packed is meant as the guest's.
    if let Ok(path) = GuestPath::parse(name.as_bytes())
        && let Some(Node::File {
            source: Source::Host(source),
            ..
        }) = tree.get(&path)
    {
        let source = source.clone();
        let format = inspect_named(&source)?;
        tree.add(path.clone(), executable(&source))?;
        return Ok((path, Some(format)));
    }
    let has_slash = name.as_bytes().contains(&b'/');
    let mut file = PathBuf::from(name);
    if has_slash {
        if !file.exists() {
            return Err(ProgramError::NotFound(file));
        }
    } else if !file.is_file() {
        let busybox = Busybox::find();
        if matches!(&busybox, Ok(busybox) if busybox.has(name)) {
            return Ok((
                GuestPath::parse(&[b"/bin/", name.as_bytes()].concat())?,
                None,
            ));
        }
        file = match (search_path(name), busybox) {
            (Some(file), _) => file,
            (None, Ok(_)) => return Err(unknown(name)),
            // Without busybox nobody can say whether it would have had the command.
            (None, Err(source)) => {
                let what = format!("`{}`, which is no file here,", name.to_string_lossy());
                return Err(ProgramError::Busybox { what, source });
            }
        };
    }
    let format = inspect_named(&file)?;
    let base = file.file_name().ok_or_else(|| unknown(name))?;
    let path = GuestPath::parse(&[b"/bin/", base.as_bytes()].concat())?;
    tree.add(path.clone(), executable(&file))?;
    Ok((path, Some(format)))
}

fn unknown(name: &OsStr) -> ProgramError {
    ProgramError::UnknownCommand(name.to_string_lossy().into_owned())
}

fn executable(source: &Path) -> Node {
    Node::File {
        mode: 0o755,
        source: Source::Host(source.to_owned()),
    }
}

fn inspect_named(path: &Path) -> Result<Format, ProgramError> {
    inspect(path).map_err(|source| ProgramError::Format {
        path: path.to_owned(),
        source,
    })
}

/// Makes the guest have what the script's first line names; returns its path there.
fn provide_interpreter(
    tree: &mut Initramfs,
    script: &OsStr,
    interpreter: &Path,
) -> Result<OsString, ProgramError> {
    if let Ok(path) = GuestPath::parse(interpreter.as_os_str().as_bytes())
        && tree.get(&path).is_some()
    {
        return Ok(interpreter.as_os_str().to_owned());
    }
    let script = script.to_string_lossy();
    let busybox = Busybox::find().map_err(|source| ProgramError::Busybox {
        what: format!("the script {script}"),
        source,
    })?;
    match interpreter.file_name() {
        Some(name) if busybox.has(name) => {
            busybox.pack(tree)?;
            Ok(Path::new("/bin").join(name).into_os_string())
        }
        _ => Err(ProgramError::Interpreter {
            script: script.into_owned(),
            interpreter: interpreter.display().to_string(),
        }),
    }
}

/// Packs busybox because `what` needs it.
pub(crate) fn pack_busybox(tree: &mut Initramfs, what: &str) -> Result<(), ProgramError> {
    let needed = |source| ProgramError::Busybox {
        what: what.to_owned(),
        source,
    };
    Ok(Busybox::find().map_err(needed)?.pack(tree)?)
}

/// The first executable file called `name` along the host's PATH.
pub(crate) fn search_path(name: &OsStr) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let path = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    env::split_paths(&path)
        .filter(|entry| entry.is_absolute())
        .map(|entry| entry.join(name))
        .find(|file| {
            file.metadata()
                .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        })
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
        return Err(FormatError::Dynamic(
            String::from_utf8_lossy(name).into_owned(),
        ));
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
        let Err(FormatError::Dynamic(interpreter)) = inspect(&own) else {
            panic!("a test program is dynamic")
        };
        assert!(interpreter.contains("ld-linux"), "{interpreter}");
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
