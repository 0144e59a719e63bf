//! Finds the drivers that a guest needs and a stock kernel has as modules, and their dependencies.

use super::module_reader::{ModInfo, ModuleReader, ReadError, coding_of_extension};
use super::tree::Tree;
use crate::guest::kernel::Extras;
use crate::text::one_line;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};

/// The modules that every guest needs: ports to the host, and the balloon.
const REQUIRED: [&str; 2] = ["virtio_console", "virtio_balloon"];
/// More modules for a guest with disks.
const DISKS: [&str; 1] = ["virtio_blk"];
/// More modules for a guest that sees files of the host.
const FILES: [&str; 2] = ["fuse", "overlay"];
/// More modules for a guest whose memory is plugged and unplugged.
const PLUGGED: [&str; 1] = ["virtio_mem"];
/// The buses on which a board presents virtio devices. One of the modules is enough for each board;
/// with both, the kernel can run on either.
const TRANSPORTS: [&str; 2] = ["virtio_mmio", "virtio_pci"];
/// The folders of these modules below the kernel's module folder.
const FOLDERS: [&str; 5] = [
    "kernel/drivers/virtio",
    "kernel/drivers/char",
    "kernel/drivers/block",
    "kernel/fs/fuse",
    "kernel/fs/overlayfs",
];
/// The list of modules that a build wrote, in the root of a source tree.
const ORDER: &str = "modules.order";
/// The list of modules that are built into the kernel.
const BUILT_IN: &str = "modules.builtin";
/// The maximum size of such a list in bytes.
const LIST_BYTES_MAX: u64 = 4 << 20;
/// The maximum number of modules that a guest loads at boot.
const MODULES_MAX: usize = 64;
/// The maximum depth of folders that are searched for modules.
const FOLDERS_DEPTH_MAX: usize = 16;
/// The maximum length of a chain of dependencies. A longer one is treated as a cycle.
const DEPTH_MAX: usize = 16;

/// A kernel module that is unpacked and ready to load.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// The reason why a kernel's modules cannot be used.
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

/// Returns the modules that a guest with `extras` loads at boot, each behind its dependencies,
/// without those that are built in. `tree` is the kernel's `lib/modules/RELEASE` or its source
/// tree.
///
/// Fails if a required module is neither in `tree` nor built in, cannot be read, is not usable, or
/// depends on itself. Fails, too, if there are more than 64 modules, or neither of the two buses
/// for virtio devices.
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

/// A search for modules, and what it has found.
struct Search<'a> {
    tree: &'a Tree,
    reader: &'a mut ModuleReader,
    files: BTreeMap<String, PathBuf>,
    built_in: BTreeSet<String>,
    found: Vec<Module>,
    seen: BTreeSet<String>,
}

impl Search<'_> {
    /// Adds module `name` behind all modules that it depends on. Does nothing if it is built in or
    /// already added. Fails if it is missing or unusable, or a chain of dependencies is longer than
    /// `depth`.
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
        let (info, bytes) = read(self.tree, &inside, self.reader)?;
        for dependency in info.depends {
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

/// Returns the name of the module in the file `path`, with `_` for `-`, which Linux treats alike.
/// Returns `None` if the file's name is not that of a module.
fn module_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let (stem, rest) = name.split_once(".ko")?;
    matches!(rest, "" | ".xz" | ".zst" | ".gz").then(|| stem.replace('-', "_"))
}

/// Returns the modules in the folders of the drivers, by name, with their paths in the tree.
fn files(tree: &Tree) -> BTreeMap<String, PathBuf> {
    let mut files = BTreeMap::new();
    let unprefixed = FOLDERS.map(|place| place.trim_start_matches("kernel/"));
    // A source tree has the same folders without the prefix `kernel/`, which installing adds.
    for place in FOLDERS.into_iter().chain(unprefixed).map(Path::new) {
        // A missing folder has no entries; the module that is then missing is reported later.
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

/// Adds the modules that `modules.order` in a source tree lists, wherever they are in the tree.
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

/// Returns the names of the modules that are built into the kernel, with `_` for `-`. The set is
/// empty if `tree` has no list of them.
pub(super) fn built_in(tree: &Tree) -> BTreeSet<String> {
    let text = tree.text(BUILT_IN, LIST_BYTES_MAX).unwrap_or_default();
    text.lines()
        .filter_map(|line| module_name(Path::new(line)))
        .collect()
}

/// Returns all modules of a kernel by name, with `_` for `-`, and their paths in `tree`: those
/// below the folder `kernel`, and those that a source tree lists. Links to folders are not
/// followed.
pub(super) fn all_files(tree: &Tree) -> BTreeMap<String, PathBuf> {
    let mut files = BTreeMap::new();
    let mut folders = vec![(PathBuf::from("kernel"), FOLDERS_DEPTH_MAX)];
    while let Some((folder, depth)) = folders.pop() {
        for (entry, is_folder) in tree.entries(&folder) {
            let path = folder.join(entry);
            match module_name(&path) {
                Some(name) => drop(files.insert(name, path)),
                // Links are not followed, since they could form a cycle.
                None if depth > 0 && is_folder => folders.push((path, depth - 1)),
                None => {}
            }
        }
    }
    add_built(tree, &mut files);
    files
}

/// Reads the module at the path `inside` of `tree`, whose extension names its compression. Returns
/// its dependencies and aliases, and its unpacked bytes without debugging sections. Fails if the
/// file cannot be read or is not a usable module.
pub(super) fn read(
    tree: &Tree,
    inside: &Path,
    reader: &mut ModuleReader,
) -> Result<(ModInfo, Vec<u8>), ModuleError> {
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
