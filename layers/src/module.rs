//! The modules of a crate, as its files declare them.

use crate::scan;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Component, Path, PathBuf};

/// The number of a module in its tree; 0 is the crate's root.
pub(crate) type Id = usize;

/// The number of a file in its tree; 0 is the root's.
pub(crate) type FileId = usize;

/// What the scanner found in one module, inline modules apart.
#[derive(Debug, Default)]
pub(crate) struct Module {
    pub(crate) file: FileId,
    pub(crate) parent: Option<Id>,
    pub(crate) children: BTreeMap<String, Id>,
    pub(crate) imports: Vec<Import>,
    /// What the module defines itself.
    pub(crate) items: BTreeSet<String>,
    /// Paths in its code, of two segments at least.
    pub(crate) paths: Vec<Mention>,
    /// Macros that are called by their bare names.
    pub(crate) macros: Vec<Mention>,
    /// Every name in its code outside of `use`.
    pub(crate) words: BTreeSet<String>,
}

/// One name that `use` brings into a module.
#[derive(Debug)]
pub(crate) struct Import {
    /// What it is called here; `*` brings everything, `_` only methods.
    pub(crate) name: String,
    pub(crate) path: Vec<String>,
    /// Whether others may take it from here.
    pub(crate) is_public: bool,
    pub(crate) line: usize,
}

/// Segments of a path, and where they stand.
#[derive(Debug)]
pub(crate) struct Mention {
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
}

/// A crate's modules and the files that hold them.
#[derive(Debug, Default)]
pub struct Tree {
    /// Paths from the folder of the root file.
    pub(crate) files: Vec<String>,
    pub(crate) modules: Vec<Module>,
    /// Macros of the whole crate, and which module defines them.
    pub(crate) macros: BTreeMap<String, Id>,
}

/// Why the modules of a crate could not be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum TreeError {
    /// The file cannot be read.
    Unreadable(PathBuf, std::io::Error),
    /// A `mod` without a file; where its file was looked for.
    Missing(String, Vec<String>),
}

impl fmt::Display for TreeError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, error) => write!(to, "{}: {error}", path.display()),
            Self::Missing(name, places) => {
                write!(
                    to,
                    "`mod {name}` has no file; looked for {}",
                    places.join(", ")
                )
            }
        }
    }
}

impl std::error::Error for TreeError {}

/// A `mod name;` that still has to be read.
#[derive(Debug)]
pub(crate) struct Declared {
    pub(crate) name: String,
    pub(crate) parent: Id,
    /// What `#[path]` says, from the folder of the declaring file.
    pub(crate) path: Option<String>,
    /// The inline modules of the file in which it is declared.
    pub(crate) within: Vec<String>,
}

impl Tree {
    /// Reads the crate whose root file (`main.rs`, `lib.rs`) is `root`.
    ///
    /// # Errors
    /// A file that cannot be read, a module without a file.
    pub fn read(root: &Path) -> Result<Self, TreeError> {
        let folder = root.parent().unwrap_or(Path::new("."));
        let name = root
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        Self::load(&name.unwrap_or_default(), &|path| {
            let path = folder.join(path);
            match std::fs::read_to_string(&path) {
                Ok(text) => Ok(Some(text)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(TreeError::Unreadable(path, error)),
            }
        })
    }

    /// The crate whose root is the first of `files`, given as names and texts.
    ///
    /// # Errors
    /// A module without a file.
    pub fn of_texts(files: &[(&str, &str)]) -> Result<Self, TreeError> {
        let root = files.first().map_or("", |&(name, _)| name);
        Self::load(root, &|path| {
            Ok(files
                .iter()
                .find(|&&(name, _)| name == path)
                .map(|&(_, text)| text.to_owned()))
        })
    }

    /// Paths of all files that the crate consists of, from the folder of its root.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str)
    }

