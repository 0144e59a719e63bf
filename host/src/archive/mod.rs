//! The guest's first file system: what goes into it, and the archive that it is.
//!
//! | file | what |
//! |---|---|
//! | `packer` | packs what a run needs |
//! | `program`, `libraries`, `busybox`, `files` | the program, what it is loaded with, and what else there is |
//! | `admission` | which files may be packed that the user did not name |
//! | `host_file` | opens them, once |
//! | `examiner` | has a confined process read them |
//! | `format` | what that process finds |
//! | `loader_paths` | where loaders look for libraries |
//! | `initramfs` | the archive |

mod admission;
mod busybox;
mod examiner;
mod files;
mod format;
mod host_file;
mod initramfs;
mod libraries;
mod loader_paths;
mod packer;
mod program;

pub(crate) use busybox::BusyboxError;
pub(crate) use examiner::Examiner;
pub(crate) use files::FileError;
pub(crate) use initramfs::{
    Alignment, Budget, GuestPath, Initramfs, Node, PackError, Source, nul_terminated,
};
pub(crate) use libraries::LibraryError;
pub(crate) use packer::Packer;
pub(crate) use program::{GUEST_PATH, ProgramError};
