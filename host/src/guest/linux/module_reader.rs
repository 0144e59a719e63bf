//! Reads kernel modules in a confined process: unpacks them, removes debugging sections, and
//! returns their dependencies and aliases. The modules may belong to another user.

use super::strip::without_debugging;
use crate::compressed::Coding;
use crate::confine::{LIMITS, Reader, frames};
use crate::text::one_line;
use elf::ElfBytes;
use elf::endian::LittleEndian;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// The name of the confined process.
const NAME: &std::ffi::CStr = c"ebb-modules";

/// The request: a module's file, and its compression.
const READ: u8 = 1;
/// The answer with the module's dependencies and aliases, which [`BYTES`] follows.
const MOD_INFO: u8 = 2;
/// The answer with the module's bytes.
const BYTES: u8 = 3;
/// The answer with the reason for a refusal.
const REFUSED: u8 = 4;

/// The maximum size of a module in bytes, without debugging sections. It fits in one message.
const MODULE_BYTES_MAX: u64 = 16 << 20;
/// The maximum size of a module's file in bytes, both compressed and unpacked with its debugging
/// sections. The confined process has address space for a buffer of twice that size and for the
/// module without these sections.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// The maximum size of all modules of a kernel together, in bytes.
const ALL_BYTES_MAX: u64 = 256 << 20;
/// The maximum number of modules that a module depends on.
const DEPENDS_MAX: usize = 256;
/// The maximum number of aliases that are used.
const ALIASES_MAX: usize = 1024;
/// The maximum length of a name in bytes. Linux allows fewer.
const NAME_MAX: usize = 64;

/// Returns the compression of a file whose name has this `extension`, without a dot: `xz`, `zst` or
/// `gz`. Returns `None` for any other, which means that the file is not compressed.
pub(super) fn coding_of_extension(extension: &OsStr) -> Option<Coding> {
    match extension.to_str() {
        Some("xz") => Some(Coding::Xz),
        Some("zst") => Some(Coding::Zstd),
        Some("gz") => Some(Coding::Gzip),
        _ => None,
    }
}

/// The reason why a module cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("it is too large for a driver, even without its debug information")]
    TooLarge,
    #[error("with it the modules of a guest are larger than they may be together")]
    TooMuch,
    #[error("it is no ELF file: {}", one_line(.0))]
    Elf(String),
    #[error("it depends on modules whose names are not valid")]
    Strange,
    #[error("it cannot be unpacked: {}", one_line(.0))]
    Unpack(String),
    #[error("the process that reads it ended")]
    Ended(#[from] io::Error),
}

/// The facts in a module's `.modinfo` section that are used.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct ModInfo {
    /// The names of the modules that this one depends on.
    pub(super) depends: Vec<String>,
    /// The module's aliases, without patterns for devices.
    pub(super) aliases: Vec<String>,
}

/// Why the confined process does not return a module.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Refusal {
    /// The file cannot be read or unpacked, with the reason.
    Unpack(String),
    TooLarge,
    /// The file is not an ELF file, with the reason.
    Elf(String),
}

/// Reads modules in a confined process, which is started for the first module and ends when this is
/// dropped. It returns at most 256 MiB of modules in all.
#[derive(Debug)]
pub(super) struct ModuleReader {
    reader: Option<Reader>,
    /// The number of bytes of modules that may still be returned.
    left: u64,
}

impl Default for ModuleReader {
    fn default() -> Self {
        Self {
            reader: None,
            left: ALL_BYTES_MAX,
        }
    }
}

impl ModuleReader {
    /// Reads the module in `file`, compressed by `coding`, or not compressed if that is `None`.
    /// Returns its dependencies and aliases, and its bytes, unpacked and without debugging
    /// sections.
    ///
    /// # Errors
    /// If the module cannot be unpacked, is not an ELF file, has invalid names, or is over 16 MiB.
    /// `TooMuch` if all modules together are over 256 MiB. `Ended` if the confined process cannot
    /// be started or ended; the next call starts another one.
    /// process ended.
    pub(super) fn read(
        &mut self,
        file: &File,
        coding: Option<Coding>,
    ) -> Result<(ModInfo, Vec<u8>), ReadError> {
        let broken = || ReadError::Ended(io::ErrorKind::InvalidData.into());
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => Reader::start(NAME, LIMITS, serve)?,
        };
        let question = serde_json::to_vec(&coding).map_err(io::Error::from)?;
        reader.send(READ, &question, &[file.as_fd()])?;
        let answer = reader.receive()?;
        if answer.kind == REFUSED {
            // The process can read another module.
            self.reader = Some(reader);
            let refusal = serde_json::from_slice(&answer.bytes).map_err(|_| broken())?;
            return Err(match refusal {
                Refusal::TooLarge => ReadError::TooLarge,
                Refusal::Unpack(why) => ReadError::Unpack(why),
                Refusal::Elf(why) => ReadError::Elf(why),
            });
        }
        let info: ModInfo = match answer.kind {
            MOD_INFO => serde_json::from_slice(&answer.bytes).map_err(|_| broken())?,
            _ => return Err(broken()),
        };
        let module = reader.receive()?;
        if module.kind != BYTES {
            return Err(broken());
        }
        self.reader = Some(reader);
        // Checked here again: a module may have taken over the confined process, which can then
        // send anything.
        if !is_plausible(&info) {
            return Err(ReadError::Strange);
        }
        let size = size_of(&module.bytes);
        if size > MODULE_BYTES_MAX {
            return Err(ReadError::TooLarge);
        }
        self.left = self.left.checked_sub(size).ok_or(ReadError::TooMuch)?;
        Ok((info, module.bytes))
    }
}

