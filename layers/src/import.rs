//! [`Import`]: an import, the use of one file's definition by another file.

use crate::module::{FileId, Id, Tree, UseItem};
use crate::resolve::Target;
use std::collections::BTreeMap;
use std::fmt;

/// An import: one file uses something that another file of the crate defines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import {
    /// The file that uses the definition. Its path is relative to the folder of the crate's root.
    pub from: String,
    /// The file that contains the definition.
    pub to: String,
    /// The first line of `from`, counted from 1, that uses a definition of `to`.
    pub line: usize,
    /// The path that stands on that line, as it is written.
    pub name: String,
}

impl fmt::Display for Import {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            from,
            to: target,
            line,
            name,
        } = self;
        write!(to, "{from}:{line} takes {name} from {target}")
    }
}

/// The imports found so far, by the using and the defining file: the first line and the path there.
type Seen = BTreeMap<(FileId, FileId), (usize, String)>;

impl Tree {
    /// Returns all imports between files, sorted. Each pair of files occurs once.
    pub fn imports(&self) -> Vec<Import> {
        let mut seen = Seen::new();
        for id in 0..self.modules.len() {
            self.imports_of(id, &mut seen);
        }
        let mut imports: Vec<Import> = seen
            .into_iter()
            .map(|((from, to), (line, name))| Import {
                from: self.files[from].clone(),
                to: self.files[to].clone(),
                line,
                name,
            })
            .collect();
        imports.sort();
        imports
    }

    /// Adds the imports of module `id` to `seen`.
    fn imports_of(&self, id: Id, seen: &mut Seen) {
        let module = &self.modules[id];
        let mut put = |to: FileId, line: usize, name: String| {
            if to != module.file {
                let entry = seen
                    .entry((module.file, to))
                    .or_insert_with(|| (line, name.clone()));
                if line < entry.0 {
                    *entry = (line, name);
                }
            }
        };
        for mention in &module.paths {
            match self.resolve(id, &mention.path) {
                Some(Target::Item(file)) => put(file, mention.line, mention.path.join("::")),
                Some(Target::Module(to)) => {
                    put(self.modules[to].file, mention.line, mention.path.join("::"));
                }
                None => {}
            }
        }
        for use_item in &module.use_items {
            for file in self.imported(id, use_item) {
                put(file, use_item.line, use_item.path.join("::"));
            }
        }
        for mention in &module.macros {
            let name = &mention.path[0];
            let is_known = module.items.contains(name)
                || module
                    .use_items
                    .iter()
                    .any(|use_item| use_item.name == *name);
            if let Some(&definer) = self.macros.get(name).filter(|_| !is_known) {
                put(self.modules[definer].file, mention.line, format!("{name}!"));
            }
        }
    }

    /// Returns the files that a module uses through `use_item`. A re-export counts only if the
    /// module mentions the name itself.
    fn imported(&self, id: Id, use_item: &UseItem) -> Vec<FileId> {
        let module = &self.modules[id];
        let is_mentioned = module.words.contains(&use_item.name);
        match self.resolve(id, &use_item.path) {
            None => Vec::new(),
            Some(Target::Module(source)) if use_item.name == "*" => {
                if use_item.is_public {
                    return Vec::new();
                }
                let words = module.words.iter();
                let named = words.filter_map(|word| self.given(source, word));
                named.collect()
            }
            // A re-export that the module does not use itself.
            Some(_) if use_item.is_public && !is_mentioned => Vec::new(),
            Some(Target::Item(file)) => vec![file],
            // The paths in the module that begin with this name already count.
            Some(Target::Module(_)) if is_mentioned => Vec::new(),
            Some(Target::Module(source)) => vec![self.modules[source].file],
        }
    }

