//! Builds the guest's first file system, an initramfs, from files of the host.
//!
//! | file | what |
//! |---|---|
//! | `packer` | the state while a file system is packed |
//! | `program`, `libraries`, `busybox`, `files` | the program, its loader and libraries, a busybox,
//! and files that the user named |
//! | `pack_policy` | decides which files may be packed that the user did not name |
//! | `host_file` | opens each file once |
//! | `examiner` | has a confined process examine files |
//! | `format` | determines the format of a program, in that process |
//! | `command_path` | the folders in which commands are looked for |
//! | `shell_command` | the program that the user's shell would run |
//! | `toolchain`, `shims` | folders of toolchains, and the programs that their managers run |
//! | `loader_paths` | the folders in which loaders look for libraries |
//! | `initramfs` | the archive |

mod busybox;
mod command_path;
mod examiner;
mod files;
mod format;
mod host_file;
mod initramfs;
mod libraries;
mod loader_paths;
mod pack_policy;
mod packer;
mod program;
mod shell_command;
mod shims;
mod toolchain;

pub(crate) use busybox::BusyboxError;
pub(crate) use command_path::CommandPath;
pub(crate) use command_path::GUEST_PATH;
pub(crate) use examiner::Examiner;
pub(crate) use files::FileError;
pub(crate) use initramfs::{
    Alignment, Budget, GuestPath, Initramfs, Node, PackError, Source, nul_terminated,
};
pub(crate) use libraries::LibraryError;
pub(crate) use packer::Packer;
pub(crate) use program::ProgramError;
pub(crate) use shell_command::needs_host_files;
