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
//! | `choice` | either the host or an image |
//! | `source` | the traits of both |
//! | `server` | serves the guest's questions ([`ebb_wire::root`]) |

mod choice;
mod image;
mod server;
mod source;
#[cfg(test)]
mod tests;
mod tree;
mod view;

pub(super) use choice::Root;
pub(super) use image::RemoteImage;
pub(super) use server::serve;
pub(super) use view::{RootChoice, View};
