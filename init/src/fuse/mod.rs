//! The host's files as FUSE file systems (fuse(4), `linux/fuse.h`). Linux sends requests, and
//! [`HostPort`](crate::host_port::HostPort) fetches the answers from the host.
//!
//! | file      | contents                                                       |
//! |-----------|----------------------------------------------------------------|
//! | `tree`    | the host's file tree, lower layer of the root; cached by Linux |
//! | `volume`  | a folder of the host that programs read and write              |
//! | `serve`   | the thread that answers a file system's requests               |
//! | `listing` | reads a folder's names in parts                                |
//! | `message` | requests and replies in the kernel's format                    |

mod listing;
mod message;
mod serve;
mod tree;
mod volume;

pub(crate) use serve::mount;
pub(crate) use tree::Tree;
pub(crate) use volume::Folder;
