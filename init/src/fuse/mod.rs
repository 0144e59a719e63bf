//! The host's files as file systems: Linux asks by FUSE (fuse(4), `linux/fuse.h`), and the host's [`Desk`](crate::desk::Desk) answers.
//!
//! | file | what |
//! |---|---|
//! | `tree` | what is below the root: it does not change, and is asked for once |
//! | `volume` | a folder that is read and written |
//! | `serve` | a file system's requests, one after another |
//! | `listing` | a folder's names, piece by piece |
//! | `message` | requests and replies as they are written |

mod listing;
mod message;
mod serve;
mod tree;
mod volume;

pub(crate) use serve::mount;
pub(crate) use tree::Tree;
pub(crate) use volume::Folder;
