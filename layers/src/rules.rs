//! [`LayerRules`]: the order of layers that the modules of a crate must keep, and the search for
//! violations.

use crate::cycle::{Graph, cycles};
use crate::import::Import;
use crate::module::Tree;
use crate::read::TreeError;
use std::path::Path;

/// The order of layers for one crate, with its exceptions.
#[derive(Clone, Copy, Debug)]
pub struct LayerRules<'a> {
    /// The crate's root file, relative to the workspace: `host/src/lib.rs`.
    pub root: &'a str,
    /// The layers, from the top down. Each string lists the units of one layer, separated by
    /// spaces. A unit is a file (`run.rs`) or a folder with everything in it (`guest/`). A file may
    /// use its own unit and units of lower layers only. A file belongs to the unit with the longest
    /// matching name.
    pub layers: &'a [&'a str],
    /// Violations that are allowed, each with a reason.
    pub exceptions: &'a [Exception<'a>],
}

/// A violation of the order that is allowed.
#[derive(Clone, Copy, Debug)]
pub enum Exception<'a> {
    /// This import may go upward. Cycles through it are not reported.
    Import {
        /// The file that uses a definition.
        from: &'a str,
        /// The file that contains the definition.
        to: &'a str,
        /// Why the import cannot be reversed.
        why: &'a str,
    },
    /// Files and folders below this folder (`process/`) may use each other in cycles.
    Cycles {
        /// The folder, ending with a slash.
        folder: &'a str,
        /// Why its files belong together.
        why: &'a str,
    },
}

