//! `--root`: a tree of the host's files, or of an image, below the guest's own, for reading. What the guest changes stays in the
//! guest.
//!
//! | file | what |
//! |---|---|
//! | `view` | what of the host the guest may see |
//! | `tree` | what stands in it: facts, listings, bytes |
//! | `image` | the same of a tar archive |
//! | `shown` | one or the other |
//! | `source` | what both answer |
//! | `desk` | the guest's questions ([`ebb_wire::root`]), answered |

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
