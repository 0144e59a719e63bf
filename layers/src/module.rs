//! The modules and files of a crate, as its sources declare them.

use std::collections::{BTreeMap, BTreeSet};

/// The index of a module in the tree's `modules`; 0 is the crate's root.
pub(crate) type Id = usize;

/// The index of a file in the tree's `files`; 0 is the root file.
pub(crate) type FileId = usize;

/// The contents of one module, without those of its inline modules.
#[derive(Debug, Default)]
pub(crate) struct Module {
    pub(crate) file: FileId,
    pub(crate) parent: Option<Id>,
    pub(crate) children: BTreeMap<String, Id>,
    pub(crate) use_items: Vec<UseItem>,
    /// Names of the items that the module defines.
    pub(crate) items: BTreeSet<String>,
    /// Paths in the module's code with at least two segments.
    pub(crate) paths: Vec<Mention>,
    /// Macros that the module calls by a name without a path.
    pub(crate) macros: Vec<Mention>,
    /// Every name in the module's code outside of `use`.
    pub(crate) words: BTreeSet<String>,
}

/// A name that a `use` item brings into a module.
#[derive(Debug)]
pub(crate) struct UseItem {
    /// The name in this module. `*` stands for a glob import, `_` for an unnamed one.
    pub(crate) name: String,
    pub(crate) path: Vec<String>,
    /// Whether other modules may import the name from here (`pub use`).
    pub(crate) is_public: bool,
    pub(crate) line: usize,
}

/// A path and the line on which it stands.
#[derive(Debug)]
pub(crate) struct Mention {
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
}

/// The modules of a crate and the files that contain them.
#[derive(Debug, Default)]
pub struct Tree {
    /// Paths relative to the folder of the root file.
    pub(crate) files: Vec<String>,
    pub(crate) modules: Vec<Module>,
    /// The crate's macros and the modules that define them.
    pub(crate) macros: BTreeMap<String, Id>,
}

/// A `mod name;` whose file still has to be read.
#[derive(Debug)]
pub(crate) struct Declared {
    pub(crate) name: String,
    pub(crate) parent: Id,
    /// The value of its `#[path]`, relative to the folder of the declaring file.
    pub(crate) path: Option<String>,
    /// Names of the inline modules around the declaration, the outermost first.
    pub(crate) within: Vec<String>,
}

impl Tree {
    /// Returns the paths of all files of the crate, relative to the folder of its root file.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str)
    }

    /// Adds a module to `parent` and returns its index. Its code is in `file`.
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
