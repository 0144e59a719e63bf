//! `--root`: a tree of the host's files below the guest's own, for reading. What the guest changes stays in the guest.
//!
//! | file | what |
//! |---|---|
//! | `view` | what of the host the guest may see |
//! | `tree` | what stands in it: facts, listings, bytes |
//! | `desk` | the guest's questions ([`ebb_wire::root`]), answered |

mod desk;
#[cfg(test)]
mod tests;
mod tree;
mod view;

pub(super) use desk::serve;
pub(super) use tree::Tree;
pub(super) use view::{RootChoice, View};
