//! The order in which the rooms of a crate stand, and what is against it.

use crate::arrow::Arrow;
use crate::circle::{Graph, circles};
use crate::module::Tree;
use crate::read::TreeError;
use std::path::Path;

/// The order that a crate's files have to keep.
#[derive(Clone, Copy, Debug)]
pub struct House<'a> {
    /// The crate's root file, from the root of the workspace: `host/src/lib.rs`.
    pub root: &'a str,
    /// The floors, from the top down. The rooms of a floor stand in one string, with spaces between
    /// them, and know nothing of each other. A room is a file (`run.rs`) or a folder (`guest/`); a
    /// file belongs to the room with the longest name that fits.
    pub floors: &'a [&'a str],
    /// What may be against the order, and why.
    pub exceptions: &'a [Exception<'a>],
}

/// What may be against the order.
#[derive(Clone, Copy, Debug)]
pub enum Exception<'a> {
    /// This one arrow may go up. Circles through it do not count.
    Arrow {
        /// The file that uses something.
        from: &'a str,
        /// The file that defines it.
        to: &'a str,
        /// Why it cannot be turned.
        why: &'a str,
    },
    /// Files and folders below this folder (`process/`) may use each other in circles.
    Knot {
        /// The folder, with its slash.
        folder: &'a str,
        /// Why it is one thing.
        why: &'a str,
    },
}

impl House<'_> {
    /// Reads the crate in the workspace at `workspace` and says what is wrong with it, a line each;
    /// empty if all is well.
    ///
    /// # Errors
    /// The crate's modules cannot be read.
    pub fn check(&self, workspace: &Path) -> Result<Vec<String>, TreeError> {
        Ok(self.check_tree(&Tree::read(&workspace.join(self.root))?))
    }

    /// Reads the crate in the workspace that holds the crate at `manifest`, and panics with what is
    /// wrong with it: the whole of a test, called with `env!("CARGO_MANIFEST_DIR")`.
    ///
    /// # Panics
    /// If anything is wrong.
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

    /// What is wrong with a crate that has been read.
    pub fn check_tree(&self, tree: &Tree) -> Vec<String> {
        let arrows = tree.arrows();
        let mut wrong = self.homeless(tree);
        wrong.extend(self.upward(&arrows));
        wrong.extend(self.circular(tree, &arrows));
        wrong.extend(self.idle(tree, &arrows));
        wrong
    }

    /// All rooms with the number of their floor, counted from the top.
    fn rooms(&self) -> impl Iterator<Item = (usize, &str)> {
        let floors = self.floors.iter().enumerate();
        floors.flat_map(|(floor, rooms)| rooms.split_whitespace().map(move |room| (floor, room)))
    }

    fn room_of(&self, file: &str) -> Option<(usize, &str)> {
        let fitting = self.rooms().filter(|(_, room)| covers(room, file));
        fitting.max_by_key(|(_, room)| room.len())
    }

    /// Files without a room and rooms without a file.
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

    /// Arrows that go up, or across a floor.
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

    /// Circles between what lies in one folder, for each folder.
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

    /// Exceptions that nothing needs, or that nobody explains.
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

    fn excepts(&self, arrow: &Arrow) -> bool {
        self.exceptions.iter().any(|exception| {
            matches!(exception, Exception::Arrow { from, to, .. }
                if arrow.from == *from && arrow.to == *to)
        })
    }

    fn is_knot(&self, folder: &str) -> bool {
        self.exceptions.iter().any(|exception| {
            matches!(exception, Exception::Knot { folder: knot, .. } if folder.starts_with(knot))
        })
    }
}

/// Whether `file` is this room or lies in it.
fn covers(room: &str, file: &str) -> bool {
    if room.ends_with('/') {
        file.starts_with(room)
    } else {
        file == room
    }
}

/// The folders around a file, each with its slash, from the root (empty) on.
fn ancestors(file: &str) -> impl Iterator<Item = &str> {
    let slashes = file.match_indices('/').map(|(at, _)| &file[..=at]);
    std::iter::once("").chain(slashes)
}

/// What of `folder` itself holds `file`: one of its files, or of its folders with their slash.
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
