//! Resolves a path through modules, imports and re-exports to the file that defines its name.

use crate::module::{FileId, Id, Module, Tree, UseItem};

/// The longest chain of imports to follow. A crate that compiles has no cycle of them.
const MAX_STEPS: usize = 32;

/// The module or item that a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Module(Id),
    /// An item that this file defines.
    Item(FileId),
}

impl Tree {
    /// Returns the module or item that `path` names in `module`. Returns `None` if its first name
    /// is neither declared nor imported there, such as the name of another crate.
    pub(crate) fn resolve(&self, module: Id, path: &[String]) -> Option<Target> {
        self.follow(module, path, MAX_STEPS)
    }

    /// Does the work of `resolve`, with at most `steps` imports in a chain.
    fn follow(&self, module: Id, path: &[String], steps: usize) -> Option<Target> {
        let steps = steps.checked_sub(1)?;
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Target::Module(0),
            "self" => Target::Module(module),
            "super" => Target::Module(self.modules[module].parent?),
            name => self.named(module, name, rest.is_empty(), steps)?,
        };
        while let (Target::Module(here), Some((segment, further))) = (at, rest.split_first()) {
            rest = further;
            at = match segment.as_str() {
                "super" => Target::Module(self.modules[here].parent?),
                name => self
                    .named(here, name, rest.is_empty(), steps)
                    .unwrap_or_else(|| self.unnamed(here, name)),
            };
        }
        Some(at)
    }

    /// Returns the target of a name that `module` does not visibly declare: a macro of the crate if
    /// the module is the root, otherwise an item that the module is assumed to define.
    fn unnamed(&self, module: Id, name: &str) -> Target {
        let definer = if module == 0 {
            self.macros.get(name)
        } else {
            None
        };
        Target::Item(self.modules[*definer.unwrap_or(&module)].file)
    }

    /// Returns the target of `name` in `module`, or `None` if the module does not have the name. If
    /// a child module and an import share the name, the import counts at the end of a path and the
    /// child before it.
    fn named(&self, module: Id, name: &str, is_last: bool, steps: usize) -> Option<Target> {
        let here: &Module = &self.modules[module];
        let child = here.children.get(name).map(|&child| Target::Module(child));
        if child.is_some() && !is_last {
            return child;
        }
        let use_items = here
            .use_items
            .iter()
            .filter(|use_item| use_item.name == name);
        // An import of a name by itself (`use name;`) resolves to nothing.
        let imported = use_items
            .filter(|use_item| use_item.path != [name])
            .find_map(|use_item| self.follow(module, &use_item.path, steps));
        let own = || here.items.contains(name).then_some(Target::Item(here.file));
        imported
            .or(child)
            .or_else(own)
            .or_else(|| self.globbed(module, name, is_last, steps))
    }

    /// Returns the target of `name` through a `use …::*` in `module`, or `None`.
    fn globbed(&self, module: Id, name: &str, is_last: bool, steps: usize) -> Option<Target> {
        let globs = self.modules[module]
            .use_items
            .iter()
            .filter(|use_item| use_item.name == "*");
        globs
            .filter_map(|use_item| self.glob_of(module, use_item, steps))
            .filter(|&source| source != module)
            .find_map(|source| self.named(source, name, is_last, steps.checked_sub(1)?))
    }

    /// Returns the module that a glob import names. Returns `None` if it does not name one of this
    /// crate.
    fn glob_of(&self, module: Id, use_item: &UseItem, steps: usize) -> Option<Id> {
        match self.follow(module, &use_item.path, steps)? {
            Target::Module(source) => Some(source),
            Target::Item(_) => None,
        }
    }
}
