//! Checks the import order of a crate: which of its files use which others, and whether these
//! imports all go to lower layers. The sources are read as text.
//!
//! The names in this crate:
//!
//! | name                   | meaning                                                           |
//! |------------------------|-------------------------------------------------------------------|
//! | [`LayerRules`]         | the order for one crate: root file, layers, exceptions            |
//! | [`LayerRules::layers`] | the layers, from the top down                                     |
//! | unit                   | a part of a layer: a file (`run.rs`) or a whole folder (`guest/`) |
//! | [`Import`]             | an import: one file uses a definition of another file             |
//!
//! [`LayerRules::check`] returns the violations:
//!
//! - an import that goes to a higher layer, or to another unit of the same layer;
//! - an import cycle between the files and folders of one folder;
//! - a file without a unit, a unit without a file, an exception that is not needed.
//!
//! A re-export is followed to the file that defines the name. So a `mod.rs` that only re-exports
//! its children uses no other file. Code under `#[cfg(test)]` does not count. Three uses are not
//! seen: methods that are called without an import of their type, paths within strings, and names
//! that a macro of another crate generates.

mod cycle;
mod import;
mod module;
mod read;
mod resolve;
mod rules;
mod scan;
mod token;

pub use import::Import;
pub use module::Tree;
pub use read::TreeError;
pub use rules::{Exception, LayerRules};
