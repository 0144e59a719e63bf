//! [`House`]: the order of layers that the modules of a crate must keep, and the search for
//! violations.

use crate::arrow::Arrow;
use crate::circle::{Graph, circles};
use crate::module::Tree;
use crate::read::TreeError;
use std::path::Path;

/// The order of layers for one crate, with its exceptions.
#[derive(Clone, Copy, Debug)]
pub struct House<'a> {
    /// The crate's root file, relative to the workspace: `host/src/lib.rs`.
    pub root: &'a str,
    /// The layers, from the top down. Each string lists the units of one layer, separated by
    /// spaces. A unit is a file (`run.rs`) or a folder with everything in it (`guest/`). A file may
    /// use its own unit and units of lower layers only. A file belongs to the unit with the longest
    /// matching name.
    pub floors: &'a [&'a str],
    /// Violations that are allowed, each with a reason.
    pub exceptions: &'a [Exception<'a>],
}

/// A violation of the order that is allowed.
#[derive(Clone, Copy, Debug)]
pub enum Exception<'a> {
    /// This import may go upward. Cycles through it are not reported.
    Arrow {
        /// The file that uses a definition.
        from: &'a str,
        /// The file that contains the definition.
        to: &'a str,
        /// Why the import cannot be reversed.
        why: &'a str,
    },
    /// Files and folders below this folder (`process/`) may use each other in cycles.
    Knot {
        /// The folder, ending with a slash.
        folder: &'a str,
        /// Why its files belong together.
        why: &'a str,
    },
}