impl LayerRules<'_> {
    /// Reads the crate in the workspace at `workspace` and returns its violations, one line each.
    /// The result is empty if there are none.
    ///
    /// # Errors
    /// Fails if a file of the crate cannot be read or a module has no file.
    pub fn check(&self, workspace: &Path) -> Result<Vec<String>, TreeError> {
        Ok(self.check_tree(&Tree::read(&workspace.join(self.root))?))
    }

    /// Checks the crate in the workspace that contains the package at `manifest`, and panics with
    /// the list of violations. It is the whole body of a test: call it with
    /// `env!("CARGO_MANIFEST_DIR")`.
    ///
    /// # Panics
    /// If there is a violation, or the crate cannot be read.
    pub fn assert(&self, manifest: &str) {
        let workspace = Path::new(manifest).parent().unwrap_or(Path::new("."));
        let wrong = match self.check(workspace) {
            Ok(wrong) => wrong,
            Err(error) => vec![error.to_string()],
        };
        assert!(
            wrong.is_empty(),
            "{} is not in order:\n{}",
            self.root,
            wrong.join("\n")
        );
    }

    /// Returns the violations in a crate that has been read, one line each.
    pub fn check_tree(&self, tree: &Tree) -> Vec<String> {
        let imports = tree.imports();
        let mut wrong = self.without_unit(tree);
        wrong.extend(self.upward(&imports));
        wrong.extend(self.cyclic(tree, &imports));
        wrong.extend(self.unneeded(tree, &imports));
        wrong
    }

    /// Returns the units of all layers, each with the index of its layer from the top.
    fn units(&self) -> impl Iterator<Item = (usize, &str)> {
        let layers = self.layers.iter().enumerate();
        layers.flat_map(|(layer, units)| units.split_whitespace().map(move |unit| (layer, unit)))
    }

    /// Returns the unit of `file` and the index of its layer. Returns `None` if no unit matches.
    fn unit_of(&self, file: &str) -> Option<(usize, &str)> {
        let fitting = self.units().filter(|(_, unit)| covers(unit, file));
        fitting.max_by_key(|(_, unit)| unit.len())
    }

    /// Returns a line for each file without a unit and each unit without a file.
    fn without_unit(&self, tree: &Tree) -> Vec<String> {
        let units: Vec<_> = tree
            .files()
            .map(|file| (file, self.unit_of(file)))
            .collect();
        let without_unit = units.iter().filter(|(_, unit)| unit.is_none());
        let mut wrong: Vec<String> = without_unit
            .map(|(file, _)| format!("{file} has no room"))
            .collect();
        for unit in self
            .units()
            .filter(|&unit| !units.iter().any(|its| its.1 == Some(unit)))
        {
            wrong.push(format!("no file is in the room {}", unit.1));
        }
        wrong
    }

    /// Returns a line for each import that goes to a higher layer or to another unit of the same
    /// layer.
    fn upward(&self, imports: &[Import]) -> Vec<String> {
        let mut wrong = Vec::new();
        for import in imports.iter().filter(|import| !self.is_excepted(import)) {
            let (Some(from), Some(to)) = (self.unit_of(&import.from), self.unit_of(&import.to))
            else {
                continue;
            };
            if to.0 < from.0 {
                wrong.push(format!("{import}, which stands above it"));
            } else if to.0 == from.0 && to.1 != from.1 {
                wrong.push(format!("{import}, which stands beside it"));
            }
        }
        wrong
    }

    /// Returns a line for each import cycle between the files and folders of one folder, for all
    /// folders.
    fn cyclic(&self, tree: &Tree, imports: &[Import]) -> Vec<String> {
        let mut folders: Vec<&str> = tree.files().flat_map(ancestors).collect();
        folders.sort_unstable();
        folders.dedup();
        let mut wrong = Vec::new();
        for folder in folders
            .into_iter()
            .filter(|folder| !self.allows_cycles(folder))
        {
            let mut graph = Graph::new();
            for import in imports.iter().filter(|import| !self.is_excepted(import)) {
                let ends = (entry(folder, &import.from), entry(folder, &import.to));
                if let (Some(from), Some(to)) = ends
                    && from != to
                {
                    graph.entry(from).or_default().insert(to);
                }
            }
            for cycle in cycles(&graph) {
                let ways = cycle.windows(2).filter_map(|ends| {
                    let between = |import: &&Import| {
                        covers(ends[0], &import.from)
                            && covers(ends[1], &import.to)
                            && !self.is_excepted(import)
                    };
                    imports
                        .iter()
                        .find(between)
                        .map(|import| format!("\n    {import}"))
                });
                let ways: String = ways.collect();
                wrong.push(format!("a circle: {}{ways}", cycle.join(" → ")));
            }
        }
        wrong
    }

    /// Returns a line for each exception that is not needed or has no reason.
    fn unneeded(&self, tree: &Tree, imports: &[Import]) -> Vec<String> {
        let mut wrong = Vec::new();
        for (index, exception) in self.exceptions.iter().enumerate() {
            let fewer = [&self.exceptions[..index], &self.exceptions[index + 1..]].concat();
            let rest = LayerRules {
                exceptions: &fewer,
                ..*self
            };
            let needed = rest.upward(imports).len() > self.upward(imports).len()
                || rest.cyclic(tree, imports) != self.cyclic(tree, imports);
            let (what, why) = match exception {
                Exception::Import { from, to, why } => (format!("{from} → {to}"), why),
                Exception::Cycles { folder, why } => ((*folder).to_owned(), why),
            };
            if !needed {
                wrong.push(format!("the exception {what} is not needed"));
            }
            if why.trim().is_empty() {
                wrong.push(format!("the exception {what} does not say why"));
            }
        }
        wrong
    }

    /// Returns whether an exception allows this import.
    fn is_excepted(&self, import: &Import) -> bool {
        self.exceptions.iter().any(|exception| {
            matches!(exception, Exception::Import { from, to, .. }
                if import.from == *from && import.to == *to)
        })
    }

    /// Returns whether an exception allows cycles in `folder` or in a folder around it.
    fn allows_cycles(&self, folder: &str) -> bool {
        self.exceptions.iter().any(|exception| {
            matches!(exception, Exception::Cycles { folder: top, .. } if folder.starts_with(top))
        })
    }
}

/// Returns whether `file` is `unit` itself or lies in it.
fn covers(unit: &str, file: &str) -> bool {
    if unit.ends_with('/') {
        file.starts_with(unit)
    } else {
        file == unit
    }
}

/// Returns the folders around a file, each ending with a slash. The first is the root, an empty
/// string.
fn ancestors(file: &str) -> impl Iterator<Item = &str> {
    let slashes = file.match_indices('/').map(|(at, _)| &file[..=at]);
    std::iter::once("").chain(slashes)
}

