//! The modules of a crate, as its files declare them.

use std::collections::{BTreeMap, BTreeSet};

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
    /// Paths of all files that the crate consists of, from the folder of its root.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str)
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
