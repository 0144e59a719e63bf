//! Decides which of the host's files a guest may see.
//!
//! The program may have taken over the guest's kernel. So forbidden files are refused here, by the
//! real path that an opened file has on the host.

use crate::system::opened::{facts, kind_of, own_path};
use crate::system::refuse_kernels_own;
use crate::system::secrets::{Homes, Secrets, is_of_system, leads_to_system, lies_in};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Statx};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use std::ffi::{CString, OsString};
use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The parsed argument of `--root`: the files that the guest sees as its root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RootChoice {
    /// `none`: the guest sees no files of the host.
    Nothing,
    /// `host`: the guest sees the host's system folders and the working directory.
    Host,
    /// The guest sees all of a directory, or of an image.
    Path(PathBuf),
}

impl From<OsString> for RootChoice {
    fn from(text: OsString) -> Self {
        match text.as_bytes() {
            b"none" => Self::Nothing,
            b"host" => Self::Host,
            _ => Self::Path(text.into()),
        }
    }
}

impl fmt::Display for RootChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("none"),
            Self::Host => f.write_str("host"),
            Self::Path(path) => path.display().fmt(f),
        }
    }
}

/// How much of a path the guest sees.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Visibility {
    /// Everything that `ebb` sees.
    Whole,
    /// Everything that `ebb` sees, except secrets.
    WithoutSecrets,
    /// Only directories that lead to the working directory, to a system folder or to a folder of
    /// [`View::show`].
    OnTheWay,
    /// Nothing.
    Hidden,
}

/// The part of the host's files that a guest may see: all of one directory, or the host's system
/// folders, the working directory and the command's toolchain without secrets such as private keys.
#[derive(Debug)]
pub(crate) struct View {
    root: OwnedFd,
    /// The host path of `root`, without a slash at its end.
    at: Vec<u8>,
    /// Restrictions of the view. `None` if all of `root` is shown.
    part: Option<Box<Part>>,
    /// The guest's user and group that own files of the user of `ebb`.
    owner: [u32; 2],
}

/// Restricts a view to the system folders and the working directory.
#[derive(Debug)]
struct Part {
    /// The path of the working directory, without slashes at its ends.
    here: Vec<u8>,
    secrets: Secrets,
}

impl Part {
    /// Returns whether the directory `path` leads to a system folder or to a folder of
    /// [`View::show`].
    fn leads_elsewhere(&self, path: &[u8]) -> bool {
        leads_to_system(path) || self.secrets.leads_to_shown(path)
    }
}

impl View {
    /// Creates a view of all of the directory at `path`.
    ///
    /// # Errors
    /// Fails if the directory cannot be opened.
    #[cfg(test)]
    pub(crate) fn folder(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self::of_folder(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
    }

    /// Creates a view of all of the open directory `root`.
    ///
    /// # Errors
    /// Fails if the directory's path on the host cannot be read.
    pub(crate) fn of_folder(root: OwnedFd) -> Result<Self, Errno> {
        let at = real_path(&root)?;
        Ok(Self {
            root,
            at: at.strip_suffix(b"/").unwrap_or(&at).to_vec(),
            part: None,
            owner: [0; 2],
        })
    }

    /// Creates a view of the host's system folders and the working directory of this process,
    /// without secrets. A working directory that is removed or outside of the root is left out.
    ///
    /// # Errors
    /// Fails if the working directory or `/` cannot be opened or examined.
    pub(crate) fn host() -> Result<Self, Errno> {
        // Opened as `.`, because the directory's path may lead to another one by now.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(CWD, ".", flags, Mode::empty())?;
        // A working directory that is removed, or outside of the root, is not shown.
        if facts(&folder, b"")?.stx_nlink == 0 || !real_path(&folder)?.starts_with(b"/") {
            return Self::host_with(Path::new("/"), Homes::of_host());
        }
        Self::host_from(folder, Homes::of_host())
    }

    /// Creates a view like [`Self::host`], with `working_folder` as working directory and `homes`
    /// as the home directories in which secrets lie.
    ///
    /// # Errors
    /// Fails if `working_folder` or `/` cannot be opened or examined.
    pub(super) fn host_with(working_folder: &Path, homes: Homes) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(CWD, working_folder, flags, Mode::empty())?;
        Self::host_from(folder, homes)
    }

