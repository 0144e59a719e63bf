//! The guest's first file system: what goes into it, and the archive that it is.

mod busybox;
mod files;
mod format;
mod initramfs;
mod libraries;
mod program;

pub(crate) use busybox::BusyboxError;
pub(crate) use files::{FileError, add_all as add_files};
pub(crate) use initramfs::{
    Alignment, GuestPath, Initramfs, Node, PackError, Source, nul_terminated,
};
pub(crate) use libraries::{LibraryError, add_for_files as add_libraries};
pub(crate) use program::{GUEST_PATH, ProgramError, pack as pack_program, pack_busybox};
