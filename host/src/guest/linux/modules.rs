//! The drivers that a guest needs and a stock kernel has as modules, with what they depend on.

use super::strip::without_debugging;
use crate::guest::kernel::Extras;
use crate::system::{open_regular, read_regular};
use crate::text::one_line;
use elf::ElfBytes;
use elf::endian::LittleEndian;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

/// What a guest of ebb needs on any board: a way to talk, and the balloon.
const REQUIRED: [&str; 2] = ["virtio_console", "virtio_balloon"];
/// What a guest with disks needs besides.
const DISKS: [&str; 1] = ["virtio_blk"];
/// And one that sees the host's files.
const FILES: [&str; 2] = ["fuse", "overlay"];
/// How a board presents these; one of them will do for each, and both make the kernel fit for both.
const TRANSPORTS: [&str; 2] = ["virtio_mmio", "virtio_pci"];
/// Where they stand below a kernel's folder of modules.
const FOLDERS: [&str; 5] = [
    "kernel/drivers/virtio",
    "kernel/drivers/char",
    "kernel/drivers/block",
    "kernel/fs/fuse",
    "kernel/fs/overlayfs",
];
/// What a build says that it made as modules, in a source tree's root.
const ORDER: &str = "modules.order";
const ORDER_BYTES_MAX: u64 = 4 << 20;
/// A module larger than this is none of those, once what only a debugger reads is taken out.
const MODULE_BYTES_MAX: u64 = 16 << 20;
/// Its file is no larger with that.
const FILE_BYTES_MAX: u64 = 512 << 20;
/// Folders of modules nest no deeper than this.
const FOLDERS_DEPTH_MAX: usize = 16;
/// A chain of dependencies longer than this is a circle.
const DEPTH_MAX: usize = 16;

/// One module, ready to be loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// Why a kernel's modules cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ModuleError {
    #[error(
        "there is neither a module {name} in {} nor is it built in",
        one_line(folder)
    )]
    Missing { name: String, folder: PathBuf },
    #[error("there is neither virtio_mmio nor virtio_pci in {}", one_line(.0))]
    NoTransport(PathBuf),
    #[error("cannot read {}", one_line(path))]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is larger than a driver is, without what only a debugger reads", one_line(.0))]
    TooLarge(PathBuf),
    #[error("{} is not a module", one_line(path))]
    Elf {
        path: PathBuf,
        source: elf::ParseError,
    },
    #[error("{} depends on itself", one_line(.0))]
    Circle(PathBuf),
    #[error("cannot unpack {} with {with}", one_line(path))]
    Unpack {
        path: PathBuf,
        with: &'static str,
        source: io::Error,
    },
}

