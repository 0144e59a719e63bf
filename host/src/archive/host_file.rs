//! Files of the host that are packed. Their bytes come from a descriptor that was opened once, or
//! from a file below a folder that was opened once.

use crate::system::{MagicLinks, ResolveError, open_named_with, reopen_regular};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A regular file of the host that is to be packed. It is open, or is opened below an open folder
/// when its bytes are needed.
#[derive(Clone, Debug)]
pub(crate) struct HostFile {
    /// The path of the file, for messages and to tell it from other files.
    pub(crate) path: PathBuf,
    location: Location,
}

#[derive(Clone, Debug)]
enum Location {
    /// The file is open.
    Open(Arc<File>),
    /// The file is opened when its bytes are needed: this path below an open folder, without
    /// following links.
    Below(Arc<OwnedFd>, PathBuf),
}

impl HostFile {
    /// Opens the regular file at `path` for reading, without waiting for another process. Follows
    /// links, except those of `/proc` that only the kernel can resolve.
    ///
    /// # Errors
    /// The errors of openat2(2), `ELOOP` for such a link of `/proc`; `EISDIR` for a folder; `ENXIO`
    /// for a pipe, a socket or a device.
    pub(crate) fn open(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_MAGICLINKS;
        let named = rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve)?;
        Self::of(&named, path)
    }

    /// Opens a file that the user named, as [`Self::open`] does. Does not follow a link of another
    /// user in a folder that others may write to.
    ///
    /// # Errors
    /// As [`Self::open`]; [`ResolveError::Link`] for such a link of another user.
    pub(crate) fn open_named(path: &Path) -> Result<Self, ResolveError> {
        let named = open_named_with(path, OFlags::PATH, MagicLinks::Refused)?;
        Ok(Self::of(&named, path)?)
    }

    /// Opens for reading the regular file that the descriptor `named` refers to. `named` was opened
    /// with `O_PATH`. `path` is its path on the host, for messages.
    ///
    /// # Errors
    /// `EISDIR` for a folder, `ELOOP` for a link, `ENXIO` for a pipe, a socket or a device; other
    /// errors of open(2).
    pub(crate) fn of(named: &OwnedFd, path: &Path) -> Result<Self, Errno> {
        Ok(Self {
            path: path.to_owned(),
            location: Location::Open(Arc::new(reopen_regular(named)?)),
        })
    }

    /// Returns the file at `inside`, a path below the open folder `folder`. Does not open the file
    /// yet, so it may be missing. `path` is its path on the host, for messages.
    pub(crate) fn below(folder: &Arc<OwnedFd>, inside: PathBuf, path: PathBuf) -> Self {
        Self {
            path,
            location: Location::Below(Arc::clone(folder), inside),
        }
    }

    /// Returns the open file. Opens a file of [`Self::below`] again with each call, and follows no
    /// link.
    ///
    /// # Errors
    /// None for a file that is open already. Otherwise the errors of openat2(2), `ELOOP` if the
    /// path below the folder now contains a link, `EISDIR` for a folder, and `ENXIO` for a pipe, a
    /// socket or a device.
    pub(crate) fn file(&self) -> Result<Arc<File>, Errno> {
        match &self.location {
            Location::Open(file) => Ok(Arc::clone(file)),
            Location::Below(folder, inside) => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
                let named = rustix::fs::openat2(&**folder, inside, flags, Mode::empty(), resolve)?;
                Ok(Arc::new(reopen_regular(&named)?))
            }
        }
    }

    /// Reads and returns all bytes of the file, at most `most`.
    ///
    /// # Errors
    /// As [`Self::file`]; `EFBIG` if the file has more than `most` bytes; an error if it cannot be
    /// read or shrinks during the read.
    pub(crate) fn bytes(&self, most: u64) -> io::Result<Vec<u8>> {
        use std::os::unix::fs::FileExt;
        let file = self.file()?;
        let len = file.metadata()?.len();
        if len > most {
            return Err(Errno::FBIG.into());
        }
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| Errno::FBIG)?];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::FileType;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_regular_files_are_opened_and_none_is_waited_for() {
        let folder = std::env::temp_dir().join(format!("ebb-host-file-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let pipe = folder.join("pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        let error = |path: &Path| HostFile::open(path).unwrap_err();
        assert_eq!(error(&pipe), Errno::NXIO);
        assert_eq!(error(&folder), Errno::ISDIR);
        assert_eq!(error(Path::new("/dev/null")), Errno::NXIO);
        assert_eq!(error(Path::new("/proc/self/exe")), Errno::LOOP);
        assert_eq!(error(Path::new("/proc/self/cwd/Cargo.toml")), Errno::LOOP);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_stands_below_a_folder_is_not_reached_through_links() {
        let folder = std::env::temp_dir().join(format!("ebb-below-{}", std::process::id()));
        fs::create_dir_all(folder.join("in")).unwrap();
        fs::write(folder.join("secret"), "secret").unwrap();
        fs::write(folder.join("in/file"), "file").unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let top = rustix::fs::open(folder.join("in"), flags, Mode::empty()).unwrap();
        let file = HostFile::below(&Arc::new(top), "file".into(), folder.join("in/file"));
        assert_eq!(file.bytes(9).unwrap(), b"file");
        assert!(file.bytes(3).is_err());
        // The tree is changed between the walk and the reading.
        fs::remove_file(folder.join("in/file")).unwrap();
        symlink("../secret", folder.join("in/file")).unwrap();
        assert_eq!(file.file().unwrap_err(), Errno::LOOP);
        fs::remove_dir_all(&folder).unwrap();
    }
}
