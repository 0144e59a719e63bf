//! Finds and reads the files of a crate's modules.

use crate::module::{Declared, Module, Tree};
use crate::scan;
use std::fmt;
use std::path::{Component, Path, PathBuf};

/// The reason why the modules of a crate could not be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum TreeError {
    /// This file cannot be read.
    Unreadable(PathBuf, std::io::Error),
    /// A `mod` declaration without a file: its name, and the paths that were tried.
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

impl Tree {
    /// Reads the crate with the root file `root` (`main.rs` or `lib.rs`) and all its modules.
    ///
    /// # Errors
    /// Fails if a file cannot be read or a module has no file.
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

    /// Builds the crate from `files`, given as paths and texts. The first one is the root file.
    ///
    /// # Errors
    /// Fails if a module has no file.
    pub fn of_texts(files: &[(&str, &str)]) -> Result<Self, TreeError> {
        let root = files.first().map_or("", |&(name, _)| name);
        Self::load(root, &|path| {
            Ok(files
                .iter()
                .find(|&&(name, _)| name == path)
                .map(|&(_, text)| text.to_owned()))
        })
    }

    /// Reads the root file and the files of all modules. `read` returns `None` if there is no file
    /// at a path.
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
}

fn missing(name: &str, places: Vec<String>) -> TreeError {
    TreeError::Missing(name.to_owned(), places)
}

/// Returns the paths at which the file of a module may lie that `file` declares.
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

/// Returns `path` with `/` as separator, and with `.` and `..` resolved. A leading `..` stays.
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