/// The modules that a guest loads, in the order in which that works. `folder` is the kernel's
/// `lib/modules/RELEASE`.
pub(crate) fn find(folder: &Path, extras: Extras) -> Result<Vec<Module>, ModuleError> {
    let mut search = Search {
        folder,
        files: files(folder),
        built_in: built_in(folder),
        found: Vec::new(),
        seen: BTreeSet::new(),
    };
    let mut transports = 0;
    for name in TRANSPORTS {
        match search.add(name, DEPTH_MAX) {
            Ok(()) => transports += 1,
            Err(ModuleError::Missing { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    if transports == 0 {
        return Err(ModuleError::NoTransport(folder.to_owned()));
    }
    let disks = DISKS.iter().filter(|_| extras.disks);
    let files = FILES.iter().filter(|_| extras.files);
    for name in REQUIRED.iter().chain(disks).chain(files) {
        search.add(name, DEPTH_MAX)?;
    }
    Ok(search.found)
}

struct Search<'a> {
    folder: &'a Path,
    files: BTreeMap<String, PathBuf>,
    built_in: BTreeSet<String>,
    found: Vec<Module>,
    seen: BTreeSet<String>,
}

impl Search<'_> {
    /// Adds a module after everything that it depends on.
    fn add(&mut self, name: &str, depth: usize) -> Result<(), ModuleError> {
        if self.seen.contains(name) || self.built_in.contains(name) {
            return Ok(());
        }
        let Some(path) = self.files.get(name).cloned() else {
            return Err(ModuleError::Missing {
                name: name.to_owned(),
                folder: self.folder.to_owned(),
            });
        };
        let depth = depth
            .checked_sub(1)
            .ok_or_else(|| ModuleError::Circle(path.clone()))?;
        let bytes = read(&path)?;
        for dependency in dependencies(&path, &bytes)? {
            self.add(&dependency, depth)?;
        }
        self.seen.insert(name.to_owned());
        self.found.push(Module {
            name: name.to_owned(),
            bytes,
        });
        Ok(())
    }
}

/// The name of the module in a file: `-` and `_` are the same to Linux.
fn module_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let (stem, rest) = name.split_once(".ko")?;
    matches!(rest, "" | ".xz" | ".zst" | ".gz").then(|| stem.replace('-', "_"))
}

/// The modules where these drivers stand.
fn files(folder: &Path) -> BTreeMap<String, PathBuf> {
    let mut files = BTreeMap::new();
    let unprefixed = FOLDERS.map(|place| place.trim_start_matches("kernel/"));
    // A source tree has them without the folder into which they are installed.
    for place in FOLDERS.into_iter().chain(unprefixed) {
        // A folder that is absent holds none; what is missed by that is named later.
        let entries = std::fs::read_dir(folder.join(place));
        for entry in entries.into_iter().flatten().flatten() {
            let path = entry.path();
            if let Some(name) = module_name(&path) {
                files.insert(name, path);
            }
        }
    }
    add_built(folder, &mut files);
    files
}

/// Adds what a build says that it made, in a source tree's folders of all sorts.
fn add_built(folder: &Path, files: &mut BTreeMap<String, PathBuf>) {
    let order = open_regular(&folder.join(ORDER)).map(|file| file.take(ORDER_BYTES_MAX));
    let mut text = String::new();
    if order.is_ok_and(|mut order| order.read_to_string(&mut text).is_ok()) {
        for line in text.lines() {
            let path = Path::new(line.strip_prefix("kernel/").unwrap_or(line));
            let path = path.with_extension("ko");
            let inside = path
                .components()
                .all(|part| matches!(part, Component::Normal(_)));
            if let (true, Some(name)) = (inside, module_name(&path)) {
                let path = folder.join(path);
                if path.is_file() {
                    files.entry(name).or_insert(path);
                }
            }
        }
    }
}

/// What is no module, as it is part of the kernel.
pub(super) fn built_in(folder: &Path) -> BTreeSet<String> {
    let text = read_regular(&folder.join("modules.builtin")).ok();
    let text = text.and_then(|text| String::from_utf8(text).ok());
    let text = text.unwrap_or_default();
    text.lines()
        .filter_map(|line| module_name(Path::new(line)))
        .collect()
}

/// All modules of a kernel by name, wherever they stand.
pub(super) fn all_files(folder: &Path) -> BTreeMap<String, PathBuf> {
    let mut files = BTreeMap::new();
    let mut folders = vec![(folder.join("kernel"), FOLDERS_DEPTH_MAX)];
    while let Some((folder, depth)) = folders.pop() {
        let entries = std::fs::read_dir(folder);
        for entry in entries.into_iter().flatten().flatten() {
            let path = entry.path();
            match module_name(&path) {
                Some(name) => drop(files.insert(name, path)),
                // Links are not followed: they could lead round in a circle.
                None if depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir()) => {
                    folders.push((path, depth - 1));
                }
                None => {}
            }
        }
    }
    add_built(folder, &mut files);
    files
}

