//! Modules that a guest with disks may need, each loaded when it is requested.

use super::module_reader::ModuleReader;
use super::modules::{self, Module, ModuleError};
use super::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

/// File systems that disks may have: the module, and the type for mount(8).
const FILE_SYSTEMS: [(&str, &str); 4] = [
    ("ext4", "ext4"),
    ("xfs", "xfs"),
    ("vfat", "vfat"),
    ("isofs", "iso9660"),
];
/// Modules that file systems and their users request by name while they run: checksums, character
/// sets of file names, loop devices, overlayfs.
const OTHERS: [&str; 8] = [
    "crc32c_generic",
    "nls_cp437",
    "nls_ascii",
    "nls_iso8859_1",
    "nls_utf8",
    "loop",
    "overlay",
    "libcrc32c",
];
/// The maximum number of modules, dependencies included. Real kernels have fewer.
const MODULES_MAX: usize = 64;

/// The modules of a kernel that can be loaded on request. A wanted module that is not here is built
/// in or does not exist.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    /// The modules.
    pub(crate) modules: Vec<Module>,
    /// A line for each name by which a module can be requested: the name, then the modules to load
    /// for it, in order.
    pub(crate) list: String,
    /// The file system types that mount(8) tries, one per line.
    pub(crate) file_systems: String,
}

/// A module that was read.
struct Known {
    bytes: Vec<u8>,
    depends: Vec<String>,
    aliases: Vec<String>,
}

/// Reads the modules that disks may need, and their dependencies, from the kernel's module folder
/// `tree`. Leaves out modules that are built in or missing, and those beyond 64. Fails if a module
/// that is there cannot be read or is not usable.
pub(super) fn find(tree: &Tree, reader: &mut ModuleReader) -> Result<Demand, ModuleError> {
    let files = modules::all_files(tree);
    let built_in = modules::built_in(tree);
    let types = FILE_SYSTEMS.iter().map(|(module, _)| *module);
    let mut wanted: Vec<String> = types.chain(OTHERS).map(str::to_owned).collect();
    let mut known: BTreeMap<String, Known> = BTreeMap::new();
    while let Some(name) = wanted.pop() {
        if known.contains_key(&name) || known.len() == MODULES_MAX {
            continue;
        }
        let Some(path) = files.get(&name) else {
            continue;
        };
        let (told, bytes) = modules::read(tree, path, reader)?;
        wanted.extend(told.depends.iter().cloned());
        known.insert(
            name,
            Known {
                bytes,
                depends: told.depends,
                aliases: told.aliases,
            },
        );
    }
    let there = |module: &str| known.contains_key(module) || built_in.contains(module);
    let file_systems = FILE_SYSTEMS
        .iter()
        .filter(|(module, _)| there(module))
        .map(|(_, name)| format!("{name}\n"))
        .collect();
    let list = list(&known);
    let modules = known
        .into_iter()
        .map(|(name, known)| Module {
            name,
            bytes: known.bytes,
        })
        .collect();
    Ok(Demand {
        modules,
        list,
        file_systems,
    })
}

/// Returns the text for [`Demand::list`].
fn list(known: &BTreeMap<String, Known>) -> String {
    let mut list = String::new();
    for (name, module) in known {
        let mut order = Vec::new();
        collect(known, name, &mut BTreeSet::new(), &mut order);
        let order = order.join(" ");
        for key in [name].into_iter().chain(&module.aliases) {
            list.push_str(&format!("{key} {order}\n"));
        }
    }
    list
}

/// Appends `name` to `order` behind all modules that it depends on. A cycle ends at its first
/// module.
fn collect<'a>(
    known: &'a BTreeMap<String, Known>,
    name: &'a str,
    seen: &mut BTreeSet<&'a str>,
    order: &mut Vec<&'a str>,
) {
    let Some(module) = known.get(name).filter(|_| seen.insert(name)) else {
        return;
    };
    for dependency in &module.depends {
        collect(known, dependency, seen, order);
    }
    order.push(name);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(depends: &[&str], aliases: &[&str]) -> Known {
        let owned = |words: &[&str]| words.iter().copied().map(str::to_owned).collect();
        Known {
            bytes: Vec::new(),
            depends: owned(depends),
            aliases: owned(aliases),
        }
    }

    #[test]
    fn a_name_leads_to_all_that_it_takes() {
        let known = BTreeMap::from([
            ("ext4".to_owned(), module(&["jbd2", "gone"], &["fs-ext4"])),
            ("jbd2".to_owned(), module(&["crc"], &[])),
            ("crc".to_owned(), module(&["jbd2"], &["crypto-crc"])),
        ]);
        let list = list(&known);
        let lines: Vec<_> = list.lines().collect();
        assert_eq!(
            lines,
            [
                "crc jbd2 crc",
                "crypto-crc jbd2 crc",
                "ext4 crc jbd2 ext4",
                "fs-ext4 crc jbd2 ext4",
                "jbd2 crc jbd2"
            ]
        );
    }

    #[test]
    fn a_kernel_without_any_has_an_empty_list() {
        let name = format!("ebb-demand-{}", std::process::id());
        let folder = std::env::temp_dir().canonicalize().unwrap().join(name);
        std::fs::create_dir(&folder).unwrap();
        let tree = Tree::open(&folder).unwrap();
        let demand = find(&tree, &mut ModuleReader::default()).unwrap();
        std::fs::remove_dir(&folder).unwrap();
        assert!(demand.modules.is_empty() && demand.list.is_empty());
        assert!(demand.file_systems.is_empty());
    }
}