    fn load(
        root: &str,
        read: &dyn Fn(&str) -> Result<Option<String>, TreeError>,
    ) -> Result<Self, TreeError> {
        let mut tree = Self::default();
        tree.modules.push(Module::default());
        let text = read(root)?.ok_or_else(|| missing("crate", vec![root.to_owned()]))?;
        tree.files.push(root.to_owned());
        let mut waiting = vec![(0, scan::scan(&mut tree, 0, &text))];
        while let Some((file, declared)) = waiting.pop() {
            for one in declared {
                let places = places(&tree.files[file], file == 0, &one);
                let mut found = None;
                for place in &places {
                    if let Some(text) = read(place)? {
                        found = Some((place.clone(), text));
                        break;
                    }
                }
                let (place, text) = found.ok_or_else(|| missing(&one.name, places))?;
                let child = tree.add(one.name, one.parent, tree.files.len());
                tree.files.push(place);
                let inner = scan::scan(&mut tree, child, &text);
                waiting.push((tree.modules[child].file, inner));
            }
        }
        Ok(tree)
    }

    /// A new module in `parent`, whose code is in `file`.
    pub(crate) fn add(&mut self, name: String, parent: Id, file: FileId) -> Id {
        let id = self.modules.len();
        self.modules.push(Module {
            file,
            parent: Some(parent),
            ..Module::default()
        });
        self.modules[parent].children.insert(name, id);
        id
    }
}

fn missing(name: &str, places: Vec<String>) -> TreeError {
    TreeError::Missing(name.to_owned(), places)
}

/// Where the file of a module may lie that `file` declares.
fn places(file: &str, is_root: bool, declared: &Declared) -> Vec<String> {
    let file = Path::new(file);
    let folder = file.parent().unwrap_or(Path::new(""));
    if let Some(path) = &declared.path {
        return vec![plain(&folder.join(path))];
    }
    let own = is_root || file.file_name().is_some_and(|name| name == "mod.rs");
    let mut base = if own {
        folder.to_owned()
    } else {
        file.with_extension("")
    };
    base.extend(&declared.within);
    vec![
        plain(&base.join(format!("{}.rs", declared.name))),
        plain(&base.join(&declared.name).join("mod.rs")),
    ]
}

/// A path with `..` taken back where there is something to take back.
fn plain(path: &Path) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in path.components() {
        match part {
            Component::ParentDir if parts.last().is_some_and(|last| last != "..") => {
                parts.pop();
            }
            Component::CurDir => {}
            part => parts.push(part.as_os_str().to_string_lossy().into_owned()),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_found_where_rustc_looks_for_them() {
        let tree = Tree::of_texts(&[
            (
                "main.rs",
                "mod a; mod b { mod c; } #[path = \"../odd/d.rs\"] mod d;",
            ),
            ("a/mod.rs", "mod e;"),
            ("a/e.rs", "mod f;"),
            ("a/e/f.rs", ""),
            ("b/c.rs", ""),
            ("../odd/d.rs", ""),
        ]);
        let mut files: Vec<String> = tree.expect("complete").files().map(str::to_owned).collect();
        files.sort();
        assert_eq!(
            files,
            [
                "../odd/d.rs",
                "a/e.rs",
                "a/e/f.rs",
                "a/mod.rs",
                "b/c.rs",
                "main.rs"
            ]
        );
    }

    #[test]
    fn a_module_without_a_file_is_named() {
        let error = Tree::of_texts(&[("lib.rs", "mod gone;")]).expect_err("incomplete");
        assert_eq!(
            error.to_string(),
            "`mod gone` has no file; looked for gone.rs, gone/mod.rs"
        );
    }

    #[test]
    fn modules_of_tests_are_not_read() {
        let tree = Tree::of_texts(&[(
            "lib.rs",
            "#[cfg(test)] mod tests; #[cfg(all(test, loom))] #[path = \"x.rs\"] mod model;",
        )]);
        assert_eq!(tree.expect("complete").files().count(), 1);
    }
}