/// The file's bytes, unpacked if they are packed.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, ModuleError> {
    let unpacker = match path.extension().and_then(|e| e.to_str()) {
        Some("xz") => Some("xz"),
        Some("zst") => Some("zstd"),
        Some("gz") => Some("gzip"),
        _ => None,
    };
    let failed = |source| ModuleError::Read {
        path: path.to_owned(),
        source,
    };
    let file = open_regular(path).map_err(failed)?;
    let mut bytes = Vec::new();
    let Some(with) = unpacker else {
        file.take(FILE_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        return checked(path, bytes);
    };
    let failed = |source| ModuleError::Unpack {
        path: path.to_owned(),
        with,
        source,
    };
    let mut child = Command::new(with)
        .arg("-dc")
        .stdin(file)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let read = child.stdout.take().map_or(Ok(0), |stdout| {
        stdout.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)
    });
    // Its output is closed by now, so it ends.
    let status = child.wait().map_err(failed)?;
    read.map_err(failed)?;
    if is_within(&bytes, FILE_BYTES_MAX) && !status.success() {
        return Err(failed(io::Error::other(format!("it ended with {status}"))));
    }
    checked(path, bytes)
}

fn checked(path: &Path, bytes: Vec<u8>) -> Result<Vec<u8>, ModuleError> {
    if is_within(&bytes, FILE_BYTES_MAX) {
        let bytes = without_debugging(bytes);
        if is_within(&bytes, MODULE_BYTES_MAX) {
            return Ok(bytes);
        }
    }
    Err(ModuleError::TooLarge(path.to_owned()))
}

fn is_within(bytes: &[u8], most: u64) -> bool {
    u64::try_from(bytes.len()).is_ok_and(|len| len <= most)
}

/// What a module depends on: the names after `depends=` in its `.modinfo`.
pub(super) fn dependencies(path: &Path, module: &[u8]) -> Result<Vec<String>, ModuleError> {
    let depends = told(path, module, "depends=")?;
    let names = depends.first().map(String::as_str).unwrap_or_default();
    Ok(names
        .split(',')
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect())
}

/// The other names of a module.
pub(super) fn aliases(path: &Path, module: &[u8]) -> Result<Vec<String>, ModuleError> {
    told(path, module, "alias=")
}

/// What a module says of itself after `key`, as often as it says so.
fn told(path: &Path, module: &[u8], key: &str) -> Result<Vec<String>, ModuleError> {
    let failed = |source| ModuleError::Elf {
        path: path.to_owned(),
        source,
    };
    let file = ElfBytes::<LittleEndian>::minimal_parse(module).map_err(failed)?;
    let Some(section) = file.section_header_by_name(".modinfo").map_err(failed)? else {
        return Ok(Vec::new());
    };
    let (bytes, _) = file.section_data(&section).map_err(failed)?;
    Ok(bytes
        .split(|byte| *byte == 0)
        .filter_map(|line| line.strip_prefix(key.as_bytes()))
        .map(|value| String::from_utf8_lossy(value).into_owned())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_files() {
        let name = |text: &str| module_name(Path::new(text));
        assert_eq!(name("a/virtio_mmio.ko").as_deref(), Some("virtio_mmio"));
        assert_eq!(name("virtio-ring.ko.xz").as_deref(), Some("virtio_ring"));
        assert_eq!(name("virtio.kobold"), None);
        assert_eq!(name("virtio"), None);
    }

    #[test]
    fn what_is_missing_is_named() {
        let folder = std::env::temp_dir().join(format!("ebb-modules-{}", std::process::id()));
        std::fs::create_dir_all(folder.join(FOLDERS[0])).unwrap();
        assert!(matches!(
            find(&folder, Extras::default()),
            Err(ModuleError::NoTransport(_))
        ));
        std::fs::write(
            folder.join("modules.builtin"),
            "kernel/drivers/virtio/virtio_mmio.ko\nkernel/drivers/char/virtio_console.ko\n",
        )
        .unwrap();
        let error = find(&folder, Extras::default()).unwrap_err();
        assert!(
            matches!(&error, ModuleError::Missing { name, .. } if name == "virtio_balloon"),
            "{error}"
        );
        std::fs::write(folder.join(FOLDERS[0]).join("virtio_balloon.ko"), "no ELF").unwrap();
        assert!(matches!(
            find(&folder, Extras::default()),
            Err(ModuleError::Elf { .. })
        ));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
