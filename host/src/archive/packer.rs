//! The state while a guest's first file system is packed: the tree, and the rules for its files.

use super::command_path::CommandPath;
use super::examiner::Examiner;
use super::format::{FormatError, Program};
use super::host_file::HostFile;
use super::initramfs::{Initramfs, PackError};
use super::loader_paths;
use super::pack_policy::{self, AllowedFile, IsVisible, Named, PackPolicyError, Use};
use crate::system::{allow_open_files, open_named};
use rustix::fs::OFlags;
use std::fmt;
use std::path::{Path, PathBuf};

/// The limit for open files that a run asks for.
const OPEN_MAX: u64 = 5 << 10;
/// The number of these files that are reserved for other uses than libraries.
const RESERVED: usize = 512;

/// A function that gets a path in the guest and returns the path of the file of the host that the
/// guest sees there without packing. It returns `None` if the guest sees no such file.
pub(crate) type VisibleFile<'a> = dyn FnMut(&[u8]) -> Option<PathBuf> + 'a;

/// A function that shows a folder of the host, given by its real path, to the guest. It returns
/// whether the guest sees the folder then.
pub(crate) type ShowFolder<'a> = dyn FnMut(&Path) -> bool + 'a;

/// Collects the files of a guest's first file system: programs and the files that they need.
pub(crate) struct Packer<'a> {
    /// The tree that is packed.
    pub(crate) tree: Initramfs,
    /// Files and folders that the user named. They may be packed even if other users may not read
    /// them.
    pub(crate) named: Named,
    /// Tells which files the guest sees without packing.
    pub(crate) seen: Box<VisibleFile<'a>>,
    /// Shows further folders of the host to the guest.
    pub(crate) show: Box<ShowFolder<'a>>,
    /// The folders in which the guest looks for commands.
    pub(crate) path: CommandPath,
    pub(super) examiner: Examiner,
    /// The number of libraries that may still be packed. Each stays open until the archive is
    /// written.
    pub(super) libraries_left: usize,
    libraries_max: usize,
    /// Messages for the user: libraries that are not packed, and another program that runs.
    pub(crate) remarks: Vec<String>,
}

impl fmt::Debug for Packer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packer")
            .field("tree", &self.tree)
            .field("named", &self.named)
            .finish_non_exhaustive()
    }
}

impl<'a> Packer<'a> {
    /// Returns a packer with an empty tree, which shows no further folder to the guest and looks
    /// for commands in the guest's own folders. `seen` tells which files of the host the guest sees
    /// without packing, and `examiner` examines programs. Raises the limit for open files of this
    /// process up to 5120. Counts the folders in `LD_LIBRARY_PATH` as named by the user.
    pub(crate) fn new(seen: Box<VisibleFile<'a>>, examiner: Examiner) -> Self {
        let open = allow_open_files(OPEN_MAX);
        let open = usize::try_from(open.min(OPEN_MAX)).unwrap_or(usize::MAX);
        let libraries_max = open.saturating_sub(RESERVED);
        let mut named = Named::default();
        // These folders come from the user, not from a program.
        for folder in loader_paths::of_environment() {
            // A folder that is missing, or that an untrusted link leads to, is ignored.
            if let Ok(folder) = open_named(&folder, OFlags::PATH) {
                let _ = named.add(&folder);
            }
        }
        Self {
            tree: Initramfs::default(),
            named,
            seen,
            show: Box::new(|_| false),
            path: CommandPath::default(),
            examiner,
            libraries_left: libraries_max,
            libraries_max,
            remarks: Vec::new(),
        }
    }

    /// Counts one more library, which stays open until the archive is written.
    ///
    /// # Errors
    /// `TooManyLibraries` if the limit for open files allows no more libraries.
    pub(super) fn count_library(&mut self) -> Result<(), PackError> {
        let left = self.libraries_left.checked_sub(1);
        self.libraries_left = left.ok_or(PackError::TooManyLibraries(self.libraries_max))?;
        Ok(())
    }

    /// Opens and examines a file that a program asks for, for the use `purpose`. Returns `None` if
    /// there is no file at `path`. Fails if it cannot be opened, has the wrong format, or may not
    /// be packed, as [`pack_policy::open_allowed`] does.
    pub(super) fn open_allowed(
        &mut self,
        path: &Path,
        purpose: Use,
    ) -> Result<Option<AllowedFile>, PackPolicyError> {
        let seen = &mut self.seen;
        let shown: &mut IsVisible<'_> = &mut |real| is_seen(&mut **seen, real);
        pack_policy::open_allowed(path, purpose, &self.named, shown, &mut self.examiner)
    }

    /// Opens a file that loaders read, of any format, and returns it with its real path. Returns
    /// `None` if there is no file at `path`. Fails if it cannot be opened or may not be packed, as
    /// [`pack_policy::open`] does.
    pub(super) fn open(
        &mut self,
        path: &Path,
    ) -> Result<Option<(HostFile, PathBuf)>, PackPolicyError> {
        let seen = &mut self.seen;
        pack_policy::open(path, &self.named, &mut |real| is_seen(&mut **seen, real))
    }

    /// Returns the format and the libraries of a file that the user named. Does not check whether
    /// it may be packed. Fails if it cannot be opened, or is no x86-64 program, library or script.
    pub(super) fn examine(&mut self, file: &HostFile) -> Result<Program, FormatError> {
        let opened = file.file().map_err(std::io::Error::from)?;
        self.examiner.examine(&opened)
    }
}

/// Returns whether the guest sees the file of the host at the path `real` without packing.
fn is_seen(seen: &mut VisibleFile<'_>, real: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    seen(real.as_os_str().as_bytes()).is_some_and(|found| found == real)
}
