//! Which files of a crate use which others, read out of the sources as text, and whether these
//! arrows point down.
//!
//! A [`House`] is a crate: its root file, the floors on which its rooms stand, the exceptions. A room
//! is a file (`run.rs`) or a folder with all that it holds (`guest/`). [`House::check`] says what is
//! wrong with it:
//!
//! - an arrow that goes up, or to another room of the same floor;
//! - a circle between the files and folders of one folder;
//! - a file without a room, a room without a file, an exception that nothing needs any more.
//!
//! A re-export is followed to the file that defines the name. So a `mod.rs` that only re-exports its
//! children uses none of them. What stands under `#[cfg(test)]` does not count. Names that a macro of
//! another crate makes up, and paths within strings, are not seen.

mod arrow;
mod circle;
mod house;
mod module;
mod resolve;
mod scan;
mod token;

pub use arrow::Arrow;
pub use house::{Exception, House};
pub use module::{Tree, TreeError};
