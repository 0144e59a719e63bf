//! The host's files as FUSE file systems (fuse(4), `linux/fuse.h`). Linux sends requests, and the
//! host's answers come through the [`Desk`](crate::desk::Desk).
//!
//! | file      | contents                                                        |
//! |-----------|-----------------------------------------------------------------|
//! | `tree`    | the host's files below the root: read-only, and cached by Linux |
//! | `volume`  | a folder of the host that programs read and write               |
//! | `serve`   | the thread that answers a file system's requests                |
//! | `listing` | reads a folder's names in parts                                 |
//! | `message` | requests and replies in the kernel's format                     |

mod listing;
mod message;
mod serve;
mod tree;
mod volume;

pub(crate) use serve::mount;
pub(crate) use tree::Tree;
pub(crate) use volume::Folder;