impl House<'_> {
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
        let arrows = tree.arrows();
        let mut wrong = self.homeless(tree);
        wrong.extend(self.upward(&arrows));
        wrong.extend(self.circular(tree, &arrows));
        wrong.extend(self.idle(tree, &arrows));
        wrong
    }

    /// Returns the units of all layers, each with the index of its layer from the top.
    fn rooms(&self) -> impl Iterator<Item = (usize, &str)> {
        let floors = self.floors.iter().enumerate();
        floors.flat_map(|(floor, rooms)| rooms.split_whitespace().map(move |room| (floor, room)))
    }

    /// Returns the unit of `file` and the index of its layer. Returns `None` if no unit matches.
    fn room_of(&self, file: &str) -> Option<(usize, &str)> {
        let fitting = self.rooms().filter(|(_, room)| covers(room, file));
        fitting.max_by_key(|(_, room)| room.len())
    }

    /// Returns a line for each file without a unit and each unit without a file.
    fn homeless(&self, tree: &Tree) -> Vec<String> {
        let rooms: Vec<_> = tree
            .files()
            .map(|file| (file, self.room_of(file)))
            .collect();
        let homeless = rooms.iter().filter(|(_, room)| room.is_none());
        let mut wrong: Vec<String> = homeless
            .map(|(file, _)| format!("{file} has no room"))
            .collect();
        for room in self
            .rooms()
            .filter(|&room| !rooms.iter().any(|its| its.1 == Some(room)))
        {
            wrong.push(format!("no file is in the room {}", room.1));
        }
        wrong
    }

    /// Returns a line for each import that goes to a higher layer or to another unit of the same
    /// layer.
    fn upward(&self, arrows: &[Arrow]) -> Vec<String> {
        let mut wrong = Vec::new();
        for arrow in arrows.iter().filter(|arrow| !self.excepts(arrow)) {
            let (Some(from), Some(to)) = (self.room_of(&arrow.from), self.room_of(&arrow.to))
            else {
                continue;
            };
            if to.0 < from.0 {
                wrong.push(format!("{arrow}, which stands above it"));
            } else if to.0 == from.0 && to.1 != from.1 {
                wrong.push(format!("{arrow}, which stands beside it"));
            }
        }
        wrong
    }

    /// Returns a line for each import cycle between the files and folders of one folder, for all
    /// folders.
    fn circular(&self, tree: &Tree, arrows: &[Arrow]) -> Vec<String> {
        let mut folders: Vec<&str> = tree.files().flat_map(ancestors).collect();
        folders.sort_unstable();
        folders.dedup();
        let mut wrong = Vec::new();
        for folder in folders.into_iter().filter(|folder| !self.is_knot(folder)) {
            let mut graph = Graph::new();
            for arrow in arrows.iter().filter(|arrow| !self.excepts(arrow)) {
                let ends = (entry(folder, &arrow.from), entry(folder, &arrow.to));
                if let (Some(from), Some(to)) = ends
                    && from != to
                {
                    graph.entry(from).or_default().insert(to);
                }
            }
            for circle in circles(&graph) {
                let ways = circle.windows(2).filter_map(|ends| {
                    let between = |arrow: &&Arrow| {
                        covers(ends[0], &arrow.from)
                            && covers(ends[1], &arrow.to)
                            && !self.excepts(arrow)
                    };
                    arrows
                        .iter()
                        .find(between)
                        .map(|arrow| format!("\n    {arrow}"))
                });
                let ways: String = ways.collect();
                wrong.push(format!("a circle: {}{ways}", circle.join(" → ")));
            }
        }
        wrong
    }

    /// Returns a line for each exception that is not needed or has no reason.
    fn idle(&self, tree: &Tree, arrows: &[Arrow]) -> Vec<String> {
        let mut wrong = Vec::new();
        for (index, exception) in self.exceptions.iter().enumerate() {
            let fewer = [&self.exceptions[..index], &self.exceptions[index + 1..]].concat();
            let rest = House {
                exceptions: &fewer,
                ..*self
            };
            let needed = rest.upward(arrows).len() > self.upward(arrows).len()
                || rest.circular(tree, arrows) != self.circular(tree, arrows);
            let (what, why) = match exception {
                Exception::Arrow { from, to, why } => (format!("{from} → {to}"), why),
                Exception::Knot { folder, why } => ((*folder).to_owned(), why),
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
    fn excepts(&self, arrow: &Arrow) -> bool {
        self.exceptions.iter().any(|exception| {
            matches!(exception, Exception::Arrow { from, to, .. }
                if arrow.from == *from && arrow.to == *to)
        })
    }

    /// Returns whether an exception allows cycles in `folder` or in a folder around it.
    fn is_knot(&self, folder: &str) -> bool {
        self.exceptions.iter().any(|exception| {
            matches!(exception, Exception::Knot { folder: knot, .. } if folder.starts_with(knot))
        })
    }
}

/// Returns whether `file` is the unit `room` itself or lies in it.
fn covers(room: &str, file: &str) -> bool {
    if room.ends_with('/') {
        file.starts_with(room)
    } else {
        file == room
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

    fn wrong(files: &[(&str, &str)], floors: &[&str], exceptions: &[Exception<'_>]) -> Vec<String> {
        let tree = Tree::of_texts(files).expect("no file missing");
        House {
            root: "main.rs",
            floors,
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
    fn an_arrow_up_or_across_is_told() {
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
    fn files_and_rooms_are_complete() {
        assert_eq!(
            wrong(&FILES, &["main.rs", "a/", "b.rs", "d/"], &[]),
            ["c.rs has no room", "no file is in the room d/"]
        );
    }

    #[test]
    fn a_circle_in_a_room_is_told_and_may_be_explained() {
        let files = with("a/y.rs", "use super::x::X; pub struct Y;");
        let floors = ["main.rs", "a/ b.rs c.rs"];
        assert_eq!(
            wrong(&files, &floors, &[]),
            [
                "a circle: a/x.rs → a/y.rs → a/x.rs\n    a/x.rs:1 takes super::y::Y from a/y.rs\n    \
             a/y.rs:1 takes super::x::X from a/x.rs"
            ]
        );
        let arrow = Exception::Arrow {
            from: "a/y.rs",
            to: "a/x.rs",
            why: "tried",
        };
        assert!(wrong(&files, &floors, &[arrow]).is_empty());
        let knot = Exception::Knot {
            folder: "a/",
            why: "one thing",
        };
        assert!(wrong(&files, &floors, &[knot]).is_empty());
    }

    #[test]
    fn a_child_that_uses_a_parent_that_uses_it_is_a_circle() {
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
        let arrow = Exception::Arrow {
            from: "a/y.rs",
            to: "b.rs",
            why: "tried",
        };
        let order = ["main.rs", "b.rs", "a/ c.rs"];
        assert!(wrong(&FILES, &order, &[arrow]).is_empty());
        let mute = Exception::Arrow {
            from: "a/y.rs",
            to: "b.rs",
            why: "",
        };
        assert_eq!(
            wrong(&FILES, &order, &[mute]),
            ["the exception a/y.rs → b.rs does not say why"]
        );
        let idle = Exception::Knot {
            folder: "a/",
            why: "one thing",
        };
        assert_eq!(
            wrong(&FILES, &order, &[arrow, idle]),
            ["the exception a/ is not needed"]
        );
    }
}