    fn host_from(working_folder: OwnedFd, homes: Homes) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut view = Self::of_folder(rustix::fs::openat(CWD, "/", flags, Mode::empty())?)?;
        let here = real_path(&working_folder)?;
        let here = here.strip_prefix(b"/").unwrap_or(&here);
        let part = Part {
            here: here.to_vec(),
            secrets: Secrets::new(here, working_folder, homes)?,
        };
        view.part = Some(part.into());
        Ok(view)
    }

    /// Duplicates the view. The duplicate begins without cached knowledge of secrets.
    ///
    /// # Errors
    /// Fails if the host has no descriptor left.
    pub(crate) fn try_clone(&self) -> Result<Self, Errno> {
        let part = self.part.as_ref().map(|part| Part {
            here: part.here.clone(),
            secrets: part.secrets.with_empty_cache(),
        });
        Ok(Self {
            root: rustix::io::fcntl_dupfd_cloexec(&self.root, 3)?,
            at: self.at.clone(),
            part: part.map(Box::new),
            owner: self.owner,
        })
    }

    /// Sets `owner`, a user and a group of the guest, as the owner that the guest sees for files of
    /// the user of `ebb`. Does nothing if root runs `ebb`, so that root's files stay root's. On the
    /// host nothing changes.
    pub(crate) fn give(&mut self, owner: [u32; 2]) {
        if !geteuid().is_root() {
            self.owner = owner;
        }
    }

    /// Returns the user and the group that own the file with the attributes `stat` in the guest.
    pub(super) fn owner_of(&self, stat: &Statx) -> [u32; 2] {
        let [uid, gid] = self.owner;
        [
            if stat.stx_uid == geteuid().as_raw() {
                uid
            } else {
                stat.stx_uid
            },
            if stat.stx_gid == getegid().as_raw() {
                gid
            } else {
                stat.stx_gid
            },
        ]
    }

    /// Returns the open directory whose files are all shown. Returns `None` for a view of the
    /// system folders and the working directory.
    pub(crate) fn whole_folder(&self) -> Option<&OwnedFd> {
        self.is_whole().then_some(&self.root)
    }

    /// Shows also the directory `folder` of the host, without secrets. `folder` must be a real
    /// path. Returns whether the guest sees it then, which is `false` for a view of one directory.
    pub(crate) fn show(&mut self, folder: &Path) -> bool {
        let path = folder.as_os_str().as_bytes();
        let Some(part) = &mut self.part else {
            return false;
        };
        let Some(inside) = path.strip_prefix(b"/").filter(|inside| !inside.is_empty()) else {
            return false;
        };
        if !part.secrets.is_shown(inside) {
            part.secrets.show(inside);
        }
        self.real_path_of(inside).is_some()
    }

    /// Returns whether [`Self::show`] has shown the directory `path` or one below it. The path has
    /// no slash at its beginning.
    pub(crate) fn shows_below(&self, path: &[u8]) -> bool {
        let part = self.part.as_ref();
        part.is_some_and(|part| part.secrets.leads_to_shown(path))
    }

    /// Returns whether all of one directory is shown. Returns `false` for a view of the system
    /// folders and the working directory.
    pub(crate) fn is_whole(&self) -> bool {
        self.part.is_none()
    }

    /// Returns how much of `path` is shown. The path has no slash at its beginning.
    fn visibility(&self, path: &[u8]) -> Visibility {
        let Some(part) = &self.part else {
            return Visibility::Whole;
        };
        // If the root itself is the working directory, that must not show everything.
        let is_below = !part.here.is_empty() && lies_in(path, &part.here);
        if is_below || is_of_system(path) || part.secrets.is_shown(path) {
            return Visibility::WithoutSecrets;
        }
        if lies_in(&part.here, path) || part.leads_elsewhere(path) {
            Visibility::OnTheWay
        } else {
            Visibility::Hidden
        }
    }

    /// Opens the file at `path` without rights to read it, and returns it with its attributes.
    /// `path` has no slash at its beginning and is empty for the root. Symbolic links are followed
    /// within the view's directory, and one at the end of `path` only if `follow`.
    ///
    /// # Errors
    /// Fails with `ENOENT` for a file that is not shown, or if `path` has empty components, `.` or
    /// `..`. Fails with `EACCES` for a secret or a file in one of the kernel's own file systems,
    /// such as `/proc`. Other numbers are the host's.
    pub(super) fn look(&mut self, path: &[u8], follow: bool) -> Result<(OwnedFd, Statx), Errno> {
        // The guest's kernel asks only for plain paths. Another one could tell whether a hidden
        // directory exists.
        let is_plain = |part: &[u8]| !matches!(part, b"" | b"." | b"..");
        let plain = path.is_empty() || path.split(|byte| *byte == b'/').all(is_plain);
        if !plain || self.visibility(path) == Visibility::Hidden {
            return Err(Errno::NOENT);
        }
        let mut flags = OFlags::PATH | OFlags::CLOEXEC;
        if !follow {
            flags |= OFlags::NOFOLLOW;
        }
        // `..` above the root is the root, as in the guest.
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let name = if path.is_empty() { b"." } else { path };
        let file = rustix::fs::openat2(&self.root, name, flags, Mode::empty(), resolve)?;
        let stat = facts(&file, b"")?;
        refuse_kernels_own(&file)?;
        if self.part.is_some() {
            let real = real_path(&file)?;
            self.check(real.strip_prefix(b"/").unwrap_or(&real), &stat)?;
        }
        Ok((file, stat))
    }

    /// Opens the directory at `path` to list its names. A symbolic link at the end of `path` is
    /// followed. The descriptor in the result has no rights to read, so the caller opens it again
    /// to list the names.
    ///
    /// # Errors
    /// Fails as [`Self::look`], with `ENOTDIR` if the file is no directory, and with `EACCES` if
    /// the guest may not read its names.
    pub(super) fn open_folder(&mut self, path: &[u8]) -> Result<Folder, Errno> {
        let (file, stat) = self.look(path, true)?;
        if kind_of(&stat) != FileType::Directory {
            return Err(Errno::NOTDIR);
        }
        if !self.is_readable(&file, &stat)? {
            return Err(Errno::ACCESS);
        }
        let mut real = Vec::new();
        let mut shows_entries = true;
        if self.part.is_some() {
            real = real_path(&file)?;
            real.drain(..usize::from(real.starts_with(b"/")));
            let visibility = self.visibility(&real);
            if let (Visibility::WithoutSecrets, Some(part)) = (visibility, &mut self.part) {
                shows_entries = part.secrets.shows_entries_of(&real, &stat)?;
            }
        }
        Ok(Folder {
            file,
            real,
            shows_entries,
            device: device(&stat),
        })
    }

    /// Returns the attributes of the file `name` in `folder` without following a symbolic link.
    /// Returns also the link's target, which is empty for any other file. `name` must come from a
    /// listing of `folder`.
    ///
    /// # Errors
    /// Fails with `ENOENT` for a file that is removed or not shown, with `EACCES` for a secret or a
    /// mounted file system of the kernel's own, or with another error of the host.
    pub(super) fn look_in(
        &mut self,
        folder: &Folder,
        name: &[u8],
    ) -> Result<(Statx, Vec<u8>), Errno> {
        let stat = facts(&folder.file, name)?;
        if device(&stat) != folder.device {
            // Another file system is mounted there.
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&folder.file, name, flags, Mode::empty())?;
            refuse_kernels_own(&file)?;
        }
        if self.part.is_some() {
            let real = if folder.real.is_empty() {
                name.to_vec()
            } else {
                [&folder.real, &b"/"[..], name].concat()
            };
            let visibility = self.visibility(&real);
            if visibility == Visibility::WithoutSecrets && !folder.shows_entries {
                return Err(Errno::ACCESS);
            }
            refuse_unseen(visibility, &stat)?;
            self.check_on_the_way(&real, visibility, &stat)?;
        }
        let target = if kind_of(&stat) == FileType::Symlink {
            rustix::fs::readlinkat(&folder.file, name, Vec::new())?.into_bytes()
        } else {
            Vec::new()
        };
        Ok((stat, target))
    }

    /// Refuses the file whose path on the host is `real` if the guest may not see it.
    fn check(&mut self, real: &[u8], stat: &Statx) -> Result<(), Errno> {
        let visibility = self.visibility(real);
        if let (Visibility::WithoutSecrets, Some(part)) = (visibility, &mut self.part)
            && !part.secrets.shows(real, stat)?
        {
            return Err(Errno::ACCESS);
        }
        refuse_unseen(visibility, stat)?;
        self.check_on_the_way(real, visibility, stat)
    }

    /// Refuses a directory that has taken the path of the working directory, or of one that leads
    /// only to it.
    fn check_on_the_way(
        &self,
        real: &[u8],
        visibility: Visibility,
        stat: &Statx,
    ) -> Result<(), Errno> {
        match &self.part {
            Some(part) if *real != part.here && part.leads_elsewhere(real) => Ok(()),
            Some(part) if visibility == Visibility::OnTheWay || *real == part.here => {
                let leads = part.secrets.leads_here(real, stat)?;
                if leads { Ok(()) } else { Err(Errno::ACCESS) }
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the guest may read the bytes of `file`, or its names if it is a directory.
    /// `stat` has the file's attributes. Only the view decides. The file's permissions are not
    /// checked.
    ///
    /// # Errors
    /// Fails if the file's path on the host cannot be read, or if that path leads to another file
    /// now.
    pub(super) fn is_readable(&mut self, file: &impl AsRawFd, stat: &Statx) -> Result<bool, Errno> {
        if self.part.is_none() {
            return Ok(true);
        }
        let real = real_path(file)?;
        let real = real.strip_prefix(b"/").unwrap_or(&real);
        match (self.visibility(real), &mut self.part) {
            (Visibility::WithoutSecrets, Some(part)) => part.secrets.lets_read(real, stat),
            (visibility, _) => Ok(visibility != Visibility::Hidden),
        }
    }

    /// Returns the host path of the file that the guest sees at `path`, which has no slash at its
    /// beginning. Symbolic links are followed. Returns `None` if the guest sees no file there, or
    /// if it is a regular file that the guest may not read.
    pub(crate) fn real_path_of(&mut self, path: &[u8]) -> Option<PathBuf> {
        let (file, stat) = self.look(path, true).ok()?;
        if kind_of(&stat) == FileType::RegularFile && !self.is_readable(&file, &stat).ok()? {
            return None;
        }
        let real = real_path(&file).ok()?;
        Some(PathBuf::from(OsString::from_vec(real)))
    }

    /// Returns the target of the symbolic link that the guest sees at `path`, which has no slash at
    /// its beginning. Returns `None` if there is no such link, or if it cannot be read.
    pub(crate) fn link_at(&mut self, path: &[u8]) -> Option<Vec<u8>> {
        let (file, stat) = self.look(path, false).ok()?;
        let is_link = kind_of(&stat) == FileType::Symlink;
        let read = || rustix::fs::readlinkat(&file, c"", Vec::new()).ok();
        is_link.then(read)?.map(CString::into_bytes)
    }

    /// Returns the guest's path, with a slash at its beginning, of the directory `folder` of the
    /// host. Compares paths only, and does not check that the directory exists. Returns `None` if
    /// the view does not show that path.
    pub(crate) fn path_of(&self, folder: &Path) -> Option<Vec<u8>> {
        let path = folder
            .as_os_str()
            .as_bytes()
            .strip_prefix(self.at.as_slice())?;
        let inside = path
            .strip_prefix(b"/")
            .or_else(|| path.is_empty().then_some(path))?;
        (self.visibility(inside) != Visibility::Hidden).then(|| [b"/", inside].concat())
    }
}

/// A directory of a view that was opened to list its names.
#[derive(Debug)]
pub(super) struct Folder {
    /// Opened without rights to read it.
    pub(super) file: OwnedFd,
    /// Its path on the host without the slash at the beginning. Empty if the view has no
    /// restrictions.
    real: Vec<u8>,
    /// Whether the guest may see its entries.
    shows_entries: bool,
    device: (u32, u32),
}

/// Refuses a file that is not shown. On the way to the working directory, everything but
/// directories is refused.
fn refuse_unseen(visibility: Visibility, stat: &Statx) -> Result<(), Errno> {
    match visibility {
        Visibility::Whole | Visibility::WithoutSecrets => Ok(()),
        Visibility::OnTheWay if kind_of(stat) == FileType::Directory => Ok(()),
        Visibility::OnTheWay | Visibility::Hidden => Err(Errno::NOENT),
    }
}

/// Returns the numbers of the device that holds a file.
fn device(stat: &Statx) -> (u32, u32) {
    (stat.stx_dev_major, stat.stx_dev_minor)
}

/// Returns the path of an open file on the host.
fn real_path(file: &impl AsRawFd) -> Result<Vec<u8>, Errno> {
    let text = rustix::fs::readlinkat(CWD, own_path(file), Vec::new())?;
    Ok(OsString::from_vec(text.into_bytes()).into_vec())
}
