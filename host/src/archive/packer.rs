//! Packs a guest's first file system: holds the tree, and the rules for what may go into it.

use super::admission::{self, AdmissionError, Admitted, Named, Shown, Use};
use super::examiner::Examiner;
use super::format::{FormatError, Program};
use super::host_file::HostFile;
use super::initramfs::{Initramfs, PackError};
use super::loader_paths;
use crate::system::{allow_open_files, open_named};
use rustix::fs::OFlags;
use std::fmt;
use std::path::{Path, PathBuf};

/// The most files that are open while a file system is packed.
const OPEN_MAX: u64 = 5 << 10;
/// Of these, how many are for all else than libraries.
const RESERVED: usize = 512;

/// Says for a path of the guest's which file of the host's stands there without being packed.
pub(crate) type Seen<'a> = dyn FnMut(&[u8]) -> Option<PathBuf> + 'a;

/// Packs programs and what they need.
pub(crate) struct Packer<'a> {
    pub(crate) tree: Initramfs,
    /// Files and folders that the user named. They may be packed even if others may not read them.
    pub(crate) named: Named,
    pub(crate) seen: Box<Seen<'a>>,
    pub(super) examiner: Examiner,
    /// Libraries that may still be packed: each stays open until the archive is written.
    pub(super) libraries_left: usize,
    libraries_max: usize,
    /// Messages for the user about libraries that are not packed.
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
    /// Nothing packed yet, in a guest that sees the host's files by `seen`.
    pub(crate) fn new(seen: Box<Seen<'a>>, examiner: Examiner) -> Self {
        let open = allow_open_files(OPEN_MAX);
        let open = usize::try_from(open.min(OPEN_MAX)).unwrap_or(usize::MAX);
        let libraries_max = open.saturating_sub(RESERVED);
        let mut named = Named::default();
        // The user wrote these, not a program.
        for folder in loader_paths::of_environment() {
            // One that is missing, or that a link of another user leads to, is not named.
            if let Ok(folder) = open_named(&folder, OFlags::PATH) {
                let _ = named.add(&folder);
            }
        }
        Self {
            tree: Initramfs::default(),
            named,
            seen,
            examiner,
            libraries_left: libraries_max,
            libraries_max,
            remarks: Vec::new(),
        }
    }

    /// Counts one more library that stays open.
    ///
    /// # Errors
    /// `TooManyLibraries` if there are as many as may be open.
    pub(super) fn count_library(&mut self) -> Result<(), PackError> {
        let left = self.libraries_left.checked_sub(1);
        self.libraries_left = left.ok_or(PackError::TooManyLibraries(self.libraries_max))?;
        Ok(())
    }

    /// Opens a file that a program asks for, for a use; see [`admission::admit`].
    pub(super) fn admit(
        &mut self,
        path: &Path,
        purpose: Use,
    ) -> Result<Option<Admitted>, AdmissionError> {
        let seen = &mut self.seen;
        let shown: &mut Shown<'_> = &mut |real| is_seen(&mut **seen, real);
        admission::admit(path, purpose, &self.named, shown, &mut self.examiner)
    }

    /// Opens a file that loaders read; see [`admission::open`].
    pub(super) fn open(
        &mut self,
        path: &Path,
    ) -> Result<Option<(HostFile, PathBuf)>, AdmissionError> {
        let seen = &mut self.seen;
        admission::open(path, &self.named, &mut |real| is_seen(&mut **seen, real))
    }

    /// Says what kind of program a file is that the user named.
    pub(super) fn examine(&mut self, file: &HostFile) -> Result<Program, FormatError> {
        let opened = file.file().map_err(std::io::Error::from)?;
        self.examiner.examine(&opened)
    }
}

/// Whether the guest sees the file that stands at a path of the host anyway.
fn is_seen(seen: &mut Seen<'_>, real: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    seen(real.as_os_str().as_bytes()).is_some_and(|found| found == real)
}
