//! What of the host's files a guest may see.
//!
//! The guest's kernel is what the program made of it, so what must not be read is refused here, by what a path really leads to.

use crate::system::opened::{facts, kind_of, own_path};
use crate::system::refuse_kernels_own;
use crate::system::secrets::{Homes, Secrets, is_of_system, lies_in};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Statx};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use std::ffi::{CString, OsString};
use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What `--root` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RootChoice {
    /// `none`: nothing.
    Nothing,
    /// `host`: the host's system folders and the working folder.
    Host,
    /// All of a folder, or of an image.
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

/// What a path is to the guest.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Shown {
    /// As ebb sees it.
    Wholly,
    /// As ebb sees it, but for secrets.
    WithoutSecrets,
    /// A folder on the way to something.
    OnTheWay,
    No,
}

/// What is to be seen of the host.
#[derive(Debug)]
pub(crate) struct View {
    root: OwnedFd,
    /// The path of `root` on the host, without a slash at its end.
    at: Vec<u8>,
    /// What is shown, if not all; without slashes at the ends.
    part: Option<Box<Part>>,
    /// To whom in the guest belongs what is of whoever runs ebb: user and group.
    owner: [u32; 2],
}

/// The system folders, and this.
#[derive(Debug)]
struct Part {
    /// The working folder.
    here: Vec<u8>,
    secrets: Secrets,
}

