//! Operating system services that the rest of ebb uses: files, folders, limits, and rules about
//! secrets.

mod cache;
mod clock;
mod descriptors;
mod file_size;
mod folder_names;
pub(crate) mod huge_pages;
mod ignored_signals;
mod kernels_own;
mod load;
mod memory_file;
mod new_file;
pub(crate) mod opened;
pub(crate) mod orphan;
mod own_folder;
mod path;
mod regular;
mod resolved_name;
mod same_file;
pub(crate) mod secrets;

pub(crate) use clock::monotonic_seconds;
pub(crate) use descriptors::allow_open_files;
pub(crate) use file_size::heed_file_size_limit;
pub(crate) use folder_names::FolderNames;
pub(crate) use ignored_signals::{heed_children, without_ignored_hangup};
pub(crate) use kernels_own::refuse_kernels_own;
pub(crate) use load::slowdown;
pub(crate) use memory_file::memory_file;
pub(crate) use new_file::{new_file, new_folder};
pub(crate) use own_folder::{OwnFolder, OwnFolderError};
pub(crate) use path::{search_path, search_path_all};
pub(crate) use regular::{open_regular, read_regular, regular_of, reopen_regular};
pub(crate) use resolved_name::{
    MagicLinks, ResolveError, ResolvedName, create_file, create_private_file, open_named,
    open_named_with,
};
pub(crate) use same_file::{is_inside, is_same_file};