    /// Returns the file that defines `name`, if `module` declares or imports that name. Returns
    /// `None` if it does not, or if the name is a module.
    fn given(&self, module: Id, name: &str) -> Option<FileId> {
        let here = &self.modules[module];
        let is_there = here.items.contains(name)
            || here
                .use_items
                .iter()
                .any(|use_item| use_item.name == name || use_item.name == "*");
        if !is_there {
            return None;
        }
        match self.resolve(module, &[name.to_owned()])? {
            Target::Item(file) => Some(file),
            Target::Module(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(files: &[(&str, &str)]) -> Vec<String> {
        let tree = Tree::of_texts(files).expect("no file missing");
        tree.imports().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn imports_and_paths_are_found() {
        assert_eq!(
            imports(&[
                ("main.rs", "mod a; mod b; mod c; mod d; mod e;"),
                (
                    "a.rs",
                    "use crate::b::B;\nfn f() { crate::c::g(); super::d::h() }"
                ),
                ("b.rs", "pub struct B;"),
                ("c.rs", "use crate::e; fn g() { e::x() }"),
                ("d.rs", "use std::e; use ::e::f; fn h() { self::i(); }"),
                ("e.rs", ""),
            ]),
            [
                "a.rs:1 takes crate::b::B from b.rs",
                "a.rs:2 takes crate::c::g from c.rs",
                "a.rs:2 takes super::d::h from d.rs",
                "c.rs:1 takes e::x from e.rs",
            ]
        );
    }

    #[test]
    fn a_reexport_is_followed_and_is_no_use_by_itself() {
        assert_eq!(
            imports(&[
                ("main.rs", "mod a; mod b; use crate::a::{A, Z};"),
                (
                    "a/mod.rs",
                    "mod c; mod d; pub use c::*; pub(crate) use d::D as A;"
                ),
                ("a/c.rs", "pub enum Z {}"),
                ("a/d.rs", "use super::Z; pub struct D;"),
                ("b.rs", "use crate::a; fn f() -> a::A { a::Z }"),
            ]),
            [
                "a/d.rs:1 takes super::Z from a/c.rs",
                "b.rs:1 takes a::Z from a/c.rs",
                "b.rs:1 takes a::A from a/d.rs",
                "main.rs:1 takes crate::a::Z from a/c.rs",
                "main.rs:1 takes crate::a::A from a/d.rs",
            ]
        );
    }

    #[test]
    fn a_reexport_that_its_module_uses_is_an_import() {
        let files = [
            ("main.rs", "mod a; pub use a::A; fn f(_: A) {}"),
            ("a.rs", "pub struct A;"),
        ];
        assert_eq!(imports(&files), ["main.rs:1 takes a::A from a.rs"]);
    }

    #[test]
    fn macros_are_found_by_their_bare_names_and_at_the_root() {
        assert_eq!(
            imports(&[
                ("main.rs", "#[macro_use] mod a; mod b; mod c;"),
                ("a.rs", "#[macro_export] macro_rules! say { () => {} }"),
                ("b.rs", "fn f() { say!() }"),
                ("c.rs", "fn f() { crate::say!(); if x != y {} }"),
            ]),
            [
                "b.rs:1 takes say! from a.rs",
                "c.rs:1 takes crate::say from a.rs"
            ]
        );
    }

    #[test]
    fn a_glob_takes_what_is_named() {
        assert_eq!(
            imports(&[
                ("main.rs", "mod a; mod b; pub struct M;"),
                ("a.rs", "use crate::b::*; fn f() -> B { C }"),
                ("b/mod.rs", "mod c; pub use c::{C, D}; pub struct B;"),
                ("b/c.rs", "pub struct C; pub struct D;"),
            ]),
            [
                "a.rs:1 takes crate::b from b/c.rs",
                "a.rs:1 takes crate::b from b/mod.rs"
            ]
        );
    }

    #[test]
    fn a_module_and_a_function_may_share_a_name() {
        assert_eq!(
            imports(&[
                ("main.rs", "mod a; mod b;"),
                ("a/mod.rs", "mod run; pub use run::run;"),
                ("a/run.rs", "pub fn run() {}"),
                ("b.rs", "fn f() { crate::a::run() }"),
            ]),
            ["b.rs:1 takes crate::a::run from a/run.rs"]
        );
    }
}