/// Returns whether all dependencies and aliases are valid names and there are not too many.
fn is_plausible(info: &ModInfo) -> bool {
    info.depends.len() <= DEPENDS_MAX
        && info.depends.iter().all(|name| is_name(name))
        && info.aliases.len() <= ALIASES_MAX
        && info.aliases.iter().all(|alias| is_word(alias))
}

/// Returns whether `text` is a valid module name.
fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(plain)
}

/// Returns whether a module can be requested by `alias`. Patterns for devices are not used.
fn is_word(alias: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'*';
    (1..=NAME_MAX).contains(&alias.len()) && alias.bytes().all(plain)
}

fn size_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// Serves requests in the confined process until the socket is closed.
fn serve(socket: &UnixStream) {
    while let Ok(mut frame) = frames::receive(socket) {
        let coding = serde_json::from_slice(&frame.bytes);
        let (Some(file), Ok(coding)) = (frame.descriptors.pop(), coding) else {
            return;
        };
        let sent = match read_module(file, coding) {
            Ok((info, module)) => serde_json::to_vec(&info)
                .map_err(io::Error::from)
                .and_then(|info| frames::send(socket, MOD_INFO, &info, &[]))
                .and_then(|()| frames::send(socket, BYTES, &module, &[])),
            Err(refusal) => serde_json::to_vec(&refusal)
                .map_err(io::Error::from)
                .and_then(|refusal| frames::send(socket, REFUSED, &refusal, &[])),
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Returns the dependencies, aliases and bytes of the module in `file`.
fn read_module(file: OwnedFd, coding: Option<Coding>) -> Result<(ModInfo, Vec<u8>), Refusal> {
    let module = unpacked(File::from(file), coding, FILE_BYTES_MAX)?;
    let module = without_debugging(module);
    if size_of(&module) > MODULE_BYTES_MAX {
        return Err(Refusal::TooLarge);
    }
    let info = info(&module).map_err(|error| Refusal::Elf(error.to_string()))?;
    Ok((info, module))
}

/// Returns the unpacked contents of `file`. Fails with `TooLarge` if they exceed `most` bytes.
fn unpacked(file: File, coding: Option<Coding>, most: u64) -> Result<Vec<u8>, Refusal> {
    let failed = |error: io::Error| Refusal::Unpack(error.to_string());
    // Limits the input, too, since padding could be endless.
    let packed = BufReader::with_capacity(1 << 16, file.take(most + 1));
    let reader: Box<dyn Read> = match coding {
        None => Box::new(packed),
        Some(coding) => coding.reader(packed),
    };
    let mut bytes = Vec::new();
    reader
        .take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if size_of(&bytes) > most {
        return Err(Refusal::TooLarge);
    }
    Ok(bytes)
}

/// Returns the names after `depends=` and after each `alias=` in the module's `.modinfo` section.
/// Fails if `module` is not an ELF file.
fn info(module: &[u8]) -> Result<ModInfo, elf::ParseError> {
    let file = ElfBytes::<LittleEndian>::minimal_parse(module)?;
    let Some(section) = file.section_header_by_name(".modinfo")? else {
        return Ok(ModInfo::default());
    };
    let (bytes, _) = file.section_data(&section)?;
    let values = |key: &'static str| {
        bytes
            .split(|byte| *byte == 0)
            .filter_map(move |line| line.strip_prefix(key.as_bytes()))
            .map(String::from_utf8_lossy)
    };
    let depends = values("depends=").next().unwrap_or_default();
    Ok(ModInfo {
        // One name more than allowed is kept, so that the other process notices that there are too
        // many.
        depends: depends
            .split(',')
            .filter(|name| !name.is_empty())
            .map(|name| name.replace('-', "_"))
            .take(DEPENDS_MAX + 1)
            .collect(),
        aliases: values("alias=")
            .filter(|alias| is_word(alias))
            .take(ALIASES_MAX)
            .map(String::from)
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressed;
    use crate::guest::linux::strip::tests::module;
    use std::io::Write;

    /// Reads a module with the given bytes in a new confined process.
    fn read(bytes: &[u8], coding: Option<Coding>) -> Result<(ModInfo, Vec<u8>), ReadError> {
        let mut file = crate::system::memory_file("module").unwrap();
        file.write_all(bytes).unwrap();
        // The reader expects a file at position 0.
        io::Seek::rewind(&mut file).unwrap();
        ModuleReader::default().read(&file, coding)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn said(modinfo: &[u8]) -> Vec<u8> {
        module(&[(".text", b"code", true), (".modinfo", modinfo, true)])
    }

    #[test]
    fn modules_of_all_kinds_are_read() {
        let plain = said(b"depends=a-b,c\0alias=fs-x\0alias=pci:v*\0alias=two words\0");
        let zstd = compressed::tests::zstd(&plain);
        let info = ModInfo {
            depends: vec!["a_b".into(), "c".into()],
            aliases: vec!["fs-x".into()],
        };
        for (bytes, coding) in [
            (plain.clone(), None),
            (gzip(&plain), Some(Coding::Gzip)),
            (zstd, Some(Coding::Zstd)),
        ] {
            assert_eq!(read(&bytes, coding).unwrap(), (info.clone(), plain.clone()));
        }
    }

    #[test]
    fn what_is_truncated_is_refused() {
        let plain = said(b"depends=\0");
        let zstd = compressed::tests::zstd(&plain);
        for (bytes, coding) in [
            (gzip(&plain), Some(Coding::Gzip)),
            (zstd, Some(Coding::Zstd)),
        ] {
            for length in [0, 1, 10, bytes.len() / 2, bytes.len() - 1] {
                let refused = read(&bytes[..length], coding);
                assert!(
                    matches!(refused, Err(ReadError::Unpack(_) | ReadError::Elf(_))),
                    "{coding:?} {length}: {refused:?}"
                );
            }
        }
        for length in [0, 3, 40, 64, plain.len() - 1] {
            let refused = read(&plain[..length], None);
            assert!(
                matches!(refused, Err(ReadError::Elf(_))),
                "{length}: {refused:?}"
            );
        }
        let refused = read(b"\xfd7zXZ\0 and no more", Some(Coding::Xz));
        assert!(matches!(refused, Err(ReadError::Unpack(_))));
    }

    #[test]
    fn a_bomb_is_refused() {
        let bomb = compressed::tests::zstd_zeroes(FILE_BYTES_MAX);
        assert!(bomb.len() < 1 << 20, "{}", bomb.len());
        let refused = read(&bomb, Some(Coding::Zstd));
        assert!(matches!(refused, Err(ReadError::TooLarge)), "{refused:?}");
        // Large, without debugging sections.
        let large = module(&[(".text", &vec![1; 17 << 20], true)]);
        let refused = read(&large, None);
        assert!(matches!(refused, Err(ReadError::TooLarge)), "{refused:?}");
        // A hole in a file is endless padding.
        let file = crate::system::memory_file("module").unwrap();
        file.set_len(1 << 40).unwrap();
        for coding in [None, Some(Coding::Gzip), Some(Coding::Zstd)] {
            let refused = ModuleReader::default().read(&file, coding);
            assert!(refused.is_err(), "{coding:?}");
        }
    }

    #[test]
    fn names_that_are_none_are_refused() {
        for depends in ["../x", "a b", "a\nb", &"x".repeat(65)] {
            let refused = read(&said(format!("depends={depends}\0").as_bytes()), None);
            assert!(matches!(refused, Err(ReadError::Strange)), "{depends}");
        }
        let many = vec!["x"; DEPENDS_MAX + 1].join(",");
        let refused = read(&said(format!("depends={many}\0").as_bytes()), None);
        assert!(matches!(refused, Err(ReadError::Strange)));
    }

    #[test]
    fn all_modules_together_are_bounded() {
        let mut reader = ModuleReader {
            left: 1000,
            ..ModuleReader::default()
        };
        let mut file = crate::system::memory_file("module").unwrap();
        file.write_all(&said(b"depends=\0")).unwrap();
        let results = (0..9).map(|_| {
            io::Seek::rewind(&mut file).unwrap();
            reader.read(&file, None)
        });
        let results: Vec<_> = results.collect();
        assert!(results[0].is_ok());
        assert!(matches!(results[8], Err(ReadError::TooMuch)));
    }
}
