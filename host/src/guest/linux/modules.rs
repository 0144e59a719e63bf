//! The drivers that a guest needs and a stock kernel has as modules, with what they depend on.

use super::module_reader::{ModuleReader, ReadError, Told, coding_of_extension};
use super::tree::Tree;
use crate::guest::kernel::Extras;
use crate::text::one_line;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};

/// What a guest of ebb needs on any board: a way to talk, and the balloon.
const REQUIRED: [&str; 2] = ["virtio_console", "virtio_balloon"];
/// What a guest with disks needs besides.
const DISKS: [&str; 1] = ["virtio_blk"];
/// And one that sees the host's files.
const FILES: [&str; 2] = ["fuse", "overlay"];
/// And one whose memory is plugged in and out.
const PLUGGED: [&str; 1] = ["virtio_mem"];
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
/// What is built in.
const BUILT_IN: &str = "modules.builtin";
/// The most bytes of such a list.
const LIST_BYTES_MAX: u64 = 4 << 20;
/// The most modules that a guest loads.
const MODULES_MAX: usize = 64;
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
    #[error("{} and what it depends on are over {MODULES_MAX} modules", one_line(.0))]
    TooMany(PathBuf),
    #[error("{} depends on itself", one_line(.0))]
    Circle(PathBuf),
    #[error("{} is not a module that a guest can load", one_line(path))]
    Unusable { path: PathBuf, source: ReadError },
}

/// The modules that a guest loads, in the order in which that works. `tree` is the kernel's
/// `lib/modules/RELEASE`.
pub(super) fn find(
    tree: &Tree,
    reader: &mut ModuleReader,
    extras: Extras,
) -> Result<Vec<Module>, ModuleError> {
    let mut search = Search {
        tree,
        reader,
        files: files(tree),
        built_in: built_in(tree),
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
        return Err(ModuleError::NoTransport(tree.path(Path::new(""))));
    }
    let disks = DISKS.iter().filter(|_| extras.disks);
    let files = FILES.iter().filter(|_| extras.files);
    let plugged = PLUGGED.iter().filter(|_| extras.plugged);
    for name in REQUIRED.iter().chain(disks).chain(files).chain(plugged) {
        search.add(name, DEPTH_MAX)?;
    }
    Ok(search.found)
}

struct Search<'a> {
    tree: &'a Tree,
    reader: &'a mut ModuleReader,
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
        let Some(inside) = self.files.get(name).cloned() else {
            return Err(ModuleError::Missing {
                name: name.to_owned(),
                folder: self.tree.path(Path::new("")),
            });
        };
        let depth = depth
            .checked_sub(1)
            .ok_or_else(|| ModuleError::Circle(self.tree.path(&inside)))?;
        if self.found.len() == MODULES_MAX {
            return Err(ModuleError::TooMany(self.tree.path(&inside)));
        }
        let (told, bytes) = read(self.tree, &inside, self.reader)?;
        for dependency in told.depends {
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

/// The modules where these drivers stand, by their paths in the tree.
fn files(tree: &Tree) -> BTreeMap<String, PathBuf> {
    let mut files = BTreeMap::new();
    let unprefixed = FOLDERS.map(|place| place.trim_start_matches("kernel/"));
    // A source tree has them without the folder into which they are installed.
    for place in FOLDERS.into_iter().chain(unprefixed).map(Path::new) {
        // A folder that is absent holds none; what is missed by that is named later.
        for (entry, _) in tree.entries(place) {
            let path = place.join(entry);
            if let Some(name) = module_name(&path) {
                files.insert(name, path);
            }
        }
    }
    add_built(tree, &mut files);
    files
}

/// Adds what a build says that it made, in a source tree's folders of all sorts.
fn add_built(tree: &Tree, files: &mut BTreeMap<String, PathBuf>) {
    let text = tree.text(ORDER, LIST_BYTES_MAX).unwrap_or_default();
    for line in text.lines() {
        let path = Path::new(line.strip_prefix("kernel/").unwrap_or(line));
        let path = path.with_extension("ko");
        let inside = path
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        if let (true, Some(name)) = (inside, module_name(&path))
            && tree.has_file(&path)
        {
            files.entry(name).or_insert(path);
        }
    }
}

/// What is no module, as it is part of the kernel.
pub(super) fn built_in(tree: &Tree) -> BTreeSet<String> {
    let text = tree.text(BUILT_IN, LIST_BYTES_MAX).unwrap_or_default();
    text.lines()
        .filter_map(|line| module_name(Path::new(line)))
        .collect()
}

/// All modules of a kernel by name, wherever they stand.
pub(super) fn all_files(tree: &Tree) -> BTreeMap<String, PathBuf> {
    let mut files = BTreeMap::new();
    let mut folders = vec![(PathBuf::from("kernel"), FOLDERS_DEPTH_MAX)];
    while let Some((folder, depth)) = folders.pop() {
        for (entry, is_folder) in tree.entries(&folder) {
            let path = folder.join(entry);
            match module_name(&path) {
                Some(name) => drop(files.insert(name, path)),
                // Links are not followed: they could lead round in a circle.
                None if depth > 0 && is_folder => folders.push((path, depth - 1)),
                None => {}
            }
        }
    }
    add_built(tree, &mut files);
    files
}

/// Reads the module at a path of the tree: what it says of itself, and its bytes, unpacked.
pub(super) fn read(
    tree: &Tree,
    inside: &Path,
    reader: &mut ModuleReader,
) -> Result<(Told, Vec<u8>), ModuleError> {
    let path = tree.path(inside);
    let file = tree.file(inside).map_err(|source| ModuleError::Read {
        path: path.clone(),
        source,
    })?;
    let extension = inside.extension().unwrap_or(OsStr::new(""));
    let read = reader.read(&file, coding_of_extension(extension));
    read.map_err(|source| ModuleError::Unusable { path, source })
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
        let folder = folder.canonicalize().unwrap();
        let tree = || Tree::open(&folder).unwrap();
        assert!(matches!(
            find(&tree(), &mut ModuleReader::default(), Extras::default()),
            Err(ModuleError::NoTransport(_))
        ));
        std::fs::write(
            folder.join("modules.builtin"),
            "kernel/drivers/virtio/virtio_mmio.ko\nkernel/drivers/char/virtio_console.ko\n",
        )
        .unwrap();
        let error = find(&tree(), &mut ModuleReader::default(), Extras::default()).unwrap_err();
        assert!(
            matches!(&error, ModuleError::Missing { name, .. } if name == "virtio_balloon"),
            "{error}"
        );
        std::fs::write(folder.join(FOLDERS[0]).join("virtio_balloon.ko"), "no ELF").unwrap();
        assert!(matches!(
            find(&tree(), &mut ModuleReader::default(), Extras::default()),
            Err(ModuleError::Unusable {
                source: ReadError::Elf(_),
                ..
            })
        ));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