/// Returns the file of `folder`, or its subfolder with a slash, that contains `file`. Returns
/// `None` if `file` is not below `folder`.
fn entry<'a>(folder: &str, file: &'a str) -> Option<&'a str> {
    let rest = file.strip_prefix(folder)?;
    let end = rest.find('/').map_or(rest.len(), |at| at + 1);
    Some(&file[..folder.len() + end])
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [(&str, &str); 6] = [
        ("main.rs", "mod a; mod b; mod c; use crate::a::x::X;"),
        ("a/mod.rs", "pub mod x; pub mod y;"),
        ("a/x.rs", "use super::y::Y; pub struct X;"),
        ("a/y.rs", "use crate::b::B; pub struct Y;"),
        ("b.rs", "pub struct B;"),
        ("c.rs", ""),
    ];

    fn wrong(files: &[(&str, &str)], layers: &[&str], exceptions: &[Exception<'_>]) -> Vec<String> {
        let tree = Tree::of_texts(files).expect("no file missing");
        LayerRules {
            root: "main.rs",
            layers,
            exceptions,
        }
        .check_tree(&tree)
    }

    fn with<'a>(name: &'a str, text: &'a str) -> Vec<(&'a str, &'a str)> {
        let mut files = FILES.to_vec();
        for file in files.iter_mut().filter(|file| file.0 == name) {
            file.1 = text;
        }
        files
    }

    #[test]
    fn order_is_kept() {
        assert!(wrong(&FILES, &["main.rs", "a/", "b.rs c.rs"], &[]).is_empty());
        assert!(wrong(&FILES, &["main.rs", "a/ c.rs", "a/y.rs", "b.rs"], &[]).is_empty());
    }

    #[test]
    fn an_import_up_or_across_is_told() {
        assert_eq!(
            wrong(&FILES, &["main.rs", "b.rs", "a/ c.rs"], &[]),
            ["a/y.rs:1 takes crate::b::B from b.rs, which stands above it"]
        );
        assert_eq!(
            wrong(&FILES, &["main.rs", "b.rs a/ c.rs"], &[]),
            ["a/y.rs:1 takes crate::b::B from b.rs, which stands beside it"]
        );
    }

    #[test]
    fn files_and_units_are_complete() {
        assert_eq!(
            wrong(&FILES, &["main.rs", "a/", "b.rs", "d/"], &[]),
            ["c.rs has no room", "no file is in the room d/"]
        );
    }

    #[test]
    fn a_cycle_in_a_unit_is_told_and_may_be_explained() {
        let files = with("a/y.rs", "use super::x::X; pub struct Y;");
        let layers = ["main.rs", "a/ b.rs c.rs"];
        assert_eq!(
            wrong(&files, &layers, &[]),
            [
                "a circle: a/x.rs → a/y.rs → a/x.rs\n    a/x.rs:1 takes super::y::Y from a/y.rs\n    \
             a/y.rs:1 takes super::x::X from a/x.rs"
            ]
        );
        let import = Exception::Import {
            from: "a/y.rs",
            to: "a/x.rs",
            why: "tried",
        };
        assert!(wrong(&files, &layers, &[import]).is_empty());
        let excepted = Exception::Cycles {
            folder: "a/",
            why: "one thing",
        };
        assert!(wrong(&files, &layers, &[excepted]).is_empty());
    }

    #[test]
    fn a_child_that_uses_a_parent_that_uses_it_is_a_cycle() {
        let files = with(
            "a/mod.rs",
            "pub mod x; pub mod y; use x::X; pub struct M(X);",
        );
        assert!(wrong(&files, &["main.rs", "a/ c.rs", "b.rs"], &[]).is_empty());
        let files: Vec<_> = files
            .into_iter()
            .map(|file| {
                if file.0 == "a/y.rs" {
                    ("a/y.rs", "use super::M; pub struct Y;")
                } else {
                    file
                }
            })
            .collect();
        let found = wrong(&files, &["main.rs", "a/ b.rs c.rs"], &[]);
        assert!(
            found[0].starts_with("a circle: a/mod.rs → a/x.rs → a/y.rs → a/mod.rs"),
            "{found:?}"
        );
    }

    #[test]
    fn exceptions_are_needed_and_explained() {
        let import = Exception::Import {
            from: "a/y.rs",
            to: "b.rs",
            why: "tried",
        };
        let order = ["main.rs", "b.rs", "a/ c.rs"];
        assert!(wrong(&FILES, &order, &[import]).is_empty());
        let mute = Exception::Import {
            from: "a/y.rs",
            to: "b.rs",
            why: "",
        };
        assert_eq!(
            wrong(&FILES, &order, &[mute]),
            ["the exception a/y.rs → b.rs does not say why"]
        );
        let unneeded = Exception::Cycles {
            folder: "a/",
            why: "one thing",
        };
        assert_eq!(
            wrong(&FILES, &order, &[import, unneeded]),
            ["the exception a/ is not needed"]
        );
    }
}
