//! The option `--root`: shows the guest a read-only tree of the host's files, or of an image, below
//! its own files. The guest keeps its changes for itself.
//!
//! [`Root`] is the opened tree, and [`serve`] answers the guest's questions about it.
//!
//! | file | what |
//! |---|---|
//! | `view` | decides which files of the host the guest may see |
//! | `tree` | answers questions about the host's files: facts, listings, bytes |
//! | `image` | answers questions about a tar archive |
//! | `shown` | either the host or an image |
//! | `source` | the traits of both |
//! | `desk` | serves the guest's questions ([`ebb_wire::root`]) |

mod desk;
mod image;
mod shown;
mod source;
#[cfg(test)]
mod tests;
mod tree;
mod view;

pub(super) use desk::serve;
pub(super) use image::RemoteImage;
pub(super) use shown::Root;
pub(super) use view::{RootChoice, View};