impl View {
    /// All of the folder at a path.
    ///
    /// # Errors
    /// What the host says.
    #[cfg(test)]
    pub(crate) fn folder(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self::of_folder(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
    }

    /// All of an open folder.
    ///
    /// # Errors
    /// What the host says.
    pub(crate) fn of_folder(root: OwnedFd) -> Result<Self, Errno> {
        let at = real_path(&root)?;
        Ok(Self {
            root,
            at: at.strip_suffix(b"/").unwrap_or(&at).to_vec(),
            part: None,
            owner: [0; 2],
        })
    }

    /// The host's system folders and the working folder of this process, without secrets.
    ///
    /// # Errors
    /// What the host says.
    pub(crate) fn host() -> Result<Self, Errno> {
        // Its path may lead to another folder by now.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(CWD, ".", flags, Mode::empty())?;
        // One that is gone, or lies outside of the root, shows nothing more.
        if facts(&folder, b"")?.stx_nlink == 0 || !real_path(&folder)?.starts_with(b"/") {
            return Self::host_with(Path::new("/"), Homes::of_host());
        }
        Self::host_from(folder, Homes::of_host())
    }

    /// The same with this working folder, where these folders are homes.
    ///
    /// # Errors
    /// What the host says.
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

    /// The same view once more.
    ///
    /// # Errors
    /// If the host has no descriptor left.
    pub(crate) fn again(&self) -> Result<Self, Errno> {
        let part = self.part.as_ref().map(|part| Part {
            here: part.here.clone(),
            secrets: part.secrets.again(),
        });
        Ok(Self {
            root: rustix::io::fcntl_dupfd_cloexec(&self.root, 3)?,
            at: self.at.clone(),
            part: part.map(Box::new),
            owner: self.owner,
        })
    }

    /// Gives what belongs to whoever runs ebb to a user and a group of the guest. Root's stays root's.
    pub(crate) fn give(&mut self, owner: [u32; 2]) {
        if !geteuid().is_root() {
            self.owner = owner;
        }
    }

    /// To whom in the guest a file belongs.
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

    /// The folder that is shown, if all of it is.
    pub(crate) fn whole_folder(&self) -> Option<&OwnedFd> {
        self.is_whole().then_some(&self.root)
    }

    /// Whether all of a folder is shown.
    pub(crate) fn is_whole(&self) -> bool {
        self.part.is_none()
    }

    fn shown(&self, path: &[u8]) -> Shown {
        let Some(part) = &self.part else {
            return Shown::Wholly;
        };
        // The root itself as working folder is no reason to show everything.
        let is_below = !part.here.is_empty() && lies_in(path, &part.here);
        if is_below || is_of_system(path) {
            return Shown::WithoutSecrets;
        }
        if lies_in(&part.here, path) {
            Shown::OnTheWay
        } else {
            Shown::No
        }
    }

    /// What stands at a path of the guest's, opened for looking at it: links are followed within the tree, but the last one only
    /// if `follow`.
    ///
    /// # Errors
    /// `ENOENT` for what is not shown, `EACCES` for what is the kernel's own, and what the host says.
    pub(super) fn look(&mut self, path: &[u8], follow: bool) -> Result<(OwnedFd, Statx), Errno> {
        // The guest's kernel asks for nothing else, and the way there would tell of what is not shown.
        let is_plain = |part: &[u8]| !matches!(part, b"" | b"." | b"..");
        let plain = path.is_empty() || path.split(|byte| *byte == b'/').all(is_plain);
        if !plain || self.shown(path) == Shown::No {
            return Err(Errno::NOENT);
        }
        let mut flags = OFlags::PATH | OFlags::CLOEXEC;
        if !follow {
            flags |= OFlags::NOFOLLOW;
        }
        // As in the guest, a link's `..` above the root is the root.
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

    /// A folder whose names are asked for.
    ///
    /// # Errors
    /// As [`Self::look`]; `ENOTDIR`, and `EACCES` if its names are not shown.
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
            let shown = self.shown(&real);
            if let (Shown::WithoutSecrets, Some(part)) = (shown, &mut self.part) {
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

    /// What stands in a folder under a name, and where it leads if it is a link.
    ///
    /// # Errors
    /// As [`Self::look`].
    pub(super) fn look_in(
        &mut self,
        folder: &Folder,
        name: &[u8],
    ) -> Result<(Statx, Vec<u8>), Errno> {
        let stat = facts(&folder.file, name)?;
        if device(&stat) != folder.device {
            // Something is mounted there.
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
            let shown = self.shown(&real);
            if shown == Shown::WithoutSecrets && !folder.shows_entries {
                return Err(Errno::ACCESS);
            }
            refuse_unseen(shown, &stat)?;
            self.check_way(&real, shown, &stat)?;
        }
        let target = if kind_of(&stat) == FileType::Symlink {
            rustix::fs::readlinkat(&folder.file, name, Vec::new())?.into_bytes()
        } else {
            Vec::new()
        };
        Ok((stat, target))
    }

    /// Refuses what is not shown, by its path on the host.
    fn check(&mut self, real: &[u8], stat: &Statx) -> Result<(), Errno> {
        let shown = self.shown(real);
        if let (Shown::WithoutSecrets, Some(part)) = (shown, &mut self.part)
            && !part.secrets.shows(real, stat)?
        {
            return Err(Errno::ACCESS);
        }
        refuse_unseen(shown, stat)?;
        self.check_way(real, shown, stat)
    }

    /// Refuses a folder that has the path of one on the way to the working folder, or of that itself, and is another.
    fn check_way(&self, real: &[u8], shown: Shown, stat: &Statx) -> Result<(), Errno> {
        match &self.part {
            Some(part) if shown == Shown::OnTheWay || *real == part.here => {
                let leads = part.secrets.leads_here(real, stat)?;
                if leads { Ok(()) } else { Err(Errno::ACCESS) }
            }
            _ => Ok(()),
        }
    }

    /// Whether the bytes of a file, or the names in a folder, may be read.
    ///
    /// # Errors
    /// What the host says.
    pub(super) fn is_readable(&mut self, file: &impl AsRawFd, stat: &Statx) -> Result<bool, Errno> {
        if self.part.is_none() {
            return Ok(true);
        }
        let real = real_path(file)?;
        let real = real.strip_prefix(b"/").unwrap_or(&real);
        match (self.shown(real), &mut self.part) {
            (Shown::WithoutSecrets, Some(part)) => part.secrets.lets_read(real, stat),
            (shown, _) => Ok(shown != Shown::No),
        }
    }

    /// What the guest sees at a path, by its path on the host.
    pub(crate) fn real_path_of(&mut self, path: &[u8]) -> Option<PathBuf> {
        let (file, stat) = self.look(path, true).ok()?;
        if kind_of(&stat) == FileType::RegularFile && !self.is_readable(&file, &stat).ok()? {
            return None;
        }
        let real = real_path(&file).ok()?;
        Some(PathBuf::from(OsString::from_vec(real)))
    }

    /// Where the link leads that the guest sees at a path.
    pub(crate) fn link_at(&mut self, path: &[u8]) -> Option<Vec<u8>> {
        let (file, stat) = self.look(path, false).ok()?;
        let is_link = kind_of(&stat) == FileType::Symlink;
        let read = || rustix::fs::readlinkat(&file, c"", Vec::new()).ok();
        is_link.then(read)?.map(CString::into_bytes)
    }

    /// Where the guest sees a folder of the host's, if it does.
    pub(crate) fn path_of(&self, folder: &Path) -> Option<Vec<u8>> {
        let path = folder
            .as_os_str()
            .as_bytes()
            .strip_prefix(self.at.as_slice())?;
        let inside = path
            .strip_prefix(b"/")
            .or_else(|| path.is_empty().then_some(path))?;
        (self.shown(inside) != Shown::No).then(|| [b"/", inside].concat())
    }
}

/// A folder whose names are told.
#[derive(Debug)]
pub(super) struct Folder {
    /// Opened for looking at it.
    pub(super) file: OwnedFd,
    /// Its path on the host, without the slash before it, where only a part of the host is shown.
    real: Vec<u8>,
    /// Whether its entries may be looked at.
    shows_entries: bool,
    device: (u32, u32),
}

/// Refuses what is not shown: on the way to something, all but folders.
fn refuse_unseen(shown: Shown, stat: &Statx) -> Result<(), Errno> {
    match shown {
        Shown::Wholly | Shown::WithoutSecrets => Ok(()),
        Shown::OnTheWay if kind_of(stat) == FileType::Directory => Ok(()),
        Shown::OnTheWay | Shown::No => Err(Errno::NOENT),
    }
}

/// What a file's file system is on.
fn device(stat: &Statx) -> (u32, u32) {
    (stat.stx_dev_major, stat.stx_dev_minor)
}

/// The path of an open file on the host.
fn real_path(file: &impl AsRawFd) -> Result<Vec<u8>, Errno> {
    let text = rustix::fs::readlinkat(CWD, own_path(file), Vec::new())?;
    Ok(OsString::from_vec(text.into_bytes()).into_vec())
}
