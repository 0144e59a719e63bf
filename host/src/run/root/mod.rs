//! The option `--root`: a read-only tree of the host's files, or of an image, that shows through
//! where the guest has no file of its own. Changes by the guest stay in the guest.
//!
//! [`Root`] is the opened tree, and [`serve`] answers the guest's questions about it.
//!
//! | file | what |
//! |---|---|
//! | `view` | decides which files of the host the guest may see |
//! | `tree` | answers questions about the host's files: attributes, listings, bytes |
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
